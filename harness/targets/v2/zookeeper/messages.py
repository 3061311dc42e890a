"""What a client of the model and its server say to each other, and servers among themselves.

By one connection go the calls of a session, by another it waits for events, which is also its sign of life. Apache
ZooKeeper uses one, so that answers and events come in one order. Here every answer carries the events that its client
has not yet told that it has, and every event says how many calls were answered before it.
"""

from __future__ import annotations

from typing import NamedTuple

from cluster_image.v2.zookeeper import Event, Operation


class Connect(NamedTuple):
    """session: to go on with, 0: a new one. seen: the last transaction that this client has seen the effect of."""

    session: int
    timeout_ms: int
    seen: int


class Connected(NamedTuple):
    session: int
    owner: int
    zxid: int


class Get(NamedTuple):
    path: str
    watch: bool


class Exists(NamedTuple):
    path: str
    watch: bool


class Children(NamedTuple):
    path: str
    watch: bool


class Write(NamedTuple):
    operations: tuple[Operation, ...]


class Close(NamedTuple):
    """The session."""


class Wait(NamedTuple):
    """For events."""


Asked = Get | Exists | Children | Write | Close | Wait


class Call(NamedTuple):
    """events: the number of the last that has arrived."""

    session: int
    owner: int
    events: int
    asked: Asked


class Numbered(NamedTuple):
    """after: so many calls were answered before it."""

    number: int
    after: int
    event: Event


class Answer(NamedTuple):
    """error: an instance of ZooKeeperError, or None. zxid: as of which it is."""

    result: object
    error: Exception | None
    zxid: int
    events: tuple[Numbered, ...]


class Status(NamedTuple):
    """Asked and answered: does this server lead the others?"""

    leads: bool


# -- between servers -----------------------------------------------------------------------------------------------


class Propose(NamedTuple):
    record: bytes


class Touch(NamedTuple):
    """Sessions that have been heard of."""

    sessions: tuple[int, ...]


class Taken(NamedTuple):
    """By the leader, or not: then it does not lead."""

    taken: bool
