"""Fault schedules as data: drawn from the seed alone, or read from a file (schedule_file.py).

Every fault has a random stream of its own, named by seed, nemesis and number. So what one fault draws never shifts
another, and taking a fault or a whole nemesis away leaves the rest as it was.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from pydantic import BaseModel, ConfigDict

from harness.errors import BadArguments
from nemesis import Layout, Nemesis
from nemesis.composites import Composite

FIRST_FAULT_S = 5.0  # calm before the first fault, in a run long enough
MIN_INTERVAL_S = 0.5
CALM_AT_END_S = 2.0  # between the last fault healed and the time limit


class Fault(BaseModel):
    """One fault as planned. Whom `choice` means is decided against the live cluster when it strikes."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    fault: int  # its number in the run, in order of time; kept when others are taken away
    nemesis: str
    at: float  # seconds since the workload started
    duration: float  # seconds
    choice: dict[str, Any]
    composite: str | None = None  # the nemesis that this fault is a part of, and of which of its occurrences, from 0
    occurrence: int = 0
    into_outages: bool = False  # it strikes when it is told to, whether or not clients are served (harness/run/calm.py)


Schedule = tuple[Fault, ...]


@dataclass(frozen=True)
class Pace:
    """How often faults strike, in seconds. None: as each nemesis draws it.

    interval: from the beginning of a fault to the beginning of the next one of its nemesis.
    recovery: at least so long from a fault healed to the next one of its nemesis. A fault is made shorter rather than
    that it leaves less of its interval.
    start: so much longer than a nemesis draws it is the calm after each of its faults, where no interval is given: what
    the cluster needs to be whole again (Timing.start), for each of the nemeses that take turns.
    """

    interval: float | None = None
    recovery: float | None = None
    start: float = 0.0

    def apply(self, gap: float, duration: float) -> tuple[float, float]:
        """Seconds from healed to the next fault, and how long this one lasts."""
        calm = self.recovery or 0.0
        if self.interval is None:
            return max(gap + self.start, calm), duration
        duration = min(duration, self.interval - calm)
        return self.interval - duration, duration

    def problems(self) -> Iterator[str]:
        for name, value, least in (("--interval", self.interval, MIN_INTERVAL_S), ("--recovery", self.recovery, 0.0)):
            if value is not None and not 0 < value < math.inf:
                yield f"{name} is {value:g}; it must be a time above 0"
            elif value is not None and value < least:
                yield f"{name} is {value:g} s; it must be at least {least:g} s, or faults are over before they strike"
        if self.interval is not None and self.interval <= (self.recovery or 0.0):
            yield (
                f"--recovery {self.recovery:g}s leaves nothing of --interval {self.interval:g}s for the fault itself; "
                "give a shorter one"
            )


def build(nemeses: Mapping[str, Nemesis], seed: int, time_limit: float, pace: Pace = Pace()) -> Schedule:
    """The schedule of a run, in order of time. All faults are healed CALM_AT_END_S before `time_limit` (seconds)."""
    drawn = [fault for name, nemesis in nemeses.items() for fault in _faults_of(nemesis, name, seed, time_limit, pace)]
    drawn.sort(key=lambda fault: (fault.at, fault.nemesis))
    return tuple(fault.model_copy(update={"fault": number}) for number, fault in enumerate(drawn))


def check_room(
    nemeses: Mapping[str, Nemesis], schedules: Iterable[Schedule], time_limit: float, layout: Layout,
    pace: Pace = Pace(),
) -> None:  # fmt: skip
    """schedules: of a run, or of several of which one at least is to have each nemesis. Raises BadArguments naming the
    first of the nemeses of which too little is planned, and what it takes."""
    # A user's own nemesis may be older.
    steps = {name: nemesis.steps(layout) if hasattr(nemesis, "steps") else 1 for name, nemesis in nemeses.items()}
    planned = Counter[str]()  # the most of any
    for schedule in schedules:
        planned |= Counter(fault.composite or fault.nemesis for fault in schedule)
        if all(planned[name] >= needed for name, needed in steps.items()):
            return
    for name, nemesis in nemeses.items():
        needed = steps[name]
        if planned[name] < needed:
            longer = (factor * time_limit for factor in _LONGER)
            enough = next((each for each in longer if len(build({name: nemesis}, 0, each, pace)) >= needed), None)
            advice = "" if enough is None else f"; give a longer one, such as {enough:g}, or leave {name} out"
            what = f"no fault of {name} fits" if needed == 1 else f"{planned[name]} of the {needed} steps of {name} fit"
            raise BadArguments(f"{what} into --time-limit {time_limit:g}{advice}")


#: Times a time limit that is too short.
_LONGER: Final = (1.5, 2, 3, 5, 10, 30, 100)


def _faults_of(nemesis: Nemesis, name: str, seed: int, time_limit: float, pace: Pace) -> Iterator[Fault]:
    """Those of one nemesis, not yet numbered; of a composite, the parts of each."""
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
                yield Fault(
                    fault=0, nemesis=part.nemesis.name, at=round(at + part.after, 3),
                    duration=round(part.duration, 3), choice=dict(choice), composite=name, occurrence=number,
                )  # fmt: skip
        else:
            yield Fault(fault=0, nemesis=name, at=at, duration=duration, choice=dict(draw.choice))
        gap = following
        number += 1
