"""Leaders that order alone cannot balance: where topics have different replication factors, a broker may hold mostly
partitions that it alone can lead. Pairs of replicas change places then, so that loads stay as they are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, MutableMapping

from .layout import Layout, P
from .spread import Replicas


def swap_for_leaders(layout: Layout[P], lists: MutableMapping[P, Replicas]) -> bool:
    """Until leaders are within one of each other, or no pair is left that would help: did any change? Each swap takes
    the cheapest pair there is, which is not certain to be the least for all of them together.

    lists: replicas of each partition of the layout, the leader first; both are changed."""
    led = Counter(dict.fromkeys(layout.brokers, 0))
    led.update(replicas[0] for replicas in lists.values())
    changed = False
    while _swap(layout, lists, led):
        changed = True
    return changed


def _swap(layout: Layout[P], lists: MutableMapping[P, Replicas], led: Counter[int]) -> bool:
    by_number = sorted(layout.brokers, key=lambda broker: (led[broker], broker))
    for giver in reversed(by_number):
        for taker in by_number:
            if led[giver] - led[taker] <= 1:
                break
            lead = _cheapest(layout, giver, taker, (p for p in layout.held[giver] if lists[p][0] == giver))
            follow = _cheapest(layout, taker, giver, (p for p in layout.held[taker] if lists[p][0] != taker))
            if lead is None or follow is None:
                continue
            for partition, old, new in ((lead, giver, taker), (follow, taker, giver)):
                layout.move(partition, old, new)
                lists[partition] = tuple(new if broker == old else broker for broker in lists[partition])
            led[giver] -= 1
            led[taker] += 1
            return True
    return False


def _cheapest(layout: Layout[P], giver: int, taker: int, partitions: Iterable[P]) -> P | None:
    """Of those that may move, the one that adds the least data."""
    able = [partition for partition in partitions if layout.may_move(partition, giver, taker)]
    return min(able, key=lambda partition: layout.bytes_by(partition, giver, taker), default=None)
