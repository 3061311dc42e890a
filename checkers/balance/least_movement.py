"""The least that has to be moved until a cluster is balanced, by another way than the plans that are judged by it: a
min-cost flow (networkx' network simplex) from each partition, over racks, to brokers.

Its cost is, in this order: how unevenly partitions are spread over racks, how unevenly replicas are spread over brokers
(both as sums of squares, so that even is least), and the bytes of replicas that are where none was before.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping
from typing import NamedTuple, TypeVar

import networkx as nx

P = TypeVar("P", bound=Hashable)


class Least(NamedTuple):
    """of_racks: sum of squares of the replicas that each partition has in each rack; of_brokers: of those that each
    broker holds; bytes: moved at least with these."""

    of_racks: int
    of_brokers: int
    bytes: int


def least(assignment: Mapping[P, Collection[int]], racks: Mapping[int, str | None], weights: Mapping[P, int]) -> Least:
    """assignment: brokers that hold each partition now. racks: by broker, of all that are to hold some; those without
    one are in one together. weights: bytes of each partition. Takes seconds for some hundred partitions."""
    of_rack = {broker: rack or "" for broker, rack in racks.items()}
    names = sorted(set(of_rack.values()))
    total = sum(map(len, assignment.values()))
    of_brokers = 2 * sum(weights[p] * len(held) for p, held in assignment.items()) + 1
    of_racks = of_brokers * (total * total + 1)
    graph: nx.DiGraph[Hashable] = nx.DiGraph()
    graph.add_node("held", demand=total)
    for partition, held in assignment.items():
        graph.add_node(("partition", partition), demand=-len(held))
        for rack in names:
            there = ("rack", partition, rack)
            for count in range(1, min(len(held), sum(r == rack for r in of_rack.values())) + 1):
                place = ("replica", partition, rack, count)
                graph.add_edge(("partition", partition), place, capacity=1, weight=of_racks * (2 * count - 1))
                graph.add_edge(place, there, capacity=1, weight=0)
        for broker, rack in of_rack.items():
            moved = 0 if broker in held else weights[partition]
            graph.add_edge(("rack", partition, rack), ("broker", broker), capacity=1, weight=moved)
    for broker in of_rack:
        for count in range(1, len(assignment) + 1):
            load = ("load", broker, count)
            graph.add_edge(("broker", broker), load, capacity=1, weight=of_brokers * (2 * count - 1))
            graph.add_edge(load, "held", capacity=1, weight=0)
    cost, _ = nx.network_simplex(graph)
    by_racks, rest = divmod(cost, of_racks)
    return Least(by_racks, *divmod(rest, of_brokers))
