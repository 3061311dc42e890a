"""Placement of new partitions (003, Initial placement).

What 003 wants: a topic's partitions evenly over all brokers, and the load of a broker that dies evenly over all that
survive it. Its formula, replica j of the k-th partition of broker i at (i + j + k) mod n, puts two replicas of a
partition on one broker wherever (j + k) mod n = 0. The formula without that flaw, (i + 1 + (k + j) mod (n - 1)) mod n,
is right for one topic, no racks, and brokers that hold nothing yet. Here each choice is made by what is there:

- the leader is a broker that leads the fewest partitions of the topic, and of those the fewest of all;
- second is who, in a rack that has no replica of the partition yet, takes over the fewest partitions of this leader
  (both are chosen together: see `pairs.py`);
- all further ones are in racks with the fewest replicas of the partition, and of their brokers who holds the fewest of
  the topic, of those who holds the fewest of all.

A broker that has just come and holds nothing does not get all of a new topic: what is written to most is often one
topic. Rebalancing is what fills it.

So what counts for one topic also counts for many small ones: partitions are dealt out as if they were of one.
No randomness: placement depends on the brokers and on what they hold.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from . import rules
from .pairs import Pairs
from .racks import Racks
from .spread import Replicas, Spread


def place(
    brokers: Mapping[int, str | None],
    partitions: int,
    replication_factor: int,
    of_topic: Iterable[Sequence[int]] = (),
    cluster: Spread | None = None,
) -> list[Replicas]:
    """Replica lists of so many new partitions of a topic.

    brokers: rack by id; no fewer than replication_factor. of_topic: the topic's replica lists that there are already.
    cluster: the spread of all partitions, the topic's included; what is placed is added to it."""
    topic = Spread(of_topic)
    cluster = Spread() if cluster is None else cluster
    racks = Racks(brokers)
    ids = sorted(brokers)
    placed = []
    pairs = Pairs(ids, lambda leader: _others(ids, [leader], racks), topic, cluster)
    for _ in range(partitions):
        if replication_factor > 1:
            replicas = list(pairs.next())
        else:
            replicas = [min(ids, key=lambda b: (topic.leaders[b], cluster.leaders[b], cluster.replicas[b]))]
        while len(replicas) < replication_factor:
            others = _others(ids, replicas, racks)
            replicas.append(min(others, key=lambda b: (topic.replicas[b], cluster.replicas[b])))
        topic.add(replicas)
        cluster.add(replicas)
        placed.append(replicas)
    _even_out(placed, ids, racks, (topic, cluster))
    return [tuple(replicas) for replicas in placed]


def _others(ids: Sequence[int], replicas: Sequence[int], racks: Racks) -> list[int]:
    """Who may get the next replica of a partition that has these: brokers after its leader, then those before it."""
    leader = ids.index(replicas[0])
    in_rack = Counter(racks.of[broker] for broker in replicas)
    return rules.may_be_next([*ids[leader + 1 :], *ids[:leader]], replicas, in_rack, racks.of)


#: Pairs of a partition and a broker that are looked at for better places, at most: a controller does this.
_MOST_LOOKED_AT: Final = 200_000


def _even_out(placed: list[list[int]], ids: Sequence[int], racks: Racks, spreads: tuple[Spread, Spread]) -> None:
    """Choices one by one, each the best at its time, may end with brokers that hold two or three replicas more than
    others. So followers change places, over brokers in between if need be, as long as nothing else becomes worse."""
    topic, cluster = spreads
    budget = _Budget(_MOST_LOOKED_AT)
    while len(set(racks.sizes.values())) == 1:  # else it cannot be even
        givers = sorted(ids, key=lambda b: (-topic.replicas[b], -cluster.replicas[b]))
        givers = [giver for giver in givers if any(_is_better(giver, taker, spreads) for taker in ids)]
        way = next(filter(None, (_way(giver, placed, ids, racks, spreads, budget) for giver in givers)), None)
        if way is None:
            return
        for number, giver, taker in way:
            changed = [taker if broker == giver else broker for broker in placed[number]]
            for spread in spreads:
                spread.remove(placed[number])
                spread.add(changed)
            placed[number] = changed


def _is_better(giver: int, taker: int, spreads: tuple[Spread, Spread]) -> bool:
    """With one replica less here and one more there: the topic is spread more evenly, or as evenly and all together
    more."""
    topic, cluster = (spread.replicas[giver] - spread.replicas[taker] for spread in spreads)
    return topic > 1 or (topic == 1 and cluster > 1)


@dataclass
class _Budget:
    left: int


def _way(
    giver: int,
    placed: list[list[int]],
    ids: Sequence[int],
    racks: Racks,
    spreads: tuple[Spread, Spread],
    budget: _Budget,
) -> list[tuple[int, int, int]] | None:
    """The fewest changes (number of the partition, giver, taker), each of another partition and another leader's,
    after which the first giver holds one replica less and the last taker one more, which is better."""
    ways: dict[int, list[tuple[int, int, int]]] = {giver: []}
    for broker in (queue := [giver]):
        leaders = {placed[number][0] for number, _, _ in ways[broker]}
        for number, replicas in enumerate(placed):
            if broker not in replicas[1:] or replicas[0] in leaders:
                continue
            budget.left -= len(ids)
            if budget.left < 0:
                return None
            for taker in ids:
                if taker in ways or taker in replicas or not _may_replace(racks, replicas, broker, taker):
                    continue
                if replicas[1] == broker and any(
                    each.takeovers[replicas[0]][broker] <= each.takeovers[replicas[0]][taker] for each in spreads
                ):
                    continue
                ways[taker] = [*ways[broker], (number, broker, taker)]
                if _is_better(giver, taker, spreads):
                    return ways[taker]
                queue.append(taker)
    return None


def _may_replace(racks: Racks, replicas: Sequence[int], giver: int, taker: int) -> bool:
    """Is the partition spread over racks as well as before?"""
    held = Counter(racks.of[broker] for broker in replicas)
    before = racks.excess(held, len(replicas))
    held[racks.of[giver]] -= 1
    held[racks.of[taker]] += 1
    return racks.excess(held, len(replicas)) <= before
