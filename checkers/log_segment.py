"""One segment of one log in memory, and what its records alone tell: part (a) of log linearizability.

See log_linearizability.py for the definitions. What one segment cannot decide is returned as candidates.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from checkers.anomalies import LOG_LINEARIZABILITY, LOST, Anomalies, stretches
from spark_history.files import Bools, Ints, equals, integers, nullable, read_parquet
from spark_history.lane import NEVER, NOWHERE, FinalReads
from spark_history.schema import LAID_OUT_OPERATIONS, LAID_OUT_READS

#: What of the operations is needed here.
COLUMNS: Final = pa.schema(
    [field for field in LAID_OUT_OPERATIONS if field.name not in ("run", "process", "topic", "partition", "error")]
)

#: A record that a read returned where no append of its value is known to stand.
MISPLACED: Final = pa.schema(
    [("offset", pa.int64()), ("value", pa.int64()), ("op", pa.int64()), ("final", pa.bool_())]
)

_NONE_LOST: Final = LOST.empty_table()
_NONE_MISPLACED: Final = MISPLACED.empty_table()


@dataclass(frozen=True)
class Scope:
    """Which segment of which log, and what is known of the whole log."""

    run: str
    topic: str
    partition: int
    low: int
    high: int | None
    final_reads: FinalReads
    end: int  # how long the log once was, as far as any operation saw
    acks_all: bool
    origin: int  # monotonic ns at which the run began
    since: int  # acknowledgements from here on are counted apart, monotonic ns

    @property
    def log(self) -> str:
        return f"{self.topic}-{self.partition}"

    @staticmethod
    def of(unit: Mapping[str, Any]) -> Scope:
        final = FinalReads.of(unit["final_reads"])
        return Scope(final_reads=final, **{name: unit[name] for name in Scope.__annotations__ if name != "final_reads"})


@dataclass(frozen=True)
class Appends:
    """Columns of the appends that stand somewhere in the log, by position."""

    position: Ints
    value: Ints
    op: Ints
    invoke: Ints
    complete: Ints  # NEVER: not acknowledged
    observed: Ints  # of one not acknowledged: when a read first returned it
    leader_epoch: Ints
    failed: Bools
    acknowledged: Bools


@dataclass(frozen=True)
class Segment:
    scope: Scope
    operations: pa.Table  # COLUMNS
    reads: pa.Table  # LAID_OUT_READS
    _columns: dict[str, Any] = field(default_factory=dict, repr=False)  # as arrays, by name

    @staticmethod
    def load(scope: Scope, history: Path, paths: Mapping[str, str]) -> Segment:
        """Raises HistoryError."""
        return Segment(
            scope,
            read_parquet(history / paths["operations"], COLUMNS),
            read_parquet(history / paths["reads"], LAID_OUT_READS),
        )

    def column(self, name: str) -> Ints:
        if name not in self._columns:
            null = NEVER if name in ("complete", "observed") else NOWHERE
            self._columns[name] = integers(self.operations, name, null)
        column: Ints = self._columns[name]
        return column

    def kind(self, kind: str) -> Bools:
        return self._where("kind", kind)

    def outcome(self, outcome: str) -> Bools:
        return self._where("outcome", outcome)

    def _where(self, column: str, text: str) -> Bools:
        if text not in self._columns:
            self._columns[text] = equals(self.operations, column, text)
        where: Bools = self._columns[text]
        return where

    @cached_property
    def appends(self) -> Appends:
        standing = self.kind("append") & (self.column("position") != NOWHERE)
        names = ("position", "value", "op", "invoke", "complete", "observed", "leader_epoch")
        columns = {name: self.column(name)[standing] for name in names}
        ok = self.outcome("ok")[standing]
        columns["complete"] = np.where(ok, columns["complete"], NEVER)
        failed = self.outcome("fail")[standing]
        return Appends(**columns, failed=failed, acknowledged=ok)

    @cached_property
    def unplaced_invocations(self) -> Ints:
        """When those appends were invoked that may stand anywhere in the log, or nowhere."""
        may = self.kind("append") & ~self.outcome("fail") & (self.column("position") == NOWHERE)
        invocations: Ints = self.column("invoke")[may]
        return invocations

    def read_column(self, name: str) -> Ints:
        """A column of what reads returned."""
        key = f"reads.{name}"
        if key not in self._columns:
            self._columns[key] = integers(self.reads, name, NOWHERE)
        column: Ints = self._columns[key]
        return column

    @cached_property
    def final(self) -> Bools:
        final: Bools = self.reads["final"].to_numpy(zero_copy_only=False)
        return final


@dataclass(frozen=True)
class Contents:
    """What records agree and disagree with. Masks are over Segment.appends."""

    seen: Bools  # a read returned it where it stands
    in_final_log: Bools
    lost: Bools  # acknowledged or observed, and the final log does not hold it where it stood
    lost_rows: pa.Table  # LOST
    misplaced: pa.Table  # MISPLACED, each offset and value once


def check_contents(segment: Segment, anomalies: Anomalies) -> Contents:
    appends, offset, value = segment.appends, segment.read_column("offset"), segment.read_column("value")
    seen, in_final = np.zeros(len(appends.op), bool), np.zeros(len(appends.op), bool)
    matched = np.zeros(len(offset), bool)
    row, end = np.searchsorted(appends.position, offset), np.searchsorted(appends.position, offset, "right")
    # One append an offset, unless the log is broken: then each of those that claim it is tried.
    while (left := np.flatnonzero(row < end)).size:
        hit = left[appends.value[row[left]] == value[left]]
        matched[hit] = True
        seen[row[hit]] = True
        in_final[row[hit[segment.final[hit]]]] = True
        row = row + 1

    _report_failed(segment, anomalies)
    _report_crowded(segment, anomalies)
    _report_skipping(segment, anomalies)
    lost = _lost(segment, in_final)
    return Contents(seen, in_final, lost, _lost_rows(segment, lost), _misplaced(segment, ~matched))


def _lost(segment: Segment, in_final: Bools) -> Bools:
    appends, final = segment.appends, segment.scope.final_reads
    if not final.complete:
        return np.zeros(len(in_final), bool)
    done = np.minimum(appends.complete, appends.observed)
    due = (appends.position < final.end) | (done < final.time)
    lost: Bools = due & (done != NEVER) & ~appends.failed & ~in_final
    return lost


def _lost_rows(segment: Segment, lost: Bools) -> pa.Table:
    if not lost.any():
        return _NONE_LOST
    appends, scope = segment.appends, segment.scope
    offset, value = segment.read_column("offset")[segment.final], segment.read_column("value")[segment.final]
    position = appends.position[lost]
    found = np.full(len(position), NOWHERE)
    if len(offset):
        row = np.minimum(np.searchsorted(offset, position), len(offset) - 1)
        found = np.where(offset[row] == position, value[row], NOWHERE)
    columns = {
        "run": pa.array([scope.run] * len(position), pa.string()),
        "topic": pa.array([scope.topic] * len(position), pa.string()),
        "partition": pa.array([scope.partition] * len(position), pa.int32()),
        "offset": pa.array(position),
        "value": pa.array(appends.value[lost]),
        "op": pa.array(appends.op[lost]),
        "invoke": pa.array(appends.invoke[lost]),
        "complete": nullable(appends.complete[lost], NEVER),
        "observed": nullable(appends.observed[lost], NEVER),
        "found": nullable(found, NOWHERE),
    }
    return pa.table(columns, schema=LOST)


def _misplaced(segment: Segment, unmatched: Bools) -> pa.Table:
    if not unmatched.any():
        return _NONE_MISPLACED
    offset, value = segment.read_column("offset")[unmatched], segment.read_column("value")[unmatched]
    op, final = segment.read_column("op")[unmatched], segment.final[unmatched]
    order = np.lexsort((~final, value, offset))  # of those that returned the same, a final read stands for all
    offset, value, op, final = offset[order], value[order], op[order], final[order]
    distinct = np.ones(len(offset), bool)
    distinct[1:] = (offset[1:] != offset[:-1]) | (value[1:] != value[:-1])
    return pa.table([column[distinct] for column in (offset, value, op, final)], schema=MISPLACED)


def _report_failed(segment: Segment, anomalies: Anomalies) -> None:
    appends = segment.appends
    for row in np.flatnonzero(appends.failed):
        offset, value, op = (int(column[row]) for column in (appends.position, appends.value, appends.op))
        anomalies.add(
            LOG_LINEARIZABILITY,
            "failed but visible",
            f"the append of {value} (op {op}) failed, so it must have had no effect, but a read returned it at "
            f"offset {offset} of {segment.scope.log}",
            offset=offset, value=value, ops=[op],
        )  # fmt: skip


def _report_crowded(segment: Segment, anomalies: Anomalies) -> None:
    """Several appends at one offset."""
    appends = segment.appends
    same = np.flatnonzero(appends.position[1:] == appends.position[:-1])
    crowded = np.unique(appends.position[same])
    for first, last in stretches(crowded):
        low, high = np.searchsorted(appends.position, [first, first + 1])
        ops, values = appends.op[low:high], appends.value[low:high]
        claims = " and ".join(f"{value} (op {op})" for value, op in zip(values, ops, strict=True))
        more = f"; offsets {first} to {last} are all given twice" if last > first else ""
        anomalies.add(
            LOG_LINEARIZABILITY,
            "inconsistent offset",
            f"offset {first} of {segment.scope.log} was given to {claims}{more}",
            offset=first, value=int(values[0]), ops=ops, count=last - first + 1,
        )  # fmt: skip


def _report_skipping(segment: Segment, anomalies: Anomalies) -> None:
    """Reads that do not return every offset from where they began to where they ended, once."""
    fetch, first, last, records, op = (segment.column(name) for name in ("offset", "first", "last", "records", "op"))
    start = np.where(fetch == NOWHERE, first, np.minimum(fetch, first))
    due = last - start + 1
    for row in np.flatnonzero((records > 0) & (records != due)):
        kind = "final read" if segment.kind("final_read")[row] else "read"
        anomalies.add(
            LOG_LINEARIZABILITY,
            "skipped offset",
            f"a {kind} (op {op[row]}) of {segment.scope.log} from offset {start[row]} returned {records[row]} records "
            f"up to offset {last[row]}, where there are {due[row]} offsets",
            offset=int(start[row]), ops=[op[row]], count=abs(int(due[row] - records[row])),
        )  # fmt: skip
