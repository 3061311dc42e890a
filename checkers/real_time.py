"""Positions against real time: part (b) of log linearizability. See log_linearizability.py for the definitions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np

from checkers.anomalies import LOG_LINEARIZABILITY, WATERMARK_FRESHNESS, Anomalies, seconds
from checkers.log_segment import Contents, Scope, Segment
from spark_history.files import Bools, Ints
from spark_history.lane import NEVER, NOWHERE

_APPEND, _LIST_OFFSETS, _READ, _FINAL_READ = range(4)


class Evidence(NamedTuple):
    """That the log had reached a position by a time: what completed first among operations from a position on."""

    time: int = NEVER  # monotonic ns
    op: int = NOWHERE
    kind: int = NOWHERE
    position: int = NOWHERE
    leader_epoch: int = NOWHERE


class Carry(NamedTuple):
    """The first evidence from beyond this segment."""

    any: Evidence = Evidence()
    visible: Evidence = Evidence()  # of those that later readings of the end must cover

    @staticmethod
    def earlier(first: Carry, second: Carry) -> Carry:
        return Carry(min(first.any, second.any), min(first.visible, second.visible))

    @staticmethod
    def of(lists: Sequence[Sequence[int]] | None) -> Carry:
        return Carry(*(Evidence(*values) for values in lists)) if lists else Carry()


NOTHING: Final = Carry()


@dataclass(frozen=True)
class Timeline:
    """Operations in the order of their keys: of an append at offset o 2o + 1, of a reading of the end at e 2e."""

    key: Ints
    op: Ints
    kind: Ints
    position: Ints
    value: Ints
    invoke: Ints
    complete: Ints
    visible: Ints  # as complete, but NEVER where that does not oblige later readings of the end
    leader_epoch: Ints
    exact: Bools  # it tells where the log ended, not only that it had come this far

    @staticmethod
    def of(segment: Segment, contents: Contents) -> Timeline:
        appends, final = segment.appends, segment.scope.final_reads
        standing = ~appends.failed & ~contents.lost
        position = segment.column("position")
        end = segment.outcome("ok") & ~segment.kind("append") & (position != NOWHERE)
        kind = np.select([segment.kind("list_offsets"), segment.kind("read")], [_LIST_OFFSETS, _READ], _FINAL_READ)
        exact = segment.kind("list_offsets")
        if final.complete:
            exact = exact | segment.kind("final_read") & (position == final.end)

        def both(name: str) -> Ints:
            return np.concatenate((getattr(appends, name)[standing], segment.column(name)[end]))

        of_appends = np.count_nonzero(standing)
        is_append = np.arange(of_appends + np.count_nonzero(end)) < of_appends
        columns: dict[str, Any] = {
            "key": 2 * both("position") + is_append,
            "kind": np.concatenate((np.full(of_appends, _APPEND), kind[end])),
            "exact": np.concatenate((np.ones(of_appends, bool), exact[end])),
            "visible": np.where(is_append & (not segment.scope.acks_all), NEVER, both("complete")),
        }
        columns |= {name: both(name) for name in ("op", "position", "value", "invoke", "complete", "leader_epoch")}
        order = np.argsort(columns["key"], kind="stable")
        return Timeline(**{name: column[order] for name, column in columns.items()})

    def evidence(self, row: int) -> Evidence:
        columns = (self.complete, self.op, self.kind, self.position, self.leader_epoch)
        return Evidence(*(int(column[row]) for column in columns))

    def summary(self) -> Carry:
        """The first evidence in this segment."""
        if not len(self.key):
            return NOTHING
        rows = int(self.complete.argmin()), int(self.visible.argmin())
        found = [self.evidence(row) for row in rows]
        return Carry(found[0], found[1] if self.visible[rows[1]] != NEVER else Evidence())


class _Suffix:
    """For each row of a timeline, the earliest of `times` from that row on, the carry being the last row."""

    def __init__(self, times: Ints, carry: Evidence) -> None:
        backwards = np.append(times, carry.time)[::-1]
        least = np.minimum.accumulate(backwards)
        rows = np.arange(len(backwards))[::-1]
        holder = np.maximum.accumulate(np.where(backwards == least, np.arange(len(backwards)), 0))
        self.time: Ints = least[::-1]
        self.row: Ints = rows[holder][::-1]


def check_real_time(segment: Segment, timeline: Timeline, carry: Carry, anomalies: Anomalies) -> None:
    any_, visible = _Suffix(timeline.complete, carry.any), _Suffix(timeline.visible, carry.visible)
    beyond = np.searchsorted(timeline.key, timeline.key, "right")  # the first row at a higher key
    is_append = timeline.kind == _APPEND
    overtaken = timeline.invoke > np.where(is_append, any_.time[beyond], visible.time[beyond])
    if not overtaken.any():
        return
    # No operation before a cut is invoked after one behind it completed: what two cuts enclose is one violation.
    latest = np.maximum.accumulate(np.where(timeline.exact, timeline.invoke, NOWHERE))
    cut = np.append(True, latest[:-1] <= any_.time[1:-1]) if len(latest) else np.zeros(0, bool)
    violation = np.cumsum(cut)
    witness = _Witness(segment.scope, timeline)
    for rows in _groups(np.flatnonzero(overtaken & is_append), violation):
        row, by = _clearest(rows, timeline.invoke, any_, beyond)
        evidence = timeline.evidence(by) if by < len(timeline.key) else carry.any
        witness.add(anomalies, LOG_LINEARIZABILITY, "real-time inversion", row, evidence, len(rows))
    for rows in _groups(np.flatnonzero(overtaken & ~is_append & timeline.exact), violation):
        row, by = _clearest(rows, timeline.invoke, visible, beyond)
        evidence = timeline.evidence(by) if by < len(timeline.key) else carry.visible
        witness.add(anomalies, LOG_LINEARIZABILITY, "stale end of log", row, evidence, len(rows))
    lagging = np.flatnonzero(overtaken & ~timeline.exact)
    if len(lagging):
        row, by = _clearest(lagging, timeline.invoke, visible, beyond)
        evidence = timeline.evidence(by) if by < len(timeline.key) else carry.visible
        witness.add(anomalies, WATERMARK_FRESHNESS, "lagging watermark", row, evidence, len(lagging))


def deadlines(timeline: Timeline, carry: Carry, offsets: Ints) -> Ints:
    """By when an append must have been invoked to stand at each offset, monotonic ns."""
    times = _Suffix(timeline.complete, carry.any).time
    return times[np.searchsorted(timeline.key, 2 * offsets + 1, "right")]


def _groups(rows: Ints, violation: Ints) -> list[Ints]:
    """The rows of each violation."""
    return np.split(rows, np.flatnonzero(np.diff(violation[rows])) + 1) if len(rows) else []


def _clearest(rows: Ints, invoke: Ints, suffix: _Suffix, beyond: Ints) -> tuple[int, int]:
    """The pair of operations that lie furthest apart in time: (row, the row it should not come before)."""
    row = int(rows[np.argmax(invoke[rows] - suffix.time[beyond[rows]])])
    return row, int(suffix.row[beyond[row]])


class _Witness:
    def __init__(self, scope: Scope, timeline: Timeline) -> None:
        self._scope = scope
        self._timeline = timeline

    def add(self, anomalies: Anomalies, property_: str, anomaly: str, row: int, by: Evidence, count: int) -> None:
        timeline = self._timeline
        kind, value = int(timeline.kind[row]), int(timeline.value[row])
        position, op = int(timeline.position[row]), int(timeline.op[row])
        said = {
            _APPEND: f"append op {op} put {value} at offset {position}",
            _LIST_OFFSETS: f"list_offsets op {op} answered that the log ends at {position}",
            _READ: f"read op {op} reported a high watermark of {position}",
            _FINAL_READ: f"the final read (op {op}) found that the log ends at {position}",
        }[kind]
        epoch = _in_epoch(int(timeline.leader_epoch[row]))
        invoked = seconds(int(timeline.invoke[row]), self._scope.origin)
        anomalies.add(
            property_,
            anomaly,
            f"{self._scope.log}: {said}{epoch} though it was invoked at {invoked}, after {self._proof(by)}",
            offset=position,
            value=value if kind == _APPEND else None,
            ops=[op, by.op],
            count=count,
        )

    def _proof(self, by: Evidence) -> str:
        at = seconds(by.time, self._scope.origin)
        epoch = _in_epoch(by.leader_epoch)
        return {
            _APPEND: f"append op {by.op} had been acknowledged{epoch} at offset {by.position} at {at}",
            _LIST_OFFSETS: f"list_offsets op {by.op} had answered{epoch} that the log ends at {by.position}, at {at}",
            _READ: f"read op {by.op} had shown{epoch} that the log has {by.position} records, at {at}",
            _FINAL_READ: f"the final read op {by.op} had shown that the log has {by.position} records, at {at}",
        }[by.kind]


def _in_epoch(leader_epoch: int) -> str:
    return "" if leader_epoch == NOWHERE else f" in leader epoch {leader_epoch}"
