"""Compares the order of positions in a log with real time: part (b) of the definition in linearizability.py."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np

from checkers.anomalies import Anomalies, seconds
from checkers.log.segment import APPEND, FAIL, FINAL_READ, LIST_OFFSETS, READ, Codes, Contents, Segment
from checkers.properties import LOG_LINEARIZABILITY, WATERMARK_FRESHNESS
from spark_history.files import Bools, Ints
from spark_history.log import NEVER, NOWHERE


class Evidence(NamedTuple):
    """That the log had reached a position by a time: what completed first among operations from a position on."""

    time: int = NEVER  # monotonic ns
    op: int = NOWHERE
    kind: int = NOWHERE
    position: int = NOWHERE
    leader_epoch: int = NOWHERE


class Carry(NamedTuple):
    """The first evidence from beyond this segment."""

    append: Evidence = Evidence()  # an acknowledgement
    reading: Evidence = Evidence()

    @staticmethod
    def earlier(first: Carry, second: Carry) -> Carry:
        return Carry(min(first.append, second.append), min(first.reading, second.reading))

    @staticmethod
    def of(lists: Sequence[Sequence[int]] | None) -> Carry:
        return Carry(*(Evidence(*values) for values in lists)) if lists else NOTHING

    @property
    def time(self) -> int:
        return min(self.append.time, self.reading.time)


NOTHING: Final = Carry()


@dataclass(frozen=True)
class Timeline:
    """What stands in the log of a segment, in the order of keys: of an append at offset o 2o + 1, of a reading of the
    end at e 2e. `rows` of the segment; all other arrays are as long."""

    segment: Segment
    rows: Ints | slice

    @staticmethod
    def of(segment: Segment, contents: Contents) -> Timeline:
        failed = segment.unsure[segment.outcome[segment.unsure] == FAIL]
        if not len(failed) and not len(contents.lost):
            return Timeline(segment, slice(segment.placed, None))
        standing = np.ones(len(segment), bool)
        standing[: segment.placed] = False
        standing[failed] = standing[contents.lost] = False
        return Timeline(segment, np.flatnonzero(standing))

    @cached_property
    def position(self) -> Ints:
        return self.segment.column("position")[self.rows]

    @cached_property
    def invoke(self) -> Ints:
        return self.segment.column("invoke")[self.rows]

    @cached_property
    def complete(self) -> Ints:
        return self.segment.acknowledged_at[self.rows]

    @cached_property
    def kind(self) -> Codes:
        return self.segment.kind[self.rows]

    @cached_property
    def is_append(self) -> Bools:
        is_append: Bools = self.kind == APPEND
        return is_append

    @cached_property
    def key(self) -> Ints:
        key: Ints = 2 * self.position + self.is_append
        return key

    @cached_property
    def exact(self) -> Bools:
        """It tells where the log ended, not only that it had come this far."""
        exact: Bools = self.is_append | (self.kind == LIST_OFFSETS)
        final = self.segment.scope.final_reads
        if self.segment.scope.final_known:
            exact |= (self.kind == FINAL_READ) & (self.position == final.end)
        return exact

    def first(self, times: Ints) -> Evidence:
        """The first evidence by `times`; none if there is none."""
        row = int(times.argmin()) if len(times) else 0
        return Evidence() if not len(times) or times[row] == NEVER else self.evidence(row)

    def row_of(self, row: int) -> int:
        """Of the segment."""
        return row + self.segment.placed if isinstance(self.rows, slice) else int(self.rows[row])

    def evidence(self, row: int) -> Evidence:
        of = np.array([self.row_of(row)])
        op, epoch = (int(self.segment.at(name, of)[0]) for name in ("op", "leader_epoch"))
        return Evidence(int(self.complete[row]), op, int(self.kind[row]), int(self.position[row]), epoch)

    def summary(self) -> Carry:
        """The first evidence in this segment."""
        return Carry(
            self.first(np.where(self.is_append, self.complete, NEVER)),
            self.first(np.where(self.is_append, NEVER, self.complete)),
        )

    @property
    def latest(self) -> int:
        """The latest invocation: evidence from beyond that is no earlier contradicts nothing in this segment."""
        return int(self.invoke.max(initial=NOWHERE))


class _Suffix:
    """For each row of a timeline, the earliest of `times` from that row on, the carry being the last row."""

    def __init__(self, times: Ints, carry: Evidence) -> None:
        self._times = times
        self._carry = carry
        self.time: Ints = np.minimum.accumulate(np.append(times, carry.time)[::-1])[::-1]

    def holder(self, row: int, timeline: Timeline) -> Evidence:
        """What is earliest from `row` on."""
        if row == len(self._times) or self.time[row] == self._carry.time:
            later = self._times[row:]
            if not len(later) or later.min() > self._carry.time:
                return self._carry
        return timeline.evidence(row + int(self._times[row:].argmin()))


def check_real_time(timeline: Timeline, carry: Carry, anomalies: Anomalies) -> None:
    invoke, scope = timeline.invoke, timeline.segment.scope
    everything = _Suffix(timeline.complete, Evidence(carry.time))
    # Operations of one position are few, and do not count against each other: look only where these would.
    suspects = np.flatnonzero(invoke > everything.time[1:])
    if not len(suspects):
        return
    is_append, key = timeline.is_append, timeline.key
    beyond = np.searchsorted(key, key[suspects], "right")  # the first row at a higher key
    overtaken = invoke[suspects] > everything.time[beyond]
    if not overtaken.any():
        return
    suspects, beyond = suspects[overtaken], beyond[overtaken]
    appends = _Suffix(np.where(is_append, timeline.complete, NEVER), carry.append)
    readings = _Suffix(np.where(is_append, NEVER, timeline.complete), carry.reading)
    by_append = (invoke[suspects] > appends.time[beyond]) & scope.options.acks_all
    by_reading = invoke[suspects] > readings.time[beyond]
    # No operation before a cut is invoked after one behind it completed: what two cuts enclose is one violation.
    latest = np.maximum.accumulate(np.where(timeline.exact, invoke, NOWHERE))
    violation = np.cumsum(np.append(True, latest[:-1] <= everything.time[1:-1]))
    exact, of_append = timeline.exact[suspects], is_append[suspects]
    for anomaly, mask, evidence in (
        ("real-time inversion", of_append, (appends, readings)),
        ("stale end of log", ~of_append & exact & by_append, (appends,)),
        ("non-monotonic read", ~of_append & exact & by_reading, (readings,)),
    ):
        rows, after = suspects[mask], beyond[mask]
        for group in _groups(violation[rows]):
            _report(timeline, LOG_LINEARIZABILITY, anomaly, rows[group], after[group], evidence, anomalies)
    lagging = ~exact & (by_append | by_reading)
    if lagging.any():
        evidence = (appends, readings) if scope.options.acks_all else (readings,)
        rows, after = suspects[lagging], beyond[lagging]
        _report(timeline, WATERMARK_FRESHNESS, "lagging watermark", rows, after, evidence, anomalies)


def deadlines(timeline: Timeline, carry: Carry, offsets: Ints) -> Ints:
    """By when an append must have been invoked to stand at each offset, monotonic ns."""
    if not len(offsets):
        return np.empty(0, np.int64)
    times = _Suffix(timeline.complete, Evidence(carry.time)).time
    return times[np.searchsorted(timeline.key, 2 * offsets + 1, "right")]


def _groups(numbers: Ints) -> list[Ints]:
    """Where each number stands, of numbers in order."""
    return np.split(np.arange(len(numbers)), np.flatnonzero(np.diff(numbers)) + 1) if len(numbers) else []


def _report(
    timeline: Timeline,
    property_: str,
    anomaly: str,
    rows: Ints,
    beyond: Ints,
    suffixes: Sequence[_Suffix],
    anomalies: Anomalies,
) -> None:
    """One violation: of its pairs of operations the one that lies furthest apart in time."""
    if not anomalies.wanted(property_, anomaly):
        anomalies.add_unlisted(property_, anomaly, 1, records=len(rows))
        return
    times = [suffix.time[beyond] for suffix in suffixes]
    pick = int(np.argmax(timeline.invoke[rows] - np.minimum.reduce(times)))
    row, after = int(rows[pick]), int(beyond[pick])
    suffix = min(suffixes, key=lambda each: int(each.time[after]))
    by = suffix.holder(after, timeline)
    segment, own = timeline.segment, timeline.evidence(row)
    kind, op, position = own.kind, own.op, own.position
    value = int(segment.column("value")[timeline.row_of(row)])
    said = {
        APPEND: f"append op {op} put {value} at offset {position}",
        LIST_OFFSETS: f"list_offsets op {op} answered that the log ends at {position}",
        READ: f"read op {op} reported a high watermark of {position}",
        FINAL_READ: f"the final read (op {op}) found that the log ends at {position}",
    }[kind]
    origin = segment.scope.origin
    invoked = seconds(int(timeline.invoke[row]), origin)
    anomalies.add(
        property_,
        anomaly,
        f"{segment.scope.log}: {said}{_in_epoch(own.leader_epoch)} though it was invoked at {invoked}, after "
        f"{_proof(by, origin)}",
        offset=position,
        value=value if kind == APPEND else None,
        ops=[op, by.op],
        count=len(rows),
    )


def _proof(by: Evidence, origin: int) -> str:
    at, epoch = seconds(by.time, origin), _in_epoch(by.leader_epoch)
    return {
        APPEND: f"append op {by.op} had been acknowledged{epoch} at offset {by.position} at {at}",
        LIST_OFFSETS: f"list_offsets op {by.op} had answered{epoch} that the log ends at {by.position}, at {at}",
        READ: f"read op {by.op} had shown{epoch} that the log has {by.position} records, at {at}",
        FINAL_READ: f"the final read op {by.op} had shown that the log has {by.position} records, at {at}",
    }[by.kind]


def _in_epoch(leader_epoch: int) -> str:
    return "" if leader_epoch == NOWHERE else f" in leader epoch {leader_epoch}"
