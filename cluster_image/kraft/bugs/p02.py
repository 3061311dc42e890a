"""P02: replicas are placed without regard to racks.

A partition whose replicas are all in one rack is gone with it, though there are others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from . import Bug


def in_any_rack(
    others: Sequence[int], replicas: Sequence[int], in_rack: Mapping[str, int], rack_of: Mapping[int, str]
) -> list[int]:
    return [broker for broker in others if broker not in replicas]


BUG = Bug(
    id="P02",
    title="replicas of a partition are in one rack though there are others",
    source="KAFKA-1215; mended by KIP-36",
    nemesis="kill",
    properties=("ValidReplicas",),
    module="placement.rules",
    rule="may_be_next",
    replacement=in_any_rack,
    options="--brokers 4 --racks 2 --replication-factor 2 --partitions 8",
)
