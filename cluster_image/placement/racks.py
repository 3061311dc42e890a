"""Racks: failure domains over which a partition's replicas are spread (KIP-36)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from functools import cache


def natural_order(rack: str) -> tuple[tuple[int, int, str], ...]:
    """A key to sort names of racks by as people do: rack-2 before rack-10."""
    parts = re.findall(r"[0-9]+|[^0-9]+", rack)
    return tuple((0, int(part), "") if part[0].isascii() and part.isdigit() else (1, 0, part) for part in parts)


class Racks:
    """brokers: rack by broker id; brokers without one ("" or None) are in one rack together, as in Apache Kafka's
    StripedReplicaPlacer."""

    def __init__(self, brokers: Mapping[int, str | None]) -> None:
        self.of: dict[int, str] = {broker: rack or "" for broker, rack in brokers.items()}
        self.sizes: Mapping[str, int] = Counter(self.of.values())
        self.names = sorted(self.sizes, key=natural_order)
        self.most = cache(self._most)

    def _most(self, replicas: int) -> int:
        """How many replicas of a partition one rack may hold at most when they are spread as evenly as racks allow: 1
        as long as there are as many racks. replicas: no more than there are brokers."""
        most = 1
        while sum(min(size, most) for size in self.sizes.values()) < replicas:
            most += 1
        return most

    def bounds(self, rack: str, replicas: int) -> tuple[int, int]:
        """The fewest and the most replicas of a partition that this rack may hold. Of a rack that is not known: 0."""
        most, size = self.most(replicas), self.sizes.get(rack, 0)
        return min(size, most - 1), min(size, most)

    def excess(self, held: Mapping[str, int], replicas: int) -> int:
        """By how many replicas a partition that has so many in each rack is away from what its racks allow; 0: well
        spread."""
        total = 0
        for rack in {*self.names, *held}:
            low, high = self.bounds(rack, replicas)
            total += max(held.get(rack, 0) - high, 0) + max(low - held.get(rack, 0), 0)
        return total
