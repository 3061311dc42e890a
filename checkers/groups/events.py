"""The rows of GROUP_EVENTS as columns, by group and partition, and who owned a partition when.

Within one member events are taken in the order of the moment from which, or until which, they count: an `assign`, a
`commit` and a `reset` when they were begun, a `poll` and a `process` when they were over, and so a `revoke`, since the
member may process and commit until its callback has run to its end. Callbacks run inside poll(): the poll that returns
records of what it was just assigned was begun before it was.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_history.files import Bools, Ints, categories, codes, compact, equals, integers
from spark_history.log import NEVER, NOWHERE
from spark_history.schema import GROUP_EVENTS, NOTHING_COMMITTED

KINDS: Final = (
    "join", "assign", "revoke", "lose", "poll", "process", "commit", "committed", "reset", "pause", "resume", "leave",
    "crash",
)  # fmt: skip
(JOIN, ASSIGN, REVOKE, LOSE, POLL, PROCESS, COMMIT, COMMITTED, RESET, PAUSE, RESUME, LEAVE, CRASH) = range(len(KINDS))
OUTCOMES: Final = ("ok", "fail", "info")
OK, FAIL, INFO = range(len(OUTCOMES))
#: In `generation`: the client does not tell, or tells that it has none.
UNKNOWN: Final = 0
NONE: Final = -1

_FROM_INVOKE: Final = np.isin(np.arange(len(KINDS)), (ASSIGN, COMMIT, RESET, COMMITTED))
_BOUNDARIES: Final = (ASSIGN, REVOKE, LOSE)

Codes = npt.NDArray[np.int8]


class Rows(NamedTuple):
    """Columns of one length, in the order of `op`. Null: NOWHERE in start and end, NEVER in complete. empty: of a
    reset, did it come of nothing being committed?"""

    op: Ints
    process: Ints
    kind: Codes
    start: Ints
    end: Ints
    generation: Ints
    invoke: Ints
    complete: Ints
    outcome: Codes
    empty: Bools

    def take(self, rows: Ints | Bools) -> Rows:
        ints = [column[rows] for column in (self.op, self.process, self.start, self.end, self.generation)]
        return Rows(
            ints[0], ints[1], self.kind[rows], ints[2], ints[3], ints[4], self.invoke[rows], self.complete[rows],
            self.outcome[rows], self.empty[rows],
        )  # fmt: skip


@dataclass
class Life:
    """Of one incarnation of a member. ended: when it began to leave, or was killed, at the earliest; dead: when it had
    ended for certain. pauses: since, until (at the latest)."""

    joined: int = NEVER
    ended: int = NEVER
    dead: int = NEVER
    crashed: bool = False
    pauses: list[tuple[int, int]] = field(default_factory=list)


@dataclass(frozen=True)
class Ownership:
    """From one `assign` on. begun: of its callback; since, until: it was surely an owner, as far as it knew.

    position: where it began; NOWHERE: not known, or it began by a stated reset. known: the earliest time by which it
    must have asked for the committed offset that it began at. how: it ended by this kind of event; None: never.
    """

    row: int
    process: int
    generation: int
    begun: int
    since: int
    until: int
    how: int | None
    position: int = NOWHERE
    known: int = NEVER
    known_by: int = NOWHERE  # the row that shows it
    low: int = 0  # from where to where in the share's `order` it goes
    high: int = 0


@dataclass(frozen=True)
class Share:
    """One partition as one group consumed it. order: rows of members in their order (see above), member by member;
    owner: for each of `order` the number of the ownership that it lies in, or NOWHERE."""

    group: str
    topic: str
    partition: int
    rows: Rows
    lives: Mapping[int, Life]
    order: Ints
    owner: Ints
    ownerships: Sequence[Ownership]

    @property
    def log(self) -> str:
        return f"{self.topic}-{self.partition}"

    def of_kind(self, *kinds: int) -> Ints:
        return np.flatnonzero(np.isin(self.rows.kind, kinds))


@dataclass(frozen=True)
class Group:
    name: str
    lives: Mapping[int, Life]
    shares: Mapping[tuple[str, int], Share]
    until: int  # the last event on record


def read(table: pa.Table) -> dict[str, Group]:
    """By name. table: GROUP_EVENTS."""
    table = table.select([name for name in GROUP_EVENTS.names if name != "run"])
    table = table.cast(compact(table.schema)).sort_by("op")
    kind, outcome = codes(table, "kind", KINDS), codes(table, "outcome", OUTCOMES)
    generation = integers(table, "generation", UNKNOWN)
    rows = Rows(
        integers(table, "op", NOWHERE),
        integers(table, "process", NOWHERE),
        kind,
        integers(table, "start", NOWHERE),
        integers(table, "end", NOWHERE),
        np.maximum(generation, NONE),
        integers(table, "invoke", 0),
        integers(table, "complete", NEVER),
        outcome,
        equals(table, "error", NOTHING_COMMITTED),
    )
    names, group = _numbered(table, "group")
    topics, topic = _numbered(table, "topic")
    partition = integers(table, "partition", NOWHERE)
    # What failed has not happened; but a callback that raised was called.
    happened = (kind >= 0) & ((outcome != FAIL) | np.isin(kind, (ASSIGN, REVOKE, LOSE, LEAVE, CRASH, PAUSE, RESUME)))
    rows.kind[(kind == ASSIGN) & (outcome == FAIL)] = LOSE
    ranged = np.isin(kind, (POLL, PROCESS))
    whole = (rows.start != NOWHERE) & (rows.end != NOWHERE)
    rows.outcome[ranged & ~whole] = INFO
    happened &= ~(ranged & whole & (rows.end <= rows.start)) & ~((kind == PROCESS) & ~whole)
    found = {}
    for number, name in enumerate(names):
        mine = np.flatnonzero((group == number) & happened)
        lives = _lives(rows.take(mine[partition[mine] == NOWHERE]))
        of_partitions = mine[(partition[mine] != NOWHERE) & (topic[mine] >= 0)]
        shares = {}
        keys = topic[of_partitions].astype(np.int64) << 32 | partition[of_partitions]
        order = np.argsort(keys, kind="stable")
        for part in np.split(order, np.flatnonzero(np.diff(keys[order])) + 1) if len(order) else ():
            key = int(keys[part[0]])
            log = (topics[key >> 32], key & 0xFFFFFFFF)
            shares[log] = _share(name, *log, rows.take(of_partitions[part]), lives)
        done = np.where(rows.complete[mine] == NEVER, rows.invoke[mine], rows.complete[mine])
        found[name] = Group(name, lives, shares, int(done.max(initial=0)))
    return found


def _numbered(table: pa.Table, column: str) -> tuple[list[str], Ints]:
    """The distinct texts of a column, and which each row has; NOWHERE: null."""
    names: dict[str, int] = {}
    parts = [np.empty(0, np.int64)]
    for chunk in table[column].chunks:
        texts, numbers = categories(chunk)
        mapped = [names.setdefault(text, len(names)) for text in texts]
        parts.append(np.array([*mapped, NOWHERE], np.int64)[numbers])
    return list(names), np.concatenate(parts)


def _lives(rows: Rows) -> dict[int, Life]:
    lives: dict[int, Life] = {}
    for process, kind, invoke, complete in zip(
        rows.process.tolist(), rows.kind.tolist(), rows.invoke.tolist(), rows.complete.tolist(), strict=True
    ):
        life = lives.setdefault(process, Life())
        if kind == JOIN:
            life.joined = min(life.joined, invoke)
        elif kind in (LEAVE, CRASH):
            life.ended, life.dead = min(life.ended, invoke), min(life.dead, complete)
            life.crashed |= kind == CRASH
        elif kind == PAUSE:
            life.pauses.append((invoke, NEVER))
        elif kind == RESUME and life.pauses:
            since, until = life.pauses[-1]
            life.pauses[-1] = (since, min(until, complete if complete != NEVER else invoke))
    return lives


def _share(group: str, topic: str, partition: int, rows: Rows, lives: Mapping[int, Life]) -> Share:
    counts_from = np.where(_FROM_INVOKE[rows.kind], rows.invoke, rows.complete)
    never = (rows.complete == NEVER) & np.isin(rows.kind, (POLL, PROCESS))
    counts_from[never] = rows.invoke[never]
    order = np.lexsort((rows.op, counts_from, rows.process))
    process, kind = rows.process[order], rows.kind[order]
    boundary = np.isin(kind, _BOUNDARIES)
    last = np.maximum.accumulate(np.where(boundary, np.arange(len(order)), NOWHERE)) if len(order) else order
    within = (last >= 0) & (kind[last] == ASSIGN) & (process[last] == process)
    assigns = np.flatnonzero(kind == ASSIGN)
    owner = np.where(within, np.searchsorted(assigns, last, "right") - 1, NOWHERE)
    ends = np.flatnonzero(boundary)
    ownerships = [_ownership(rows, order, process, ends, int(at), lives) for at in assigns]
    return Share(group, topic, partition, rows, lives, order, owner, ownerships)


def _ownership(
    rows: Rows, order: Ints, processes: Ints, ends: Ints, at: int, lives: Mapping[int, Life]
) -> Ownership:  # fmt: skip
    """processes: of each of `order`; ends: where in `order` an ownership ends or begins; at: where this one begins."""
    row = int(order[at])
    process = int(rows.process[row])
    until, how = NEVER, None
    following = int(np.searchsorted(ends, at, "right"))
    high = int(np.searchsorted(processes, process, "right"))
    if following < len(ends) and rows.process[next_ := int(order[ends[following]])] == process:
        until, how, high = int(rows.invoke[next_]), int(rows.kind[next_]), int(ends[following])
    life = lives.get(process)
    if life is not None and life.ended <= until:
        if life.ended < NEVER:
            how = CRASH if life.crashed else LEAVE
        until = life.ended
    begun, since = int(rows.invoke[row]), int(rows.complete[row])
    position, known, known_by = _begin(rows, order, at)
    return Ownership(
        row, process, int(rows.generation[row]), begun, since, until, how, position, known, known_by, at, high
    )  # fmt: skip


def _begin(rows: Rows, order: Ints, at: int) -> tuple[int, int, int]:
    """Where an ownership begins, by when that was known, and the row that shows it: what the `assign` says, or else the
    first poll; neither where a stated reset comes before a poll."""
    row = int(order[at])
    for place in range(at + 1, len(order)):  # as a rule the first or second is a poll
        each = int(order[place])
        if rows.process[each] != rows.process[row] or rows.kind[each] in _BOUNDARIES:
            break
        if rows.kind[each] == RESET:
            return NOWHERE, NEVER, NOWHERE
        if rows.kind[each] == POLL:
            if rows.start[row] != NOWHERE:
                break
            if rows.outcome[each] != OK or rows.start[each] == NOWHERE:
                return NOWHERE, NEVER, NOWHERE
            return int(rows.start[each]), int(rows.complete[each]), each
    if rows.start[row] == NOWHERE:
        return NOWHERE, NEVER, NOWHERE
    return int(rows.start[row]), int(rows.complete[row]), row
