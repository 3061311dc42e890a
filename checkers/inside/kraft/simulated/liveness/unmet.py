"""What must become true once all faults are healed: every node runs and agrees with the active controller, every ISR
is full, and replicas' logs agree. That the workload's requests are answered is checked by the caller.

And what must be true after each step of a leader, for it has all that it takes: its high watermark is where its maximal
ISR is, and who waits for what is committed has an answer.
"""

from __future__ import annotations

from collections.abc import Mapping

from checkers.inside.violation import Unmet, Violated
from checkers.properties import (
    BROKER_UNFENCED,
    ISR_EXPANDS,
    LEADER_ELECTED,
    REASSIGNMENT_COMPLETES,
    REQUESTS_ANSWERED,
    WATERMARK_ADVANCES,
)
from cluster_image.kraft.broker.partition import Partition
from cluster_image.kraft.metadata.image import NO_LEADER, MetadataImage, PartitionRegistration
from cluster_image.kraft.node import Node
from cluster_image.kraft.raft.quorum import Quorum, Role

from ..logs import Registry, Replica


def check_leader(name: str, node_id: int, partition: Partition) -> None:
    """After a step. Raises Violated."""
    leadership = partition.leadership
    if leadership is None:
        return
    watermark, where = partition.high_watermark, str(partition)
    for end, done in leadership.waiting:
        if end > watermark:
            break
        if not done.done():
            raise Violated(
                REQUESTS_ANSWERED,
                f"{name} has committed {where} up to {watermark}, and a producer that waits for {end} has no answer",
                where, (name,),
            )  # fmt: skip
    for offset, done in leadership.deleting:
        starts = [partition.log.start_offset, *(each.log_start_offset for each in leadership.followers.values())]
        if offset <= min(starts) and not done.done():
            raise Violated(
                REQUESTS_ANSWERED,
                f"every log of {where} starts at {min(starts)} or above, as {name}, its leader, knows, and "
                f"DeleteRecords up to {offset} has no answer",
                where, (name,),
            )  # fmt: skip
    if len(partition.isr) < min(partition.config["min.insync.replicas"], len(partition.replicas)):
        return  # nothing new is committed below that
    awaited = leadership.maximal_isr | leadership.joining
    ends = {
        broker: partition.log.end_offset if broker == node_id else leadership.followers[broker].end_offset
        for broker in awaited
        if broker == node_id or broker in leadership.followers
    }
    if len(ends) == len(awaited) and min(ends.values(), default=0) > watermark:
        raise Violated(
            WATERMARK_ADVANCES,
            f"{name} keeps the high watermark of {where} at {watermark}, and all that it waits for are past it: "
            + ", ".join(f"broker {broker} at {end}" for broker, end in sorted(ends.items())),
            where, (name,),
        )  # fmt: skip


def unmet(nodes: Mapping[str, Node | None]) -> Unmet | None:
    """The first thing that does not hold yet, None if all is well. nodes: every node of the cluster, None where its
    process does not run."""
    running: dict[str, Node] = {}
    quorums: dict[str, Quorum] = {}
    for name, node in nodes.items():
        quorum = None if node is None else node.raft.quorum
        if node is None or quorum is None:
            return Unmet(f"{name} {'does not run' if node is None else 'takes no part in the metadata quorum'}")
        running[name], quorums[name] = node, quorum
    image = None
    for name, quorum in quorums.items():
        controller = running[name].controller
        if quorum.role is Role.LEADER and controller is not None and controller.active is not None:
            if image is not None:
                return Unmet("two controllers are active", LEADER_ELECTED)
            image, leader = controller.active.image, quorum
    if image is None:
        return Unmet("no controller is active", LEADER_ELECTED)
    return (
        _quorum_unmet(quorums, leader)
        or _metadata_unmet(running, image)
        or _brokers_unmet(running, image)
        or next(filter(None, (_partition_unmet(running, p) for p in image.partitions())), None)
    )


def _quorum_unmet(quorums: Mapping[str, Quorum], leader: Quorum) -> Unmet | None:
    for name, quorum in quorums.items():
        if quorum.epoch != leader.epoch or quorum.leader_id != leader.id:
            return Unmet(
                f"{name} follows {quorum.leader_id} in quorum epoch {quorum.epoch}, not {leader.id} in {leader.epoch}"
            )
    end = leader.replica.log.end_offset
    for name, quorum in quorums.items():
        if quorum.replica.high_watermark != end:
            return Unmet(f"{name} knows metadata to be committed up to {quorum.replica.high_watermark} of {end}")
    return None


def _metadata_unmet(nodes: Mapping[str, Node], image: MetadataImage) -> Unmet | None:
    for name, node in nodes.items():
        for server in (node.broker, node.controller):
            if server is not None and (server.image.brokers, server.image.topics) != (image.brokers, image.topics):
                return Unmet(f"the metadata of {name} is not that of the active controller")
    return None


def _brokers_unmet(nodes: Mapping[str, Node], image: MetadataImage) -> Unmet | None:
    for name, node in nodes.items():
        if node.broker is None:
            continue
        registration = image.brokers.get(node.raft.node_id)
        if registration is None or registration.epoch != node.broker.broker_epoch:
            return Unmet(f"{name} is not registered in its present life", BROKER_UNFENCED)
        if not registration.active:
            return Unmet(f"{name} is {'fenced' if registration.fenced else 'shutting down'}", BROKER_UNFENCED)
        if not node.broker.ready:
            return Unmet(f"{name} does not act on the metadata yet")
    return None


def _partition_unmet(nodes: Mapping[str, Node], registration: PartitionRegistration) -> Unmet | None:
    where = f"{registration.topic}-{registration.index}"
    if registration.adding or registration.removing:
        adding, removing = list(registration.adding), list(registration.removing)
        return Unmet(f"{where} still adds replicas {adding} and removes {removing}", REASSIGNMENT_COMPLETES)
    if registration.leader == NO_LEADER:
        return Unmet(f"{where} has no leader", LEADER_ELECTED)
    # A person may assign replicas to a broker that has gone for good, and is registered all the same.
    there = {node.raft.node_id for node in nodes.values()}
    if set(registration.isr) != there & set(registration.replicas):
        return Unmet(f"the ISR of {where} is {list(registration.isr)} of {list(registration.replicas)}", ISR_EXPANDS)
    replicas = {}
    for name, node in nodes.items():
        if node.broker is not None and node.raft.node_id in registration.replicas:
            partition = node.broker.partitions.get((registration.topic_id, registration.index))
            if partition is None:
                return Unmet(f"{name} has no replica of {where}")
            if partition.leader_epoch != registration.leader_epoch:
                return Unmet(
                    f"{name} is in leader epoch {partition.leader_epoch} of {where}, not {registration.leader_epoch}"
                )
            replicas[name] = partition
    leader = next((p for p in replicas.values() if p.is_leader), None)
    if leader is None:
        return Unmet(f"{where} has no leader", LEADER_ELECTED)
    watermark = leader.high_watermark
    if watermark < leader.log.end_offset:  # nobody writes any more: a follower that does not fetch is not yet noticed
        return Unmet(
            f"the high watermark of {where} is {watermark}, its leader's log ends at {leader.log.end_offset}",
            WATERMARK_ADVANCES,
        )
    for name, partition in replicas.items():
        if partition.log.start_offset != leader.log.start_offset:
            return Unmet(
                f"the log of {name} starts at {partition.log.start_offset}, and its leader's of {where} at "
                f"{leader.log.start_offset}"
            )
    registry = Registry("LogMatching", where)
    logs = {}
    for name, partition in replicas.items():
        logs[name] = Replica(name)
        if partition.log.end_offset < watermark:
            return Unmet(
                f"the log of {name} ends at {partition.log.end_offset}, the high watermark of {where} is {watermark}"
            )
        registry.absorb(logs[name], partition.log)
        logs[name].truncate(logs[name].count_below(watermark))
    first, *others = logs.values()
    for other in others:
        if not (first.holds(other) and other.holds(first)):
            return Unmet(
                f"the logs of {first.node} and {other.node} differ below the high watermark {watermark} of {where}"
            )
    return None
