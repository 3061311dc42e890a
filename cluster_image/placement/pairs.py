"""Who leads a new partition, and who is second and takes over from it.

All brokers lead equally often, and of what one leads all others take over equally much. Where topics are small, that
may leave no choice in the end: of the last leaders of a round, all would have the same broker for a second, which then
holds more replicas than others. So in a round, in which each broker leads once, each is second once as well, and a pair
is chosen only if the rest of its round can be matched like that. It always can (M. Hall, An existence theorem for Latin
squares, 1945: a Latin rectangle can be extended by a row), but where brokers have come or gone, racks stand in the way
or the topic's own evenness comes first; there a round ends as well as it may.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from .spread import Spread

#: Pairs that are looked at for the partitions of a topic, at most: a controller does this.
_MOST_LOOKED_AT: Final = 20_000


class Pairs:
    """The pairs of the partitions of one topic, one after the other.

    brokers: all, two at least. others: who may be second where a broker leads, in the order in which they are tried.
    topic, cluster: what there is, to which the caller adds what it places."""

    def __init__(
        self, brokers: Sequence[int], others: Callable[[int], Sequence[int]], topic: Spread, cluster: Spread
    ) -> None:
        self._brokers = brokers
        self._others = others
        self._topic = topic
        self._cluster = cluster
        self._left = _MOST_LOOKED_AT

    def next(self) -> tuple[int, int]:
        """The leader and the second, with whom the topic is most even, and then the cluster: of those that lead least
        and of whom is taken over least, a pair that holds the fewest replicas of the topic, and then of all."""
        least = min(map(self._led, self._brokers))
        leaders = [broker for broker in self._brokers if self._led(broker) == least]
        self._left -= len(leaders) * len(self._brokers)
        if self._left < 0:
            leaders = [min(leaders, key=lambda broker: self._cluster.replicas[broker])]
        pairs = [(leader, second) for leader in leaders for second in self._seconds(leader, self._topic, self._cluster)]
        pairs.sort(key=self._held)
        if self._left < 0:
            return pairs[0]
        return next((pair for pair in pairs if self._round_goes_on_after(*pair)), pairs[0])

    def _led(self, broker: int) -> tuple[int, int]:
        return self._topic.leaders[broker], self._cluster.leaders[broker]

    def _seconds(self, leader: int, *spreads: Spread) -> list[int]:
        """Those that take over the fewest of this leader's partitions."""
        others = self._others(leader)
        counts = [tuple(spread.takeovers[leader][broker] for spread in spreads) for broker in others]
        fewest = min(counts)
        return [broker for broker, count in zip(others, counts, strict=True) if count == fewest]

    def _held(self, pair: tuple[int, int]) -> tuple[int, int]:
        of_topic = sum(self._topic.replicas[broker] ** 2 for broker in pair)
        return of_topic, sum(self._cluster.replicas[broker] for broker in pair)

    def _round_goes_on_after(self, leader: int, second: int) -> bool:
        """Can all that have not led yet in this round still have seconds so that nobody is second more often than the
        round needs? A matching, made larger along augmenting paths."""
        led, places = self._cluster.leaders, self._cluster.seconds
        fewest = min(led[broker] for broker in self._brokers)
        leaders = [broker for broker in self._brokers if led[broker] == fewest and broker != leader]
        most = -(-(sum(places[broker] for broker in self._brokers) + len(leaders) + 1) // len(self._brokers))
        free = {broker: most - places[broker] for broker in self._brokers}
        free[second] -= 1
        seconds = {broker: self._seconds(broker, self._cluster) for broker in leaders}
        return free[second] >= 0 and _can_be_matched(seconds, free)


def _can_be_matched(seconds: dict[int, list[int]], free: dict[int, int]) -> bool:
    """seconds: of whom each leader may have one. free: how many leaders may have it, for each."""
    matched: dict[int, list[int]] = {broker: [] for broker in free}

    def augment(leader: int, seen: set[int]) -> bool:
        for second in seconds[leader]:
            if second in seen:
                continue
            seen.add(second)
            if len(matched[second]) < free[second]:
                matched[second].append(leader)
                return True
            for other in matched[second]:
                if augment(other, seen):
                    matched[second].remove(other)
                    matched[second].append(leader)
                    return True
        return False

    return all(augment(leader, set()) for leader in seconds)
