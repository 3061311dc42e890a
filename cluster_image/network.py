"""Seam: requests and responses between nodes, as kio entities.

Everything above this module speaks in kio's frozen dataclasses; only a `Network` knows whether they cross a
socket (wire.py, tcp.py) or a simulated link. Delivery order within a connection is kept: a connection's
requests are handled and answered in the order they were sent.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

Entity = Any  # a kio request or response: a frozen dataclass with __api_key__ and __version__


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Peer:
    """Who sent a request."""

    client_id: str | None
    host: str


#: API key: (lowest, highest) version.
Versions = Mapping[int, tuple[int, int]]

#: Answers one request. None: no response is due (Produce with acks=0). Raising closes that connection alone.
Handler = Callable[[Entity, Peer], Awaitable[Entity | None]]


class Connection(Protocol):
    async def request(self, entity: Entity, *, timeout: float) -> Entity:
        """Send and await the response. Raises ConnectionError if the connection is or gets lost and
        TimeoutError after `timeout` seconds (the connection is then closed: a late answer must not be taken
        for another's)."""

    def close(self) -> None: ...

    @property
    def closed(self) -> bool: ...


class Listening(Protocol):
    """One listener."""

    async def close(self) -> None:
        """Stop listening, close every connection that came by this listener, cancel the handlers that still run."""


class Network(Protocol):
    async def connect(self, address: Address, *, client_id: str, timeout: float) -> Connection:
        """Raises ConnectionError or TimeoutError."""

    async def listen(self, address: Address, handler: Handler, served: Versions | None = None) -> Listening:
        """Serve until close(), this network's or the listener's own. served: the API versions that this listener
        answers, if not those that the network was made for."""

    async def close(self) -> None: ...
