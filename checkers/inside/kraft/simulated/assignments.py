"""ValidReplicas: an invariant of the controller's committed state about where replicas are.

| statement                                                                                   | checked when
| ------------------------------------------------------------------------------------------- | ----------------------
| a partition's replicas are different brokers, and all of them are registered                | each committed batch
| a new partition's are spread over racks as evenly as racks allow, where the controller      | it decides so
| chooses them and no broker is fenced                                                        |
| no change leaves fewer replicas than MinISR, if there were as many; nor does one that takes | replicas change
| members of the ISR away leave fewer than that in sync                                       |
"""

from __future__ import annotations

from collections import Counter

from checkers.inside.violation import Violated
from cluster_image.kraft.metadata.image import MetadataImage, PartitionRegistration

VALID_REPLICAS = "ValidReplicas"


def check_registered(partition: PartitionRegistration, image: MetadataImage) -> None:
    """Raises Violated."""
    replicas = partition.replicas
    if len(set(replicas)) < len(replicas):
        raise _violated(partition, f"a broker has two of the replicas {list(replicas)}")
    if unknown := [replica for replica in replicas if replica not in image.brokers]:
        raise _violated(partition, f"of the replicas {list(replicas)} {unknown} are no registered brokers")


def check_placed(partition: PartitionRegistration, image: MetadataImage) -> None:
    """Of one that is new, as the controller has placed it. image: by which it did. Raises Violated."""
    if not all(broker.active for broker in image.brokers.values()):
        return
    rack_of = {broker.id: broker.rack or "" for broker in image.brokers.values()}
    sizes, held = Counter(rack_of.values()), Counter(rack_of[replica] for replica in partition.replicas)
    full = max(held, key=lambda rack: held[rack])
    free = min((rack for rack in sizes if held[rack] < sizes[rack]), key=lambda rack: held[rack], default=full)
    if held[full] - held[free] > 1:
        raise _violated(
            partition,
            f"{held[full]} of the replicas {list(partition.replicas)} are in rack {full!r}, and {held[free]} in rack "
            f"{free!r}, which has {sizes[free]} brokers",
        )


def check_left(before: PartitionRegistration, after: PartitionRegistration, min_isr: int) -> None:
    """min_isr: the topic's own, whatever its replication factor. Raises Violated."""
    had = len(before.replicas) - len(before.adding)
    least = min(had, min_isr)
    if len(after.replicas) < least:
        raise _violated(
            after, f"it had {had} replicas, and {list(after.replicas)} are fewer than min.insync.replicas={min_isr}"
        )
    taken = [replica for replica in before.isr if replica not in after.replicas]
    if taken and len(after.isr) < least:
        raise _violated(
            after, f"without {taken}, which a reassignment has taken away, the ISR is {list(after.isr)}, and {least} "
            "must be in sync"
        )  # fmt: skip


def _violated(partition: PartitionRegistration, message: str) -> Violated:
    where = f"{partition.topic}-{partition.index}"
    return Violated(VALID_REPLICAS, f"{where}: {message}", where)
