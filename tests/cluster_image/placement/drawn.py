"""Clusters that Hypothesis and seeds draw."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from random import Random
from typing import NamedTuple

from hypothesis import strategies as st

from checkers.balance.least_movement import Least, least
from cluster_image.placement.initial import place


@st.composite
def clusters_with_racks(draw: st.DrawFn) -> dict[int, str | None]:
    """Rack by broker id: one to four racks of one to four brokers each."""
    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    racks = [f"rack-{rack}" for rack, size in enumerate(sizes) for _ in range(size)]
    return dict(enumerate(draw(st.permutations(racks)), 1))


class Case(NamedTuple):
    assignment: dict[int, tuple[int, ...]]
    brokers: dict[int, str | None]  # that are to hold partitions
    weights: dict[int, int]


def drawn_case(seed: int) -> Case:
    """A small cluster, balanced or not, with a broker more or less. Every second one has bytes, racks and a removed
    broker."""
    random = Random(seed)
    n = random.randint(2, 7)
    replication = random.randint(1, min(n - 1, 3))
    partitions = random.randint(1, 25)
    ids = list(range(1, n + 1))
    with_racks = seed % 2 == 1
    racks = dict.fromkeys(ids)
    if with_racks:
        names = [f"rack-{i}" for i in range(random.randint(1, n))]
        racks = {broker: random.choice(names) for broker in ids}
    if random.random() < 0.4:
        some = {b: racks[b] for b in ids[: max(replication, n - random.randint(0, 2))]}
        assignment = dict(enumerate(place(some, partitions, replication)))
    else:
        assignment = {p: tuple(random.sample(ids, replication)) for p in range(partitions)}
    brokers = dict(racks)
    if with_racks and n > replication:
        del brokers[random.choice(ids)]
    elif random.random() < 0.5:
        brokers[n + 1] = None
    return Case(assignment, brokers, {p: random.randint(0, 1000) if with_racks else 1 for p in assignment})


def optimum(case: Case) -> Least:
    """By networkx, which knows nothing of how plans are made."""
    return least(case.assignment, case.brokers, case.weights)


def squares_of_racks(assignment: Mapping[int, Sequence[int]], brokers: Mapping[int, str | None]) -> int:
    """0 would be no replica at all; see Least.of_racks."""
    held = (Counter(brokers[broker] or "" for broker in replicas) for replicas in assignment.values())
    return sum(count**2 for of in held for count in of.values())
