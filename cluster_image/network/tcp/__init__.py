"""The real network: Kafka frames over TCP, behind the `Network` seam.

As in Kafka, the requests of one connection are handled one at a time and answered in the order they came, so
a long poll holds up what follows it on its own connection and nothing else. A peer that breaks the protocol
loses its connection; no other connection notices. (Both asyncio and uvloop set TCP_NODELAY themselves.)
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from functools import partial
from typing import Final

from cluster_image.network import Address, Connection, Handler, Listening, Refused, Versions
from cluster_image.network.sasl import Credentials, Login, prove

from .client import ClientConnection
from .limits import Limits
from .server import Listener
from .transport import MAX_FRAME_BYTES

log = logging.getLogger(__name__)

#: Of all peers of a listener together, by default: requests begun, waiting or being answered; answers not yet read.
REQUEST_MEMORY_BYTES: Final = 32 << 20
ANSWER_MEMORY_BYTES: Final = 32 << 20
#: Connections of all clients of a listener, and from one address.
MAX_CONNECTIONS: Final = 1000
MAX_CONNECTIONS_PER_IP: Final = 256
#: What a request of a client may name, by default: topics, partitions, replicas and so on.
MAX_CLIENT_ELEMENTS: Final = 8000


class TcpNetwork:
    """Implements cluster_image.network.Network.

    served: the API versions that listeners answer which are not told otherwise; ApiVersions requests are answered here
    and handlers never see them. credentials: what this process' connections prove to be of the cluster with, and its
    listeners ask for (sasl.py). tls, login: how a client of other clusters connects, and proves who it is. The limits
    are of each listener: max_request_bytes is socket.request.max.bytes; request_memory_bytes queued.max.request.bytes,
    of which one request may take half; max_client_elements what a request may name of whoever has not proved to be a
    node; max_connections and max_connections_per_ip as in Kafka.
    """

    def __init__(
        self,
        served: Versions | None = None,
        *,
        max_request_bytes: int = MAX_FRAME_BYTES,
        request_memory_bytes: int = REQUEST_MEMORY_BYTES,
        answer_memory_bytes: int = ANSWER_MEMORY_BYTES,
        max_client_elements: int = MAX_CLIENT_ELEMENTS,
        max_connections: int = MAX_CONNECTIONS,
        max_connections_per_ip: int = MAX_CONNECTIONS_PER_IP,
        credentials: Credentials | None = None,
        tls: ssl.SSLContext | None = None,
        login: Login | None = None,
    ) -> None:
        self._credentials = credentials
        self._tls = tls
        self._login = login
        self._served = served or {}
        self._max_request_bytes = min(max_request_bytes, request_memory_bytes // 2)
        self._new_limits = partial(
            Limits,
            request_memory_bytes,
            answer_memory_bytes,
            max_client_elements,
            max_connections,
            max_connections_per_ip,
            log,
        )
        self._listeners: list[Listener] = []
        self._opened: dict[ClientConnection, None] = {}  # a dict, for its order

    async def connect(self, address: Address, *, client_id: str, timeout: float) -> Connection:
        """Raises ConnectionError, or TimeoutError after `timeout` seconds."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(timeout):
                _, connection = await loop.create_connection(
                    lambda: ClientConnection(client_id, on_lost=self._forget_opened), address.host, address.port,
                    ssl=self._tls,
                )  # fmt: skip
                self._opened[connection] = None
                await self._prove(connection, timeout)
        except (TimeoutError, ConnectionError):
            raise
        except ssl.SSLCertVerificationError as error:
            raise Refused(f"{address}: {error.verify_message}") from error
        except OSError as error:  # no route, unknown host, out of descriptors
            raise ConnectionError(f"{address}: {error}") from error
        return connection

    async def _prove(self, connection: ClientConnection, timeout: float) -> None:
        try:
            if self._credentials is not None:
                await prove(connection, self._credentials, timeout)
            if self._login is not None:
                await self._login.prove(connection, timeout)
        except BaseException:
            connection.close()
            raise

    async def listen(self, address: Address, handler: Handler, served: Versions | None = None) -> Listening:
        """Serve until close(). Raises OSError, e.g. when the port is in use."""
        limits = self._new_limits()
        served = self._served if served is None else served
        listener = Listener(handler, served, self._max_request_bytes, limits, self._credentials)
        await listener.open(address)
        self._listeners.append(listener)
        return listener

    async def close(self) -> None:
        """Stop listening, close every connection and cancel the handlers that are still running."""
        for connection in list(self._opened):
            connection.close()
        await asyncio.gather(*(listener.close() for listener in self._listeners))

    def _forget_opened(self, connection: ClientConnection) -> None:
        self._opened.pop(connection, None)
