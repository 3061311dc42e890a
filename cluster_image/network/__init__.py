"""The interface by which nodes exchange requests and responses, as dataclasses of kio (a Python library of Kafka's
messages). Real TCP and the simulation each implement it.

Everything above this module speaks in kio's frozen dataclasses; only a `Network` knows whether they cross a
socket (cluster_image/wire, tcp.py) or a simulated link. Delivery order within a connection is kept: a connection's
requests are handled and answered in the order they were sent.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol, TypeVar

T = TypeVar("T")
Entity = Any  # a kio request or response: a frozen dataclass with __api_key__ and __version__


@dataclass(frozen=True, slots=True)
class Foreign:
    """A message of another protocol than Kafka's: only a simulated network has such, and passes it on as it is."""

    content: Any
    size: int  # in bytes, on the wire


class Refused(ConnectionError):
    """One side does not take the other for who it should be. A sentence."""


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class Room(Protocol):
    """Of the memory for answers that are made, or not read yet: for one peer's."""

    async def wait(self) -> None:
        """Until there is room for another large answer."""

    def hold(self, size: int) -> None:
        """What is being made has so many bytes by now."""


class _Unlimited(Room):
    async def wait(self) -> None:
        pass

    def hold(self, size: int) -> None:
        pass


UNLIMITED: Final[Room] = _Unlimited()


class Aside(Protocol):
    """What takes long, or much memory, without holding up others."""

    async def __call__(self, work: Callable[[], T], /) -> T:
        """What `work` returns."""

    def large(self) -> AbstractAsyncContextManager[None]:
        """To be in while there is what a few bytes of a request have expanded to: there is room for few of these."""


def _nothing() -> None:
    """Nobody needs to know."""


class _Here(Aside):
    """Beside nothing else."""

    async def __call__(self, work: Callable[[], T], /) -> T:
        return work()

    def large(self) -> AbstractAsyncContextManager[None]:
        return nullcontext()


here: Final = _Here()


@dataclass(frozen=True, slots=True)
class Peer:
    """Who sent a request. is_node: it has proved to be a node of this cluster, if that has to be proved. room: for
    large answers. aside: for what takes long while others are served. only_waits: to be called once a request has no
    effect any more but its answer, which must wait for something to happen: it is cancelled if the peer leaves."""

    client_id: str | None
    host: str
    is_node: bool = True
    room: Room = field(default=UNLIMITED, compare=False)
    aside: Aside = field(default=here, compare=False)
    only_waits: Callable[[], None] = field(default=_nothing, compare=False)


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
