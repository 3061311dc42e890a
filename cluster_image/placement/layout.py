"""Who holds which partition while a plan is made: an assignment that changes replica by replica, and what it costs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from typing import Generic, TypeVar

from .racks import Racks

P = TypeVar("P", bound=Hashable)  # a partition, however the caller names it

#: In the place of the rack of a broker that is to hold nothing: whatever it holds is too much (racks.Racks.bounds).
GONE = "\0"


class Layout(Generic[P]):
    """assignment: replicas of each partition. brokers: rack by id; whatever others hold has to go. weights: bytes of
    each partition, 1 where none are given."""

    def __init__(
        self,
        assignment: Mapping[P, Sequence[int]],
        brokers: Mapping[int, str | None],
        weights: Mapping[P, int] | None = None,
    ) -> None:
        self.racks = Racks(brokers)
        self.brokers = sorted(brokers)
        self.origin = {partition: frozenset(replicas) for partition, replicas in assignment.items()}
        self.holders = {partition: set(replicas) for partition, replicas in assignment.items()}
        self.weights = {partition: 1 if weights is None else weights.get(partition, 0) for partition in assignment}
        # In the assignment's order, so that the same cluster has the same plan.
        self.held: dict[int, dict[P, None]] = {broker: {} for broker in brokers}
        for partition, replicas in assignment.items():
            for broker in replicas:
                self.held.setdefault(broker, {})[partition] = None
        self.gone = sorted(self.held.keys() - brokers.keys())
        self._in_rack = {partition: Counter(map(self.rack, replicas)) for partition, replicas in assignment.items()}

    def rack(self, broker: int) -> str:
        return self.racks.of.get(broker, GONE)

    def load(self, broker: int) -> int:
        return len(self.held[broker])

    def move(self, partition: P, giver: int, taker: int) -> None:
        self.holders[partition].remove(giver)
        self.holders[partition].add(taker)
        del self.held[giver][partition]
        self.held[taker][partition] = None
        self._in_rack[partition][self.rack(giver)] -= 1
        self._in_rack[partition][self.rack(taker)] += 1

    def excess(self, partition: P) -> int:
        """Replicas in wrong racks, or on brokers that are to hold nothing."""
        return self.racks.excess(self._in_rack[partition], len(self.holders[partition]))

    def excess_by(self, partition: P, giver: int, taker: int) -> int:
        """By how much a move would change the excess of the partition."""
        from_rack, to_rack = self.rack(giver), self.rack(taker)
        if from_rack == to_rack:
            return 0
        held, replicas = self._in_rack[partition], len(self.holders[partition])
        fewest, most = self.racks.bounds(from_rack, replicas)
        lost = held[from_rack]
        change = (1 if lost <= fewest else 0) - (1 if lost > most else 0)
        fewest, most = self.racks.bounds(to_rack, replicas)
        gained = held[to_rack]
        return change + (1 if gained >= most else 0) - (1 if gained < fewest else 0)

    def bytes_by(self, partition: P, giver: int, taker: int) -> int:
        """How much more data a move would make the whole plan move; less than 0 where it takes back an earlier one."""
        origin = self.origin[partition]
        return self.weights[partition] * ((taker not in origin) - (giver not in origin))

    def may_move(self, partition: P, giver: int, taker: int) -> bool:
        """Is the partition as well spread over racks afterwards?"""
        return taker not in self.holders[partition] and self.excess_by(partition, giver, taker) <= 0

    def bytes_moved(self) -> int:
        return sum(
            self.weights[partition] * len(holders - self.origin[partition])
            for partition, holders in self.holders.items()
        )
