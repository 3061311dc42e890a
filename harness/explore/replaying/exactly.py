"""Repeats a simulated run, step by step: from its plan and its faults, to the same trace hash. (Of runs in containers:
again.py.)"""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.errors import BadArguments, HarnessFailure
from harness.explore.failures import save
from harness.explore.shrinking.shrink import NothingToShrink, Shrunk, shrink
from harness.explore.simulate import Simulated, simulate
from harness.explore.workers import Outcome
from harness.plan import schedule_file
from harness.plan.plan import Plan
from harness.plan.schedule import Schedule
from harness.record import results
from harness.record.timeline.story import Event


@dataclass(frozen=True)
class Replayed:
    """recorded: the trace hash in run.json, empty if there is none."""

    simulated: Simulated
    verdict: Mapping[str, Any]
    trace: Sequence[Event]
    recorded: str

    @property
    def is_same(self) -> bool:
        """As far as can be told."""
        return self.recorded in ("", self.simulated.trace_hash)

    def comparison(self) -> str:
        """Is it the same run? In a sentence."""
        again = self.simulated.trace_hash
        if not self.recorded:
            return f"trace hash {again}; there is none of the run itself to compare, as it did not come to its end"
        if again == self.recorded:
            return f"same trace hash {again}"
        return (
            f"another trace hash: {self.recorded} then, {again} now; the code, Python or the run's files have "
            "changed since, or the run was interrupted"
        )


def load(directory: Path) -> tuple[Plan, Schedule]:
    """Raises BadArguments if the run was not simulated, or not saved whole."""
    plan = Plan.load(directory)
    if plan.on != "simulation":
        raise BadArguments(
            f"{directory.name} ran on {plan.on}, and only simulated runs repeat exactly; `chaos replay "
            f"{directory.name}` says how often its violation comes back"
        )
    return plan, saved_schedule(directory)


def saved_schedule(directory: Path) -> Schedule:
    """The faults of a run. Raises BadArguments if they were not saved whole."""
    try:
        return schedule_file.load(directory)
    except OSError as error:
        raise BadArguments(
            f"{directory} has no {schedule_file.SCHEDULE_FILE} to take its faults from: {error.strerror}"
        ) from None
    except ValueError:
        raise BadArguments(
            f"{directory / schedule_file.SCHEDULE_FILE} is damaged: it does not hold a list of faults"
        ) from None


def replay(directory: Path) -> Replayed:
    """Raises BadArguments, or HarnessFailure if the run came to no verdict."""
    plan, schedule = load(directory)
    record = results.read_json(directory / "run.json")
    if "ended_at_s" in record:
        raise BadArguments(
            f"{directory.name} cannot be repeated: {record.get('ended_early')}, and the seed does not tell when; its "
            f"planned end is reached by {plan.command()}"
        )
    return _repeat(plan, schedule, str(record.get("trace_hash", "")))


def shrink_run(
    directory: Path, *, budget: int, workers: int, say: Callable[[str], object]
) -> tuple[Path, Shrunk, Replayed]:
    """The directory of the smaller run, next to the one that it was made from, how it came about, and the run itself.
    Raises BadArguments, HarnessFailure."""
    plan, schedule = load(directory)
    if not os.access(directory.resolve().parent, os.W_OK):
        raise BadArguments(f"{directory.resolve().parent} cannot be written to, where the smaller run would go")
    try:
        shrunk = shrink(plan, schedule, budget=budget, workers=workers, say=say)
    except NothingToShrink as nothing:
        raise BadArguments(
            f"{directory.name} breaks nothing when it is repeated ({nothing}); only a run that fails can be shrunk"
        ) from None
    directory = directory.resolve()
    smaller = _free_name(directory)
    nemesis = tuple(dict.fromkeys(fault.nemesis for fault in shrunk.schedule))
    plan = shrunk.plan.model_copy(update={"run": smaller.name, "nemesis": nemesis})
    replayed = _repeat(plan, shrunk.schedule, "")
    try:
        save(Outcome(plan, "judged", simulated=replayed.simulated, verdict=replayed.verdict), smaller)
    except OSError as error:
        shutil.rmtree(smaller, ignore_errors=True)  # half a run is none
        raise HarnessFailure(f"{smaller} cannot be written: {error.strerror or error}") from None
    return smaller, shrunk, replayed


def _free_name(directory: Path) -> Path:
    """RUN-shrunk, RUN-shrunk-2 …: none that is there is lost."""
    suffixes = itertools.chain([""], (f"-{n}" for n in itertools.count(2)))
    names = (f"{directory.name}{results.SHRUNK}{suffix}" for suffix in suffixes)
    return next(path for name in names if not (path := directory.with_name(name)).exists())


def _repeat(plan: Plan, schedule: Schedule, recorded: str) -> Replayed:
    trace: list[Event] = []
    simulated = simulate(plan, schedule, lambda *reported: trace.append(Event(*reported)))
    if simulated.crash:
        raise HarnessFailure(f"{plan.run} came to no verdict: {simulated.crash}")
    return Replayed(simulated, simulated.judge(), trace, recorded)
