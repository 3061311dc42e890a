"""ZooKeeper, as this generation asks of it: Apache ZooKeeper's data model, with kazoo's names (a Python client).

What every implementation promises, and tests/cluster_image/v2/zookeeper/test_contract.py asks of each:

* a call is carried out once, or it raises; after ConnectionLoss nobody knows whether it was;
* calls of one client take effect in the order in which they were made;
* writes of all clients have one order; a read sees all that this client has written or seen before, and perhaps less
  than others have written since;
* a watch fires once, and before this client sees anything that came after what it fires for;
* an ephemeral node is there as long as the session that made it, and goes with that.

A client has one session after another. While it is SUSPENDED its session may yet be alive, and calls fail; all watches
have ended then, with an event LOST. A session that has expired is followed by a new one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import NamedTuple, Protocol


class SessionState(Enum):
    CONNECTED = "connected"
    SUSPENDED = "suspended"
    EXPIRED = "expired"


class EventType(Enum):
    CREATED = "created"
    CHANGED = "changed"
    DELETED = "deleted"
    CHILD = "child"
    LOST = "lost"  # the watch has ended: the connection did. What has happened since, nobody tells


class Event(NamedTuple):
    type: EventType
    path: str


class Stat(NamedTuple):
    """czxid, mzxid, pzxid: of the transactions that created the node, changed its data, changed its children.
    version, cversion: how often its data, and its children, have changed. owner: the session of an ephemeral node."""

    czxid: int
    mzxid: int
    pzxid: int
    version: int
    cversion: int
    owner: int
    children: int


Watcher = Callable[[Event], None]


# -- what may be asked for, alone or several at a time -------------------------------------------------------------


class Create(NamedTuple):
    path: str
    data: bytes = b""
    ephemeral: bool = False
    sequence: bool = False  # ten digits after the path, that grow with every node created beside it


class SetData(NamedTuple):
    path: str
    data: bytes
    version: int = -1  # of the data, as it must be; -1: whatever it is


class Delete(NamedTuple):
    path: str
    version: int = -1


class Check(NamedTuple):
    path: str
    version: int


Operation = Create | SetData | Delete | Check


class ZooKeeperError(Exception):
    """The message is the path, or which server has said what."""


class NoNode(ZooKeeperError):
    """There is none, or, of one to be created, no parent."""


class NodeExists(ZooKeeperError):
    pass


class BadVersion(ZooKeeperError):
    pass


class NotEmpty(ZooKeeperError):
    """A node with children is not deleted."""


class NoChildrenForEphemerals(ZooKeeperError):
    pass


class NotTried(ZooKeeperError):
    """Of operations that were to be done together: another of them failed, and so none was done."""


class ConnectionLoss(ZooKeeperError):
    """It may have been carried out, or not."""


class SessionExpired(ZooKeeperError):
    """It was not carried out."""


class ZooKeeper(Protocol):
    """One client. Not before start(), and not after close()."""

    @property
    def state(self) -> SessionState: ...

    @property
    def session(self) -> int:
        """The id of the session that is or was the last; 0: there was none yet."""

    def add_listener(self, listener: Callable[[SessionState], None]) -> None:
        """Called with each new state."""

    async def start(self) -> None:
        """Returns once there is a session, however long that takes."""

    async def close(self) -> None:
        """Ends the session, and with it its ephemeral nodes, if ZooKeeper can be reached. Watches are told nothing."""

    async def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequence: bool = False) -> str:
        """The path, with its number if it has one. Raises NodeExists, NoNode, NoChildrenForEphemerals; and, as all
        that follow do, ConnectionLoss, SessionExpired."""

    async def get(self, path: str, watch: Watcher | None = None) -> tuple[bytes, Stat]:
        """watch: is told of CHANGED or DELETED. Raises NoNode: then nothing is watched."""

    async def exists(self, path: str, watch: Watcher | None = None) -> Stat | None:
        """watch: is told of CREATED, CHANGED or DELETED."""

    async def children(self, path: str, watch: Watcher | None = None) -> Sequence[str]:
        """Their names, sorted. watch: is told of CHILD or DELETED. Raises NoNode."""

    async def set(self, path: str, data: bytes, version: int = -1) -> Stat:
        """Raises NoNode, BadVersion."""

    async def delete(self, path: str, version: int = -1) -> None:
        """Raises NoNode, BadVersion, NotEmpty."""

    async def multi(self, operations: Sequence[Operation]) -> Sequence[str | Stat | None]:
        """All of them or none: what each returns (a path, a Stat, nothing). Raises what the first that fails raises."""
