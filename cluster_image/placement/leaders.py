"""Who is to lead, once it is decided who holds what: preferred leaders within one of each other, by the order of
replicas alone, which moves no data."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Mapping, Sequence, Set

from .layout import P
from .spread import Replicas, Spread


def ordered(
    assignment: Mapping[P, Sequence[int]], holders: Mapping[P, Set[int]], brokers: Mapping[int, str | None]
) -> dict[P, Replicas]:
    """Replica lists of these holders. What stays keeps its place as long as leaders are balanced with it."""
    lists = {partition: _in_place(before, holders[partition]) for partition, before in assignment.items()}
    _balance(lists, brokers)
    _spread_takeovers(lists)
    return {partition: tuple(replicas) for partition, replicas in lists.items()}


def _in_place(before: Sequence[int], holders: Set[int]) -> list[int]:
    """Added replicas in the places of those that go."""
    added = iter(sorted(holders - set(before)))
    return [broker if broker in holders else next(added) for broker in before]


def _spread_takeovers(lists: Mapping[P, list[int]]) -> None:
    """Another follower comes second where that lets a leader's partitions go to more of the others if it dies (003).
    Until nothing changes any more, so that a plan that is carried out needs no other."""
    spread = Spread(lists.values())
    open_ones = [replicas for replicas in lists.values() if len(replicas) > 2]
    changed = True
    while changed:
        changed = False
        for replicas in open_ones:
            counts = spread.takeovers[replicas[0]]
            fewest = min(replicas[1:], key=lambda b: (counts[b], b))
            if counts[replicas[1]] - counts[fewest] > 1:
                counts[replicas[1]] -= 1
                counts[fewest] += 1
                replicas.remove(fewest)
                replicas.insert(1, fewest)
                changed = True


def _balance(lists: Mapping[P, list[int]], brokers: Mapping[int, str | None]) -> None:
    """Leaderships go along shortest ways, from brokers that lead too many to those that lead too few."""
    led = dict.fromkeys(brokers, 0)
    held: dict[int, list[P]] = {broker: [] for broker in brokers}
    for partition, replicas in lists.items():
        led[replicas[0]] += 1
        for broker in replicas:
            held[broker].append(partition)
    by_number = sorted((number, broker) for broker, number in led.items())
    while by_number:
        most = by_number[-1][0]
        for number, taker in by_number:
            if number >= most - 1:
                return
            giver = _take_over(taker, led, held, lists)
            if giver is not None:
                for broker, change in ((taker, 1), (giver, -1)):
                    del by_number[bisect_left(by_number, (led[broker] - change, broker))]
                    insort(by_number, (led[broker], broker))
                break


def _take_over(
    taker: int, led: dict[int, int], held: Mapping[int, Sequence[P]], lists: Mapping[P, list[int]]
) -> int | None:
    """One leadership more for this broker, and one less for one that leads at least two more, which is returned. None:
    there is no way from any such."""
    ways: dict[int, tuple[P, int] | None] = {taker: None}  # by broker, which it hands on, and to whom
    for broker in (queue := [taker]):
        for partition in held[broker]:
            leader = lists[partition][0]
            if leader in ways:
                continue
            ways[leader] = (partition, broker)
            queue.append(leader)
            if led[leader] <= led[taker] + 1:
                continue
            giver = leader
            led[giver] -= 1
            led[taker] += 1
            while way := ways[leader]:
                handed_on, leader = way
                lists[handed_on].remove(leader)
                lists[handed_on].insert(0, leader)
            return giver
    return None
