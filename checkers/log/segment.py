"""One segment of one log in memory, and what its records alone tell: part (a) of log linearizability.

See linearizability.py for the definitions. What one segment cannot decide is returned as candidates. Arrays are as
long as the segment's operations and in their order, `rows` index them; columns that only sentences need are read once
there is something to say.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from checkers.anomalies import LOST, MAX_WITNESSES, Anomalies, stretches
from checkers.log.scope import ANYWHERE, Scope
from checkers.properties import LOG_LINEARIZABILITY
from spark_history.files import Bools, Ints, codes, integers, nullable, read_parquet
from spark_history.log import NEVER, NOWHERE
from spark_history.schema import LAID_OUT_OPERATIONS, LAID_OUT_READS

KINDS: Final = ("append", "read", "list_offsets", "final_read", "delete_records")
APPEND, READ, LIST_OFFSETS, FINAL_READ, DELETE_RECORDS = range(5)
OUTCOMES: Final = ("ok", "fail", "info")
OK, FAIL, INFO = range(3)
Codes = npt.NDArray[np.int8]


def _columns(schema: pa.Schema, *names: str) -> pa.Schema:
    return pa.schema([schema.field(name) for name in names])


#: What every check needs; the others are read when they are asked for.
COLUMNS: Final = _columns(
    LAID_OUT_OPERATIONS,
    *("kind", "outcome", "value", "invoke", "complete", "position"),
    *("offset", "first", "last", "records", "repeats"),  # looked at where there are readings only
)
READ_COLUMNS: Final = _columns(LAID_OUT_READS, "offset", "value", "final")
_NULLS: Final = {"complete": NEVER, "observed": NEVER}  # and NOWHERE for all others

#: A record that a read returned where no append of its value is known to stand.
MISPLACED: Final = pa.schema([("offset", pa.int64()), ("value", pa.int64()), ("op", pa.int64()), ("final", pa.bool_())])
#: Every record that reads returned at an offset on whose value they do not agree.
DISPUTED: Final = pa.schema([("offset", pa.int64()), ("value", pa.int64()), ("op", pa.int64())])
#: Reads that did not return every offset of their range once, in order: from `start` to `last`.
TORN: Final = pa.schema(
    [(name, pa.int64()) for name in ("op", "start", "last", "records", "repeats")] + [("final", pa.bool_())]
)


@dataclass(frozen=True)
class Segment:
    scope: Scope
    operations: pa.Table  # LAID_OUT_OPERATIONS, at least COLUMNS
    reads: pa.Table  # LAID_OUT_READS, at least READ_COLUMNS
    files: tuple[Path, Path] | None = None  # of both tables, where these lack columns
    _cache: dict[str, Any] = field(default_factory=dict, repr=False)

    @staticmethod
    def load(scope: Scope, history: Path, paths: Mapping[str, str]) -> Segment:
        """Raises HistoryError."""
        files = history / paths["operations"], history / paths["reads"]
        return Segment(scope, read_parquet(files[0], COLUMNS), read_parquet(files[1], READ_COLUMNS), files)

    def __len__(self) -> int:
        return int(self.operations.num_rows)

    def column(self, name: str) -> Ints:
        return self._column("operations", self.operations, LAID_OUT_OPERATIONS, name)

    def read_column(self, name: str) -> Ints:
        """A column of what reads returned."""
        return self._column("reads", self.reads, LAID_OUT_READS, name)

    def _column(self, of: str, table: pa.Table, schema: pa.Schema, name: str) -> Ints:
        key = f"{of}.{name}"
        if key not in self._cache:
            self._cache[key] = integers(self._table(of, table, schema, name), name, _NULLS.get(name, NOWHERE))
        column: Ints = self._cache[key]
        return column

    def _table(self, of: str, table: pa.Table, schema: pa.Schema, name: str) -> pa.Table:
        if name in table.column_names or self.files is None:
            return table
        key = f"{of}.{name} as read"
        if key not in self._cache:
            self._cache[key] = read_parquet(self.files[of == "reads"], _columns(schema, name))
        read: pa.Table = self._cache[key]
        return read

    def at(self, name: str, rows: Ints) -> Ints:
        """A column of some rows, which may be few."""
        table = self._table("operations", self.operations, LAID_OUT_OPERATIONS, name)
        return integers(table.select([name]).take(pa.array(rows)), name, _NULLS.get(name, NOWHERE))

    @cached_property
    def kind(self) -> Codes:
        return codes(self.operations, "kind", KINDS)

    @cached_property
    def outcome(self) -> Codes:
        return codes(self.operations, "outcome", OUTCOMES)

    @cached_property
    def final(self) -> Bools:
        final: Bools = self.reads["final"].to_numpy(zero_copy_only=False)
        return final

    @cached_property
    def placed(self) -> int:
        """The first row that stands somewhere in the log."""
        return int(np.searchsorted(self.column("position"), 0))

    @cached_property
    def appends(self) -> Ints:
        """Rows of the appends that stand somewhere in the log, in the order of offsets."""
        rows: Ints = self.placed + np.flatnonzero(self.kind[self.placed :] == APPEND)
        return rows

    @cached_property
    def unsure(self) -> Ints:
        """Those of `appends` that were not acknowledged."""
        rows: Ints = self.appends[self.outcome[self.appends] != OK]
        return rows

    @cached_property
    def readings(self) -> Ints:
        """Rows of the readings that prove something of the log's end."""
        rows: Ints = self.placed + np.flatnonzero(self.kind[self.placed :] != APPEND)
        return rows

    @cached_property
    def acknowledged_at(self) -> Ints:
        """`complete`, but NEVER of appends that were not acknowledged."""
        complete = self.column("complete")
        if len(self.unsure):
            complete = complete.copy()
            complete[self.unsure] = NEVER
        return complete

    @cached_property
    def unplaced_invocations(self) -> Ints:
        """When those appends were invoked that may stand anywhere in the log, or nowhere."""
        nowhere = slice(0, self.placed)
        may = (self.kind[nowhere] == APPEND) & (self.outcome[nowhere] != FAIL)
        invocations: Ints = self.column("invoke")[nowhere][may]
        return invocations

    @cached_property
    def reach(self) -> int:
        """Offsets from `low` on up to which a table of offsets is made; 0: it would be far longer than the segment."""
        last = 0
        for offsets in (self.column("position"), self.read_column("offset")):
            last = max(last, int(offsets[-1]) + 1 if len(offsets) else 0)
        size = last - self.scope.low
        return size if 0 < size <= 16 * (len(self) + len(self.reads)) + 1024 else 0


@dataclass(frozen=True)
class Contents:
    """What records agree and disagree with. Masks are over the segment's rows."""

    seen: Bools  # a read returned it where it stands
    in_final_log: Bools
    lost: Ints  # rows: acknowledged or observed, and the final log does not hold it where it stood
    candidates: Mapping[str, pa.Table]  # CANDIDATES


#: What the whole log must be looked at for, and the columns of each. cleaned: the last of each key that a compacted
#: segment no longer holds: it must have been replaced by a later one.
CANDIDATES: Final = {"lost": LOST, "cleaned": LOST, "misplaced": MISPLACED, "disputed": DISPUTED, "torn": TORN}


def check_contents(segment: Segment, anomalies: Anomalies) -> Contents:
    seen, in_final = np.zeros(len(segment), bool), np.zeros(len(segment), bool)
    unmatched = _match(segment, seen, in_final)
    _report_failed(segment, anomalies)
    _report_crowded(segment, anomalies)
    lost, cleaned = _lost(segment, in_final)
    candidates = {
        "lost": _lost_rows(segment, lost),
        "cleaned": _lost_rows(segment, _last_of_each_key(segment, cleaned)),
        "misplaced": _misplaced(segment, unmatched),
        "disputed": _disputed(segment),
        "torn": _torn(segment),
    }
    return Contents(seen, in_final, lost, candidates)


def _match(segment: Segment, seen: Bools, in_final: Bools) -> Ints:
    """Find the append of every record read; returns the records that have none."""
    appends, low = segment.appends, segment.scope.low
    position, values = segment.column("position")[appends], segment.column("value")
    offset, value = segment.read_column("offset"), segment.read_column("value")
    crowded = bool((position[1:] == position[:-1]).any())
    if segment.reach and not crowded:
        rows = np.full(segment.reach, NOWHERE, np.int32)
        rows[position - low] = appends
        row = rows[offset - low]
        # Row -1 reads some value, which does not count.
        matched = (values[row] == value) & (row >= 0) if len(values) else np.zeros(len(row), bool)
        all_matched = bool(matched.all())
        hit = row if all_matched else row[matched]
        seen[hit] = True
        in_final[hit[segment.final if all_matched else segment.final[matched]]] = True
        return np.empty(0, np.int64) if all_matched else np.flatnonzero(~matched)
    found = np.zeros(len(offset), bool)
    at, end = np.searchsorted(position, offset), np.searchsorted(position, offset, "right")
    # One append an offset, unless the log is broken: then each of those that claim it is tried.
    while (left := np.flatnonzero(at < end)).size:
        hit = left[values[appends[at[left]]] == value[left]]
        found[hit] = True
        seen[appends[at[hit]]] = True
        in_final[appends[at[hit[segment.final[hit]]]]] = True
        at = at + 1
    return np.flatnonzero(~found)


def _lost(segment: Segment, in_final: Bools) -> tuple[Ints, Ints]:
    """Those, and what a compacted log no longer holds."""
    scope, final = segment.scope, segment.scope.final_reads
    cleaned = np.empty(0, np.int64)
    if not scope.final_known:
        return cleaned, cleaned
    appends = segment.appends
    missing = appends[~in_final[appends]]
    if len(missing):
        position, done = segment.column("position")[missing], segment.acknowledged_at[missing]
        done = np.minimum(done, segment.at("observed", missing))
        due = (position < final.end) | (done < final.time)
        due &= (done != NEVER) & (segment.outcome[missing] != FAIL)
        due &= position >= max(final.start, segment.scope.asked_from)
        if scope.options.compacted:  # what something stands above may have been cleaned away
            at_odds = (position > final.last) | (_in_final_log(segment, position) != NOWHERE)
            cleaned, due = missing[due & ~at_odds], due & at_odds
        missing = missing[due]
    return np.concatenate((_untold(segment), missing)), cleaned


def _last_of_each_key(segment: Segment, cleaned: Ints) -> Ints:
    """cleaned: rows, in the order of offsets."""
    keys = segment.scope.options.keys
    if not keys or not len(cleaned):
        return np.empty(0, np.int64)
    _, from_the_end = np.unique(segment.column("value")[cleaned][::-1] % keys, return_index=True)
    rows: Ints = cleaned[len(cleaned) - 1 - from_the_end]
    return rows


def _untold(segment: Segment) -> Ints:
    """Acknowledged without an offset (DUPLICATE_SEQUENCE_NUMBER has none), and found nowhere in a log that is known
    from its very start: where records may be gone from the start of the log, it may have been one of these."""
    scope, nowhere = segment.scope, slice(0, segment.placed)
    if scope.final_reads.start > 0 or scope.asked_from > 0 or scope.options.compacted or not scope.options.acks_all:
        return np.empty(0, np.int64)
    late = segment.column("complete")[nowhere] < scope.final_reads.time
    rows: Ints = np.flatnonzero(late & (segment.kind[nowhere] == APPEND) & (segment.outcome[nowhere] == OK))
    return rows


def _in_final_log(segment: Segment, offsets: Ints) -> Ints:
    """The value that the final log holds at each offset."""
    offset, value = segment.read_column("offset")[segment.final], segment.read_column("value")[segment.final]
    if not len(offset):
        return np.full(len(offsets), NOWHERE)
    row = np.minimum(np.searchsorted(offset, offsets), len(offset) - 1)
    return np.where(offset[row] == offsets, value[row], NOWHERE)


def _lost_rows(segment: Segment, lost: Ints) -> pa.Table:
    if not len(lost):
        return CANDIDATES["lost"].empty_table()
    scope, position = segment.scope, segment.column("position")[lost]
    columns = {
        "run": pa.array([scope.run] * len(lost), pa.string()),
        "topic": pa.array([scope.topic] * len(lost), pa.string()),
        "partition": pa.array([scope.partition] * len(lost), pa.int32()),
        "offset": nullable(position, NOWHERE),
        "value": pa.array(segment.column("value")[lost]),
        "op": pa.array(segment.at("op", lost)),
        "invoke": pa.array(segment.column("invoke")[lost]),
        "complete": nullable(np.where(segment.outcome[lost] == OK, segment.column("complete")[lost], NEVER), NEVER),
        "observed": nullable(segment.at("observed", lost), NEVER),
        "found": nullable(_in_final_log(segment, position), NOWHERE),
    }
    return pa.table(columns, schema=LOST)


def _misplaced(segment: Segment, unmatched: Ints) -> pa.Table:
    if not len(unmatched):
        return CANDIDATES["misplaced"].empty_table()
    offset, value = segment.read_column("offset")[unmatched], segment.read_column("value")[unmatched]
    op, final = segment.read_column("op")[unmatched], segment.final[unmatched]
    order = np.lexsort((~final, value, offset))  # of those that returned the same, a final read stands for all
    offset, value, op, final = offset[order], value[order], op[order], final[order]
    distinct = np.ones(len(offset), bool)
    distinct[1:] = (offset[1:] != offset[:-1]) | (value[1:] != value[:-1])
    return pa.table([column[distinct] for column in (offset, value, op, final)], schema=MISPLACED)


def _disputed(segment: Segment) -> pa.Table:
    offset, value = segment.read_column("offset"), segment.read_column("value")
    differ = np.flatnonzero((offset[1:] == offset[:-1]) & (value[1:] != value[:-1]))
    if not len(differ):
        return CANDIDATES["disputed"].empty_table()
    rows = np.flatnonzero(np.isin(offset, offset[differ]))
    return pa.table([offset[rows], value[rows], segment.read_column("op")[rows]], schema=DISPUTED)


def _torn(segment: Segment) -> pa.Table:
    rows, options = segment.readings, segment.scope.options
    fetch, first, last, records, repeats = (
        segment.at(name, rows) for name in ("offset", "first", "last", "records", "repeats")
    )
    start = np.where(fetch == NOWHERE, first, np.minimum(fetch, first))
    # What lay below the log's start may have been deleted before the fetch.
    start = first if options.log_start == ANYWHERE else np.maximum(start, np.minimum(first, options.log_start))
    due = last - start + 1
    torn = (records > 0) & ((repeats > 0) | (not options.compacted) & (records != due))
    if not torn.any():
        return CANDIDATES["torn"].empty_table()
    final = segment.kind[rows[torn]] == FINAL_READ
    columns = [segment.at("op", rows[torn]), *(column[torn] for column in (start, last, records, repeats)), final]
    return pa.table(columns, schema=TORN)


def _report_failed(segment: Segment, anomalies: Anomalies) -> None:
    failed = segment.unsure[segment.outcome[segment.unsure] == FAIL]
    if not len(failed):
        return
    anomalies.add_unlisted(LOG_LINEARIZABILITY, "failed but visible", max(len(failed) - MAX_WITNESSES, 0))
    failed = failed[:MAX_WITNESSES]
    position, value = segment.column("position")[failed], segment.column("value")[failed]
    for offset, what, op in zip(position.tolist(), value.tolist(), segment.at("op", failed).tolist(), strict=True):
        anomalies.add(
            LOG_LINEARIZABILITY,
            "failed but visible",
            f"the append of {what} (op {op}) failed, so it must have had no effect, but a read returned it at "
            f"offset {offset} of {segment.scope.log}",
            offset=offset, value=what, ops=[op, *readers(segment, offset, what)],
        )  # fmt: skip


def readers(segment: Segment, offset: int, value: int) -> Sequence[int]:
    """One operation that read this value there, if this segment has one."""
    offsets = segment.read_column("offset")
    low, high = np.searchsorted(offsets, [offset, offset + 1])
    rows = low + np.flatnonzero(segment.read_column("value")[low:high] == value)[:1]
    return [int(op) for op in segment.read_column("op")[rows]]


def _report_crowded(segment: Segment, anomalies: Anomalies) -> None:
    """Several appends at one offset."""
    position = segment.column("position")[segment.appends]
    crowded = np.unique(position[np.flatnonzero(position[1:] == position[:-1])])
    for first, last in stretches(crowded):
        low, high = np.searchsorted(position, [first, first + 1])
        rows = segment.appends[low:high]
        ops, values = segment.at("op", rows), segment.column("value")[rows]
        claims = " and ".join(f"{value} (op {op})" for value, op in zip(values, ops, strict=True))
        more = f"; offsets {first} to {last} are all given twice" if last > first else ""
        anomalies.add(
            LOG_LINEARIZABILITY,
            "inconsistent offset",
            f"offset {first} of {segment.scope.log} was given to {claims}{more}",
            offset=first, value=int(values[0]), ops=ops, count=last - first + 1,
        )  # fmt: skip
