"""What ZooKeeper's servers agree on: the tree of nodes and the sessions, as transactions change them. No I/O, no clock:
servers that apply the same transactions hold the same.

As Apache ZooKeeper has it (PrepRequestProcessor, DataTree): the number of a sequence counts what was created under the
parent, and the parent's cversion counts what was deleted there as well; what is wrong with a request is looked for in
the same order.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from cluster_image.v2.zookeeper import (
    BadVersion,
    Check,
    Create,
    Delete,
    Event,
    EventType,
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NotEmpty,
    Operation,
    SessionExpired,
    SetData,
    Stat,
    ZooKeeperError,
)

ROOT: Final = "/"
_OPERATIONS: Final[Mapping[str, Any]] = {each.__name__: each for each in (Create, SetData, Delete, Check)}


def parent_of(path: str) -> str:
    return path.rpartition("/")[0] or ROOT


@dataclass(slots=True)
class Node:
    data: bytes
    czxid: int
    mzxid: int
    pzxid: int
    owner: int = 0
    version: int = 0
    created: int = 0  # children, ever
    children: dict[str, None] = field(default_factory=dict)

    @property
    def stat(self) -> Stat:
        cversion = 2 * self.created - len(self.children)
        return Stat(self.czxid, self.mzxid, self.pzxid, self.version, cversion, self.owner, len(self.children))


class Session(NamedTuple):
    """owner: which of the connections that it has had is its present one; what came by another is refused."""

    timeout_ms: int
    owner: int


# -- transactions --------------------------------------------------------------------------------------------------


class Open(NamedTuple):
    """A new session, whose id is the transaction's."""

    timeout_ms: int


class Move(NamedTuple):
    """A session goes on by a new connection, at whichever server."""

    session: int


class Change(NamedTuple):
    session: int
    owner: int
    operations: tuple[Operation, ...]


class End(NamedTuple):
    """A session is closed by its client, or has expired."""

    session: int


Transaction = Open | Move | Change | End
_TRANSACTIONS: Final[Mapping[str, Any]] = {each.__name__: each for each in (Open, Move, Change, End)}


def encode(transaction: Transaction, tag: str = "") -> bytes:
    """tag: by which whoever has asked for it knows it again."""
    content: list[Any] = list(transaction)
    if isinstance(transaction, Change):
        content[2] = [[type(each).__name__, *map(_text, each)] for each in transaction.operations]
    return json.dumps([tag, type(transaction).__name__, *content]).encode()


def decode(record: bytes) -> tuple[str, Transaction]:
    tag, kind, *content = json.loads(record)
    if kind == Change.__name__:
        content[2] = tuple(_operation(*each) for each in content[2])
    return tag, _TRANSACTIONS[kind](*content)


def _text(value: Any) -> Any:
    return value.decode("latin-1") if isinstance(value, bytes) else value


def _operation(kind: str, *content: Any) -> Operation:
    operation: Operation = _OPERATIONS[kind](*content)
    if isinstance(operation, Create | SetData):
        return operation._replace(data=operation.data.encode("latin-1"))  # type: ignore[attr-defined]
    return operation


class Applied(NamedTuple):
    """result: of an Open or Move the session's id and its new owner; of a Change what each operation returns; or why
    nothing was done. events: what watches may fire for, in order."""

    result: Any
    events: tuple[Event, ...] = ()


class Tree:
    """zxid: of the last transaction that was applied."""

    def __init__(self) -> None:
        self.zxid = 0
        self.sessions: dict[int, Session] = {}
        self._nodes: dict[str, Node] = {ROOT: Node(b"", 0, 0, 0)}

    # -- reading ----------------------------------------------------------------------------------------------

    def node(self, path: str) -> Node | None:
        return self._nodes.get(path)

    def get(self, path: str) -> Node:
        """Raises NoNode."""
        node = self._nodes.get(path)
        if node is None:
            raise NoNode(path)
        return node

    def owned_by(self, session: int) -> Sequence[str]:
        """Paths of its ephemeral nodes, in order."""
        return sorted(path for path, node in self._nodes.items() if node.owner == session)

    # -- changing ---------------------------------------------------------------------------------------------

    def apply(self, zxid: int, transaction: Transaction) -> Applied:
        self.zxid = zxid
        match transaction:
            case Open(timeout_ms):
                self.sessions[zxid] = Session(timeout_ms, zxid)
                return Applied((zxid, zxid))
            case Move(session):
                if session not in self.sessions:
                    return Applied(SessionExpired(str(session)))
                self.sessions[session] = self.sessions[session]._replace(owner=zxid)
                return Applied((session, zxid))
            case End(session):
                if self.sessions.pop(session, None) is None:
                    return Applied(SessionExpired(str(session)))
                events = [event for path in self.owned_by(session) for event in self._delete(zxid, path)]
                return Applied(None, tuple(events))
            case Change(session, owner, operations):
                known = self.sessions.get(session)
                if known is None or known.owner != owner:
                    return Applied(SessionExpired(str(session)))
                return self._change(zxid, session, operations)

    def _change(self, zxid: int, session: int, operations: Sequence[Operation]) -> Applied:
        """All of them, or none. (What fails alone has changed nothing.)"""
        undo: list[tuple[str, Node | None]] = []
        results: list[Any] = []
        events: list[Event] = []
        try:
            for each in operations:
                for path in (each.path, parent_of(each.path)) if len(operations) > 1 else ():
                    undo.append((path, _copy(self._nodes.get(path))))
                results.append(self._do(zxid, session, each, events, undo))
        except ZooKeeperError as error:
            for path, before in reversed(undo):
                if before is None:
                    self._nodes.pop(path, None)
                else:
                    self._nodes[path] = before
            return Applied(error)
        return Applied(tuple(results), tuple(events))

    def _do(
        self, zxid: int, session: int, operation: Operation, events: list[Event], undo: list[tuple[str, Node | None]]
    ) -> str | Stat | None:
        match operation:
            case Create(path, data, ephemeral, sequence):
                parent = self.get(parent_of(path))
                if sequence:
                    path = f"{path}{parent.created:010d}"
                if path in self._nodes:
                    raise NodeExists(path)
                if sequence:
                    undo.append((path, None))
                if parent.owner:
                    raise NoChildrenForEphemerals(path)
                self._nodes[path] = Node(data, zxid, zxid, zxid, session if ephemeral else 0)
                parent.children[path.rpartition("/")[2]] = None
                parent.created += 1
                parent.pzxid = zxid
                events += Event(EventType.CREATED, path), Event(EventType.CHILD, parent_of(path))
                return path
            case SetData(path, data, version):
                node = self._at_version(path, version)
                node.data, node.mzxid = data, zxid
                node.version += 1
                events.append(Event(EventType.CHANGED, path))
                return node.stat
            case Delete(path, version):
                if self._at_version(path, version).children:
                    raise NotEmpty(path)
                events += self._delete(zxid, path)
            case Check(path, version):
                self._at_version(path, version)
        return None

    def _at_version(self, path: str, version: int) -> Node:
        node = self.get(path)
        if version not in (-1, node.version):
            raise BadVersion(path)
        return node

    def _delete(self, zxid: int, path: str) -> tuple[Event, Event]:
        del self._nodes[path]
        parent = self._nodes[parent_of(path)]
        del parent.children[path.rpartition("/")[2]]
        parent.pzxid = zxid
        return Event(EventType.DELETED, path), Event(EventType.CHILD, parent_of(path))

    # -- all of it --------------------------------------------------------------------------------------------

    def records(self) -> Iterator[bytes]:
        """That Tree.of() makes the same tree of."""
        yield json.dumps([self.zxid, list(self.sessions.items())]).encode()
        for path, node in self._nodes.items():
            yield json.dumps(
                [path, _text(node.data), node.czxid, node.mzxid, node.pzxid, node.owner, node.version, node.created]
            ).encode()

    @classmethod
    def of(cls, records: Sequence[bytes]) -> Tree:
        tree = cls()
        tree.zxid, sessions = json.loads(records[0])
        tree.sessions = {session: Session(*content) for session, content in sessions}
        for record in records[1:]:
            path, data, *numbers = json.loads(record)
            tree._nodes[path] = Node(data.encode("latin-1"), *numbers)
            if path != ROOT:  # parents come before their children, as they were made before them
                tree._nodes[parent_of(path)].children[path.rpartition("/")[2]] = None
        return tree


def _copy(node: Node | None) -> Node | None:
    if node is None:
        return None
    return Node(
        node.data, node.czxid, node.mzxid, node.pzxid, node.owner, node.version, node.created, dict(node.children)
    )  # fmt: skip
