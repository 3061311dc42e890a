"""The time line of a run as one inline SVG: faults, throughput, latency and lost records over a shared axis.

Drawn by hand rather than by a plotting library because the result is 60 kB instead of 5 MB, prints, opens at once,
follows the page's light or dark colours (all colours are CSS classes) and needs no JavaScript: each bucket carries
its exact numbers as an SVG title, which browsers show on hover and the page's script turns into a cursor.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from markupsafe import Markup

from harness.report import words
from harness.report.html.aggregate import Fault, Timeline
from harness.report.html.svg import tag, text_at

WIDTH, LEFT, RIGHT = 1120, 62, 14
LANE, LANE_GAP, MOST_LABELLED_LANES = 22, 3, 6
MOST_NAMES = 4  # of targets, in a label
TITLE, GAP, AXIS = 22, 14, 40
CHARACTER = 6.3  # average width at the labels' font size, generous
AXIS_STEPS_S = (0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400)
LEAST_LATENCY_S, MOST_DECADES = 1e-5, 7


@dataclass(frozen=True)
class Panel:
    """A plot of its own vertical scale: `y` maps a value to a vertical position."""

    top: float
    height: float
    low: float
    high: float
    logarithmic: bool = False

    @property
    def bottom(self) -> float:
        return self.top + self.height

    def y(self, value: float) -> float:
        if self.logarithmic:
            part = math.log10(max(value, self.low) / self.low) / math.log10(self.high / self.low)
        else:
            part = (value - self.low) / (self.high - self.low)
        return round(self.bottom - part * self.height, 1)


def timeline_svg(timeline: Timeline, faults: Sequence[Fault], culprits: Collection[int] = ()) -> Markup:
    """The whole figure. Expects at least one bucket. culprits: numbers of faults that took records which are lost."""
    return _Figure(timeline, faults, culprits).draw()


class _Figure:
    def __init__(self, timeline: Timeline, faults: Sequence[Fault], culprits: Collection[int]) -> None:
        self.timeline, self.faults, self.culprits = timeline, faults, culprits
        self.buckets = timeline.buckets
        self.back: list[Markup] = []  # grids and titles, below the data
        self.axis: list[Markup] = []  # what the page's script draws anew when it zooms
        self.front: list[Markup] = []

    def draw(self) -> Markup:
        top = self._fault_lanes(4)
        per_second = self.buckets[["ok", "fail", "info"]] / self.timeline.width
        bottom = self._acknowledged(top + GAP, per_second["ok"])
        bottom = self._unacknowledged(bottom + GAP, per_second["fail"], per_second["info"])
        bottom = self._latency(bottom + GAP)
        if self.buckets["lost"].any():
            bottom = self._lost(bottom + GAP)
        self._time_axis(top, bottom)
        title = "Throughput and latency over time, with the faults. The same numbers are in the table below."
        return tag(
            "svg",
            tag("title", title, id="timeline-title"),
            _PATTERNS,
            *self.back,
            tag("g", *self.axis, class_="axis", data_top=top, data_bottom=bottom),
            zoomed(
                "timeline",
                bottom,
                *(self._band(fault, top, bottom) for fault in self.faults),
                *self.front,
                tag("line", class_="cursor", y1=top, y2=bottom, visibility="hidden"),
                *(self._hit(row, top, bottom) for row in self.buckets.to_dict("records")),
            ),
            class_="timeline",
            data_end=self.timeline.end,
            data_left=LEFT,
            data_right=WIDTH - RIGHT,
            viewBox=f"0 0 {WIDTH} {bottom + AXIS:.0f}",
            role="group",
            tabindex=0,
            aria_labelledby="timeline-title",
        )

    def x(self, second: float) -> float:
        return round(LEFT + second / self.timeline.end * (WIDTH - LEFT - RIGHT), 1)

    # Faults

    def _fault_lanes(self, top: float) -> float:
        """Bars above the plots, stacked so that none overlaps; full labels unless that takes too many lanes."""
        for labels in ([fault_label(fault) for fault in self.faults], [fault.name for fault in self.faults]):
            lanes = self._assign_lanes(labels)
            if max(lanes, default=0) < MOST_LABELLED_LANES:
                break
        for fault, lane, label in zip(self.faults, lanes, labels, strict=True):
            y = top + lane * (LANE + LANE_GAP)
            left, right = self.x(fault.start), self._right(fault)
            at_left = self._fits(left, label)
            self.front.append(
                tag(
                    "a",
                    tag("title", _fault_title(fault)),
                    *self._recovery(fault, right, y),
                    tag("rect", class_="strike", x=left, y=y, width=max(right - left, 3), height=LANE, rx=3),
                    tag("rect", class_="edge", x=left, y=y, width=3, height=LANE),
                    text_at(left + 7 if at_left else left - 5, y + 14, label, anchor="start" if at_left else "end"),
                    href=f"#{fault.name}",
                    class_="fault culprit"
                    if fault.number in self.culprits
                    else "fault"
                    if fault.effective
                    else "fault idle",
                )
            )
        return top + (max(lanes, default=-1) + 1) * (LANE + LANE_GAP)

    def _recovery(self, fault: Fault, left: float, y: float) -> list[Markup]:
        """From healed to back in sync: a hatched tail along the foot of the bar."""
        if fault.in_sync is None or fault.end is None:
            return []
        width = max(self.x(min(fault.in_sync, self.timeline.end)) - left, 0)
        return [tag("rect", class_="recovery", x=left, y=y + LANE - 5, width=width, height=5)]

    def _assign_lanes(self, labels: Sequence[str]) -> list[int]:
        """The first lane in which the bar and its label are free, fault by fault."""
        free_from: list[float] = []
        lanes = []
        for fault, label in zip(self.faults, labels, strict=True):
            left, right, text = self.x(fault.start), self._right(fault), len(label) * CHARACTER + 12
            begin, end = left, max(right, left + text)
            if not self._fits(left, label):
                begin, end = left - text, right
            lane = next((lane for lane, free in enumerate(free_from) if free <= begin), len(free_from))
            if lane == len(free_from):
                free_from.append(0.0)
            free_from[lane] = end + 4
            lanes.append(lane)
        return lanes

    def _fits(self, left: float, label: str) -> bool:
        return left + len(label) * CHARACTER + 12 <= WIDTH - RIGHT

    def _right(self, fault: Fault) -> float:
        return self.x(self.timeline.end if fault.end is None else min(fault.end, self.timeline.end))

    def _band(self, fault: Fault, top: float, bottom: float) -> Markup:
        left, right = self.x(fault.start), self._right(fault)
        css = "band" if fault.effective else "band idle"
        return tag("rect", class_=css, x=left, y=top, width=max(right - left, 1), height=bottom - top)

    # Panels; each returns its lower edge.

    def _acknowledged(self, top: float, rate: pd.Series) -> float:
        title = "Acknowledged appends per second"
        panel = self._linear_panel(top, 150, rate, title)
        steps = []
        for start, value in zip(self.buckets["start"], rate, strict=True):
            y = panel.y(value)
            steps.append(f"{self.x(start)},{y} L{self.x(start + self.timeline.width)},{y}")
        outline = " L".join(steps)
        base = f"L{self.x(self.timeline.end)},{panel.bottom} L{LEFT},{panel.bottom}"
        self.front.append(tag("path", class_="ok area", d=f"M{outline} {base} Z"))
        self.front.append(tag("path", class_="ok line", d=f"M{outline}"))
        return panel.bottom

    def _unacknowledged(self, top: float, failed: pd.Series, indeterminate: pd.Series) -> float:
        both = failed + indeterminate
        title = "Appends not acknowledged per second"
        if not both.any():
            self.back.append(text_at(LEFT, top + TITLE - 8, f"{title}: none", css="title"))
            return top + TITLE
        panel = self._linear_panel(top, 80, both, title, {"fail": "failed", "info": "indeterminate"})
        self._bars(panel, "fail", 0 * failed, failed)
        self._bars(panel, "info", failed, both)
        return panel.bottom

    def _lost(self, top: float) -> float:
        rate = self.buckets["lost"] / self.timeline.width
        title = "Acknowledged but lost, per second of acknowledgement"
        panel = self._linear_panel(top, 70, rate, title)
        self._bars(panel, "lost", 0 * rate, rate)
        return panel.bottom

    def _latency(self, top: float) -> float:
        quantiles = self.buckets[["p50", "p99", "max"]]
        values = quantiles.to_numpy()
        values = values[np.isfinite(values) & (values > 0)]
        low, high = (float(values.min()), float(values.max())) if len(values) else (1e-3, 1e-2)
        high = 10 ** math.ceil(math.log10(max(high, LEAST_LATENCY_S * 10)))
        low = max(10 ** math.floor(math.log10(low)), LEAST_LATENCY_S, high / 10**MOST_DECADES)
        panel = Panel(top + TITLE, 170, min(low, high / 10), high, logarithmic=True)
        legend = {"p50": "p50", "p99": "p99", "max": "max"}
        self._frame(panel, "Latency of acknowledged appends (logarithmic)", legend, lines=True)
        for exponent in range(round(math.log10(panel.low)), round(math.log10(panel.high)) + 1):
            self._tick(panel, 10.0**exponent, words.duration(10.0**exponent))
        for name in ("p99", "max", "p50"):
            self._curve(panel, name, quantiles[name])
        return panel.bottom

    def _curve(self, panel: Panel, name: str, values: pd.Series) -> None:
        """A line through the buckets' middles, broken where nothing was acknowledged; a lone bucket is a dot."""
        runs: list[list[str]] = [[]]
        for start, value in zip(self.buckets["start"], values, strict=True):
            if math.isnan(value):
                runs.append([])
            else:
                runs[-1].append(f"{self.x(start + self.timeline.width / 2)},{panel.y(value)}")
        path = " ".join(f"M{' L'.join(run if len(run) > 1 else run * 2)}" for run in runs if run)
        self.front.append(tag("path", class_=f"{name} line", d=path))

    def _bars(self, panel: Panel, css: str, low: pd.Series, high: pd.Series) -> None:
        for start, bottom, top in zip(self.buckets["start"], low, high, strict=True):
            if top <= bottom:
                continue
            left, right = self.x(start), self.x(start + self.timeline.width)
            base = panel.y(bottom)
            height = max(base - panel.y(top), 1)  # one failure among thousands must still be seen
            self.front.append(
                tag("rect", class_=f"{css} solid", x=left, y=base - height, width=right - left, height=height)
            )

    def _linear_panel(
        self, top: float, height: float, values: pd.Series, title: str, legend: Mapping[str, str] | None = None
    ) -> Panel:
        step = _nice_step(max(float(values.max()), 1e-9) / (4 if height > 100 else 2))
        high = step * max(math.ceil(float(values.max()) / step - 1e-9), 1)
        panel = Panel(top + TITLE, height, 0.0, high)
        self._frame(panel, title, legend or {})
        for index in range(round(high / step) + 1):
            self._tick(panel, index * step, words.number(index * step))
        return panel

    def _frame(self, panel: Panel, title: str, legend: Mapping[str, str], lines: bool = False) -> None:
        """Title, base line and, right-aligned, the legend: {CSS class: text}."""
        y = panel.top - 8
        self.back.append(text_at(LEFT, y, title, css="title"))
        self.back.append(tag("line", class_="base", x1=LEFT, x2=WIDTH - RIGHT, y1=panel.bottom, y2=panel.bottom))
        right = float(WIDTH - RIGHT)
        for css, text in reversed(list(legend.items())):
            left = right - len(text) * CHARACTER
            self.back.append(text_at(left, y, text))
            if lines:
                self.back.append(tag("path", class_=f"{css} line", d=f"M{left - 28:.1f},{y - 4} h22"))
            else:
                self.back.append(tag("rect", class_=f"{css} solid", x=left - 28, y=y - 9, width=22, height=9))
            right = left - 44

    def _tick(self, panel: Panel, value: float, label: str) -> None:
        y = panel.y(value)
        self.back.append(tag("line", class_="grid", x1=LEFT, x2=WIDTH - RIGHT, y1=y, y2=y))
        self.back.append(text_at(LEFT - 8, y + 4, label, css="tick", anchor="end"))

    def _time_axis(self, top: float, bottom: float) -> None:
        end = self.timeline.end
        self.axis += time_axis(end, top, bottom)
        unit = "seconds" if end <= 300 else "minutes:seconds" if end <= 7200 else "hours:minutes"
        middle = (WIDTH + LEFT - RIGHT) / 2
        self.back.append(text_at(middle, bottom + 36, f"{unit} since the first operation", css="tick", anchor="middle"))

    def _hit(self, row: Mapping[Any, float], top: float, bottom: float) -> Markup:
        """The invisible area of one bucket, with its numbers."""
        start, end = row["start"], row["start"] + self.timeline.width
        left, right = self.x(start), self.x(end)
        lines = [f"{start:.6g} to {end:.6g} s"]
        lines += [
            f"{label}: {words.number(row[name] / self.timeline.width)} /s ({words.number(row[name])})"
            for name, label in (("ok", "acknowledged"), ("fail", "failed"), ("info", "indeterminate"))
        ]
        lines.append("latency " + ", ".join(f"{name} {words.duration(row[name])}" for name in ("p50", "p99", "max")))
        if row["lost"]:
            lines.append(f"later lost: {words.number(row['lost'])}")
        lines += [fault_label(fault) for fault in self.faults if fault.start < end and (fault.end or end) >= start]
        title = tag("title", "\n".join(lines))
        return tag("rect", title, class_="hit", x=left, y=top, width=right - left, height=bottom - top)


def zoomed(name: str, bottom: float, *drawn: Markup) -> Markup:
    """What moves and stretches with the time that is shown, and is cut off at the edges of the plot."""
    plot = tag("rect", x=LEFT, y=0, width=WIDTH - LEFT - RIGHT, height=bottom)
    clip = tag("clipPath", plot, id=f"plot-{name}")
    return clip + tag("g", tag("g", *drawn, class_="zoomed"), clip_path=f"url(#plot-{name})")


def time_axis(end: float, top: float, bottom: float) -> list[Markup]:
    step = next((step for step in AXIS_STEPS_S if end / step <= 13), AXIS_STEPS_S[-1])
    drawn = []
    for index in range(int(end / step + 1e-9) + 1):
        x = round(LEFT + index * step / end * (WIDTH - LEFT - RIGHT), 1)
        drawn.append(tag("line", class_="grid", x1=x, x2=x, y1=top, y2=bottom + 5))
        drawn.append(text_at(x, bottom + 19, _clock(index * step, end), css="tick", anchor="middle"))
    return drawn


def fault_label(fault: Fault) -> str:
    """F3 power-outage · broker-1, controller-101; names of one kind share their stem: broker-1, -2, -3."""
    names: list[str] = []
    for target, before in zip(fault.targets, ["", *fault.targets], strict=False):
        stem, hyphen, number = target.rpartition("-")
        names.append(f"-{number}" if hyphen and before.rpartition("-")[0] == stem else target)
    if len(names) > MOST_NAMES:
        names[MOST_NAMES - 1 :] = [f"{len(names) - MOST_NAMES + 1} more"]
    return f"{fault.name} {fault.nemesis}" + (f" · {', '.join(names)}" if names else "")


def _fault_title(fault: Fault) -> str:
    until = f"to {words.second(fault.end)}" if fault.end is not None else "and never healed"
    effect = "" if fault.effective else "\nno evidence that it took effect"
    return f"{fault.name} {fault.nemesis}\n{', '.join(fault.targets)}\nfrom {words.second(fault.start)} {until}{effect}"


def _nice_step(least: float) -> float:
    """1, 2 or 5 times a power of ten, at least `least`."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= least * (1 - 1e-9))


def _clock(second: float, end: float) -> str:
    if end <= 300:
        return f"{second:g}"
    if end <= 7200:
        return f"{int(second // 60)}:{int(second % 60):02d}"
    return f"{int(second // 3600)}:{int(second % 3600 // 60):02d}"


# Hatching tells failed, indeterminate and lost apart without colour.
_PATTERNS = Markup(
    '<defs><pattern id="hatch-info" width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
    '<rect class="info-back" width="5" height="5"/><rect class="info-ink" width="2.2" height="5"/></pattern>'
    '<pattern id="hatch-lost" width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(-45)">'
    '<rect class="lost-back" width="5" height="5"/><rect class="lost-ink" width="3" height="5"/></pattern>'
    '<pattern id="hatch-recovery" width="4" height="4" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
    '<rect class="recovery-ink" width="1" height="4"/></pattern></defs>'
)
