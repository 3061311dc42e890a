"""Decides what cannot be decided from one segment of a log alone: records out of place, lost appends, torn reads,
reads that disagree, and offsets that no known append explains."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from checkers.anomalies import MAX_LOST_WITNESSES, MAX_WITNESSES, Anomalies, seconds, stretches
from checkers.log.scope import ANYWHERE, Scope
from checkers.log.segment import APPEND, CANDIDATES, DELETE_RECORDS, FAIL, Segment
from checkers.properties import EXACTLY_ONCE, LOG_LINEARIZABILITY
from spark_history.files import Bools, Ints, integers, read_parquet
from spark_history.log import NEVER, NOWHERE

#: Offsets at which no append is known to stand, in ranges, and by when one must have been invoked to stand there.
GAPS: Final = pa.schema([("offset", pa.int64()), ("count", pa.int64()), ("deadline", pa.int64())])
ALL_CANDIDATES: Final[Mapping[str, pa.Schema]] = {**CANDIDATES, "gaps": GAPS}


def settle(
    scope: Scope, segments: Iterable[Segment], candidates: Mapping[str, Sequence[str]], anomalies: Anomalies
) -> pa.Table:
    """Decide the candidates of one log: files by the names of ALL_CANDIDATES. Returns the appends that are lost, in
    the order of offsets."""
    tables = {}
    for kind, schema in ALL_CANDIDATES.items():
        read = [read_parquet(path, schema).cast(schema) for path in candidates[kind]]
        tables[kind] = pa.concat_tables([schema.empty_table(), *read])
    return settle_tables(scope, segments, tables, anomalies)


def settle_tables(
    scope: Scope, segments: Iterable[Segment], candidates: Mapping[str, pa.Table], anomalies: Anomalies
) -> pa.Table:
    """See settle()."""
    misplaced, lost = candidates["misplaced"], candidates["lost"]
    moved = misplaced.filter(misplaced["final"])["value"]
    lost = lost.filter(pc.invert(pc.is_in(lost["value"], moved))).sort_by("offset")
    evidence = _Whereabouts(*(integers(misplaced, name, NOWHERE) for name in ("value", "offset")))
    readers = _Readers(candidates["disputed"])
    torn = _Torn(candidates["torn"])
    unplaced: list[Ints] = []
    last = np.full(scope.options.keys, NOWHERE)
    for segment in segments:
        _note_last_of_keys(segment, last)
        unplaced.append(segment.unplaced_invocations)
        evidence.add(segment)
        readers.add(segment)
        torn.add(segment)
    if candidates["cleaned"].num_rows:
        cleaned = candidates["cleaned"].sort_by("offset")
        lost = pa.concat_tables([lost, cleaned.filter(pa.array(~replaced(cleaned, last)))]).sort_by("offset")
    _report_misplaced(scope, misplaced, evidence, anomalies)
    _report_lost(scope, lost, anomalies)
    torn.report(scope, anomalies)
    readers.report(scope, anomalies)
    _report_gaps(scope, candidates["gaps"], np.concatenate([np.empty(0, np.int64), *unplaced]), anomalies)
    return lost


def _note_last_of_keys(segment: Segment, last: Ints) -> None:
    """last: by key, the highest offset at which the final log holds a value of it."""
    if len(last):
        offset, value = (segment.read_column(name)[segment.final] for name in ("offset", "value"))
        np.maximum.at(last, value % len(last), offset)


def replaced(cleaned: pa.Table, last: Ints) -> Bools:
    """Which of these were replaced by a later value of the same key: one that the final log holds, or one that is lost
    itself. cleaned: LOST, in the order of offsets. last: see _note_last_of_keys()."""
    offset, value = (integers(cleaned, name, NOWHERE) for name in ("offset", "value"))
    key, latest = value % len(last), last.copy()
    np.maximum.at(latest, key, offset)
    later: Bools = offset < latest[key]
    return later


def _among(wanted: Ints, values: Ints) -> tuple[Ints, Ints]:
    """(index into `wanted`, which is sorted and distinct, index into `values`) of the values that are wanted."""
    if not len(wanted):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    row = np.minimum(np.searchsorted(wanted, values), len(wanted) - 1)
    of = np.flatnonzero(wanted[row] == values)
    return row[of], of


class _Whereabouts:
    """Of some values: which were appended, and at which offsets each was read; of some offsets: is an append known to
    stand there?"""

    def __init__(self, values: Ints, offsets: Ints) -> None:
        self.values = np.unique(values)
        self._offsets = offsets
        self.taken = np.zeros(len(offsets), bool)
        self.failed = np.zeros(len(self.values), bool)
        self.op = np.full(len(self.values), NOWHERE)
        self.position = np.full(len(self.values), NOWHERE)
        self.complete = np.full(len(self.values), NEVER)
        self._deletions = [np.empty((2, 0), np.int64)]  # when each was invoked, and below which offset
        self._readings: list[Ints] = []

    def add(self, segment: Segment) -> None:
        if not len(self.values):
            return
        append = np.flatnonzero(segment.kind == APPEND)
        row, of = _among(self.values, segment.column("value")[append])
        self.op[row] = segment.at("op", append[of])
        self.failed[row] = segment.outcome[append[of]] == FAIL
        self.taken |= np.isin(self._offsets, segment.column("position")[segment.appends])
        self.position[row] = segment.column("position")[append[of]]
        self.complete[row] = segment.at("complete", append[of])
        deletes = np.flatnonzero((segment.kind == DELETE_RECORDS) & (segment.outcome != FAIL))
        asked, told = segment.at("offset", deletes), segment.at("high_watermark", deletes)
        below = np.where(asked >= 0, asked, np.where(told >= 0, told, NEVER))  # of all, and nobody knows how many
        self._deletions.append(np.stack((segment.at("invoke", deletes), below)))
        row, of = _among(self.values, segment.read_column("value"))
        self._readings.append(np.unique(np.stack((row, segment.read_column("offset")[of])), axis=1))

    @property
    def offsets_read(self) -> Ints:
        """At how many offsets each value was read."""
        readings = np.concatenate([np.empty((2, 0), np.int64), *self._readings], axis=1)
        return np.bincount(np.unique(readings, axis=1)[0], minlength=len(self.values))

    def may_be_forgotten(self, row: Ints, offset: Ints) -> Bools:
        """May what stood at these offsets have been deleted before these appends were over?"""
        invoked, below = np.concatenate(self._deletions, axis=1)
        return np.array(
            [bool(np.any((invoked < self.complete[r]) & (below > at))) for r, at in zip(row, offset, strict=True)], bool
        )


def _report_misplaced(scope: Scope, misplaced: pa.Table, evidence: _Whereabouts, anomalies: Anomalies) -> None:
    offset, value, op = (integers(misplaced, name, NOWHERE) for name in ("offset", "value", "op"))
    if not len(offset):
        return
    row = np.searchsorted(evidence.values, value)
    phantom = evidence.op[row] == NOWHERE
    several = ~phantom & (evidence.offsets_read[row] > 1)
    may_retry = np.full(len(offset), scope.options.retries)
    if scope.options.log_start == ANYWHERE and not scope.options.retries:
        may_retry = evidence.may_be_forgotten(row, offset) | scope.options.retention
    again = several & ~evidence.taken & ~evidence.failed[row] & may_retry
    for property_, anomaly, mask in (
        (LOG_LINEARIZABILITY, "phantom", phantom),
        (LOG_LINEARIZABILITY, "duplicate", several & ~again),
        (EXACTLY_ONCE, "duplicate by retry", again),
        (LOG_LINEARIZABILITY, "inconsistent offset", ~phantom & ~several),
    ):
        offsets, of = np.unique(offset[mask], return_index=True)
        rows = np.flatnonzero(mask)[of]
        for number, (first, last) in enumerate(stretches(offsets)):
            if number >= MAX_WITNESSES:
                anomalies.add_unlisted(property_, anomaly, 1, records=last - first + 1)
                continue
            at = rows[np.searchsorted(offsets, first)]
            what = int(value[at])
            append, position = int(evidence.op[row[at]]), int(evidence.position[row[at]])
            where = f"stands at offset {position}" if position != NOWHERE else "is nowhere else"
            why = {
                "phantom": "a value that no append of this log ever wrote",
                "duplicate": f"which append op {append} wrote once, and which also {where}",
                "duplicate by retry": f"which append op {append} may have written again, and which also {where}",
                "inconsistent offset": f"but append op {append} had been told that it {where}",
            }[anomaly]
            message = f"read op {op[at]} returned {what} at offset {first} of {scope.log}, {why}"
            more = f"; the same holds for the offsets up to {last}" if last > first else ""
            anomalies.add(
                property_,
                anomaly,
                message + more,
                offset=first,
                value=what,
                ops=[number for number in (append, int(op[at])) if number != NOWHERE],
                count=last - first + 1,
            )


def _report_lost(scope: Scope, lost: pa.Table, anomalies: Anomalies) -> None:
    end = scope.final_reads.end
    for row in lost.slice(0, MAX_LOST_WITNESSES).to_pylist():
        if row["complete"] is not None:
            was = f"was acknowledged at {seconds(row['complete'], scope.origin)}"
        else:
            was = f"was never acknowledged but had been read by {seconds(row['observed'], scope.origin)}"
        if row["offset"] is None:
            where, instead = "without an offset in", "no read ever returned it"
        else:
            where = f"at offset {row['offset']} of"
            if row["found"] is not None:
                instead = f"the final log holds {row['found']} there"
            elif row["offset"] >= end:
                instead = f"the final log ends before offset {end}"
            else:
                instead = "the final log does not hold that offset"
        anomalies.add(
            LOG_LINEARIZABILITY,
            "lost append",
            f"{row['value']} (append op {row['op']}) {was} {where} {scope.log}; {instead}",
            offset=row["offset"],
            value=row["value"],
            ops=[row["op"], *([scope.final_reads.op] if scope.final_reads.op != NOWHERE else [])],
        )
    anomalies.add_unlisted(LOG_LINEARIZABILITY, "lost append", max(lost.num_rows - MAX_LOST_WITNESSES, 0))


class _Torn:
    """Reads with holes: is an append known to stand in the first of them?"""

    def __init__(self, torn: pa.Table) -> None:
        names = ("op", "start", "last", "records", "repeats")
        order = np.argsort(integers(torn, "op", NOWHERE), kind="stable")
        self._op, self._start, self._last, self._records, self._repeats = (
            integers(torn, name, NOWHERE)[order] for name in names
        )
        self._final: Bools = torn["final"].to_numpy().astype(bool)[order]
        self._returned: list[Ints] = []  # (row here, offset)
        self._standing: list[Ints] = []  # (offset, op) of appends in the range of any

    def add(self, segment: Segment) -> None:
        if not len(self._op):
            return
        row, of = _among(self._op, segment.read_column("op"))
        self._returned.append(np.stack((row, segment.read_column("offset")[of])))
        position = segment.column("position")[segment.appends]
        low, high = np.searchsorted(position, [self._start.min(), self._last.max() + 1])
        kept = segment.appends[low:high]
        self._standing.append(np.stack((position[low:high], segment.at("op", kept))))

    def report(self, scope: Scope, anomalies: Anomalies) -> None:
        if not len(self._op):
            return
        row, offset = np.concatenate(self._returned, axis=1)
        order = np.lexsort((offset, row))
        row, offset = row[order], offset[order]
        standing, writer = np.concatenate(self._standing, axis=1)
        for number, op in enumerate(self._op.tolist()):
            mine = offset[slice(*np.searchsorted(row, [number, number + 1]))]
            first, last = int(self._start[number]), int(self._last[number])
            low, high = np.searchsorted(standing, [first, last + 1])
            holes = low + np.flatnonzero(~np.isin(standing[low:high], mine))
            if scope.options.markers and not len(holes) and not self._repeats[number]:
                continue  # what it left out may be markers
            anomaly = "torn prefix" if len(holes) and not scope.options.compacted else "skipped offset"
            kind = "final read" if self._final[number] else "read"
            due, records = last - first + 1, int(self._records[number])
            message = (
                f"a {kind} (op {op}) of {scope.log} from offset {first} returned {records} records up to offset "
                f"{last}, where there are {due} offsets"
            )
            if self._repeats[number] > 0:
                message += f"; {self._repeats[number]} of them did not stand above the one before"
            distinct = np.unique(mine)
            missing = np.flatnonzero(distinct != first + np.arange(len(distinct)))
            ops, at = [op], first + (int(missing[0]) if len(missing) and not scope.options.compacted else 0)
            if anomaly == "torn prefix":
                at, other = int(standing[holes[0]]), int(writer[holes[0]])
                ops = [other, op]
                message += f"; at offset {at} stands what append op {other} wrote"
            count = max(abs(due - records), int(self._repeats[number]), 1)
            anomalies.add(LOG_LINEARIZABILITY, anomaly, message, offset=at, ops=ops, count=count)


class _Readers:
    """Reads that returned different values of one offset: which of them were over before another began?"""

    def __init__(self, disputed: pa.Table) -> None:
        self._offset, self._value, op = (integers(disputed, name, NOWHERE) for name in ("offset", "value", "op"))
        self._ops, self._row = np.unique(op, return_inverse=True)
        self._invoke = np.full(len(self._ops), NOWHERE)
        self._complete = np.full(len(self._ops), NEVER)

    def add(self, segment: Segment) -> None:
        if not len(self._ops):
            return
        readings = segment.readings
        row, of = _among(self._ops, segment.at("op", readings))
        self._invoke[row] = segment.column("invoke")[readings[of]]
        self._complete[row] = segment.column("complete")[readings[of]]

    def report(self, scope: Scope, anomalies: Anomalies) -> None:
        if not len(self._ops):
            return
        order = np.lexsort((self._complete[self._row], self._offset))
        offset, value, row = self._offset[order], self._value[order], self._row[order]
        starts = np.flatnonzero(np.append(True, offset[1:] != offset[:-1]))
        contradictions: dict[int, tuple[int, int]] = {}  # by offset: earlier row, later row
        for low, high in zip(starts.tolist(), [*starts[1:].tolist(), len(offset)], strict=True):
            # By what was read first, and by the first that is not that: one of them differs from any later reading.
            other = low + int(np.argmax(value[low:high] != value[low]))
            invoked, values = self._invoke[row[low:high]], value[low:high]
            for earlier in (low, other):
                after = np.flatnonzero((values != value[earlier]) & (invoked > self._complete[row[earlier]]))
                if len(after):
                    contradictions[int(offset[low])] = earlier, low + int(after[np.argmax(invoked[after])])
                    break
        for first, last in stretches(np.array(list(contradictions), np.int64)):
            if not anomalies.wanted(LOG_LINEARIZABILITY, "non-monotonic read"):
                anomalies.add_unlisted(LOG_LINEARIZABILITY, "non-monotonic read", 1, records=last - first + 1)
                continue
            earlier, later = contradictions[first]
            before, op = int(self._ops[row[earlier]]), int(self._ops[row[later]])
            more = f"; the same holds for the offsets up to {last}" if last > first else ""
            anomalies.add(
                LOG_LINEARIZABILITY,
                "non-monotonic read",
                f"read op {op} returned {value[later]} at offset {first} of {scope.log}, though it was invoked at "
                f"{seconds(int(self._invoke[row[later]]), scope.origin)}, after read op {before} had returned "
                f"{value[earlier]} there at {seconds(int(self._complete[row[earlier]]), scope.origin)}{more}",
                offset=first,
                value=int(value[later]),
                ops=[op, before],
                count=last - first + 1,
            )


def _report_gaps(scope: Scope, gaps: pa.Table, invocations: Ints, anomalies: Anomalies) -> None:
    """Both in order, the n-th gap goes to the n-th append: if that fails, every other assignment does."""
    offset, count, deadline = (integers(gaps, name, NOWHERE) for name in ("offset", "count", "deadline"))
    order = np.argsort(offset)
    offset, count, deadline = offset[order], count[order], deadline[order]
    until = np.cumsum(count)
    total = int(until[-1]) if len(until) else 0
    number = np.arange(min(total, len(invocations)))
    row = np.searchsorted(until, number, "right")
    late = np.flatnonzero(np.sort(invocations)[: len(number)] > deadline[row])
    unfilled = len(late) + total - len(number)
    if not unfilled:
        return
    nth = int(late[0]) if len(late) else len(number)
    of = int(np.searchsorted(until, nth, "right"))
    first = int(offset[of] + nth - (until[of] - count[of]))
    anomalies.add(
        LOG_LINEARIZABILITY,
        "phantom",
        f"{scope.log} was seen to hold {scope.end} records, but at {total} of these offsets nothing is known "
        f"to stand, and too few appends of unknown outcome were invoked in time to fill them; the first such "
        f"offset is {first}",
        offset=first,
        count=unfilled,
    )
