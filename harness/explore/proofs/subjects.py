"""What is searched for: a bug of the list, with the exploration that is to find it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from harness.explore.proofs.search import Search
from harness.explore.source import Source

#: Of the seeds of one search of several for the same bug: each begins at a multiple.
SEEDS_APART = 1000


@dataclass(frozen=True)
class Subject:
    """id: of a bug (M01). title: what it does wrong. options: of `chaos explore`, that are to find it. source:
    where the runs of such an exploration come from, by its seeds."""

    id: str
    title: str
    target: str
    options: str
    source: Callable[[Sequence[int]], Source]

    def seeds(self, search: int, most: int) -> range:
        """Of the search of this number, from 0."""
        return range(search * SEEDS_APART, search * SEEDS_APART + most)

    def search(self, number: int, most: int, budget_s: float) -> Search:
        """See Search."""
        return Search(self.id, self.source(self.seeds(number, most)), budget_s)
