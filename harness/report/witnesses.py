"""What contradicts what, for a terminal: sentences, and drawings of the operations over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from harness.record import results
from spark_history.regular import require_regular

#: Of each anomaly.
SHOWN: Final = 2


def of_run(directory: Path) -> list[str]:
    """Lines for a judged run of a log; none if there is nothing that fails a run, or the files are not there."""
    import pyarrow.parquet as pq

    from checkers.properties import LOST_APPEND, WEAK

    try:
        require_regular(directory / "anomalies.parquet")
        rows = pq.read_table(directory / "anomalies.parquet").to_pylist()
    except (OSError, ValueError):
        return []
    origin = results.read_json(directory / "history" / "manifest.json").get("origin")
    rows = sorted((row for row in rows if row["property"] not in WEAK), key=lambda row: row["anomaly"] != LOST_APPEND)
    return lines_of(rows, origin if isinstance(origin, int) else 0)


def lines_of(rows: Sequence[Mapping[str, Any]], origin: int) -> list[str]:
    """Sentence and drawing of the first anomalies of each name."""
    from checkers.witness import draw

    lines: list[str] = []
    shown: dict[tuple[str, str], int] = {}
    for row in rows:
        key = row["property"], row["anomaly"]
        shown[key] = shown.get(key, 0) + 1
        if shown[key] > SHOWN:
            continue
        lines.append(f"{row['anomaly']}: {row['message']}")
        if row.get("witness"):
            lines += [f"    {line}" for line in draw(row["witness"], origin)]
    for (_, anomaly), count in shown.items():
        if count > SHOWN:
            lines.append(f"… and {count - SHOWN:,} more of {anomaly}")
    return lines
