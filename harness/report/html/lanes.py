"""Who led each partition, and the metadata quorum, over time: one lane each, on the axis of the time line above.

In a lane, from the top: the leader (its id, and the leader epoch) in the colour of its broker, nothing while there is
none; a strip as high as the ISR is large, and the ELR hatched on top of it; where there is room, how far the high
watermark had come. Hatched over all of it: the partition acknowledged nothing. Triangles are violations.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from markupsafe import Markup

from harness.record.timeline.partitions import Inside, State
from harness.report import words
from harness.report.html.aggregate import Fault, Timeline
from harness.report.html.charts import AXIS, CHARACTER, LEFT, RIGHT, WIDTH, time_axis, zoomed
from harness.report.html.svg import tag, text_at

MOST_LANES: Final = 128
ROOMY: Final = 16  # so many partitions have lanes with a high watermark
MOST_STEPS: Final = 400  # of the states of a partition, in a lane
MOST_ROWS: Final = 1500  # of the table
MOST_MARKS: Final = 400
COLOURS: Final = 6
_MARK: Final = 10  # the width of one
_NAME: Final = 10  # characters that fit beside a lane


@dataclass(frozen=True)
class Lanes:
    """svg: None: nothing is known of who led. rows: the same as a table, {partition, second, leader, epoch, isr,
    elr}; unlisted: rows left out."""

    svg: Markup | None
    rows: list[dict[str, Any]]
    unlisted: int
    partitions_unlisted: int


def lanes(
    inside: Inside,
    read: Mapping[str, Sequence[tuple[int, int]]],
    origin: int,
    timeline: Timeline | None,
    faults: Sequence[Fault],
    marks: Mapping[str, Sequence[tuple[str, float]]],
) -> Lanes:
    """read: by partition, high watermarks that clients read, where nodes trace none. marks: by partition, names of
    violations and when they happened. timeline: None: no append was recorded."""
    if timeline is None or not (inside.states or inside.quorum):
        return Lanes(None, [], 0, 0)
    names = sorted(inside.states, key=_natural)
    rows = [_table_row(inside, name, state, origin) for name in names for state in inside.states[name]]
    rows.sort(key=lambda row: row["second"])
    told = {name: inside.watermarks.get(name) or sorted(read.get(name, ())) for name in names}
    svg = _Figure(replace(inside, watermarks=told), origin, timeline, faults, marks).draw(names[:MOST_LANES])
    return Lanes(svg, rows[:MOST_ROWS], max(len(rows) - MOST_ROWS, 0), max(len(names) - MOST_LANES, 0))


def _table_row(inside: Inside, name: str, state: State, origin: int) -> dict[str, Any]:
    return {
        "partition": name,
        "second": (state.time - origin) / 1e9,
        "leader": "none" if state.leader < 0 else inside.names.get(state.leader, str(state.leader)),
        "epoch": state.leader_epoch,
        "isr": ", ".join(map(str, state.isr)) or "empty",
        "elr": ", ".join(map(str, state.elr)) or words.DASH,
    }


class _Figure:
    def __init__(
        self, inside: Inside, origin: int, timeline: Timeline, faults: Sequence[Fault],
        marks: Mapping[str, Sequence[tuple[str, float]]],
    ) -> None:  # fmt: skip
        self.inside, self.origin, self.timeline, self.faults, self.marks = inside, origin, timeline, faults, marks
        self.labels: list[Markup] = []
        self.drawn: list[Markup] = []
        brokers = sorted({b for states in inside.states.values() for state in states for b in state.replicas})
        self.colours = {broker: number % COLOURS for number, broker in enumerate(brokers)}

    def draw(self, names: Sequence[str]) -> Markup:
        roomy = len(names) <= ROOMY
        height = 36 if roomy else 15
        top = y = 6.0
        if self.inside.quorum:
            self._quorum(y)
            y += 24
        left = MOST_MARKS
        for name in names:
            self._lane(name, y, height, roomy=roomy)
            left -= self._marks(name, y, height, left)
            y += height + (6 if roomy else 3)
        bottom = y
        title = "Who led each partition and the metadata quorum over time. The same is in the table below."
        bands = [
            tag("rect", class_="band" if fault.effective else "band idle", x=self.x(fault.start), y=top,
                width=max(self.x(fault.end if fault.end is not None else self.timeline.end) - self.x(fault.start), 1),
                height=bottom - top)
            for fault in self.faults
        ]  # fmt: skip
        return tag(
            "svg",
            tag("title", title, id="lanes-title"),
            *self.labels,
            tag("g", *time_axis(self.timeline.end, top, bottom), class_="axis", data_top=top, data_bottom=bottom),
            zoomed(
                "lanes", bottom, *bands, *self.drawn,
                tag("line", class_="cursor", y1=top, y2=bottom, visibility="hidden"),
            ),
            class_="timeline lanes",
            viewBox=f"0 0 {WIDTH} {bottom + AXIS - 14:.0f}",
            role="group",
            tabindex=0,
            aria_labelledby="lanes-title",
            data_end=self.timeline.end,
            data_left=LEFT,
            data_right=WIDTH - RIGHT,
        )  # fmt: skip

    def x(self, second: float) -> float:
        part = min(max(second / self.timeline.end, 0.0), 1.0)
        return round(LEFT + part * (WIDTH - LEFT - RIGHT), 1)

    def _second(self, time: int) -> float:
        return (time - self.origin) / 1e9

    def _label(self, name: str, y: float) -> None:
        short = name if len(name) <= _NAME else f"…{name[-_NAME + 1 :]}"
        self.labels.append(tag("g", tag("title", name), text_at(LEFT - 8, y, short, css="tick", anchor="end")))

    def _quorum(self, y: float) -> None:
        self._label("quorum", y + 12)
        steps = self.inside.quorum
        for step, following in zip(steps, [*steps[1:], None], strict=True):
            left, right = self._edges(step.time, None if following is None else following.time)
            number = step.node.rpartition("-")[2]
            colour = int(number) % COLOURS if number.isdecimal() else 0
            title = (
                f"{step.node} leads the metadata quorum in epoch {step.epoch}, from {self._second(step.time):.3f} s on"
            )
            self._segment(left, right, y, 16, f"leader c{colour}", f"{step.node} · epoch {step.epoch}", title)

    def _lane(self, name: str, y: float, height: float, *, roomy: bool) -> None:
        self._label(name, y + 11)
        states = self.inside.states[name]
        shown = _last_of_each_moment(states, int(self.timeline.end / WIDTH * 1e9))
        strip = 14 if roomy else 9
        for state, following in list(zip(shown, [*shown[1:], None], strict=True))[:MOST_STEPS]:
            left, right = self._edges(state.time, None if following is None else following.time)
            if right <= left:
                continue
            who = self.inside.names.get(state.leader, str(state.leader))
            title = (
                f"{name} from {self._second(state.time):.3f} s on\n"
                f"leader {'none' if state.leader < 0 else who}, leader epoch {state.leader_epoch}\n"
                f"ISR {_ids(state.isr)}, ELR {_ids(state.elr)}, replicas {_ids(state.replicas)}"
            )
            css = "noleader" if state.leader < 0 else f"leader c{self.colours.get(state.leader, 0)}"
            text = "no leader" if state.leader < 0 else f"{who} · e{state.leader_epoch}"
            self._segment(left, right, y, strip, css, text, title, short="" if state.leader < 0 else str(state.leader))
            self._isr(state, left, right, y + strip + 1, 5 if roomy else 4)
        if roomy:
            self._watermark(name, y + strip + 8, height - strip - 9)
        for start, end in self._silences(name):
            title = tag("title", f"{name} acknowledged nothing from {start:.6g} s to {end:.6g} s")
            x = self.x(start)
            below = y + strip + (7 if roomy else 1)
            width, rest = self.x(end) - x, height - strip - (7 if roomy else 1)
            self.drawn.append(tag("rect", title, class_="silent", x=x, y=below, width=width, height=rest))

    def _edges(self, since: int, until: int | None) -> tuple[float, float]:
        return self.x(self._second(since)), self.x(self.timeline.end if until is None else self._second(until))

    def _segment(
        self, left: float, right: float, y: float, height: float, css: str, text: str, title: str, short: str = ""
    ) -> None:
        width = max(right - left, 0.5)
        drawn = [tag("title", title), tag("rect", x=left, y=y, width=width, height=height)]
        fits = next((each for each in (text, short) if each and len(each) * CHARACTER + 6 <= width), "")
        if fits:
            drawn.append(text_at(left + 4, y + height - 3, fits))
        self.drawn.append(tag("g", *drawn, class_=css))

    def _isr(self, state: State, left: float, right: float, y: float, height: float) -> None:
        whole = max(len(state.replicas), 1)
        isr, elr = height * len(state.isr) / whole, height * len(state.elr) / whole
        width = max(right - left, 0.5)
        self.drawn.append(tag("rect", class_="isr", x=left, y=y + height - isr, width=width, height=isr))
        if elr:
            self.drawn.append(tag("rect", class_="elr", x=left, y=y + height - isr - elr, width=width, height=elr))

    def _watermark(self, name: str, y: float, height: float) -> None:
        told = [(self._second(time), offset) for time, offset in self.inside.watermarks.get(name, ())]
        told = [(second, offset) for second, offset in told if 0 <= second <= self.timeline.end]
        if len(told) < 2 or told[-1][1] <= 0:
            return
        most, step = max(offset for _, offset in told), max(len(told) // 200, 1)
        points = [f"{self.x(second)},{y + height * (1 - offset / most):.1f}" for second, offset in told[::step]]
        title = tag("title", f"{name}: high watermark, up to {most:,}")
        self.drawn.append(tag("path", title, class_="watermark", d=f"M{' L'.join(points)}"))

    def _silences(self, name: str) -> Iterable[tuple[float, float]]:
        """Buckets in a row without an acknowledgement."""
        acknowledged = self.timeline.by_partition.get(name)
        if acknowledged is None:
            return
        start: int | None = None
        for number, count in enumerate([*acknowledged, 1]):
            if count == 0 and start is None:
                start = number
            elif count and start is not None:
                if number - start > 1 or self.timeline.width >= 0.5:
                    yield start * self.timeline.width, number * self.timeline.width
                start = None

    def _marks(self, name: str, y: float, height: float, most: int) -> int:
        """Those that would lie upon each other are one. Returns how many it drew."""
        places: dict[int, list[tuple[str, float]]] = {}
        for violation, second in self.marks.get(name, ()):
            places.setdefault(int(self.x(second) // _MARK), []).append((violation, second))
        for (violation, second), *others in list(places.values())[:most]:
            x = self.x(second)
            triangle = tag("path", d=f"M{x},{y + height - 9} l5,9 h-10 Z")
            more = f", and {len(others)} more there" if others else ""
            title = tag("title", f"{violation} at {second:.3f} s{more}")
            label = f"{violation}{more}"
            self.drawn.append(tag("a", title, triangle, href=f"#{violation}", class_="mark", aria_label=label))
        return min(len(places), most)


def _last_of_each_moment(states: Sequence[State], moment: int) -> list[State]:
    """Those that last long enough to be seen."""
    kept = []
    for state, following in zip(states, [*states[1:], None], strict=True):
        if following is None or following.time - state.time > moment or following.leader != state.leader:
            kept.append(state)
    return kept


def _ids(brokers: Sequence[int]) -> str:
    return f"[{', '.join(map(str, brokers))}]"


def _natural(name: str) -> tuple[str, int]:
    stem, _, number = name.rpartition("-")
    return (stem, int(number)) if number.isdecimal() else (name, -1)
