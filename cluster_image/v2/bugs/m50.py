"""M50: a new leader keeps in the ISR whom a reassignment has removed.

A leader that goes leaves the ISR last, so that its successor finds it there. Who takes the ISR for a part of the
replicas counts on a broker that has no replica any more, and acknowledgements wait for it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from . import Bug


def removed_stay(found: Collection[int], assigned: Collection[int], caught_up: Collection[int]) -> Sequence[int]:
    replicas = [replica for replica in assigned if replica in caught_up]
    return [*replicas, *sorted(set(found).difference(assigned))]


BUG = Bug(
    id="M50",
    title="a new leader keeps in the ISR whom a reassignment has removed",
    source="KAFKA-9672 (d3612eb)",
    nemesis="membership:reassign,kill",
    properties=("IsrOfReplicas",),
    module="v2.rules",
    rule="isr_of_new_leader",
    replacement=removed_stay,
    options="--brokers 4 --rate 10",
)
