"""From the wall clocks of nodes that log by them to the time line of the history, which is monotonic.

A run notes both clocks at its start (`clock` of run.json). Of runs of before that, two things tell: when the run was
started, and how long its first phases took, within a second or two; and the journal, a part of which was written right
after the last operation that it holds had completed, within milliseconds, unless its files were copied since.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

from spark_history.regular import read_object

_PARTS: Final = 40  # of a journal, that are looked at
_NEAR_NS: Final = 3_000_000_000


def now() -> dict[str, int]:
    """`clock` of run.json."""
    return {"wall_ns": time.time_ns(), "monotonic_ns": time.monotonic_ns()}


class Shift(NamedTuple):
    """While a fault held a node's wall clock, so much ahead of the true time: all monotonic ns."""

    start: int
    end: int
    ahead: int


@dataclass(frozen=True)
class WallClock:
    """Of the machine that the run was on."""

    offset: int  # monotonic minus wall, ns

    def monotonic(self, wall: int, shifts: Sequence[Shift] = ()) -> int:
        """wall: as a node told it. shifts: of this node's clock."""
        told = wall + self.offset
        return next((told - each.ahead for each in shifts if each.start <= told - each.ahead <= each.end), told)


def wall_clock(directory: Path, run: Mapping[str, Any]) -> WallClock | None:
    """run: run.json. None: nothing tells."""
    noted = run.get("clock")
    if isinstance(noted, Mapping):
        with suppress(KeyError, TypeError, ValueError):
            return WallClock(int(noted["monotonic_ns"]) - int(noted["wall_ns"]))
    about = _by_phases(run)
    offsets = list(_by_journal(directory))
    if offsets and (about is None or abs(max(offsets) - about) <= _NEAR_NS):
        return WallClock(max(offsets))
    return None if about is None else WallClock(about)


def _by_phases(run: Mapping[str, Any]) -> int | None:
    """The workload began when the first phases were over, which began with the run."""
    try:
        began = datetime.fromisoformat(run["started_at"]).timestamp() + 0.5  # it is cut to seconds
        took = float(run["phases"]["start"]) + float(run["phases"]["ready"])
        return int(run["workload_start_ns"]) - int((began + took) * 1e9)
    except (KeyError, TypeError, ValueError):
        return None


def _by_journal(directory: Path) -> Iterator[int]:
    """When operations of a part of the journal had all completed, less when it was written: never too late."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    written: dict[str, int] = {}
    with suppress(OSError, ValueError, TypeError):
        written = {name: when for name, _, when in read_object(directory / "history" / "manifest.json")["journal"]}
    for path in sorted((directory / "journal").glob("operations-*.parquet"))[-_PARTS:]:
        with suppress(OSError, pa.ArrowException, ValueError, AttributeError):
            footer = pq.read_metadata(path)
            column = footer.schema.names.index("complete")
            parts = (footer.row_group(number).column(column).statistics for number in range(footer.num_row_groups))
            last = max((each.max for each in parts if each is not None and each.has_min_max), default=None)
            if last is not None:
                yield int(last) - written.get(path.name, path.stat().st_mtime_ns)


def shifts(faults: Sequence[Mapping[str, Any]]) -> dict[str, list[Shift]]:
    """Of each node's clock. faults: FAULTS rows, evidence parsed. A drift is left out: it is small."""
    found: dict[str, list[Shift]] = {}
    for fault in faults:
        nodes = fault["evidence"].get("nodes")
        for node, own in nodes.items() if isinstance(nodes, Mapping) else ():
            ahead = own.get("clock_offset_ms") if isinstance(own, Mapping) else None
            if isinstance(ahead, int | float) and ahead:
                end = fault["end"] if fault["end"] is not None else 1 << 62
                found.setdefault(node, []).append(Shift(fault["start"], end, int(ahead * 1e6)))
    return found
