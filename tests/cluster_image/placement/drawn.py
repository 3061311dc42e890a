"""Clusters that Hypothesis and seeds draw."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from random import Random
from typing import NamedTuple

import networkx as nx
from hypothesis import strategies as st

from cluster_image.placement.initial import place
from cluster_image.placement.racks import Racks


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


def optimum(case: Case) -> tuple[int, int]:
    """The least sum of squares of the brokers' loads, and the least weight moved with it: a min-cost flow from each
    partition, by its racks, to the brokers, by networkx' network simplex."""
    racks = Racks(case.brokers)
    total = sum(map(len, case.assignment.values()))
    a_square = 2 * sum(case.weights.values()) + 1
    graph = nx.DiGraph()
    demand: Counter[object] = Counter({"loads": total})
    for partition, replicas in case.assignment.items():
        demand[partition] -= len(replicas)
        for rack in racks.names:
            low, high = racks.bounds(rack, len(replicas))
            graph.add_edge(partition, (partition, rack), capacity=high - low, weight=0)
            demand[partition] += low
            demand[partition, rack] -= low
            for broker in case.brokers:
                if racks.of[broker] == rack:
                    moved = 0 if broker in replicas else case.weights[partition]
                    graph.add_edge((partition, rack), f"broker {broker}", capacity=1, weight=moved)
    for broker in case.brokers:
        for unit in range(1, len(case.assignment) + 1):
            graph.add_edge(f"broker {broker}", (broker, "load", unit), capacity=1, weight=a_square * (2 * unit - 1))
            graph.add_edge((broker, "load", unit), "loads", capacity=1, weight=0)
    for node, wanted in demand.items():
        graph.add_node(node, demand=wanted)
    cost, _ = nx.network_simplex(graph)
    return divmod(cost, a_square)


def racks_are_kept(assignment: Mapping[int, Sequence[int]], brokers: Mapping[int, str | None]) -> bool:
    racks = Racks(brokers)
    return all(not racks.excess(Counter(racks.of[b] for b in r), len(r)) for r in assignment.values())
