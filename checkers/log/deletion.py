"""Was anything deleted that was not to be? A log may begin where a client had its records deleted up to (DeleteRecords,
KIP-107), or where records are older than retention.ms; what is above both must be there.

Of each partition, its bound is the highest offset of these:

- any that a client asked to have deleted, answered or not; of a request for all below the high watermark what the
  answer tells, and where there is no answer, nothing is known: that partition is not judged;
- the lowest at which an acknowledged record stands that was not older than retention.ms at the end of the run. Where
  there is none, all may have gone. With retention.bytes, or clocks that were set, nothing is known.

Anomaly: deleted too much: acknowledged records from the bound on are below the start of the final log.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from checkers.anomalies import Anomalies
from checkers.properties import DELETION
from spark_history.files import equals, integers
from spark_history.log import NEVER, NOWHERE, FinalReads
from spark_history.schema import LAID_OUT_OPERATIONS

DELETED_TOO_MUCH: Final = "deleted too much"

#: What a table of operations needs.
_COLUMNS: Final = ("kind", "outcome", "offset", "high_watermark", "invoke", "complete")
COLUMNS: Final = pa.schema([LAID_OUT_OPERATIONS.field(name) for name in _COLUMNS])
#: Between a record's own time and its invocation, and between clocks of one machine.
_MARGIN_NS: Final = 1_000_000_000
#: By setting, in ms.
_UNITS: Final = {"log.retention.ms": 1, "log.retention.minutes": 60_000, "log.retention.hours": 3_600_000}


class Log(NamedTuple):
    """tables: of its operations, COLUMNS at least. final_reads: what tells the final log."""

    topic: str
    partition: int
    tables: Iterable[pa.Table]
    final_reads: FinalReads


def applies(plan: Mapping[str, Any]) -> bool:
    return plan.get("log_start") == "moves"


def check(plan: Mapping[str, Any], run: str, logs: Iterable[Log], faults: Iterable[Mapping[str, Any]]) -> Anomalies:
    """plan: the content of plan.json. faults: rows of the table `faults`."""
    found = Anomalies(run, None, None)
    if not applies(plan):
        return found
    retention_ns = _retention_ns(plan)
    if any(str(fault["nemesis"]).startswith("clock") for fault in faults):
        retention_ns = 0
    for log in logs:
        start = log.final_reads.start
        if start in (0, NEVER):
            continue
        offsets, bound = _bound(log, retention_ns)
        gone = int(np.count_nonzero((offsets >= bound) & (offsets < start))) if bound is not None else 0
        if gone:
            found.add(
                DELETION, DELETED_TOO_MUCH,
                f"{log.topic}-{log.partition} begins at offset {start}, and nothing from offset {bound} on was to be "
                f"deleted: {gone:,} acknowledged records are gone", count=gone,
            )  # fmt: skip
    return found


def _bound(log: Log, retention_ns: int | None) -> tuple[np.ndarray[Any, Any], int | None]:
    """Offsets of acknowledged records, and from which offset on nothing was to be deleted; None: nobody knows.
    retention_ns: None: no age; 0: any may be too old."""
    offsets, invoked = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    bound, until = 0, 0
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
            up_to = int(offset[row])
            if up_to < 0:
                up_to = int(told[row]) if ok[row] and told[row] >= 0 else NEVER
            bound = max(bound, up_to)
    offset, invoke = np.concatenate(offsets), np.concatenate(invoked)
    if retention_ns is not None:
        young = offset[invoke > until - retention_ns + _MARGIN_NS]
        bound = max(bound, int(young.min(initial=NEVER)) if retention_ns else NEVER)
    return offset, None if bound == NEVER else bound


def _retention_ns(plan: Mapping[str, Any]) -> int | None:
    """None: nothing is deleted for its age; 0: what is deleted is not known."""
    settings = plan.get("settings")
    settings = settings if isinstance(settings, Mapping) else {}
    if str(settings.get("log.retention.bytes", "-1")).strip() != "-1":
        return 0
    for name, ms in _UNITS.items():  # the finest counts, as in Kafka
        if name in settings:
            text = str(settings[name]).strip()
            if text == "-1":
                return None
            return int(text) * ms * 1_000_000 if text.isascii() and text.isdigit() else 0
    return None
