"""Fault schedules as data: drawn from the seed alone, saved with the run, and fit to be replayed or shrunk.

Every fault has a random stream of its own, named by seed, nemesis and number. So what one fault draws never shifts
another, and taking a fault or a whole nemesis away leaves the rest as it was.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from random import Random
from typing import Any

from pydantic import BaseModel, ConfigDict, TypeAdapter

from nemesis import Nemesis

FIRST_FAULT_S = 5.0  # calm before the first fault, in a run long enough
CALM_AT_END_S = 2.0  # between the last fault healed and the time limit
_SCHEDULE_FILE = "schedule.json"


class Fault(BaseModel):
    """One fault as planned. Whom `choice` means is decided against the live cluster when it strikes."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    fault: int  # its number in the run, in order of time; kept when others are taken away
    nemesis: str
    at: float  # seconds since the workload started
    duration: float  # seconds
    choice: dict[str, Any]


Schedule = tuple[Fault, ...]
_SCHEDULE = TypeAdapter(Schedule)


def build(nemeses: Mapping[str, Nemesis], seed: int, time_limit: float) -> Schedule:
    """The schedule of a run, in order of time. All faults are healed CALM_AT_END_S before `time_limit` (seconds)."""
    drawn = [
        (at, name, duration, choice)
        for name, nemesis in nemeses.items()
        for at, duration, choice in _faults_of(nemesis, f"{seed}/{name}", time_limit)
    ]
    drawn.sort(key=lambda fault: fault[:2])
    return tuple(
        Fault(fault=number, nemesis=name, at=at, duration=duration, choice=choice)
        for number, (at, name, duration, choice) in enumerate(drawn)
    )


def _faults_of(nemesis: Nemesis, stream: str, time_limit: float) -> Iterator[tuple[float, float, dict[str, Any]]]:
    """(at, duration, choice) of each fault of one nemesis."""
    # Streams start a little apart; a short run has less calm before its first fault, but some.
    healed_at = min(FIRST_FAULT_S, time_limit / 4) * Random(stream).uniform(0.9, 1.2)
    number = 0
    while True:
        draw = nemesis.draw(Random(f"{stream}/{number}"))
        at = round(healed_at + (draw.gap if number else 0.0), 3)
        duration = round(draw.duration, 3)
        healed_at = at + duration
        if healed_at > time_limit - CALM_AT_END_S:
            return
        yield at, duration, dict(draw.choice)
        number += 1


def save(schedule: Schedule, directory: Path) -> None:
    (directory / _SCHEDULE_FILE).write_bytes(_SCHEDULE.dump_json(schedule, indent=2) + b"\n")


def load(directory: Path) -> Schedule:
    """The schedule of a saved run. Raises OSError, or ValueError if it is damaged."""
    return _SCHEDULE.validate_json((directory / _SCHEDULE_FILE).read_bytes())
