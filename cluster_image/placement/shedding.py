"""A balanced layout by direct moves: from brokers that hold too many to those that hold too few, the smallest first.

Where nothing stands in the way that is the least there can be, and least_bytes() proves it. Where replicas or racks do
stand in the way, `exchange` goes on from here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from fractions import Fraction
from heapq import heapify, heappop, heappush, nlargest
from math import ceil
from typing import NamedTuple

from .layout import Layout, P

#: Of what has moved already, so many are looked at for one that could go elsewhere and make room.
_EXCHANGES_TRIED = 500


#: A broker that could give away none of so many partitions, one after the other, is left as it is.
_MOST_FAILURES = 200


class _Group(NamedTuple):
    """Brokers whose loads are to be within one of each other: mean, or for so many of them one more."""

    brokers: Sequence[int]
    mean: int
    rounded_up: int


def _groups(layout: Layout[P]) -> list[_Group]:
    """All brokers in one, but for racks that can only hold fewer than the mean of the others, or must hold more: each
    partition has so many replicas in a rack at least, and so many at most."""
    racks = layout.racks
    factors = Counter(map(len, layout.holders.values()))
    least, most = (
        {rack: sum(racks.bounds(rack, r)[end] * count for r, count in factors.items()) for rack in racks.names}
        for end in (0, 1)
    )
    total = sum(factor * count for factor, count in factors.items())
    shared = list(racks.names)
    apart: list[tuple[Sequence[str], int]] = []
    while True:
        size = sum(racks.sizes[rack] for rack in shared)
        # Only where none of its brokers can be as full, or as empty, as one of the others: else which is which is open.
        share = {rack: Fraction(total * racks.sizes[rack], size) for rack in shared}
        low = [r for r in shared if most[r] < share[r] and ceil(Fraction(most[r], racks.sizes[r])) <= total // size]
        high = [r for r in shared if least[r] > share[r] and least[r] // racks.sizes[r] >= ceil(Fraction(total, size))]
        missing = sum(share[r] - most[r] for r in low)
        surplus = sum(least[r] - share[r] for r in high)
        fixed, held = (low, most) if missing >= surplus else (high, least)
        if not fixed:
            break
        for rack in fixed:
            shared.remove(rack)
            total -= held[rack]
            apart.append(((rack,), held[rack]))
    groups = []
    for names, replicas in (*apart, (shared, total)):
        if names:
            brokers = [broker for broker in layout.brokers if layout.rack(broker) in names]
            groups.append(_Group(brokers, *divmod(replicas, len(brokers))))
    return groups


def is_balanced(layout: Layout[P]) -> bool:
    """Are replicas as evenly spread as racks allow? (False also where that is not certain.)"""
    return all(g.mean <= layout.load(b) <= g.mean + (g.rounded_up > 0) for g in _groups(layout) for b in g.brokers)


def least_bytes(layout: Layout[P]) -> int:
    """What every plan from here moves at least whose result is balanced: all that is held by brokers which are to hold
    nothing, and of each that holds too many the smallest partitions."""
    least = sum(layout.weights[p] for broker in layout.gone for p in layout.held[broker])
    for group in _groups(layout):
        saved = []
        for broker in group.brokers:
            given = sorted(layout.weights[p] for p in layout.held[broker])[: max(layout.load(broker) - group.mean, 0)]
            least += sum(given)
            saved += given[-1:]
        least -= sum(nlargest(group.rounded_up, saved))
    return least


def shed(layout: Layout[P]) -> None:
    targets = _targets(layout)
    moved: list[tuple[P, int]] = []  # to which broker
    room = [(layout.load(b) - targets[b], b) for b in layout.brokers]
    heapify(room)
    for each in layout.holders:
        while layout.excess(each):
            moved.append((each, _put_right(layout, each, targets, room)))
    lacking = [(layout.load(b) - targets[b], b) for b in layout.brokers if layout.load(b) < targets[b]]
    heapify(lacking)
    surplus = {b: layout.load(b) - targets[b] for b in layout.brokers if layout.load(b) > targets[b]}
    smallest_first = {b: iter(sorted(layout.held[b], key=lambda p: layout.weights[p])) for b in surplus}
    failures = dict.fromkeys(surplus, 0)
    while surplus and lacking:
        for giver in list(surplus):
            # An exchange may have taken some of them.
            partition = next((p for p in smallest_first[giver] if p in layout.held[giver]), None)
            if partition is None or failures[giver] > _MOST_FAILURES:
                del surplus[giver]  # nothing that it holds may go to who lacks
            elif _give(layout, partition, giver, lacking, moved):
                failures[giver] = 0
                surplus[giver] -= 1
                if not surplus[giver]:
                    del surplus[giver]
            else:
                failures[giver] += 1


def _targets(layout: Layout[P]) -> dict[int, int]:
    """How many replicas each broker is to hold: the mean, rounded down or up; up where the largest partition that it
    would have to give otherwise is largest."""
    targets: dict[int, int] = {}
    for group in _groups(layout):

        def saved(broker: int, mean: int = group.mean) -> tuple[int, int]:
            surplus = layout.load(broker) - mean
            if surplus <= 0:
                return surplus, 0
            return 1, sorted(layout.weights[p] for p in layout.held[broker])[surplus - 1]

        rounded_up = set(nlargest(group.rounded_up, group.brokers, key=saved))
        targets |= {broker: group.mean + (broker in rounded_up) for broker in group.brokers}
    return targets


def _put_right(layout: Layout[P], partition: P, targets: Mapping[int, int], room: list[tuple[int, int]]) -> int:
    """A replica on a broker that is to hold nothing, or in a rack that holds too many, goes where there is most room.
    Returns where. room: a heap of (replicas above the target, broker), of which some may be older than the layout."""
    passed_over = []
    while True:
        surplus, taker = heappop(room)
        if surplus != layout.load(taker) - targets[taker]:
            heappush(room, (layout.load(taker) - targets[taker], taker))
            continue
        givers = [] if taker in layout.holders[partition] else sorted(layout.holders[partition])
        giver = next((g for g in givers if layout.excess_by(partition, g, taker) < 0), None)
        passed_over.append((surplus + (giver is not None), taker))
        if giver is not None:
            layout.move(partition, giver, taker)
            break
    for each in passed_over:
        heappush(room, each)
    return taker


def _give(
    layout: Layout[P], partition: P, giver: int, lacking: list[tuple[int, int]], moved: list[tuple[P, int]]
) -> bool:
    """To who lacks most of those that can take it; or, where nobody can, to a broker that has got another before, which
    goes on to who lacks. lacking: a heap of (minus how many, broker)."""
    passed_over, given = [], False
    while lacking and not given:
        lack, taker = heappop(lacking)
        given = layout.may_move(partition, giver, taker)
        if given:
            layout.move(partition, giver, taker)
            moved.append((partition, taker))
            lack += 1
        if lack:
            passed_over.append((lack, taker))
    for each in passed_over:
        heappush(lacking, each)
    return given or _exchange(layout, partition, giver, lacking, moved)


def _exchange(
    layout: Layout[P], partition: P, giver: int, lacking: list[tuple[int, int]], moved: list[tuple[P, int]]
) -> bool:
    for place in range(len(moved) - 1, max(len(moved) - _EXCHANGES_TRIED, 0) - 1, -1):
        other, between = moved[place]
        if other == partition or between not in layout.holders[other] or not layout.may_move(partition, giver, between):
            continue
        for number, (lack, taker) in enumerate(lacking):
            if layout.may_move(other, between, taker):
                layout.move(other, between, taker)
                layout.move(partition, giver, between)
                moved[place] = (other, taker)
                moved.append((partition, between))
                lacking[number] = (lack + 1, taker) if lack < -1 else lacking[-1]
                if lack == -1:
                    lacking.pop()
                heapify(lacking)
                return True
    return False
