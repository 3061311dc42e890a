"""Availability and latency: what clients noticed, per partition and fault window, and beside all faults.

An append counts where it completed. Its latency is from invocation to acknowledgement, and is that of acknowledged
appends alone. Percentiles are by nearest rank: p99 is the smallest latency such that 99 % of all are no longer.

The *stream* of a partition, or of the run, is the times of its acknowledgements, from the first invocation of any
append of the run to the last; a stretch between two of them, or before the first or after the last, is a *gap*. Gaps
longer than the stream's threshold are counted: MIN_GAP_NS, or GAP_MEANS times its mean interval if that is longer, so
that a low rate is no outage. A gap belongs to a fault window if any part of it lies in there; a window is from the
strike to the heal (or the end), both inclusive.

*Recovery* after a moment (the strike, the heal) is the time to the next acknowledgement, and to sustained
acknowledgement: to the first one after which no gap longer than the threshold begins within SUSTAINED_NS. Of several
partitions the slowest counts; null: never.

Exact up to EXACT_APPENDS operations, whose times are looked at here. Beyond, a task a segment (spark_history/tasks.py)
sends what is needed to put together

* latencies rounded to their 11 highest bits, counted: percentiles are off by less than ERROR of their value, maxima
  and counts are exact;
* of each stretch of WIDTH_MIN_NS (or 1 / MOST_STRETCHES of the run) the first and the last acknowledgement: gaps longer
  than that, and the first acknowledgement after each strike and heal, at which stretches are cut too, are exact.
  Thresholds are at least twice as long.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from spark_history.files import Ints, equals, integers, read_parquet
from spark_history.lane import NEVER
from spark_history.schema import OPERATIONS
from spark_history.tasks import Unit, run_tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_history.ingest import History

Fault = Mapping[str, Any]  # a FAULTS row, evidence parsed

EXACT_APPENDS: Final = 10_000_000
ERROR: Final = 2.0**-10
MIN_GAP_NS: Final = 100_000_000
GAP_MEANS: Final = 20
SUSTAINED_NS: Final = 1_000_000_000
WIDTH_MIN_NS: Final = 1_000_000
MOST_STRETCHES: Final = 1 << 18
#: Of fault windows, and of partitions, in the result; the others are counted.
MOST_WINDOWS: Final = 32
MOST_PARTITIONS: Final = 64

#: Percentiles by name, in thousandths.
PERCENTILES: Final = {"p50": 500, "p90": 900, "p99": 990, "p99.9": 999, "max": 1000}
_THOUSANDTHS: Final = np.array(list(PERCENTILES.values()))
_BITS: Final = 11
_COLUMNS: Final = pa.schema([OPERATIONS.field(name) for name in ("kind", "outcome", "invoke", "complete")])
_NONE: Final = np.empty(0, np.int64)


@dataclass(frozen=True)
class Window:
    """A fault in force, from start to end, inclusive, ns."""

    fault: Fault
    start: int
    end: int


@dataclass(frozen=True)
class Windows:
    """edges: where an elementary interval of time begins; the n-th lies before the n-th edge."""

    edges: Ints
    listed: Sequence[Window]
    unlisted: int
    in_force: Sequence[tuple[int, int]]  # all faults, as disjoint stretches, inclusive

    @staticmethod
    def of(faults: Iterable[Fault]) -> Windows:
        """Those that struck; of too many, the ones that took effect and among these the earliest are listed."""
        struck = [
            Window(fault, fault["start"], NEVER - 1 if fault["end"] is None else max(fault["end"], fault["start"]))
            for fault in faults
            if "skipped" not in fault["evidence"]
        ]
        first = sorted(struck, key=lambda window: (not window.fault["effective"], window.start))[:MOST_WINDOWS]
        listed = sorted(first, key=lambda window: (window.start, window.fault["fault"]))
        in_force: list[tuple[int, int]] = []
        for window in sorted(struck, key=lambda window: window.start):
            if in_force and window.start <= in_force[-1][1] + 1:
                in_force[-1] = in_force[-1][0], max(in_force[-1][1], window.end)
            else:
                in_force.append((window.start, window.end))
        spans = [*((window.start, window.end) for window in listed), *in_force]
        edges = np.unique(np.array([edge for low, high in spans for edge in (low, high + 1)], np.int64))
        return Windows(edges, listed, len(struck) - len(listed), in_force)

    def intervals(self, start: int, end: int) -> range:
        """The elementary intervals from start to end, inclusive."""
        low, high = np.searchsorted(self.edges, [start, end + 1], "right")
        return range(int(low), int(high))

    @property
    def outside(self) -> list[range]:
        """Intervals in which no fault was in force."""
        inside = {number for low, high in self.in_force for number in self.intervals(low, high)}
        return [range(n, n + 1) for n in range(len(self.edges) + 1) if n not in inside]


@dataclass(frozen=True)
class Part:
    """Acknowledged appends of a log, or of a segment of one. bounds: where in `latency` each elementary interval of
    completion begins, and the end. counts: None: each latency stands for one append."""

    name: str
    latency: Ints
    counts: Ints | None
    bounds: Ints
    times: Ints  # of acknowledgements, sorted; thinned out where counts are there
    distinct: int  # moments at which something was acknowledged
    first: int  # invocation of any append, ns; NEVER: there is none
    last: int

    def within(self, intervals: range) -> tuple[Ints, Ints | None]:
        part = slice(int(self.bounds[intervals.start]), int(self.bounds[intervals.stop]))
        return self.latency[part], None if self.counts is None else self.counts[part]


def measure(name: str, operations: pa.Table, windows: Windows, width: int = 0) -> Part:
    """operations: of one log, or of a segment of one, in any order, with categories as dictionaries. width: ns of the
    stretches of which only first and last acknowledgement are kept, latencies being rounded; 0: all is exact."""
    append = equals(operations, "kind", "append")
    invoke, complete = integers(operations, "invoke", 0)[append], integers(operations, "complete", NEVER)[append]
    first, last = (int(invoke.min()), int(invoke.max())) if len(invoke) else (NEVER, 0)
    ok = equals(operations, "outcome", "ok")[append] & (complete != NEVER)
    return of_times(name, invoke[ok], complete[ok], windows, first=first, last=last, width=width)


def of_times(
    name: str, invoke: Ints, complete: Ints, windows: Windows, *, first: int, last: int, width: int = 0
) -> Part:
    """As measure(), of acknowledged appends."""
    order = np.argsort(complete, kind="stable")
    times = complete[order]
    latency = times - invoke[order]
    bounds = np.concatenate(([0], np.searchsorted(times, windows.edges), [len(times)])).astype(np.int64)
    distinct = int(np.count_nonzero(np.diff(times))) + bool(len(times))
    if not width or not len(times):
        return Part(name, latency, None, bounds, times, distinct, first, last)
    codes, counts, sizes = [], [], [0]
    for low, high in itertools.pairwise(bounds):
        code, count = np.unique(_rounded(latency[low:high]), return_counts=True)
        if len(code):
            code[-1] = latency[low:high].max()
        codes.append(code)
        counts.append(count)
        sizes.append(len(code))
    stretch = times // width + np.searchsorted(windows.edges, times, "right")  # neither ever falls
    new = np.diff(stretch, prepend=stretch[0] - 1) != 0
    kept = times[new | np.roll(new, -1)]  # the last of each, too
    return Part(
        name, np.concatenate(codes), np.concatenate(counts), np.cumsum(sizes), kept, distinct, first, last
    )  # fmt: skip


def _rounded(latency: Ints) -> Ints:
    """To the middle of all numbers with the same _BITS highest bits."""
    _, exponent = np.frexp(latency.astype(np.float64))
    shift = np.maximum(exponent - _BITS, 0).astype(np.int64)
    rounded: Ints = (latency >> shift << shift) + (np.left_shift(1, shift) >> 1)
    return rounded


def percentiles(latency: Ints, counts: Ints | None = None) -> Ints | None:
    """Those of PERCENTILES, by nearest rank; None of nothing. latency: in any order, each `counts` times."""
    if not len(latency):
        return None
    if counts is None:
        ordered = np.sort(latency)
        ranks = (len(ordered) * _THOUSANDTHS + 999) // 1000 - 1
        found: Ints = ordered[ranks]
        return found
    order = np.argsort(latency)
    cumulative = np.cumsum(counts[order])
    at = np.searchsorted(cumulative, (int(cumulative[-1]) * _THOUSANDTHS + 999) // 1000)
    found = latency[order][at]
    return found


class _Stream:
    """Acknowledgements of one partition, or of all."""

    def __init__(self, parts: Sequence[Part], begin: int, end: int, width: int) -> None:
        self._parts = parts
        times = parts[0].times if len(parts) == 1 else np.sort(np.concatenate([part.times for part in parts]))
        self._times = times
        after = [end] if not len(times) or end > times[-1] else []
        self._points = np.concatenate(([min(begin, times[0]) if len(times) else begin], times, after))
        self._gaps = np.diff(self._points)
        self.acknowledged = sum(len(p.latency) if p.counts is None else int(p.counts.sum()) for p in parts)
        distinct = sum(part.distinct for part in parts)
        mean = (int(times[-1]) - int(times[0])) // (distinct - 1) if distinct > 1 else 0
        self.threshold = max(MIN_GAP_NS, GAP_MEANS * mean, 2 * width)
        self._long = np.flatnonzero(self._gaps > self.threshold)

    def cell(self, intervals: Sequence[range]) -> dict[str, Any]:
        pieces = [part.within(each) for part in self._parts for each in intervals]
        latency = pieces[0][0] if len(pieces) == 1 else np.concatenate([_NONE, *(piece[0] for piece in pieces)])
        weighed = any(piece[1] is not None for piece in pieces)
        counts = None
        if weighed:
            counts = np.concatenate([np.ones(len(of), np.int64) if count is None else count for of, count in pieces])
        found = percentiles(latency, counts)
        return {
            "acknowledged": len(latency) if counts is None else int(counts.sum()),
            "latency_ms": None
            if found is None
            else {name: _ms(value) for name, value in zip(PERCENTILES, found.tolist(), strict=True)},
        }

    def gaps(self, origin: int) -> dict[str, Any]:
        longest = int(self._gaps.argmax()) if len(self._gaps) else 0
        long = self._gaps[self._long]
        return {
            "threshold_ms": _ms(self.threshold),
            "longest_ms": _ms(int(self._gaps[longest])) if len(self._gaps) else 0.0,
            "longest_at_s": _second(int(self._points[longest]), origin),
            "count": len(long),
            "total_ms": _ms(int(long.sum())),
        }

    def longest_gap(self, start: int, end: int) -> int:
        """Of those that lie in the window in part."""
        low = max(int(np.searchsorted(self._points, start)) - 1, 0)
        high = int(np.searchsorted(self._points, end, "right"))
        return int(self._gaps[low:high].max(initial=0))

    def longest_between(self, start: int, end: int) -> int:
        """Of those that lie wholly from start to end."""
        low, high = int(np.searchsorted(self._points, start)), int(np.searchsorted(self._points, end, "right"))
        return int(self._gaps[low : max(high - 1, low)].max(initial=0))

    def next_after(self, moment: int) -> int | None:
        """ns from a moment to the next acknowledgement."""
        at = int(np.searchsorted(self._times, moment))
        return int(self._times[at]) - moment if at < len(self._times) else None

    def sustained_after(self, moment: int) -> int | None:
        after = self.next_after(moment)
        if after is None:
            return None
        time = moment + after
        starts, ends = self._points[self._long], self._points[self._long + 1]
        for row in range(int(np.searchsorted(starts, time)), len(starts)):
            if starts[row] >= time + SUSTAINED_NS:
                break
            time = int(ends[row])
        return time - moment if len(self._times) and time <= self._times[-1] else None


def summarise(parts: Sequence[Part], windows: Windows, origin: int, width: int = 0) -> dict[str, Any]:
    """`availability` of verdict.json:

    exact, error (relative, of percentiles); threshold_ms etc. as in gaps(): {acknowledged, latency_ms, gaps} of all;
    outside and in_force: {seconds, acknowledged, latency_ms}, outside with longest_gap_ms;
    windows: [{fault, nemesis, targets, from_s, until_s (null: never healed), acknowledged, latency_ms, longest_gap_ms
    and gap_on (the partition with the longest), recovery}], recovery {from_strike_ms, from_heal_ms,
    sustained_from_strike_ms, sustained_from_heal_ms} (null: never, or never healed);
    partitions: [{partition, acknowledged, latency_ms, gaps, outside, windows: [{fault, acknowledged, latency_ms,
    longest_gap_ms, recovery}]}]; unlisted: {windows, partitions}.

    latency_ms is {p50, p90, p99, p99.9, max}, or null where nothing was acknowledged. At most MOST_WINDOWS windows and
    MOST_PARTITIONS partitions, those with the longest gaps."""
    begin = min((part.first for part in parts), default=NEVER)
    if begin == NEVER:
        return {"exact": True, "error": 0.0, "acknowledged": 0, "latency_ms": None, "gaps": None, "outside": None,
                "in_force": None, "windows": [], "partitions": [], "unlisted": {"windows": 0, "partitions": 0},
                }  # fmt: skip
    end = max(part.last for part in parts)
    by_name: dict[str, list[Part]] = {}
    for part in parts:
        by_name.setdefault(part.name, []).append(part)
    whole = _Stream(parts, begin, end, width)
    streams = {name: _Stream(own, begin, end, width) for name, own in by_name.items()}
    everything = [range(len(windows.edges) + 1)]
    until = max([end, *(int(part.times[-1]) for part in parts if len(part.times))])
    spent = sum(max(min(high, until) - max(low, begin), 0) for low, high in windows.in_force)
    calm = _calm(windows, begin, until)
    of_partition = []
    worst = sorted(streams, key=lambda name: -streams[name].gaps(origin)["longest_ms"])[:MOST_PARTITIONS]
    for name in sorted(worst, key=_natural):
        stream = streams[name]
        cells = [_window(stream, window, windows) for window in windows.listed]
        of_partition.append(
            {"partition": name, **stream.cell(everything), "gaps": stream.gaps(origin),
             "outside": {**stream.cell(windows.outside), "longest_gap_ms": _longest(stream, calm)}, "windows": cells}
        )  # fmt: skip
    return {
        "exact": not width,
        "error": ERROR if width else 0.0,
        **whole.cell(everything),
        "gaps": whole.gaps(origin),
        "outside": {
            "seconds": round((until - begin - spent) / 1e9, 3), **whole.cell(windows.outside),
            "longest_gap_ms": max((_longest(stream, calm) for stream in streams.values()), default=0.0),
        },
        "in_force": {
            "seconds": round(spent / 1e9, 3),
            **whole.cell([windows.intervals(low, high) for low, high in windows.in_force]),
        },
        "windows": [_of_all(whole, streams, window, windows, origin) for window in windows.listed],
        "partitions": of_partition,
        "unlisted": {"windows": windows.unlisted, "partitions": len(streams) - len(of_partition)},
    }  # fmt: skip


def _calm(windows: Windows, begin: int, until: int) -> list[tuple[int, int]]:
    """Stretches in which no fault was in force."""
    starts = [begin, *(high + 1 for _, high in windows.in_force)]
    ends = [*(low - 1 for low, _ in windows.in_force), until]
    return [(low, high) for low, high in zip(starts, ends, strict=True) if high > low]


def _longest(stream: _Stream, calm: Sequence[tuple[int, int]]) -> Any:
    return _ms(max((stream.longest_between(low, high) for low, high in calm), default=0))


def _window(stream: _Stream, window: Window, windows: Windows) -> dict[str, Any]:
    return {
        "fault": window.fault["fault"],
        **stream.cell([windows.intervals(window.start, window.end)]),
        "longest_gap_ms": _ms(stream.longest_gap(window.start, window.end)),
        "recovery": {key: _ms(value) for key, value in _recoveries(stream, window).items()},
    }


def _of_all(
    whole: _Stream, streams: Mapping[str, _Stream], window: Window, windows: Windows, origin: int
) -> dict[str, Any]:
    """Of the run: latency of all appends, gaps and recovery of the partition that fared worst."""
    fault = window.fault
    of = {name: _recoveries(stream, window) for name, stream in streams.items()}
    gaps = {name: stream.longest_gap(window.start, window.end) for name, stream in streams.items()}
    gap_on = max(gaps, key=lambda name: gaps[name])
    slowest = {key: _slowest([each[key] for each in of.values()]) for key in next(iter(of.values()))}
    return {
        "fault": fault["fault"], "nemesis": fault["nemesis"], "targets": list(fault["targets"] or ()),
        "from_s": _second(window.start, origin),
        "until_s": None if fault["end"] is None else _second(fault["end"], origin),
        **whole.cell([windows.intervals(window.start, window.end)]),
        "longest_gap_ms": _ms(gaps[gap_on]), "gap_on": gap_on,
        "recovery": {key: _ms(value) for key, value in slowest.items()},
    }  # fmt: skip


def _recoveries(stream: _Stream, window: Window) -> dict[str, int | None]:
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


def _ms(nanoseconds: int | None) -> Any:
    return None if nanoseconds is None else round(nanoseconds / 1e6, 6)


def _second(time: int, origin: int) -> float:
    return round((time - origin) / 1e9, 6)


def _natural(name: str) -> tuple[str, int]:
    stem, _, number = name.rpartition("-")
    return (stem, int(number)) if number.isdecimal() else (name, -1)


# -- where the operations are ---------------------------------------------------------------------------------------


def of_tables(logs: Iterable[tuple[str, pa.Table]], faults: Iterable[Fault], origin: int) -> dict[str, Any]:
    """In memory. logs: name and operations of each."""
    windows = Windows.of(faults)
    return summarise([measure(name, operations, windows) for name, operations in logs], windows, origin)


def of_history(history: History, faults: Iterable[Fault], rows: int, spark: SparkSession | None) -> dict[str, Any]:
    """Of a history that is laid out. rows: about how many operations it holds; spark may be None if they are no more
    than EXACT_APPENDS. Raises HistoryError."""
    windows = Windows.of(faults)
    files = [
        (f"{log.topic}-{log.partition}", str(history.path / segment.paths["operations"]))
        for log in history.logs
        for segment in log.segments
    ]
    if rows <= EXACT_APPENDS or spark is None:
        with ThreadPoolExecutor() as threads:
            read = threads.map(lambda file: measure(file[0], read_parquet(file[1], _COLUMNS), windows), files)
            return summarise(list(read), windows, history.origin)
    width = max(WIDTH_MIN_NS, (history.until - history.origin) // MOST_STRETCHES)
    unit = {"faults": [_plain(fault) for fault in faults], "width": width}
    parts = run_tasks(spark, measure_file, [unit | {"name": name, "path": path} for name, path in files])
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


def lines(availability: Mapping[str, Any] | None) -> list[str]:
    """Two lines for people: latency, and what became of it in faults."""
    if not availability or not availability.get("latency_ms"):
        return []
    latency, gaps = availability["latency_ms"], availability["gaps"]
    told = [
        f"latency p50 {latency['p50']:,.1f} ms, p99 {latency['p99']:,.1f} ms, p99.9 {latency['p99.9']:,.1f} ms, max "
        f"{latency['max']:,.1f} ms; longest gap of all partitions {gaps['longest_ms']:,.0f} ms"
    ]
    windows = availability["windows"]
    if windows:
        worst = max(windows, key=lambda window: window["longest_gap_ms"])
        known = [w["recovery"]["sustained_from_heal_ms"] for w in windows if w["until_s"] is not None]
        slow = max((value for value in known if value is not None), default=None)
        never = sum(value is None for value in known)
        told.append(
            f"in faults a partition acknowledged nothing for {worst['longest_gap_ms']:,.0f} ms at worst "
            f"({worst['gap_on']}, fault {worst['fault']} {worst['nemesis']})"
            + (f"; whole again {slow:,.0f} ms after the heal at the latest" if slow is not None else "")
            + (f"; never again after {never} of them" if never else "")
        )
    return told
