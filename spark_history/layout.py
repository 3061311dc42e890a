"""Lay out the history of one log, or of a segment of one: operations by position, what reads returned by offset."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from spark_history.errors import HistoryError
from spark_history.files import Bools, Ints, equals, integers, nullable
from spark_history.log import NEVER, NOWHERE, WHOLE, FinalReads, Range, union
from spark_history.schema import LAID_OUT_OPERATIONS, LAID_OUT_READS, OPERATIONS


@dataclass(frozen=True)
class LaidOut:
    operations: pa.Table  # LAID_OUT_OPERATIONS, by position
    reads: pa.Table  # LAID_OUT_READS, by offset
    final_reads: FinalReads
    end: int  # the highest position that an ok operation is evidence of: the log was once this long
    orphans: int  # records whose read is not on record, or is not ok; left out


class ReadIndex:
    """What reads of one log returned, a file at a time: which range of it is kept, and facts of all of it."""

    def __init__(self, operations: pa.Table, part: Range) -> None:
        """operations: of this log, with every append that has no offset and every read."""
        self._part = part
        final = equals(operations, "kind", "final_read")
        rows = np.flatnonzero((equals(operations, "kind", "read") | final) & equals(operations, "outcome", "ok"))
        op = integers(operations, "op", NOWHERE)
        rows = rows[np.argsort(op[rows], kind="stable")]
        self.op = op = op[rows]
        self._final = final[rows]
        self._complete = integers(operations, "complete", NEVER)[rows]
        self._fetch = integers(operations, "offset", NOWHERE)[rows]
        self.first = np.full(len(op), NEVER)
        self.last = np.full(len(op), NOWHERE)
        self.records = np.zeros(len(op), np.int64)
        self.repeats = np.zeros(len(op), np.int64)
        self._sought = np.sort(integers(operations, "value", NOWHERE)[without_offset(operations)])
        self._found: list[tuple[Ints, Ints, Bools, Ints]] = []
        self._kept: list[tuple[Ints, Ints, Ints, Bools]] = []
        self.orphans = 0

    def add(self, op: Ints, offset: Ints, value: Ints) -> None:
        if not len(op):
            return
        row = np.searchsorted(self.op, op)
        known = row < len(self.op)
        known[known] = self.op[row[known]] == op[known]
        if not known.all():
            self.orphans += int(np.count_nonzero(~known))
            row, op, offset, value = row[known], op[known], offset[known], value[known]
            if not len(op):
                return
        self._summarise(row, offset)
        final = self._final[row]
        if len(self._sought):
            # They were sorted once: np.isin would sort all of them for each file of the journal.
            hit = among(self._sought, value)
            self._found.append((value[hit], offset[hit], final[hit], self._complete[row[hit]]))
        inside = self._part.holds(offset)
        if inside.all():
            self._kept.append((op, offset, value, final))
        else:
            self._kept.append((op[inside], offset[inside], value[inside], final[inside]))

    def _summarise(self, row: Ints, offset: Ints) -> None:
        # Records of one read stand together as they were recorded, so the runs are few.
        starts = np.flatnonzero(np.concatenate(([True], row[1:] != row[:-1])))
        run = row[starts]
        np.minimum.at(self.first, run, np.minimum.reduceat(offset, starts))
        np.maximum.at(self.last, run, np.maximum.reduceat(offset, starts))
        np.add.at(self.records, run, np.diff(np.append(starts, len(row))))
        repeated = np.concatenate(([False], offset[1:] <= offset[:-1]))
        repeated[starts] = False
        if repeated.any():
            np.add.at(self.repeats, row[repeated], 1)

    def records_kept(self) -> pa.Table:
        op, offset, value, final = _concatenate(self._kept, 4)
        return lay_out_reads(op, offset, value, final.astype(bool), torn=self.op[self._torn()])

    def _torn(self) -> Bools:
        """The reads that did not return every offset of their range once, in order."""
        start = np.where(self._fetch == NOWHERE, self.first, np.minimum(self._fetch, self.first))
        torn: Bools = (self.records > 0) & ((self.records != self.last - start + 1) | (self.repeats > 0))
        return torn

    def find(self, values: Ints) -> tuple[Ints, Ints]:
        """For each value of an append without an offset: the offset at which it was read (by a final read if any
        did, the lowest of several), and the earliest completion of a read that returned it."""
        value, offset, final, complete = _concatenate(self._found, 4)
        positions, observed = np.full(len(values), NOWHERE), np.full(len(values), NEVER)
        order = np.lexsort((offset, final == 0, value))
        value, offset, complete = value[order], offset[order], complete[order]
        distinct, first = np.unique(value, return_index=True)
        if len(distinct):
            earliest = np.minimum.reduceat(complete, first)
            row = np.minimum(np.searchsorted(distinct, values), len(distinct) - 1)
            hit = distinct[row] == values
            positions[hit], observed[hit] = offset[first][row[hit]], earliest[row[hit]]
        return positions, observed


def among(ordered: Ints, values: Ints) -> Bools:
    """Which of the values are in `ordered`, which is sorted: len(values) * log(len(ordered))."""
    if not len(ordered):
        return np.zeros(len(values), bool)
    found: Bools = ordered[np.minimum(np.searchsorted(ordered, values), len(ordered) - 1)] == values
    return found


def lay_out_reads(op: Ints, offset: Ints, value: Ints, final: Bools, *, torn: Ints) -> pa.Table:
    """LAID_OUT_READS of one log, from what its reads returned in any order. torn: reads of which every record is
    kept."""
    if not (offset[1:] >= offset[:-1]).all():
        order = np.argsort(offset, kind="stable")
        op, offset, value, final = op[order], offset[order], value[order], final[order]
    first = np.flatnonzero(np.concatenate((np.ones(min(len(offset), 1), bool), offset[1:] != offset[:-1])))
    if len(first) < len(offset):
        differs = np.concatenate(([False], (offset[1:] == offset[:-1]) & (value[1:] != value[:-1])))
        disputed = np.logical_or.reduceat(differs, first)
        last_final = np.maximum.reduceat(np.where(final, np.arange(len(offset)), NOWHERE), first)
        rows = np.where(last_final != NOWHERE, last_final, first)
        if disputed.any() or len(torn):
            kept = np.repeat(disputed, np.diff(first, append=len(offset)))
            kept |= among(np.sort(torn), op)
            kept[rows] = True
            rows = np.flatnonzero(kept)
        op, offset, value, final = op[rows], offset[rows], value[rows], final[rows]
    return pa.table([pa.array(column) for column in (op, offset, value, final)], schema=LAID_OUT_READS)


def lay_out(operations: pa.Table, index: ReadIndex, part: Range = WHOLE) -> LaidOut:
    """One log, or a segment of one.

    operations: OPERATIONS of this log; of its acknowledged appends those in `part` are enough. index: made from
    the same operations, with all records that reads returned added. Raises HistoryError if operations contradict
    themselves in a way that only a faulty recorder can cause.
    """
    _check_sanity(operations)
    append = equals(operations, "kind", "append")
    ok = equals(operations, "outcome", "ok")
    offset = integers(operations, "offset", NOWHERE)
    watermark = integers(operations, "high_watermark", NOWHERE)
    op, invoke = integers(operations, "op", NOWHERE), integers(operations, "invoke", 0)

    position = np.where(ok & (append | equals(operations, "kind", "list_offsets")), offset, NOWHERE)
    observed = np.full(len(op), NEVER)
    sought = without_offset(operations)
    position[sought], observed[sought] = index.find(integers(operations, "value", NOWHERE)[sought])

    first, last, records, repeats = (np.full(len(op), NOWHERE) for _ in range(4))
    read = ok & (equals(operations, "kind", "read") | equals(operations, "kind", "final_read"))
    row = np.searchsorted(index.op, op[read])
    first[read] = np.where(index.records[row] > 0, index.first[row], NOWHERE)
    last[read], records[read], repeats[read] = index.last[row], index.records[row], index.repeats[row]
    position[read] = np.maximum(watermark[read], last[read] + 1)

    extra = {"position": (position, NOWHERE), "observed": (observed, NEVER), "records": (records, NOWHERE)}
    extra |= {"first": (first, NOWHERE), "last": (last, NOWHERE), "repeats": (repeats, NOWHERE)}
    for name in LAID_OUT_OPERATIONS.names[len(OPERATIONS) :]:
        operations = operations.append_column(name, nullable(*extra[name]))
    final = read & equals(operations, "kind", "final_read") & part.holds(position)
    kept = np.flatnonzero(part.holds(position))
    kept = kept[np.argsort((2 * position + append)[kept], kind="stable")]
    evidence = ok & (position != NOWHERE)
    return LaidOut(
        operations=operations.take(pa.array(kept)),
        reads=index.records_kept(),
        final_reads=_final_reads(*(column[final] for column in (offset, first, last, position, invoke, op))),
        end=int((position + append)[evidence].max(initial=0)),
        orphans=index.orphans,
    )


def _final_reads(offset: Ints, first: Ints, last: Ints, bound: Ints, invoke: Ints, op: Ints) -> FinalReads:
    if not len(offset):
        return FinalReads()
    end = int(bound.max())
    spans = [(int(low), int(high) + 1) for low, high in zip(offset, last, strict=True) if high >= low]
    latest = int(np.argmax(np.where(bound == end, invoke, NOWHERE)))
    lowest = int(first[first != NOWHERE].min(initial=NEVER))
    return FinalReads(
        union(spans, end), int(offset.min()), end, int(invoke[latest]), int(op[latest]), lowest, int(offset.max())
    )


def without_offset(operations: pa.Table) -> Bools:
    """Appends whose place in the log only a read can tell: not acknowledged, or acknowledged unseen (acks=0)."""
    placed = equals(operations, "outcome", "ok") & (integers(operations, "offset", NOWHERE) != NOWHERE)
    unplaced: Bools = equals(operations, "kind", "append") & ~placed
    return unplaced


def _check_sanity(operations: pa.Table) -> None:
    """Every operation once, completed after it was invoked; every value appended once."""
    op = integers(operations, "op", NOWHERE)
    invoke, complete = integers(operations, "invoke", 0), integers(operations, "complete", NEVER)
    name = f"of {operations['topic'][0]}-{operations['partition'][0]}" if len(op) else ""
    if (twice := _repeated(op)) is not None:
        raise HistoryError(f"operation {twice} {name} is on record twice: the recorder is at fault, not the cluster")
    if (early := np.flatnonzero(complete < invoke)).size:
        raise HistoryError(f"operation {op[early[0]]} {name} completed before it was invoked: its times are wrong")
    if (open_ := np.flatnonzero(equals(operations, "outcome", "ok") & (complete == NEVER))).size:
        raise HistoryError(f"operation {op[open_[0]]} {name} is ok but has no completion")
    values = integers(operations, "value", NOWHERE)[equals(operations, "kind", "append")]
    if (twice := _repeated(values)) is not None:
        raise HistoryError(f"value {twice} {name} was appended twice: only unique values make a history decidable")


def _repeated(values: Ints) -> int | None:
    ordered = np.sort(values, kind="stable")  # they come nearly in order, of which this sort makes use
    again = np.flatnonzero(ordered[1:] == ordered[:-1])
    return int(ordered[again[0]]) if len(again) else None


def _concatenate(parts: Sequence[tuple[Any, ...]], columns: int) -> list[Ints]:
    return [np.concatenate([np.empty(0, np.int64), *(part[i] for part in parts)]) for i in range(columns)]
