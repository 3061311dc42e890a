"""Was anything deleted that was not to be? A log may begin where a client had its records deleted up to (DeleteRecords,
KIP-107), or where records are older than retention.ms; what is above both must be there.

Of each partition, its bound is the highest offset of these:

- any that a client asked to have deleted, answered or not. Of a request for all below the high watermark what the
  answer tells; where that is an error, such as REQUEST_TIMED_OUT, which the leader gives once it has deleted, the first
  acknowledged record that was appended later; and where there is no answer, nothing is known: that partition is not
  judged;
- the lowest at which an acknowledged record stands that was not older than retention.ms at the end of the run. Where
  there is none, all may have gone. With retention.bytes, or clocks that were set, nothing is known.

Anomaly: deleted too much: acknowledged records from the bound on are below the start of the final log.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from checkers.anomalies import Anomalies
from checkers.log.scope import retention_ns
from checkers.properties import DELETION
from spark_history.files import Ints, equals, integers
from spark_history.log import NEVER, NOWHERE, FinalReads
from spark_history.schema import LAID_OUT_OPERATIONS

DELETED_TOO_MUCH: Final = "deleted too much"

#: What a table of operations needs.
_COLUMNS: Final = ("kind", "outcome", "offset", "high_watermark", "invoke", "complete")
COLUMNS: Final = pa.schema([LAID_OUT_OPERATIONS.field(name) for name in _COLUMNS])
#: Between a record's own time and its invocation, and between clocks of one machine.
_MARGIN_NS: Final = 1_000_000_000


class Log(NamedTuple):
    """tables: of its operations, COLUMNS at least. final_reads: what tells the final log."""

    topic: str
    partition: int
    tables: Iterable[pa.Table]
    final_reads: FinalReads


def applies(plan: Mapping[str, Any]) -> bool:
    return plan.get("log_start") == "moves"


@dataclass
class Deletion:
    """Of one run. by_log: where each log begins that does not begin at 0, and how many acknowledged records stood
    below. not_judged: logs of which nobody knows how far they were to be deleted."""

    anomalies: Anomalies
    by_log: dict[str, tuple[int, int]] = field(default_factory=dict)
    not_judged: list[str] = field(default_factory=list)

    @property
    def deleted(self) -> int:
        return sum(records for _, records in self.by_log.values())

    def as_dict(self) -> dict[str, Any]:
        logs = {log: {"begins_at": start, "deleted": deleted} for log, (start, deleted) in self.by_log.items()}
        return {"deleted": self.deleted, "not_judged": self.not_judged, "logs": logs}


def check(plan: Mapping[str, Any], run: str, logs: Iterable[Log], faults: Iterable[Mapping[str, Any]]) -> Deletion:
    """plan: the content of plan.json, of a run that this applies to. faults: rows of the table `faults`."""
    found = Deletion(Anomalies(run, None, None))
    retention = retention_ns(plan)
    if any(str(fault["nemesis"]).startswith("clock") for fault in faults):
        retention = 0
    for log in logs:
        start, name = log.final_reads.start, f"{log.topic}-{log.partition}"
        if start in (0, NEVER):
            continue
        offsets, bound = _bound(log, retention)
        found.by_log[name] = (start, int(np.count_nonzero(offsets < start)))
        if bound is None:
            found.not_judged.append(name)
        elif gone := int(np.count_nonzero((offsets >= bound) & (offsets < start))):
            found.anomalies.add(
                DELETION, DELETED_TOO_MUCH,
                f"{name} begins at offset {start}, and nothing from offset {bound} on was to be deleted: {gone:,} "
                "acknowledged records are gone", count=gone,
            )  # fmt: skip
    return found


def _bound(log: Log, retention: int | None) -> tuple[Ints, int | None]:
    """Offsets of acknowledged records, and from which offset on nothing was to be deleted; None: nobody knows.
    retention: see retention_ns()."""
    offsets, invoked = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    bound, until = 0, 0
    late = NOWHERE  # when the last deletion of all was over whose answer does not tell how far it went
    for table in log.tables:
        kept = equals(table, "outcome", "ok") & equals(table, "kind", "append")
        offset, invoke = integers(table, "offset", NOWHERE), integers(table, "invoke", 0)
        complete = integers(table, "complete", NOWHERE)
        kept &= offset != NOWHERE
        offsets.append(offset[kept])
        invoked.append(invoke[kept])
        until = max(until, int(complete.max(initial=0)), int(invoke.max(initial=0)))
        deletes = np.flatnonzero(equals(table, "kind", "delete_records") & ~equals(table, "outcome", "fail"))
        told, ok = integers(table, "high_watermark", NOWHERE), equals(table, "outcome", "ok")
        for row in deletes.tolist():
            if offset[row] >= 0 or (ok[row] and told[row] >= 0):
                bound = max(bound, int(offset[row]), int(told[row]) if offset[row] < 0 else 0)
            elif complete[row] != NOWHERE:
                late = max(late, int(complete[row]))
            else:
                bound = NEVER
    offset, invoke = np.concatenate(offsets), np.concatenate(invoked)
    if late != NOWHERE:
        bound = max(bound, int(offset[invoke > late].min(initial=NEVER)))
    if retention is not None:
        young = offset[invoke > until - retention + _MARGIN_NS]
        bound = max(bound, int(young.min(initial=NEVER)) if retention else NEVER)
    return offset, None if bound == NEVER else bound
