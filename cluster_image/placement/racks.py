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


#: Bounds of a rack that is not known.
_NONE = (0, 0)


class Racks:
    """brokers: rack by broker id; brokers without one ("" or None) are in one rack together, as in Apache Kafka's
    StripedReplicaPlacer."""

    def __init__(self, brokers: Mapping[int, str | None]) -> None:
        self.of: dict[int, str] = {broker: rack or "" for broker, rack in brokers.items()}
        self.sizes: Mapping[str, int] = Counter(self.of.values())
        self.names = sorted(self.sizes, key=natural_order)
        self.most = cache(self._most)
        self._bounds = cache(self._all_bounds)

    def _most(self, replicas: int) -> int:
        """How many replicas of a partition one rack may hold at most when they are spread as evenly as racks allow: 1
        as long as there are as many racks. replicas: no more than there are brokers."""
        most = 1
        while sum(min(size, most) for size in self.sizes.values()) < replicas:
            most += 1
        return most

    def _all_bounds(self, replicas: int) -> tuple[Mapping[str, tuple[int, int]], int]:
        """Of each rack, and the sum of the lower ones."""
        most = self.most(replicas)
        bounds = {rack: (min(size, most - 1), min(size, most)) for rack, size in self.sizes.items()}
        return bounds, sum(low for low, _ in bounds.values())

    def bounds(self, rack: str, replicas: int) -> tuple[int, int]:
        """The fewest and the most replicas of a partition that this rack may hold. Of a rack that is not known: 0."""
        return self._bounds(replicas)[0].get(rack, _NONE)

    def excess(self, held: Mapping[str, int], replicas: int) -> int:
        """By how many replicas a partition that has so many in each rack is away from what its racks allow; 0: well
        spread."""
        bounds, total = self._bounds(replicas)  # all racks that hold nothing, then corrected by those that do
        for rack, count in held.items():
            low, high = bounds.get(rack, _NONE)
            if count > high:
                total += count - high - low
            elif count >= low:
                total -= low
            else:
                total -= count
        return total
