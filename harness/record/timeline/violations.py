"""What the checkers found, numbered, the worst first: V1, V2 … are the same in the report and for `chaos logs`.

What was lost is worse than what differs, and that than what was read in a wrong order. The weak ones, which fail no
run, come last.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from checkers.properties import (
    INVARIANTS,
    LOST_APPEND,
    NODE_PROPERTIES,
    V2_INVARIANTS,
    V2_PROPERTIES,
    VIOLATION,
    WEAK,
)

#: Anomalies from the worst on; those of nodes, and others, come where "…" stands.
ORDER: Final = (
    VIOLATION, LOST_APPEND, "phantom", "failed but visible", "replica divergence", "differs from the final log",
    "missing on a replica", "ends below the high watermark", "replica hole", "decreasing epoch", "unprocessed record",
    "skipped after rebalance", "skipped records", "lost commit", "phantom commit", "zombie commit", "two owners",
    "processed twice", "…",
    "inconsistent offset", "duplicate", "torn prefix", "skipped offset", "real-time inversion", "stale end of log",
    "non-monotonic read",
)  # fmt: skip
_RANKS: Final = {name: rank for rank, name in enumerate(ORDER)}
_COLUMNS: Final = ("property", "anomaly", "topic", "partition", "offset", "value", "ops", "count", "message", "witness")


@dataclass(frozen=True)
class Violation:
    """number: of V1, V2 … where: its partition, e.g. chaos-0; "": of none."""

    number: int
    broken: str  # the property
    anomaly: str
    where: str
    offset: int | None
    value: int | None
    ops: tuple[int, ...]
    count: int
    message: str
    witness: str | None

    @property
    def name(self) -> str:
        return f"V{self.number}"

    @property
    def weak(self) -> bool:
        return self.broken in WEAK

    def spans(self) -> list[tuple[int, int]]:
        """When its operations took place, monotonic ns; not the reads at the end of the run, which came long after."""
        try:
            operations = json.loads(self.witness or "{}").get("operations", [])
            return [
                (int(each["invoke"]), int(each["invoke"] if each["complete"] is None else each["complete"]))
                for each in operations
                if not str(each["what"]).startswith("final read")
            ]
        except (ValueError, KeyError, TypeError, AttributeError):  # a damaged row
            return []


@cache
def rank(property_: str, anomaly: str) -> tuple[int, int]:
    """Lower is worse."""
    inside = property_ in (*INVARIANTS, *NODE_PROPERTIES, *V2_PROPERTIES, *V2_INVARIANTS)
    known = _RANKS.get(anomaly, _RANKS["…"]) if anomaly != VIOLATION or not inside else _RANKS[VIOLATION]
    return int(property_ in WEAK), known


def read(directory: Path) -> list[Violation]:
    """Of a run's anomalies.parquet, in order; [] where there is none that can be read."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from spark_history.regular import NotRegular, require_regular

    path = directory / "anomalies.parquet"
    files = sorted(path.rglob("*.parquet")) if path.is_dir() else [path]
    rows: list[dict[str, Any]] = []
    for file in files:
        try:
            require_regular(file)
            with pq.ParquetFile(file) as parquet:
                present = [name for name in _COLUMNS if name in parquet.schema_arrow.names]
                rows += parquet.read(present, use_threads=False).to_pylist()
        except (OSError, NotRegular, pa.ArrowException):
            continue
    return numbered(rows)


def numbered(rows: list[dict[str, Any]]) -> list[Violation]:
    """rows: ANOMALIES."""
    rows = sorted(rows, key=_key)
    return [_violation(number, row) for number, row in enumerate(rows, 1)]


def _key(row: Mapping[str, Any]) -> tuple[Any, ...]:
    place = row.get("topic") or "", -1 if row.get("partition") is None else row["partition"]
    offset = -1 if row.get("offset") is None else row["offset"]
    named = str(row.get("property")), str(row.get("anomaly"))
    return (*rank(*named), *named, *place, offset, str(row.get("message")))


def _violation(number: int, row: Mapping[str, Any]) -> Violation:
    partition = row.get("partition")
    return Violation(
        number=number,
        broken=str(row.get("property") or ""),
        anomaly=str(row.get("anomaly") or ""),
        where="" if partition is None else f"{row.get('topic')}-{partition}",
        offset=row.get("offset"),
        value=row.get("value"),
        ops=tuple(row.get("ops") or ()),
        count=int(row.get("count") or 1),
        message=str(row.get("message") or ""),
        witness=row.get("witness"),
    )
