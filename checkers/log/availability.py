"""Availability and latency: what clients noticed, per partition and fault window, and beside all faults.

An append counts where it completed. Its latency is from invocation to acknowledgement, and is that of acknowledged
appends alone. Percentiles are by nearest rank: p99 is the smallest latency such that 99 % of all are no longer.

The *stream* of a partition, or of the run, is the times of its acknowledgements, from the first invocation of any
append of the run to the last; a stretch between two of them, or before the first or after the last, is a *gap*. Gaps
longer than the stream's threshold are counted: MIN_GAP_NS, or GAP_MEANS times its mean interval if that is longer, so
that a low rate is no outage. *Served* is the share of the time that is in no outage: in no gap longer than OUTAGE_NS,
or than OUTAGE_USUAL times the usual one. A gap belongs to a fault window if any part of it lies in
there; a window is from the strike to the heal (or the end), both inclusive.

*Recovery* after a moment (the strike, the heal) is the time to the next acknowledgement, and to sustained
acknowledgement: to the first one after which no gap longer than the threshold begins within SUSTAINED_NS. Of several
partitions the slowest counts; null: never.

Exact up to EXACT_APPENDS operations, whose times are looked at here. Beyond, a task a segment
(spark_history/spark/tasks.py) sends what is needed to put together

* latencies rounded to their 11 highest bits, counted: percentiles are off by less than ERROR of their value, maxima
  and counts are exact;
* of each stretch of WIDTH_MIN_NS (or 1 / MOST_STRETCHES of the run) the first and the last acknowledgement: gaps longer
  than that, and the first acknowledgement after each strike and heal, at which stretches are cut too, are exact.
  Thresholds are at least twice as long.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from checkers.log.streams import ERROR, Fault, Part, Stream, Window, Windows, measure, ms, second
from spark_history.files import read_parquet
from spark_history.log import NEVER
from spark_history.schema import OPERATIONS
from spark_history.spark.tasks import Engine, Unit, run_tasks

if TYPE_CHECKING:
    from spark_history.ingest import History

EXACT_APPENDS: Final = 10_000_000
WIDTH_MIN_NS: Final = 1_000_000
MOST_STRETCHES: Final = 1 << 18
#: Of partitions in the result; the others are counted.
MOST_PARTITIONS: Final = 64
_COLUMNS: Final = pa.schema([OPERATIONS.field(name) for name in ("kind", "outcome", "invoke", "complete")])


def summarise(parts: Sequence[Part], windows: Windows, origin: int, width: int = 0) -> dict[str, Any]:
    """`availability` of verdict.json:

    exact, error (relative, of percentiles); threshold_ms etc. as in gaps(): {acknowledged, latency_ms, gaps} of all;
    outside and in_force: {seconds, acknowledged, latency_ms}, outside with longest_gap_ms;
    windows: [{fault, nemesis, targets, from_s, until_s (null: never healed), acknowledged, latency_ms, longest_gap_ms
    and gap_on (the partition with the longest), recovery}], recovery {from_strike_ms, from_heal_ms,
    sustained_from_strike_ms, sustained_from_heal_ms} (null: never, or never healed);
    least_served: {partition, share}, the partition that was served for the smallest share of the time;
    partitions: [{partition, acknowledged, latency_ms, gaps, outside, windows: [{fault, acknowledged, latency_ms,
    longest_gap_ms, recovery}]}]; unlisted: {windows, partitions}; further_windows, if windows are unlisted: of each of
    those {fault, nemesis, until_s, longest_gap_ms, gap_on, recovery}.

    latency_ms is {p50, p90, p99, p99.9, max}, or null where nothing was acknowledged. At most MOST_WINDOWS windows and
    MOST_PARTITIONS partitions, those with the longest gaps."""
    begin = min((part.first for part in parts), default=NEVER)
    if begin == NEVER:
        return {"exact": True, "error": 0.0, "acknowledged": 0, "latency_ms": None, "gaps": None, "outside": None,
                "in_force": None, "least_served": None, "windows": [], "partitions": [],
                "unlisted": {"windows": 0, "partitions": 0},
                }  # fmt: skip
    end = max(part.last for part in parts)
    by_name: dict[str, list[Part]] = {}
    for part in parts:
        by_name.setdefault(part.name, []).append(part)
    whole = Stream(parts, begin, end, width)
    streams = {name: Stream(own, begin, end, width) for name, own in by_name.items()}
    everything = [range(len(windows.edges) + 1)]
    until = max([end, *(int(part.times[-1]) for part in parts if len(part.times))])
    spent = sum(max(min(high, until) - max(low, begin), 0) for low, high in windows.in_force)
    calm = _calm(windows, begin, until)
    outside = windows.outside
    gaps = {name: stream.gaps(origin) for name, stream in streams.items()}
    calmest = {name: _longest(stream, calm) for name, stream in streams.items()}
    of_partition = []
    worst = sorted(streams, key=lambda name: -gaps[name]["longest_ms"])[:MOST_PARTITIONS]
    for name in sorted(worst, key=_natural):
        stream = streams[name]
        cells = [_window(stream, window, windows) for window in windows.listed]
        cell = stream.cell(everything)
        of_partition.append(
            {"partition": name, **cell, "gaps": gaps[name],
             "outside": {**(stream.cell(outside) if windows.in_force else cell), "longest_gap_ms": calmest[name]},
             "windows": cells}
        )  # fmt: skip
    cell = whole.cell(everything)
    served = {name: stream.share_served() for name, stream in streams.items()}
    least = min(served, key=lambda name: served[name])
    return {
        "exact": not width,
        "least_served": {"partition": least, "share": served[least]},
        "error": ERROR if width else 0.0,
        **cell,
        "gaps": whole.gaps(origin),
        "outside": {
            "seconds": round((until - begin - spent) / 1e9, 3), **(whole.cell(outside) if windows.in_force else cell),
            "longest_gap_ms": max(calmest.values(), default=0.0),
        },
        "in_force": {
            "seconds": round(spent / 1e9, 3),
            **whole.cell([windows.intervals(low, high) for low, high in windows.in_force]),
        },
        "windows": [_of_all(whole, streams, window, windows, origin) for window in windows.listed],
        "partitions": of_partition,
        "unlisted": {"windows": len(windows.unlisted), "partitions": len(streams) - len(of_partition)},
        **({"further_windows": [_worst(streams, window, origin) for window in windows.unlisted]}
           if windows.unlisted else {}),
    }  # fmt: skip


def _calm(windows: Windows, begin: int, until: int) -> list[tuple[int, int]]:
    """Stretches in which no fault was in force."""
    starts = [begin, *(high + 1 for _, high in windows.in_force)]
    ends = [*(low - 1 for low, _ in windows.in_force), until]
    return [(low, high) for low, high in zip(starts, ends, strict=True) if high > low]


def _longest(stream: Stream, calm: Sequence[tuple[int, int]]) -> Any:
    return ms(max((stream.longest_between(low, high) for low, high in calm), default=0))


def _window(stream: Stream, window: Window, windows: Windows) -> dict[str, Any]:
    return {
        "fault": window.fault["fault"],
        **stream.cell([windows.intervals(window.start, window.end)]),
        "longest_gap_ms": ms(stream.longest_gap(window.start, window.end)),
        "recovery": {key: ms(value) for key, value in _recoveries(stream, window).items()},
    }


def _of_all(
    whole: Stream, streams: Mapping[str, Stream], window: Window, windows: Windows, origin: int
) -> dict[str, Any]:
    """Of the run: latency of all appends, gaps and recovery of the partition that fared worst."""
    fault, worst = window.fault, _worst(streams, window, origin)
    return {
        "fault": fault["fault"], "nemesis": fault["nemesis"], "targets": list(fault["targets"] or ()),
        "from_s": second(window.start, origin), "until_s": worst["until_s"],
        **whole.cell([windows.intervals(window.start, window.end)]),
        "longest_gap_ms": worst["longest_gap_ms"], "gap_on": worst["gap_on"], "recovery": worst["recovery"],
    }  # fmt: skip


def _worst(streams: Mapping[str, Stream], window: Window, origin: int) -> dict[str, Any]:
    fault = window.fault
    of = {name: _recoveries(stream, window) for name, stream in streams.items()}
    gaps = {name: stream.longest_gap(window.start, window.end) for name, stream in streams.items()}
    gap_on = max(gaps, key=lambda name: gaps[name])
    slowest = {key: _slowest([each[key] for each in of.values()]) for key in next(iter(of.values()))}
    return {
        "fault": fault["fault"], "nemesis": fault["nemesis"],
        "until_s": None if fault["end"] is None else second(fault["end"], origin),
        "longest_gap_ms": ms(gaps[gap_on]), "gap_on": gap_on,
        "recovery": {key: ms(value) for key, value in slowest.items()},
    }  # fmt: skip


def _recoveries(stream: Stream, window: Window) -> dict[str, int | None]:
    healed = window.fault["end"]
    return {
        "from_strike_ms": stream.next_after(window.start),
        "from_heal_ms": None if healed is None else stream.next_after(healed),
        "sustained_from_strike_ms": stream.sustained_after(window.start),
        "sustained_from_heal_ms": None if healed is None else stream.sustained_after(healed),
    }


def _slowest(of: Sequence[int | None]) -> int | None:
    known = [value for value in of if value is not None]
    return max(known) if len(known) == len(of) else None


def _natural(name: str) -> tuple[str, int]:
    stem, _, number = name.rpartition("-")
    return (stem, int(number)) if number.isdecimal() else (name, -1)


# -- where the operations are ---------------------------------------------------------------------------------------


def of_tables(
    logs: Iterable[tuple[str, pa.Table]], faults: Iterable[Fault], origin: int, topic: str | None = None
) -> dict[str, Any]:
    """In memory. logs: name and operations of each. topic: see scope.lasting_topic()."""
    windows = Windows.of(faults)
    looked_at = [(name, table) for name, table in logs if topic in (None, name.rpartition("-")[0])]
    return summarise([measure(name, operations, windows) for name, operations in looked_at], windows, origin)


def of_history(
    history: History, faults: Iterable[Fault], rows: int, engine: Engine | None, topic: str | None = None
) -> dict[str, Any]:
    """Of a history that is laid out. rows: about how many operations it holds; engine may be None if they are no more
    than EXACT_APPENDS. topic: see scope.lasting_topic(). Raises HistoryError."""
    windows = Windows.of(faults)
    files = [
        (f"{log.topic}-{log.partition}", str(history.path / segment.paths["operations"]))
        for log in history.logs
        if topic in (None, log.topic)
        for segment in log.segments
    ]
    if rows <= EXACT_APPENDS or engine is None:
        with ThreadPoolExecutor() as threads:
            read = threads.map(lambda file: measure(file[0], read_parquet(file[1], _COLUMNS), windows), files)
            return summarise(list(read), windows, history.origin)
    width = max(WIDTH_MIN_NS, (history.until - history.origin) // MOST_STRETCHES)
    unit = {"faults": [_plain(fault) for fault in faults], "width": width}
    parts = run_tasks(engine, measure_file, [unit | {"name": name, "path": path} for name, path in files])
    return summarise([_part(part) for part in parts], windows, history.origin, width)


def _plain(fault: Fault) -> dict[str, Any]:
    """What of a fault a task needs."""
    skipped = {"skipped": ""} if "skipped" in fault["evidence"] else {}
    return {name: fault[name] for name in ("fault", "start", "end", "effective")} | {"evidence": skipped}


def measure_file(unit: Unit) -> pa.Table:
    """One segment: a Part in one row."""
    windows = Windows.of(unit["faults"])
    part = measure(unit["name"], read_parquet(unit["path"], _COLUMNS), windows, unit["width"])
    counts = part.counts if part.counts is not None else np.ones(len(part.latency), np.int64)
    columns = {"latency": part.latency, "counts": counts, "bounds": part.bounds, "times": part.times}
    row: dict[str, Any] = {name: pa.array([values], pa.large_list(pa.int64())) for name, values in columns.items()}
    row |= {"name": [part.name], "distinct": [part.distinct], "first": [part.first], "last": [part.last]}
    return pa.table(row)


def _part(row: pa.Table) -> Part:
    latency, counts, bounds, times = (
        row[name].combine_chunks().flatten().to_numpy() for name in ("latency", "counts", "bounds", "times")
    )
    name, distinct, first, last = (row[name][0].as_py() for name in ("name", "distinct", "first", "last"))
    return Part(name, latency, counts, bounds, times, distinct, first, last)
