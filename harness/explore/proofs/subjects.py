"""What is searched for: a bug of the list, with the exploration that is to find it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from harness.explore.guided.guide import Guide
from harness.explore.proofs.search import Search
from harness.plan.plan import Plan

#: Of the seeds of one search of several for the same bug: each begins at a multiple.
SEEDS_APART = 1000


@dataclass(frozen=True)
class Subject:
    """id: of a bug (M01). title: what it does wrong. options: of `chaos explore`, that are to find it. plan_of: the
    plan of a seed of that exploration. guide: what makes its runs of one another, for these seeds; None: nothing."""

    id: str
    title: str
    target: str
    options: str
    plan_of: Callable[[int], Plan]
    guide: Callable[[Sequence[int]], Guide] | None = None

    def seeds(self, search: int, most: int) -> range:
        """Of the search of this number, from 0."""
        return range(search * SEEDS_APART, search * SEEDS_APART + most)

    def search(self, number: int, most: int, budget_s: float) -> Search:
        """See Search."""
        seeds = self.seeds(number, most)
        return Search(self.id, seeds, self.plan_of, budget_s, None if self.guide is None else self.guide(seeds))
