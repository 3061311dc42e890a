"""Searches: the runs of an exploration in their order, until one fails. Many at once, over all processors."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from checkers.inside.contract import is_covered
from harness.explore.failures import Failure
from harness.explore.simulate import simulate
from harness.explore.source import Source
from harness.explore.workers import Job, Outcome, simulate_all
from harness.plan.plan import Plan
from harness.plan.schedule import Schedule

#: Seconds by the wall clock that a run may take before it counts as one that never ends.
RUN_LIMIT_S: Final = 300.0


@dataclass(frozen=True)
class Found:
    """What failed a run. property: of the invariant or history, or `crash` and `hang` where the code under test brought
    the run itself to grief. runs: how many the search took, this one included."""

    seed: int
    runs: int
    property: str
    anomaly: str
    message: str
    plan: Plan
    schedule: Schedule | None = None  # None: the run did not come back

    def __str__(self) -> str:
        return self.property if self.anomaly in ("", "violation") else f"{self.property} ({self.anomaly})"


@dataclass
class Search:
    """For one subject, a bug or a mutant. budget_s: seconds of simulating, after which no further run is begun.

    Runs may be simulated out of their order, but what was found is the first in their order that failed, and `runs` is
    its place in it: the same on any machine, whose speed matters only where the budget ends the search.
    """

    subject: str
    source: Source
    budget_s: float
    simulated_s: float = 0.0  # virtual seconds, of the runs up to what was found
    wall_s: float = 0.0  # seconds that simulating these took
    begun: int = 0
    found: Found | None = None
    ended: bool = False
    _done: dict[int, Outcome] = field(default_factory=dict)  # by place, what has not been looked at
    _looked_at: int = 0

    def next_job(self) -> tuple[int, Job] | None:
        """With its number, from 0. None: there is none, or not yet."""
        if self.ended or self.begun == len(self.source.seeds) or self.wall_s > self.budget_s:
            return None
        job = next(self.source)
        if job is None:
            return None
        self.begun += 1
        return self.begun - 1, job

    @property
    def in_flight(self) -> int:
        return self.begun - self._looked_at - len(self._done)

    @property
    def runs(self) -> int:
        return self._looked_at

    def take(self, number: int, outcome: Outcome) -> None:
        """Of the job of this number."""
        self.source.take(number, outcome)
        self._done[number] = outcome.without_history()
        while not self.ended and self._looked_at in self._done:
            self._look(self._done.pop(self._looked_at))

    def _look(self, outcome: Outcome) -> None:
        self._looked_at += 1
        if outcome.simulated is not None:
            self.simulated_s += outcome.simulated.virtual_s
            self.wall_s += outcome.simulated.wall_s
        self.found = _found(outcome, self._looked_at)
        spent = self.wall_s > self.budget_s and self._looked_at == self.begun
        exhausted = self._looked_at == len(self.source.seeds) or spent
        self.ended = self.found is not None or exhausted


def _found(outcome: Outcome, runs: int) -> Found | None:
    """None also where nothing was promised, as faults were beyond what the cluster survives or its settings give it up,
    and the history shows no more than that: code that is right would do the same."""
    if not outcome.failed:
        return None
    stopped = outcome.simulated is not None and outcome.simulated.violation is not None
    if outcome.verdict is not None and not is_covered(outcome.verdict["contract"]) and not stopped:
        return None
    failure = Failure.of(outcome, None)
    property_ = failure.property if failure.result == "fail" else {"crashed": "crash"}.get(failure.result, "hang")
    schedule = None if outcome.simulated is None else outcome.simulated.schedule
    return Found(outcome.plan.seed, runs, property_, failure.anomaly, failure.message, outcome.plan, schedule)


def search_all(searches: Sequence[Search], workers: int, logs: Path, limit_s: float = RUN_LIMIT_S) -> Iterator[Search]:
    """Each as it ends. logs: a directory that is made, for what workers say. limit_s: seconds that a run may take.
    Raises HarnessFailure if workers cannot start."""
    plans = _Plans(searches)
    told: set[int] = set()
    outcomes: Generator[Outcome | None, Any, Any] = simulate_all(
        plans, workers, simulate, logs, limit_s=limit_s, histories=False
    )
    with closing(outcomes):
        for outcome in outcomes:
            if outcome is not None:
                plans.take(outcome)
            for number, search in enumerate(searches):
                if search.ended and number not in told:
                    told.add(number)
                    yield search
            if len(told) == len(searches):
                return


class _Plans:
    """What to simulate next: of the first search that none is simulated of, so that no run is in vain if that one
    fails; only if there is none, of the first at all."""

    def __init__(self, searches: Sequence[Search]) -> None:
        self._searches = searches
        self._of_runs: dict[str, tuple[Search, int]] = {}

    def __iter__(self) -> Iterator[Job | None]:
        return self

    def __next__(self) -> Job | None:
        open_ = [(number, each) for number, each in enumerate(self._searches) if not each.ended]
        if not open_:
            raise StopIteration
        for of, search in sorted(open_, key=lambda entry: entry[1].in_flight):
            if (found := search.next_job()) is not None:
                number, job = found
                plan = job.plan.model_copy(update={"run": f"{of}-r{number}"})
                self._of_runs[plan.run] = search, number
                return job._replace(plan=plan)
        return None

    def take(self, outcome: Outcome) -> None:
        search, number = self._of_runs.pop(outcome.plan.run)
        search.take(number, outcome)
