"""What is simulated next: a fresh run, or one made of those that reached what none before had.

What is decided for a run depends on those that are `lag()` or more before it and no others, whichever come back first:
so the same seed and corpus make the same exploration, with however many workers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, ClassVar, Final, Self

from harness.explore.guided.mutation import SCHEDULES, Mutation, of_schedules
from harness.explore.guided.traits import of_plan
from harness.explore.workers import Job, Outcome

#: Runs. More than there are workers, so that none waits for a slow one.
LAG: Final = 8
#: Of all runs, that are fresh; before there is anything to change, all are.
FRESH: Final = 0.05
#: Of all runs, those of an earlier exploration, until each was run again.
AGAIN: Final = 0.3
#: Of entries that runs are made of: those of most weight.
MOST_ENTRIES: Final = 150
#: Of the last run in the average of what runs reach that is new.
_LATEST: Final = 0.1
_FRESH_SCHEDULE: Final[Mapping[str, Any]] = {name: values[0] for name, values in SCHEDULES.items()}


@dataclass
class Entry:
    """A run that reached something new. states: pairs of a coarse state and the faults in force then. gain: what it
    and those made of it reached that was new, of each in multiples of what runs of that time did on average. made: how
    many were made of it. Of an earlier exploration: not known is what it reaches now, and its number is below 0."""

    number: int
    job: Job
    states: frozenset[int]
    gain: float
    made: int = 0

    @property
    def weight(self) -> float:
        """What its next one may gain, squared: a little more is worth much."""
        return ((0.5 + self.gain) / (1.5 + self.made)) ** 2


class Guide:
    """Implements harness.explore.source.Source. fresh: a run of a seed as a random exploration has it, with
    its schedule. seeds: of the runs, one each; the first one is that of all that is drawn here. begin: runs of an
    earlier exploration: others are made of them from the first on, and beside these they are run again."""

    guided: ClassVar = True

    def __init__(self, fresh: Callable[[int], Job], seeds: Sequence[int], begin: Sequence[Job] = ()) -> None:
        self._fresh = fresh
        self.seeds = seeds
        self._begin = begin
        self._again: dict[int, int] = {}  # by number of a run, the place of that to begin with which it repeats
        self._told: set[int] = set()  # such places, of those that came
        self._begun = 0
        self._came: dict[int, Outcome] = {}
        self._learned = 0  # so many runs have been taken into account
        self._seen: set[int] = set()
        self._average: float = 0  # of what runs reach that is new; 0: none came yet
        self._traits = of_schedules()
        self._schedules: dict[int, Mapping[str, Any]] = {}  # by number of a run that is not fresh, of its schedule
        self._parents: dict[int, Entry] = {}  # by number of a run
        self.entries = [Entry(place - len(begin), job, frozenset(), 1.0) for place, job in enumerate(begin)]

    def __iter__(self) -> Iterator[Job | None]:
        return self

    def __next__(self) -> Job | None:
        number = self._begun
        if number == len(self.seeds):
            raise StopIteration
        while self._learned <= number - lag(number):
            if self._learned not in self._came:
                return None
            self._learn(self._learned, self._came.pop(self._learned))
            self._learned += 1
        self._begun += 1
        job = self._next(number)  # under a name of its own: several may have the same seed
        return job._replace(plan=job.plan.model_copy(update={"run": f"r{number}"}))

    def take(self, number: int, outcome: Outcome) -> None:
        self._came[number] = outcome
        if number in self._again:
            self._told.add(self._again[number])

    def finish(self) -> Self:
        """No more will be asked for: learn of all that came."""
        for number, outcome in sorted(self._came.items()):
            self._learn(number, outcome)
        self._came.clear()
        return self

    @property
    def not_run(self) -> Sequence[Job]:
        """Of those to begin with: nobody knows what they reach now."""
        return [job for place, job in enumerate(self._begin) if place not in self._told]

    def _next(self, number: int) -> Job:
        seed = self.seeds[number]
        random = Random(f"{self.seeds[0]}/{seed}/guide")
        own = self._fresh(seed)
        self._traits.meet(of_plan(own.plan))
        if (place := len(self._again)) < len(self._begin) and random.random() < AGAIN:
            self._again[number] = place
            self._schedules[number] = {}  # nothing is known of how its schedule was made
            return self._begin[place]
        if not self.entries or random.random() < FRESH:
            return own
        likely = sorted(self.entries, key=lambda each: (-each.weight, each.number))[:MOST_ENTRIES]
        weights = [each.weight for each in likely]

        def draw() -> Entry:
            return random.choices(likely, weights)[0]

        self._parents[number] = parent = draw()
        mutation = Mutation(own, random)
        job = mutation.of(parent.job, lambda: draw().job, self._traits)
        self._schedules[number] = mutation.traits
        return job

    def _learn(self, number: int, outcome: Outcome) -> None:
        simulated = outcome.simulated
        if simulated is None:
            return
        reached = simulated.states | simulated.under_faults
        new = len(reached - self._seen)
        self._seen |= reached
        gain = new / (self._average or new or 1.0)
        self._average = (1 - _LATEST) * self._average + _LATEST * new if self._average else new
        schedule = self._schedules.pop(number, _FRESH_SCHEDULE)
        self._traits.learn({**of_plan(simulated.plan), **schedule}, gain)
        if (parent := self._parents.pop(number, None)) is not None:
            parent.gain += gain
            parent.made += 1
        if new:
            self.entries.append(Entry(number, Job(simulated.plan, simulated.schedule), simulated.under_faults, gain))


def lag(number: int) -> int:
    """How many runs before this one nothing need be known of it. Few at first, where each tells much."""
    return min(LAG, 1 + number // 4)
