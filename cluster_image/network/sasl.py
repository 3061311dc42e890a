"""How a node proves to another that it is one of the same cluster: SASL with SCRAM-SHA-256 (RFC 5802, RFC 7677), as
between Apache Kafka's brokers and controllers. The requests are Kafka's SaslHandshake and SaslAuthenticate.

The password is made when a cluster is configured, and is in its nodes' property files alone. Clients of a node have
none, and may do what clients may (authorization.py). A client of other clusters may have a Login.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Final

from kio.schema.errors import ErrorCode
from kio.schema.sasl_authenticate.v2.request import SaslAuthenticateRequest
from kio.schema.sasl_handshake.v1.request import SaslHandshakeRequest
from scramp import ScramClient, ScramException, ScramMechanism

from ..wire.messages import make, milliseconds, response_module
from . import Connection, Entity, Refused

MECHANISM: Final = "SCRAM-SHA-256"
HANDSHAKE: Final = 17
AUTHENTICATE: Final = 36
#: As Kafka's properties name them: `…ScramLoginModule required username="node" password="…";`.
_JAAS: Final = re.compile(r'^\S+ScramLoginModule\s+required\s+username="([^"]+)"\s+password="([^"]+)"\s*;$')


class Credentials:
    """What all nodes of a cluster know, and nobody else does."""

    def __init__(self, username: str, password: str) -> None:
        self.username: Final = username
        self._password = password
        self._mechanism = ScramMechanism(MECHANISM)
        self._stored = self._mechanism.make_auth_info(password)

    @classmethod
    def of_jaas(cls, text: str) -> Credentials:
        """From sasl.jaas.config. Raises ValueError."""
        found = _JAAS.match(text)
        if found is None:
            raise ValueError("no ScramLoginModule with a username and a password")
        return cls(*found.groups())

    def client(self) -> ScramClient:
        return ScramClient([MECHANISM], self.username, self._password)

    def server(self) -> Any:
        return self._mechanism.make_server(lambda username: self._stored if username == self.username else None)


@dataclass(frozen=True)
class Login:
    """What a client proves by who it is. mechanism: PLAIN (RFC 4616), SCRAM-SHA-256 or SCRAM-SHA-512, as Kafka calls
    them."""

    mechanism: str
    username: str
    password: str = field(repr=False)

    async def prove(self, connection: Connection, timeout: float) -> None:
        """As who has opened the connection. Raises ConnectionError, TimeoutError."""
        await _begin(connection, self.mechanism, timeout)
        if self.mechanism == "PLAIN":
            await _say(connection, f"\0{self.username}\0{self.password}", timeout)
            return
        client = ScramClient([self.mechanism], self.username, self.password)
        try:
            await _converse(connection, client, timeout)
        except (ScramException, UnicodeDecodeError) as error:
            raise Refused(f"the other side does not prove to know {self.username}: {error}") from error


async def prove(connection: Connection, credentials: Credentials, timeout: float) -> None:
    """As who has opened the connection. Raises ConnectionError, TimeoutError."""
    await _begin(connection, MECHANISM, timeout)
    try:
        await _converse(connection, credentials.client(), timeout)
    except (ScramException, UnicodeDecodeError) as error:
        raise Refused(f"the other side does not prove to be a node of this cluster: {error}") from error


async def _begin(connection: Connection, mechanism: str, timeout: float) -> None:
    answer = await connection.request(SaslHandshakeRequest(mechanism=mechanism), timeout=timeout)
    if answer.error_code is not ErrorCode.none:
        raise Refused(f"no {mechanism} there: {answer.error_code.name}, but {', '.join(answer.mechanisms)}")


async def _converse(connection: Connection, client: ScramClient, timeout: float) -> None:
    """Raises ScramException, UnicodeDecodeError too."""
    client.set_server_first(await _say(connection, client.get_client_first(), timeout))
    client.set_server_final(await _say(connection, client.get_client_final(), timeout))


async def _say(connection: Connection, message: str, timeout: float) -> str:
    answer = await connection.request(SaslAuthenticateRequest(auth_bytes=message.encode()), timeout=timeout)
    if answer.error_code is not ErrorCode.none:
        raise Refused(f"the proof was refused: {answer.error_message or answer.error_code.name}")
    return bytes(answer.auth_bytes).decode()


class Exchange:
    """The other side of one connection. proven: it is a node's."""

    def __init__(self, credentials: Credentials | None) -> None:
        self._credentials = credentials
        self._server: Any = None
        self._heard_first = False
        #: Without credentials nobody has to prove anything, as in a cluster that is all in one process.
        self.proven = credentials is None
        #: Has it said anything that proves it?
        self.has_authenticated = False

    def answer(self, request: Any) -> Entity:
        """To SaslHandshake and SaslAuthenticate."""
        if request.__api_key__ == HANDSHAKE:
            return self._begin(request)
        error, said, message = ErrorCode.none, b"", None
        try:
            said = self._hear(bytes(request.auth_bytes).decode()).encode()
        except (ScramException, ValueError) as failure:
            error, message = ErrorCode.sasl_authentication_failed, "authentication failed"
            self._server = None
            del failure  # which of all it was is nobody's business
        module = response_module(request)
        return make(
            module.SaslAuthenticateResponse,
            error_code=error, error_message=message, auth_bytes=said, session_lifetime=milliseconds(0),
        )  # fmt: skip

    def _begin(self, request: Any) -> Entity:
        offered = (MECHANISM,) if self._credentials is not None else ()
        error = ErrorCode.none
        if request.mechanism not in offered or self._credentials is None:
            error = ErrorCode.unsupported_sasl_mechanism
        elif self._server is not None or self.proven:
            error = ErrorCode.illegal_sasl_state
        else:
            self._server, self._heard_first = self._credentials.server(), False
        return make(response_module(request).SaslHandshakeResponse, error_code=error, mechanisms=offered)

    def _hear(self, message: str) -> str:
        """Raises ScramException, ValueError."""
        if self._server is None or self.proven:
            raise ValueError("nothing has begun, or all is said")
        if not self._heard_first:
            self._heard_first = True
            self._server.set_client_first(message)
            return str(self._server.get_server_first())
        self._server.set_client_final(message)
        self.proven = self.has_authenticated = True
        return str(self._server.get_server_final())
