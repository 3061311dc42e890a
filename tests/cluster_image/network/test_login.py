"""A client proves who it is to clusters of others: PLAIN and SCRAM, as their documents have them."""

from __future__ import annotations

import asyncio
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from kio.schema.sasl_handshake.v1.request import SaslHandshakeRequest
from scramp import ScramClient, ScramMechanism

from cluster_image.network import sasl
from cluster_image.network.sasl import Login

#: RFC 7677, section 3, and RFC 5802, section 5: what each side says.
NONCE = "rOprNGfwEbeRWgbNEkqO"
CLIENT_FIRST = "n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
SERVER_FIRST = "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
CLIENT_FINAL = (
    "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
)
SERVER_FINAL = "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


class Broker:
    """A connection to one that knows a mechanism, and says these answers, one after the other; error: to the last."""

    def __init__(self, mechanism: str, answers: list[Any], error: ErrorCode = ErrorCode.none) -> None:
        self.mechanism = mechanism
        self.answers = answers
        self.error = error
        self.heard: list[str] = []

    async def request(self, request: Any, *, timeout: float) -> Any:
        if isinstance(request, SaslHandshakeRequest):
            error = ErrorCode.none if request.mechanism == self.mechanism else ErrorCode.unsupported_sasl_mechanism
            return SimpleNamespace(error_code=error, mechanisms=(self.mechanism,))
        self.heard.append(bytes(request.auth_bytes).decode())
        answer = self.answers.pop(0)
        said = answer(self.heard[-1]) if callable(answer) else answer
        error = ErrorCode.none if self.answers else self.error
        return SimpleNamespace(error_code=error, error_message=None, auth_bytes=said.encode())


def prove(login: Login, broker: Broker) -> None:
    asyncio.run(login.prove(broker, 1.0))  # type: ignore[arg-type]


def test_scram_as_the_rfc_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sasl, "ScramClient", partial(ScramClient, c_nonce=NONCE))
    broker = Broker("SCRAM-SHA-256", [SERVER_FIRST, SERVER_FINAL])
    prove(Login("SCRAM-SHA-256", "user", "pencil"), broker)
    assert broker.heard == [CLIENT_FIRST, CLIENT_FINAL]


def test_a_broker_that_does_not_know_the_password_is_none_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sasl, "ScramClient", partial(ScramClient, c_nonce=NONCE))
    for wrong in (SERVER_FINAL.replace("6rri", "7rri"), "e=other-error"):
        with pytest.raises(ConnectionError, match="does not prove to know user"):
            prove(Login("SCRAM-SHA-256", "user", "pencil"), Broker("SCRAM-SHA-256", [SERVER_FIRST, wrong]))


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_scram_of_either_hash_with_a_broker_that_knows_the_password(mechanism: str) -> None:
    of = ScramMechanism(mechanism)
    stored = of.make_auth_info("secret")
    server = of.make_server(lambda user: stored if user == "alice" else None)

    def first(said: str) -> str:
        server.set_client_first(said)
        return str(server.get_server_first())

    def final(said: str) -> str:
        server.set_client_final(said)
        return str(server.get_server_final())

    prove(Login(mechanism, "alice", "secret"), Broker(mechanism, [first, final]))


def test_plain_says_both_in_one_message() -> None:
    broker = Broker("PLAIN", [""])
    prove(Login("PLAIN", "tim", "tanstaaftanstaaf"), broker)  # RFC 4616, section 4
    assert broker.heard == ["\0tim\0tanstaaftanstaaf"]


def test_refusals_name_no_password() -> None:
    with pytest.raises(ConnectionError, match="no PLAIN there: unsupported_sasl_mechanism, but SCRAM-SHA-512"):
        prove(Login("PLAIN", "tim", "secret"), Broker("SCRAM-SHA-512", []))
    with pytest.raises(ConnectionError, match=r"^the proof was refused: sasl_authentication_failed$"):
        prove(Login("PLAIN", "tim", "secret"), Broker("PLAIN", [""], ErrorCode.sasl_authentication_failed))
    assert "secret" not in repr(Login("PLAIN", "tim", "secret"))
