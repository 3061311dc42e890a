"""Fault schedules as data: drawn from the seed alone, or read from a file (schedule_file.py).

Every fault has a random stream of its own, named by seed, nemesis and number. So what one fault draws never shifts
another, and taking a fault or a whole nemesis away leaves the rest as it was.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

from pydantic import BaseModel, ConfigDict

from nemesis import Nemesis
from nemesis.composites import Composite

FIRST_FAULT_S = 5.0  # calm before the first fault, in a run long enough
CALM_AT_END_S = 2.0  # between the last fault healed and the time limit


class Fault(BaseModel):
    """One fault as planned. Whom `choice` means is decided against the live cluster when it strikes."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    fault: int  # its number in the run, in order of time; kept when others are taken away
    nemesis: str
    at: float  # seconds since the workload started
    duration: float  # seconds
    choice: dict[str, Any]


Schedule = tuple[Fault, ...]


@dataclass(frozen=True)
class Pace:
    """How often faults strike, in seconds. None: as each nemesis draws it.

    interval: from the beginning of a fault to the beginning of the next one of its nemesis.
    recovery: at least so long from a fault healed to the next one of its nemesis. A fault is made shorter rather than
    that it leaves less of its interval.
    """

    interval: float | None = None
    recovery: float | None = None

    def apply(self, gap: float, duration: float) -> tuple[float, float]:
        """Seconds from healed to the next fault, and how long this one lasts."""
        calm = self.recovery or 0.0
        if self.interval is None:
            return max(gap, calm), duration
        duration = min(duration, self.interval - calm)
        return self.interval - duration, duration

    def problems(self) -> Iterator[str]:
        for name, value in (("--interval", self.interval), ("--recovery", self.recovery)):
            if value is not None and not 0 < value < math.inf:
                yield f"{name} is {value:g}; it must be a time above 0"
        if self.interval is not None and self.interval <= (self.recovery or 0.0):
            yield (
                f"--recovery {self.recovery:g}s leaves nothing of --interval {self.interval:g}s for the fault itself; "
                "give a shorter one"
            )


def build(nemeses: Mapping[str, Nemesis], seed: int, time_limit: float, pace: Pace = Pace()) -> Schedule:
    """The schedule of a run, in order of time. All faults are healed CALM_AT_END_S before `time_limit` (seconds)."""
    drawn = [
        fault for name, nemesis in nemeses.items() for fault in _faults_of(nemesis, name, seed, time_limit, pace)
    ]
    drawn.sort(key=lambda fault: fault[:2])
    return tuple(
        Fault(fault=number, nemesis=name, at=at, duration=duration, choice=choice)
        for number, (at, name, duration, choice) in enumerate(drawn)
    )


def without_room(nemeses: Mapping[str, Nemesis], schedule: Schedule) -> list[str]:
    """Those of which nothing is planned. Of a composite it is enough that there is something that nobody else asked
    for: its parts have their own names."""
    planned = {fault.nemesis for fault in schedule}
    return [
        name
        for name, nemesis in nemeses.items()
        if name not in planned and not (isinstance(nemesis, Composite) and planned - nemeses.keys())
    ]


def _faults_of(
    nemesis: Nemesis, name: str, seed: int, time_limit: float, pace: Pace
) -> Iterator[tuple[float, str, float, dict[str, Any]]]:
    """(at, name, duration, choice) of each fault of one nemesis; of a composite, of the parts of each."""
    stream = f"{seed}/{name}"
    # Streams start a little apart; a short run has less calm before its first fault, but some.
    healed_at = min(FIRST_FAULT_S, time_limit / 4) * Random(stream).uniform(0.9, 1.2)
    gap = 0.0
    number = 0
    while True:
        draw = nemesis.draw(Random(f"{stream}/{number}"))
        whole = round(draw.duration, 3)
        following, duration = pace.apply(draw.gap, whole)
        if isinstance(nemesis, Composite):  # its parts are as long as they are: the next one comes later
            following, duration = max(following - (whole - duration), pace.recovery or 0.0), whole
        if pace.interval is None:
            gap = following if number else 0.0
        at = round(healed_at + gap, 3)
        duration = round(duration, 3)
        healed_at = at + duration
        if healed_at > time_limit - CALM_AT_END_S:
            return
        if isinstance(nemesis, Composite):
            for part in nemesis.parts(Random(f"{stream}/{number}")):
                choice = part.nemesis.draw(Random(f"{stream}/{number}/{part.nemesis.name}/{part.after:g}")).choice
                yield round(at + part.after, 3), part.nemesis.name, round(part.duration, 3), dict(choice)
        else:
            yield at, name, duration, dict(draw.choice)
        gap = following
        number += 1
