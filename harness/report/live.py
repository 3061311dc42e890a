"""What a terminal shows while clients work: the time, acknowledged records a second, faults in force, who leads."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from harness.run.injector import InjectedFault

#: Of the throughput, in the drawing: as many as fit a narrow terminal, each of STEP_S.
SAMPLES: Final = 60
STEP_S: Final = 1.0
_BARS: Final = " ▁▂▃▄▅▆▇█"
_BAR: Final = 40
_WIDTH: Final = 12


class Counted(Protocol):
    """Records, as harness.report.console.Counts has them."""

    @property
    def acknowledged(self) -> int: ...

    @property
    def failed(self) -> int: ...

    @property
    def indeterminate(self) -> int: ...


@dataclass(frozen=True)
class Moment:
    """Of a run. elapsed, limit: seconds. errors: by name, of requests so far. faults: in force at any time since the
    last moment shown. leaders: by node, of how many partitions, as last seen; None: not known."""

    elapsed: float
    limit: float
    counts: Counted
    errors: Mapping[str, int]
    faults: Sequence[InjectedFault]
    leaders: Mapping[str, int] | None = None


@dataclass
class Board:
    """Remembers what the drawing of the throughput needs."""

    _rates: deque[float] = field(default_factory=lambda: deque(maxlen=SAMPLES))
    _last: tuple[float, int] = (0.0, 0)  # seconds, acknowledged

    def draw(self, moment: Moment) -> RenderableType:
        self._sample(moment)
        rows = Table.grid(padding=(0, 1))
        rows.add_column(width=_WIDTH, style="dim")
        rows.add_column(overflow="fold")
        bar = Table.grid(padding=(0, 1))
        bar.add_row(
            ProgressBar(total=moment.limit, completed=moment.elapsed, width=_BAR),
            Text(f"{moment.elapsed:.0f} s of {moment.limit:g} s"),
        )
        rows.add_row("time", bar)
        rate = self._rates[-1] if self._rates else 0.0
        rows.add_row("throughput", Text(f"{sparkline(self._rates)} {rate:,.0f} records a second acknowledged"))
        counts = moment.counts
        told = f"{counts.acknowledged:,} acknowledged, {counts.failed:,} failed, {counts.indeterminate:,} indeterminate"
        rows.add_row("records", Text(told))
        if moment.errors:
            named = sorted(moment.errors.items(), key=lambda item: -item[1])[:3]
            rows.add_row("requests", Text(", ".join(f"{name} {count:,}" for name, count in named), style="yellow"))
        faults = [(f"{each.nemesis} on {', '.join(each.targets)}", each.in_force) for each in moment.faults]
        for number, (text, in_force) in enumerate(faults or [("none in force", False)]):
            shown = Text(text, style="bold red") if in_force else Text(text + ", healed" * bool(faults), style="dim")
            rows.add_row("faults" if number == 0 else "", shown)
        if moment.leaders is not None:
            of = ", ".join(f"{node} {count}" for node, count in sorted(moment.leaders.items()))
            rows.add_row("leaders", Text(of or "no partition has one"))
        return Group(rows)

    def _sample(self, moment: Moment) -> None:
        at, acknowledged = self._last
        passed = moment.elapsed - at
        if passed >= STEP_S:
            self._rates.append((moment.counts.acknowledged - acknowledged) / passed)
            self._last = moment.elapsed, moment.counts.acknowledged


def sparkline(values: Sequence[float] | deque[float]) -> str:
    """A character for each value, its height by the largest."""
    most = max(values, default=0.0)
    if most <= 0:
        return _BARS[0] * len(values)
    return "".join(_BARS[round(max(value, 0.0) / most * (len(_BARS) - 1))] for value in values)
