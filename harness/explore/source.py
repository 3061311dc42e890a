"""Where the runs of an exploration come from: from seeds, or from what a guide makes of those before."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import ClassVar, Protocol, Self

from harness.explore.workers import Job, Outcome
from harness.plan.plan import Plan


class Source(Protocol):
    """An iterator of jobs, to be told what came of each. Each has a run's name of its own. seeds: of its runs, one
    each, though not in each case the one of its plan. guided: what it has run next depends on what came."""

    seeds: Sequence[int]
    guided: ClassVar[bool]

    def __iter__(self) -> Iterator[Job | None]: ...

    def __next__(self) -> Job | None:
        """None: there is none yet, which is for what is still to come. Raises StopIteration after the last."""

    def take(self, number: int, outcome: Outcome) -> None:
        """Of the job of this number, from 0."""


class Seeds:
    """A run of each seed in its turn, whatever became of the others."""

    guided: ClassVar = False

    @classmethod
    def of(cls, plan: Plan, seeds: Sequence[int]) -> Self:
        """Runs that differ in seed and name alone."""
        return cls(lambda seed: plan.model_copy(update={"run": f"s{seed}", "seed": seed}), seeds)

    def __init__(self, plan_of: Callable[[int], Plan], seeds: Sequence[int]) -> None:
        self.seeds = seeds
        self._jobs = (Job(plan_of(seed)) for seed in seeds)

    def __iter__(self) -> Iterator[Job | None]:
        return self

    def __next__(self) -> Job | None:
        return next(self._jobs)

    def take(self, number: int, outcome: Outcome) -> None:
        pass


class Numbered:
    """The jobs of a source as they are simulated: each outcome finds the number of its job by the run's name."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._numbers: dict[str, int] = {}

    def __iter__(self) -> Iterator[Job | None]:
        for job in self._source:
            if job is not None:
                self._numbers[job.plan.run] = len(self._numbers)
            yield job

    def take(self, outcome: Outcome) -> int:
        """Hands it on; the number of its job, from 0."""
        number = self._numbers[outcome.plan.run]
        self._source.take(number, outcome)
        return number
