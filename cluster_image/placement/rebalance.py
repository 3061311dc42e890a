"""A plan of moves after which a cluster is balanced, with the least data moved (003, incrementally add brokers online;
take brokers offline).

Balanced is: brokers hold numbers of replicas within one of each other, and lead numbers of partitions within one of
each other; each partition's replicas are in as many racks as there are for them. Where racks make that impossible, the
loads are as near to each other as racks allow (least sum of squares). Leaders follow by the order of replicas, which
moves nothing, and suffices where all partitions have as many replicas; else some replicas change places for them.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Generic

from .exchange import Exchange
from .layout import Layout, P
from .leaders import ordered
from .shedding import is_balanced, least_bytes, shed
from .spread import Replicas, Spread, apart
from .swaps import swap_for_leaders

#: Beyond so many edges to look at, an exchange is not searched for: it would take minutes.
_MOST_EDGES = 3_000_000


@dataclass(frozen=True)
class Move(Generic[P]):
    partition: P
    before: Replicas
    after: Replicas
    bytes: int  # that the added replicas have to fetch

    @property
    def added(self) -> Replicas:
        return tuple(broker for broker in self.after if broker not in self.before)


@dataclass(frozen=True)
class Plan(Generic[P]):
    """moves: all partitions whose replicas change, be it their order alone. is_least: nothing can do with less data
    (None: that is not certain, as the cluster is large, or as replicas change places for leaders)."""

    moves: tuple[Move[P], ...]
    before: Spread
    after: Spread
    is_least: bool | None

    @property
    def replicas_moved(self) -> int:
        return sum(len(move.added) for move in self.moves)

    @property
    def bytes_moved(self) -> int:
        return sum(move.bytes for move in self.moves)


def plan(
    assignment: Mapping[P, Sequence[int]],
    brokers: Mapping[int, str | None],
    weights: Mapping[P, int] | None = None,
) -> Plan[P]:
    """assignment: replicas of each partition, the preferred leader first. brokers: rack by id, of all that are to hold
    partitions: what others hold moves away. weights: bytes of each partition; 1 for all where none are given.

    Raises ValueError: a partition has more replicas than there are brokers."""
    most = max(map(len, assignment.values()), default=0)
    if most > len(brokers):
        raise ValueError(f"{most} replicas need as many brokers, and {len(brokers)} would be left")
    with _no_garbage_collection():
        return _plan(assignment, brokers, weights)


def _plan(
    assignment: Mapping[P, Sequence[int]], brokers: Mapping[int, str | None], weights: Mapping[P, int] | None
) -> Plan[P]:
    layout = Layout(assignment, brokers, weights)
    is_least: bool | None = True
    if assignment:
        least = least_bytes(layout)
        shed(layout)
        if not is_balanced(layout) or layout.bytes_moved() > least:
            if sum(map(len, assignment.values())) * len(brokers) <= _MOST_EDGES:
                Exchange(layout).improve()
            else:
                is_least = None
    after = ordered(assignment, layout.holders, brokers)
    if apart(Spread(after.values()).leaders, brokers) > 1 and swap_for_leaders(layout, after):
        is_least = None
    moves = [
        Move(partition, tuple(before), after[partition],
             layout.weights[partition] * len(set(after[partition]) - set(before)))
        for partition, before in assignment.items()
        if after[partition] != tuple(before)
    ]  # fmt: skip
    return Plan(tuple(moves), Spread(assignment.values()), Spread(after.values()), is_least)


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Of 200,000 partitions' sets and lists nothing becomes garbage in circles; to look for it takes a third of the
    time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
