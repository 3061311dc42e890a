"""ValidReplicas: an invariant of the controller's committed state about where replicas are.

| statement                                                                                   | checked when
| ------------------------------------------------------------------------------------------- | ----------------------
| a partition's replicas are different brokers, and all of them are registered                | each committed batch
| a new partition's are spread over racks as evenly as racks allow, where the controller      | it decides so
| chooses them and no broker is fenced                                                        |
| nor would one of their followers be better on another broker: one that holds fewer of the   | it decides so
| topic, or as many and fewer of all, while racks and takeovers stay as even                  |
| no change leaves fewer replicas than MinISR, if there were as many; nor does one that takes | replicas change
| members of the ISR away leave fewer than that in sync                                       |
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

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


def check_none_better(new: Sequence[PartitionRegistration], image: MetadataImage, after: MetadataImage) -> None:
    """Of one topic's new partitions, as the controller has placed them: 003 wants a topic's replicas even over brokers,
    those of all topics as well, and the leaderships of a broker that dies even over those that take over. image: by
    which it has placed them; after: with them. Raises Violated."""
    brokers = {broker.id: broker.rack or "" for broker in image.brokers.values()}
    sizes = Counter(brokers.values())
    if not all(broker.active for broker in image.brokers.values()) or len(set(sizes.values())) > 1:
        return  # it cannot be even
    of_topic, of_all = _Held(after.topics[new[0].topic].partitions.values()), _Held(after.partitions())
    for partition in new:
        leader, second = partition.replicas[0], partition.replicas[1:2]
        for giver in partition.replicas[1:]:
            for taker in sorted(brokers.keys() - set(partition.replicas)):
                fewer, fewer_of_all = (held.replicas[giver] - held.replicas[taker] for held in (of_topic, of_all))
                if not (fewer > 1 or (fewer == 1 and fewer_of_all > 1)):
                    continue
                takes_over = (giver,) == second
                if takes_over and any(
                    held.takeovers[leader, giver] <= held.takeovers[leader, taker] for held in (of_topic, of_all)
                ):
                    continue
                moved = [taker if replica == giver else replica for replica in partition.replicas]
                if _apart(moved, brokers) <= max(1, _apart(partition.replicas, brokers)):
                    raise _violated(
                        partition,
                        f"of the replicas {list(partition.replicas)} that of broker {giver} were better on broker "
                        f"{taker}, which holds {fewer} fewer of the topic, and {fewer_of_all} of all",
                    )


class _Held:
    """How many replicas brokers hold, those that go by moves under way not counted, and of how many partitions one
    leads instead of another."""

    def __init__(self, partitions: Iterable[PartitionRegistration]) -> None:
        self.replicas: Counter[int] = Counter()
        self.takeovers: Counter[tuple[int, int]] = Counter()
        for partition in partitions:
            stay = [replica for replica in partition.replicas if replica not in partition.removing]
            self.replicas.update(stay)
            if len(stay) > 1:
                self.takeovers[stay[0], stay[1]] += 1


def _apart(replicas: Iterable[int], rack_of: Mapping[int, str]) -> int:
    """Between the racks with the most and with the fewest of them, all being of one size."""
    held = Counter(dict.fromkeys(rack_of.values(), 0))
    held.update(rack_of[replica] for replica in replicas)
    return max(held.values()) - min(held.values())


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
    return Violated(VALID_REPLICAS, message, f"{partition.topic}-{partition.index}")
