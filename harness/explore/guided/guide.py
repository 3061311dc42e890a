"""What is simulated next: a fresh run, or a changed one of those that reached what none before had.

What is decided for a run depends on those that are `LAG` or more before it and no others, whichever come back first: so
the same seed and corpus make the same exploration, with however many workers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final, Self

from harness.explore.guided.mutation import Mutation, most_faults
from harness.explore.workers import Job, Outcome

#: Runs. More than there are workers, so that none waits for a slow one.
LAG: Final = 8
#: Of all runs, that are fresh; before there is anything to change, all are.
FRESH: Final = 0.3
#: Of entries that runs are made of: those of most weight.
MOST_ENTRIES: Final = 150


@dataclass
class Entry:
    """A run that reached something new. states: with the faults in force then, all that it was in. new: how many of
    them none before had reached. chosen: how often it was changed."""

    number: int
    job: Job
    states: frozenset[int]
    new: int
    chosen: int = 0


class Guide:
    """An iterator of jobs, to be told what came of each. fresh: a run of a seed as a random exploration has it, with
    its schedule. seeds: of the runs, one each; the first one is that of all that is drawn here. begin: runs to be made
    before any other, of an earlier exploration."""

    def __init__(self, fresh: Callable[[int], Job], seeds: Sequence[int], begin: Sequence[Job] = ()) -> None:
        self.entries: list[Entry] = []
        self.hits: Counter[int] = Counter()  # by state: how many runs have been in it
        self._fresh = fresh
        self._seeds = seeds
        self._begin = begin
        self._begun = 0
        self._came: dict[int, Outcome] = {}
        self._told: set[int] = set()
        self._learned = 0  # so many runs have been taken into account

    def __iter__(self) -> Iterator[Job | None]:
        return self

    def __next__(self) -> Job | None:
        """Raises StopIteration after the last."""
        number = self._begun
        if number == len(self._seeds):
            raise StopIteration
        while self._learned <= number - LAG:
            if self._learned not in self._came:
                return None
            self._learn(self._learned, self._came.pop(self._learned))
            self._learned += 1
        self._begun += 1
        return self._next(number)

    def take(self, number: int, outcome: Outcome) -> None:
        """Of the job of this number, from 0."""
        self._came[number] = outcome
        self._told.add(number)

    def finish(self) -> Self:
        """No more will be asked for: learn of all that came."""
        for number, outcome in sorted(self._came.items()):
            self._learn(number, outcome)
        self._came.clear()
        return self

    @property
    def not_run(self) -> Sequence[Job]:
        """Of those to begin with: nobody knows what they reach now."""
        return [job for number, job in enumerate(self._begin) if number not in self._told]

    def _next(self, number: int) -> Job:
        if number < len(self._begin):
            return self._begin[number]
        seed = self._seeds[number]
        random = Random(f"{self._seeds[0]}/{seed}/guide")
        if not self.entries or random.random() < FRESH:
            return self._fresh(seed)
        weighed = [(self._weight(each), each) for each in self.entries]
        weighed.sort(key=lambda pair: (-pair[0], pair[1].number))
        weights, entries = zip(*weighed[:MOST_ENTRIES], strict=True)
        parent, other = random.choices(entries, weights)[0], random.choices(entries, weights)[0]
        parent.chosen += 1
        job = Mutation(self._fresh, random).of(parent.job, other.job)
        own = self._fresh(seed).schedule
        assert job.schedule is not None and own is not None
        return job._replace(schedule=job.schedule[: most_faults(own)])

    def _weight(self, entry: Entry) -> float:
        """What few have seen counts most, and less each time that it was tried."""
        rare = sum(1 for state in entry.states if self.hits[state] <= 2)
        return (1 + rare) / (1 + entry.chosen)

    def _learn(self, number: int, outcome: Outcome) -> None:
        simulated = outcome.simulated
        if simulated is None:
            return
        states = simulated.under_faults
        new = sum(1 for state in states if state not in self.hits)
        self.hits.update(states)
        if new:
            self.entries.append(Entry(number, Job(simulated.plan, simulated.schedule), states, new))
