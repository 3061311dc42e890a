"""Streams of acknowledgements, cut by fault windows: their latencies, gaps and recoveries (see availability.py)."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from spark_history.files import Ints, equals, integers
from spark_history.log import NEVER

Fault = Mapping[str, Any]  # a FAULTS row, evidence parsed

ERROR: Final = 2.0**-10
MIN_GAP_NS: Final = 100_000_000
GAP_MEANS: Final = 20
#: A longer gap is an outage, unless the stream's usual ones are not much shorter.
OUTAGE_NS: Final = 1_000_000_000
OUTAGE_USUAL: Final = 10
#: A tenth of the time lies in gaps that are no longer than the usual one.
_USUAL_PART: Final = 0.1
SUSTAINED_NS: Final = 1_000_000_000
#: Fault windows that are told apart; the others are counted.
MOST_WINDOWS: Final = 32

#: Percentiles by name, in thousandths.
PERCENTILES: Final = {"p50": 500, "p90": 900, "p99": 990, "p99.9": 999, "max": 1000}
_THOUSANDTHS: Final = np.array(list(PERCENTILES.values()))
_BITS: Final = 11
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
    unlisted: Sequence[Window]
    in_force: Sequence[tuple[int, int]]  # all faults, as disjoint stretches, inclusive

    @staticmethod
    def of(faults: Iterable[Fault]) -> Windows:
        """Those that struck; of too many, the ones that took effect and among these the earliest are listed."""
        struck = [
            Window(fault, fault["start"], NEVER - 1 if fault["end"] is None else max(fault["end"], fault["start"]))
            for fault in faults
            if "skipped" not in fault["evidence"]
        ]
        ranked = sorted(struck, key=lambda window: (not window.fault["effective"], window.start))
        listed, unlisted = (
            sorted(some, key=lambda window: (window.start, window.fault["fault"]))
            for some in (ranked[:MOST_WINDOWS], ranked[MOST_WINDOWS:])
        )
        in_force: list[tuple[int, int]] = []
        for window in sorted(struck, key=lambda window: window.start):
            if in_force and window.start <= in_force[-1][1] + 1:
                in_force[-1] = in_force[-1][0], max(in_force[-1][1], window.end)
            else:
                in_force.append((window.start, window.end))
        spans = [*((window.start, window.end) for window in listed), *in_force]
        edges = np.unique(np.array([edge for low, high in spans for edge in (low, high + 1)], np.int64))
        return Windows(edges, listed, unlisted, in_force)

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
        ranks = (len(latency) * _THOUSANDTHS + 999) // 1000 - 1
        found: Ints = np.partition(latency, ranks)[ranks]  # a third of the time of sorting all of them
        return found
    order = np.argsort(latency)
    cumulative = np.cumsum(counts[order])
    at = np.searchsorted(cumulative, (int(cumulative[-1]) * _THOUSANDTHS + 999) // 1000)
    found = latency[order][at]
    return found


def _merged(ordered: Sequence[Ints]) -> Ints:
    """One sorted array of several: a stable sort makes use of their order, and takes a quarter of the other's time."""
    return np.sort(np.concatenate(ordered), kind="stable")


class Stream:
    """Acknowledgements of one partition, or of all."""

    def __init__(self, parts: Sequence[Part], begin: int, end: int, width: int) -> None:
        self._parts = parts
        times = parts[0].times if len(parts) == 1 else _merged([part.times for part in parts])
        self._times = times
        after = [end] if not len(times) or end > times[-1] else []
        self._points = np.concatenate(([min(begin, times[0]) if len(times) else begin], times, after))
        self._gaps = np.diff(self._points)
        self.acknowledged = sum(len(p.latency) if p.counts is None else int(p.counts.sum()) for p in parts)
        distinct = sum(part.distinct for part in parts)
        mean = (int(times[-1]) - int(times[0])) // (distinct - 1) if distinct > 1 else 0
        self.threshold = max(MIN_GAP_NS, GAP_MEANS * mean, 2 * width)
        self._long = np.flatnonzero(self._gaps > self.threshold)
        self._outage = max(OUTAGE_NS, OUTAGE_USUAL * self._usual_gap(), 2 * width)

    def _usual_gap(self) -> int:
        """Not the mean, which outages make longer themselves; nor the median, for two answers that come together make
        a short gap of every other one."""
        ordered = np.sort(self._gaps)
        until = np.cumsum(ordered)
        return int(ordered[np.searchsorted(until, _USUAL_PART * until[-1])]) if len(ordered) else 0

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
            else {name: ms(value) for name, value in zip(PERCENTILES, found.tolist(), strict=True)},
        }

    def gaps(self, origin: int) -> dict[str, Any]:
        longest = int(self._gaps.argmax()) if len(self._gaps) else 0
        long = self._gaps[self._long]
        return {
            "threshold_ms": ms(self.threshold),
            "longest_ms": ms(int(self._gaps[longest])) if len(self._gaps) else 0.0,
            "longest_at_s": second(int(self._points[longest]), origin),
            "count": len(long),
            "total_ms": ms(int(long.sum())),
        }

    def share_served(self) -> float:
        """Of the time, what is in no outage."""
        outages = int(self._gaps[self._gaps > self._outage].sum())
        return round(1 - outages / max(int(self._points[-1] - self._points[0]), 1), 4)

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


def ms(nanoseconds: int | None) -> Any:
    """Milliseconds."""
    return None if nanoseconds is None else round(nanoseconds / 1e6, 6)


def second(time: int, origin: int) -> float:
    """Of the run."""
    return round((time - origin) / 1e9, 6)
