"""The interface by which a node reports its own state changes. A node behaves the same whether or not anybody
listens.

Each change is told once, where it happens, after the state has changed:

| event               | where     | fields                                                                   |
| ------------------- | --------- | ------------------------------------------------------------------------ |
| `start`             |           | node_id, voters: a new process, before anything else of it               |
| `replica`           | `topic-0` | end: a replica begins anew in this process, before it has any role       |
| `role`              | `topic-0` | leader, leader_epoch, partition_epoch, isr, end, high_watermark          |
| `isr`               | `topic-0` | isr, leader_epoch, partition_epoch: what is committed, in the same role  |
| `isr proposed`      | `topic-0` | isr, leader_epoch, partition_epoch                                       |
| `append`            | `topic-0` | end                                                                      |
| `duplicate`         | `topic-0` | producer_id, producer_epoch, sequence: a batch of an idempotent producer |
|                     |           | that was not appended, as it is in the log; offset, end: where           |
| `truncate`          | `topic-0` | end                                                                      |
| `high watermark`    | `topic-0` | offset                                                                   |
| `log start`         | `topic-0` | offset: nothing is held below. Of a replica that begins anew it is told  |
|                     |           | after its high watermark, and only if it is above 0                      |
| `quorum`            |           | role, epoch, leader (-1: none known), of the metadata quorum             |
| `metadata append`   |           | end                                                                      |
| `metadata truncate` |           | end                                                                      |
| `metadata snapshot` |           | end, epoch: everything below is in a snapshot that was written or taken  |
|                     |           | over; start: where the log now starts                                    |
| `metadata`          |           | offset: everything below is committed and has been replayed here         |
| `decide`            | `topic-0` | type, offset and numbers of a record that the active controller writes;  |
|                     | or none   | `where` is the partition that it is about                                |
| `unclean recovery`  | `topic-0` | leader, leader_epoch, strategy: a leader of which nobody knows whether   |
|                     |           | it is complete. candidates: who has told of its log; epochs, ends: the   |
|                     |           | last epoch and the end of each one's                                     |

And of the generation on ZooKeeper alone:

| event                    | where     | fields                                                              |
| ------------------------ | --------- | ------------------------------------------------------------------- |
| `isr written`            | `topic-0` | isr, leader_epoch, partition_epoch (the version of its node)        |
| `isr refused`            | `topic-0` | leader_epoch: of who wanted to write it; isr, epoch: what there is  |
| `state change requested` | `topic-0` | kind, broker, epoch of the leader that asks, -1 of an administrator |
| `state change received`  | `topic-0` | kind, leader, epoch                                                 |
| `state change completed` | `topic-0` | the same; done: 0 if there was nothing to do, or nothing allowed;   |
|                          |           | assigned, of close-replica: 1 if it is to have a replica by now     |

Offsets are exclusive ends. ISRs are sorted tuples of broker ids. Values are strings, integers and tuples of integers.

`TraceLines` makes one JSON object a line of it:

    {"time":812345678901,"node":1,"event":"role","where":"topic-0","fields":{"leader":1,...}}

`append` and `high watermark` come with every batch. Of each partition's, only the latest is kept for HOLD_NS, with the
time at which it happened; so its lines may be older than those in front of them. What keeps them true in their order:

* any other line of the partition is written after what is held of it;
* an end or a high watermark that falls is written after the one that it falls from;
* of both, the end is written first: a high watermark never seems to lie past the log's end.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Final, Protocol

HOLD_NS: Final = 100_000_000


class Trace(Protocol):
    def __call__(self, event: str, where: str = "", **fields: object) -> None: ...


def no_trace(event: str, where: str = "", **fields: object) -> None:
    """Nobody listens."""


#: Events of which the latest is enough, in the order in which they are written; and the field that says how far.
_HELD: Final[Mapping[str, str]] = {"append": "end", "high watermark": "offset"}


class TraceLines:
    """A Trace that gives its lines to `write`, each with its newline. clock_ns: the time line of the histories.

    call_later: `loop.call_later`, to write what is held in time; without it that waits for the next event, or flush().
    """

    def __init__(
        self,
        node_id: int,
        write: Callable[[str], object],
        clock_ns: Callable[[], int],
        call_later: Callable[[float, Callable[[], None]], object] | None = None,
    ) -> None:
        self._node_id = node_id
        self._write = write
        self._clock_ns = clock_ns
        self._call_later = call_later
        self._held: dict[str, dict[str, tuple[int, int]]] = {}  # by partition and event: how far, when
        self._due = 0

    def __call__(self, event: str, where: str = "", **fields: object) -> None:
        now = self._clock_ns()
        if self._held and now >= self._due:
            self.flush()
        field = _HELD.get(event)
        if field is None:
            self._release(where)
            self._write_line(now, event, where, fields)
            return
        value: int = fields[field]  # type: ignore[assignment]
        if not self._held:
            self._due = now + HOLD_NS
            if self._call_later is not None:
                self._call_later(HOLD_NS / 1e9, self.flush)
        held = self._held.setdefault(where, {})
        before = held.get(event)
        if before is not None and value < before[0]:
            self._release(where)
            held = self._held.setdefault(where, {})
        held[event] = value, now

    def flush(self) -> None:
        """Write all that is held."""
        for where in list(self._held):
            self._release(where)

    def _release(self, where: str) -> None:
        held = self._held.pop(where, None)
        if held is None:
            return
        for event, field in _HELD.items():
            if event in held:
                value, time = held[event]
                self._write_line(time, event, where, {field: value})

    def _write_line(self, time: int, event: str, where: str, fields: Mapping[str, object]) -> None:
        line = {"time": time, "node": self._node_id, "event": event, "where": where, "fields": fields}
        self._write(json.dumps(line, separators=(",", ":"), default=str) + "\n")
