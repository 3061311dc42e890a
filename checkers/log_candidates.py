"""What no segment of a log can decide alone: records out of place, lost appends, offsets that nothing explains."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from checkers.anomalies import LOG_LINEARIZABILITY, LOST, MAX_LOST_WITNESSES, Anomalies, seconds, stretches
from checkers.log_segment import MISPLACED, Scope, Segment
from spark_history.files import Ints, integers, read_parquet
from spark_history.lane import NOWHERE


def settle(
    scope: Scope, segments: Iterable[Segment], candidates: Mapping[str, Sequence[str]], anomalies: Anomalies
) -> pa.Table:
    """Decide the candidates of one log, files by kind: `lost` (LOST), `misplaced` (MISPLACED) and `gaps`
    (log_linearizability.GAPS). Returns the appends that are lost, in the order of offsets."""
    gaps = pa.schema([("offset", pa.int64()), ("deadline", pa.int64())])
    return settle_tables(
        scope,
        segments,
        lost=_read(candidates["lost"], LOST),
        misplaced=_read(candidates["misplaced"], MISPLACED),
        gaps=_read(candidates["gaps"], gaps),
        anomalies=anomalies,
    )


def _read(paths: Sequence[str], schema: pa.Schema) -> pa.Table:
    tables = [read_parquet(path, schema).cast(schema) for path in paths]
    return pa.concat_tables([schema.empty_table(), *tables])


def settle_tables(
    scope: Scope,
    segments: Iterable[Segment],
    *,
    lost: pa.Table,
    misplaced: pa.Table,
    gaps: pa.Table,
    anomalies: Anomalies,
) -> pa.Table:
    """See settle()."""
    moved = misplaced.filter(misplaced["final"])["value"]
    lost = lost.filter(pc.invert(pc.is_in(lost["value"], moved))).sort_by("offset")
    evidence = _Whereabouts(integers(misplaced, "value", NOWHERE))
    unplaced: list[Ints] = []
    for segment in segments:
        unplaced.append(segment.unplaced_invocations)
        evidence.add(segment)
    _report_misplaced(scope, misplaced, evidence, anomalies)
    _report_lost(scope, lost, anomalies)
    _report_gaps(scope, gaps, np.concatenate([np.empty(0, np.int64), *unplaced]), anomalies)
    return lost


class _Whereabouts:
    """Of some values: which were appended, and at which offsets each was read."""

    def __init__(self, values: Ints) -> None:
        self.values = np.unique(values)
        self.op = np.full(len(self.values), NOWHERE)
        self.position = np.full(len(self.values), NOWHERE)
        self._readings: list[Ints] = []

    def add(self, segment: Segment) -> None:
        if not len(self.values):
            return
        append = segment.kind("append")
        row, of = self._rows(segment.column("value")[append])
        self.op[row] = segment.column("op")[append][of]
        self.position[row] = segment.column("position")[append][of]
        row, of = self._rows(segment.read_column("value"))
        self._readings.append(np.unique(np.stack((row, segment.read_column("offset")[of])), axis=1))

    def _rows(self, values: Ints) -> tuple[Ints, Ints]:
        """(index into self.values, index into `values`) of those that are among self.values."""
        row = np.minimum(np.searchsorted(self.values, values), len(self.values) - 1)
        of = np.flatnonzero(self.values[row] == values)
        return row[of], of

    @property
    def offsets_read(self) -> Ints:
        """At how many offsets each value was read."""
        readings = np.concatenate([np.empty((2, 0), np.int64), *self._readings], axis=1)
        return np.bincount(np.unique(readings, axis=1)[0], minlength=len(self.values))


def _report_misplaced(scope: Scope, misplaced: pa.Table, evidence: _Whereabouts, anomalies: Anomalies) -> None:
    offset, value, op = (integers(misplaced, name, NOWHERE) for name in ("offset", "value", "op"))
    if not len(offset):
        return
    row = np.searchsorted(evidence.values, value)
    phantom = evidence.op[row] == NOWHERE
    duplicate = ~phantom & (evidence.offsets_read[row] > 1)
    for anomaly, mask in (
        ("phantom", phantom),
        ("duplicate", duplicate),
        ("inconsistent offset", ~phantom & ~duplicate),
    ):
        for first, last in stretches(np.unique(offset[mask])):
            at = np.flatnonzero(mask & (offset == first))[0]
            what = int(value[at])
            append, position = int(evidence.op[row[at]]), int(evidence.position[row[at]])
            message = f"read op {op[at]} returned {what} at offset {first} of {scope.log}, " + {
                "phantom": "a value that no append of this log ever wrote",
                "duplicate": f"which append op {append} wrote once, and which also stands at offset {position}",
                "inconsistent offset": f"but append op {append} had been told that it stands at offset {position}",
            }[anomaly]
            more = f"; the same holds for the offsets up to {last}" if last > first else ""
            anomalies.add(
                LOG_LINEARIZABILITY,
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
        if row["found"] is not None:
            instead = f"the final log holds {row['found']} there"
        elif row["offset"] >= end:
            instead = f"the final log ends before offset {end}"
        else:
            instead = "the final log does not hold that offset"
        anomalies.add(
            LOG_LINEARIZABILITY,
            "lost append",
            f"{row['value']} (append op {row['op']}) {was} at offset {row['offset']} of {scope.log}; {instead}",
            offset=row["offset"],
            value=row["value"],
            ops=[row["op"]],
        )
    anomalies.add_unlisted(LOG_LINEARIZABILITY, "lost append", max(lost.num_rows - MAX_LOST_WITNESSES, 0))


def _report_gaps(scope: Scope, gaps: pa.Table, invocations: Any, anomalies: Anomalies) -> None:
    """Both in order, the n-th gap goes to the n-th append: if that fails, every other assignment does."""
    offset, deadline = integers(gaps, "offset", NOWHERE), integers(gaps, "deadline", NOWHERE)
    order = np.argsort(offset)
    offset, deadline = offset[order], deadline[order]
    invoked = np.sort(invocations)[: len(offset)]
    unfilled = np.ones(len(offset), bool)
    unfilled[: len(invoked)] = invoked > deadline[: len(invoked)]
    if unfilled.any():
        first = int(offset[unfilled][0])
        anomalies.add(
            LOG_LINEARIZABILITY,
            "phantom",
            f"{scope.log} was seen to hold {scope.end} records, but at {len(offset)} of these offsets nothing is known "
            f"to stand, and too few appends of unknown outcome were invoked in time to fill them; the first such "
            f"offset is {first}",
            offset=first,
            count=int(np.count_nonzero(unfilled)),
        )
