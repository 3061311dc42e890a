"""Invariants of the controller's committed state. Records that are not committed yet do not count: they may vanish
with their controller, and nobody acts on them or is answered because of them (000, 1.2.1). The controller of the TLA+
model commits whatever it writes at once, so the model's invariants are about this state too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from checkers.inside.violation import Violated
from cluster_image.kraft.metadata.image import NO_LEADER, MetadataImage, PartitionRegistration
from cluster_image.kraft.metadata.records import RECOVERED, RECOVERING

from .assignments import check_registered


def check_state(image: MetadataImage, min_insync_replicas: int, elr_enabled: bool) -> None:
    """Of every partition, once a whole batch of records has been replayed. min_insync_replicas: where a topic has no
    value of its own. Raises Violated."""
    for partition in image.partitions():
        check_registered(partition, image)
        check_partition(partition, image, effective_min_isr(partition, image, min_insync_replicas), elr_enabled)


def effective_min_isr(partition: PartitionRegistration, image: MetadataImage, default: int) -> int:
    """A partition with fewer replicas than min.insync.replicas needs them all (KAFKA-21110)."""
    return min(min_isr_of(partition, image, default), len(partition.replicas))


def min_isr_of(partition: PartitionRegistration, image: MetadataImage, default: int) -> int:
    """As its topic has it."""
    return int(image.topics[partition.topic].settings.get("min.insync.replicas", default))


def check_partition(partition: PartitionRegistration, image: MetadataImage, min_isr: int, elr_enabled: bool) -> None:
    isr, elr, last_known = set(partition.isr), set(partition.elr), set(partition.last_known_elr)
    at = f"{_describe(partition)}, as of metadata offset {image.end_offset}"

    def require(holds: bool, property_: str, message: str) -> None:
        if not holds:
            where = f"{partition.topic}-{partition.index}"
            raise Violated(property_, f"{message}: {at}", where)

    valid = "ValidControllerIsrAndElr"
    require(isr | elr <= set(partition.replicas), valid, "a member of the ISR or ELR is no replica")
    require(not isr & elr, valid, f"{sorted(isr & elr)} are in the ISR and in the ELR")
    require(len(isr) < min_isr or not (elr or last_known), valid,
            f"the ISR has {len(isr)} members and the minimum is {min_isr}, so nobody else may be eligible")  # fmt: skip
    state = "ValidControllerState"
    require(partition.leader in (*isr, NO_LEADER), state, f"leader {partition.leader} is not in the ISR")
    recovered = partition.leader_recovery_state == RECOVERED
    require(recovered or len(isr) < 2, state, "a leader that is recovering is not alone in its ISR (KIP-704)")
    # Before KIP-966 the last member stays in the ISR, fenced or not (000, 2.8).
    may_stay = not elr_enabled and len(isr) == 1 and partition.leader == NO_LEADER
    gone = sorted(r for r in isr if r not in image.brokers or not image.brokers[r].active)
    require(not gone or may_stay, state, f"{gone} are in the ISR though fenced or shutting down")


def check_recovery_quorum(partition: PartitionRegistration, min_isr: int) -> None:
    """To be asked only of a partition that has once had MinISR members in sync. Raises Violated."""
    if not partition.isr and not partition.elr and len(partition.last_known_elr) < min_isr:
        raise Violated(
            "MinIsrRecoveryQuorum",
            f"ISR and ELR are empty, and only {len(partition.last_known_elr)} replicas are known to have been "
            f"eligible, fewer than {min_isr}: perhaps none of them is complete: {_describe(partition)}",
            f"{partition.topic}-{partition.index}",
        )


def _describe(partition: PartitionRegistration) -> str:
    return (
        f"replicas {list(partition.replicas)}, leader {partition.leader}, ISR {list(partition.isr)}, "
        f"ELR {list(partition.elr)}, LastKnownELR {list(partition.last_known_elr)}, "
        f"leader epoch {partition.leader_epoch}, partition epoch {partition.partition_epoch}"
    )


def check_told(before: PartitionRegistration, after: PartitionRegistration) -> None:
    """An election is told as unclean by its record (KIP-704), and so to whoever counts them, where its leader was in
    neither ISR nor ELR, and nowhere else (KAFKA-18940). Raises Violated."""
    leader = after.leader
    if leader == NO_LEADER or after.leader_epoch == before.leader_epoch:
        return
    is_known = leader in (*before.isr, *before.elr)
    told = after.leader_recovery_state == RECOVERING
    where = f"{after.topic}-{after.index}"
    if is_known and told and before.leader_recovery_state == RECOVERED:
        pool = "ISR" if leader in before.isr else "ELR"
        raise Violated(
            "UncleanRecovery",
            f"broker {leader} is elected from the {pool}, and its election is told as unclean: {_describe(after)}",
            where,
        )
    # Whom a reassignment adds may join the ISR and lead by one record.
    if not is_known and not told and after.isr == (leader,) and leader not in before.adding:
        raise Violated(
            "UncleanRecovery",
            f"broker {leader} is elected from neither ISR nor ELR, and its election is not told as unclean: "
            f"{_describe(after)}",
            where,
        )


def check_recovered(node: str, where: str, fields: Mapping[str, object]) -> None:
    """Of a balanced unclean recovery, as it is traced: who is elected has the log that goes furthest, by epoch first,
    of all that have told (002, 5.3.1). A longer log of an older epoch may lack what was committed. Raises Violated."""
    told = {name: cast("tuple[int, ...]", fields[name]) for name in ("candidates", "epochs", "ends")}
    logs = {broker: (epoch, end) for broker, epoch, end in zip(*told.values(), strict=True)}
    leader = int(str(fields["leader"]))
    best = max(logs, key=lambda broker: logs[broker])
    if logs[leader] < logs[best]:
        raise Violated(
            "UncleanRecovery",
            f"{node} elects broker {leader}, whose log ends at {logs[leader][1]} in epoch {logs[leader][0]}, and that "
            f"of broker {best} ends at {logs[best][1]} in epoch {logs[best][0]}",
            where,
            (node,),
        )
