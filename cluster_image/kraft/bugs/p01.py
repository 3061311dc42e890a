"""P01: the next replica of a new partition goes to whoever holds least, also where that broker has one already.

003's formula does the same for some of the partitions: replica j of the k-th partition of broker i is on broker
(i + j + k) mod n, which is i itself where n divides j + k. Such a partition has fewer replicas than it counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from . import Bug


def all_others(
    others: Sequence[int], replicas: Sequence[int], in_rack: Mapping[str, int], rack_of: Mapping[int, str]
) -> list[int]:
    return list(others)


BUG = Bug(
    id="P01",
    title="two replicas of a partition are on one broker",
    source="003, Initial placement: its formula; no bug of Apache Kafka",
    nemesis="kill",
    properties=("ValidReplicas", "ValidControllerIsrAndElr"),
    module="placement.rules",
    rule="may_be_next",
    replacement=all_others,
    options="--brokers 4",
)
