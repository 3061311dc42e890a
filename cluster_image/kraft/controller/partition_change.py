"""From a partition and its brokers to the change record that keeps it led: elections, ISR and ELR (000, 2.8, 2.9.1;
002, 5.2).

Pure functions: the image goes in, records come out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from cluster_image.wire.integers import BrokerId, i8, i32

from ..metadata.image import BrokerRegistration, MetadataImage, PartitionRegistration
from ..metadata.records import NO_LEADER, NO_LEADER_CHANGE, NO_RECOVERY_CHANGE, RECOVERING, PartitionChangeRecord
from . import rules


@dataclass(frozen=True, slots=True)
class Electorate:
    """What elections depend on besides the partition."""

    brokers: Mapping[int, BrokerRegistration]
    min_insync_replicas: Callable[[str], int]  # by topic
    elr_enabled: bool  # eligible.leader.replicas.version
    unclean: int | None = None  # a broker that comes back after an unclean shutdown
    recovered: int | None = None  # the replica that unclean recovery has chosen (002, 5.3)
    preferred: bool = False  # does the first replica take over from a leader that may go on?


class Assignment(NamedTuple):
    """Whose the partition is, and what a reassignment under way does about it (000, 2.3)."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()

    @property
    def in_progress(self) -> bool:
        return bool(self.adding or self.removing)

    @property
    def before(self) -> tuple[int, ...]:
        """Whose it was when the reassignment began."""
        return tuple(r for r in self.replicas if r not in self.adding)

    @property
    def target(self) -> tuple[int, ...]:
        return tuple(r for r in self.replicas if r not in self.removing)


def assignment_of(partition: PartitionRegistration) -> Assignment:
    return Assignment(partition.replicas, partition.adding, partition.removing)


class _Target(NamedTuple):
    leader: int
    isr: tuple[int, ...]
    elr: tuple[int, ...]
    last_known_elr: tuple[int, ...]
    recovery_state: int


def change(
    partition: PartitionRegistration,
    isr: Sequence[int],
    electorate: Electorate,
    assignment: Assignment | None = None,
    recovery_state: int = NO_RECOVERY_CHANGE,
) -> PartitionChangeRecord | None:
    """The record that gives the partition this ISR, and the leader and ELR that follow from it; None if nothing
    changes. assignment: the partition's new one, if an administrator has given it one. A reassignment that this ISR
    completes is completed by the same record. recovery_state: what its leader says of itself (KIP-704)."""
    present = assignment_of(partition)
    asked = present if assignment is None else assignment
    assigned = _completed(partition, isr, electorate, asked)
    before = _Target(
        partition.leader, partition.isr, partition.elr, partition.last_known_elr, partition.leader_recovery_state
    )
    members = _kept(isr, assigned.replicas)
    after = _target(_within(partition, assigned.replicas), members, electorate)
    if recovery_state != NO_RECOVERY_CHANGE:
        after = after._replace(recovery_state=recovery_state)
    if after == before and assigned == present:
        return None
    new_epoch = rules.is_new_assignment(
        present.replicas, assigned.replicas, present.in_progress or asked.in_progress, assigned.in_progress
    )

    def changed(old: tuple[int, ...], new: tuple[int, ...]) -> tuple[BrokerId, ...] | None:
        return None if old == new else tuple(BrokerId(r) for r in new)

    return PartitionChangeRecord(
        partition_id=i32(partition.index),
        topic_id=partition.topic_id,
        isr=changed(before.isr, after.isr),
        # Naming the present leader is a new leader epoch all the same.
        leader=BrokerId(NO_LEADER_CHANGE if after.leader == before.leader and not new_epoch else after.leader),
        replicas=changed(present.replicas, assigned.replicas),
        removing_replicas=changed(present.removing, assigned.removing),
        adding_replicas=changed(present.adding, assigned.adding),
        eligible_leader_replicas=changed(before.elr, after.elr),
        last_known_elr=changed(before.last_known_elr, after.last_known_elr),
        leader_recovery_state=i8(
            NO_RECOVERY_CHANGE if after.recovery_state == before.recovery_state else after.recovery_state
        ),
    )


def _completed(
    partition: PartitionRegistration, isr: Sequence[int], electorate: Electorate, assignment: Assignment
) -> Assignment:
    """The assignment as this ISR leaves it: still growing, or shrunk to its target (description 4.2)."""
    minimum = min(electorate.min_insync_replicas(partition.topic), len(assignment.before))
    if assignment.in_progress and rules.may_complete_reassignment(assignment.target, assignment.adding, isr, minimum):
        return Assignment(assignment.target)
    return assignment


def _within(partition: PartitionRegistration, replicas: tuple[int, ...]) -> PartitionRegistration:
    """The partition as if these had always been its replicas: who is none cannot be eligible."""
    if replicas == partition.replicas:
        return partition

    return replace(
        partition,
        replicas=replicas,
        isr=_kept(partition.isr, replicas),
        elr=_kept(partition.elr, replicas),
        last_known_elr=_kept(partition.last_known_elr, replicas),
    )


def _kept(members: Sequence[int], replicas: Sequence[int]) -> tuple[int, ...]:
    return rules.members_kept(members, replicas)


def _target(partition: PartitionRegistration, isr: tuple[int, ...], electorate: Electorate) -> _Target:
    elr, last_known = _eligible(partition, isr, electorate)
    leader = _elect(partition, isr, electorate)
    if leader == NO_LEADER and elr:
        leader = _elect(partition, elr, electorate)
    if leader == NO_LEADER and electorate.recovered is not None:
        leader = electorate.recovered
    if leader != NO_LEADER and rules.is_unclean_election(leader, isr, elr):
        elr, last_known = _eligible(partition, (leader,), electorate, uncleanly=True)
        return _Target(leader, (leader,), elr, last_known, RECOVERING)
    if leader != NO_LEADER and leader not in isr:
        isr = (*isr, leader)  # case B: from the ELR into the ISR
        elr, last_known = _eligible(partition, isr, electorate)
    return _Target(leader, isr, elr, last_known, partition.leader_recovery_state)


def _eligible(
    partition: PartitionRegistration, isr: Sequence[int], electorate: Electorate, uncleanly: bool = False
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """ELR and LastKnownELR beside this ISR.

    uncleanly: its only member has just been elected so. Its log is the one that counts from now on, and whoever was
    eligible before is so for a log that it may contradict. They become the last known ones: if this leader is lost
    before the ISR has MinISR members again, there still is a recovery quorum (002, 5.3.1, 5.3.2)."""
    minimum = min(electorate.min_insync_replicas(partition.topic), len(partition.replicas))
    if not rules.needs_elr(len(isr), minimum, electorate.elr_enabled):
        return (), ()
    if uncleanly:
        return (), rules.last_known_eligible(partition, isr, ())
    elr = rules.eligible_leader_replicas(partition.isr, partition.elr, isr, electorate.unclean)
    return elr, rules.last_known_eligible(partition, isr, elr)


def _elect(partition: PartitionRegistration, candidates: Sequence[int], electorate: Electorate) -> int:
    """The present leader while it may lead, else the first replica in the partition's order that may, else
    NO_LEADER. In a preferred election the first replica of all goes before the present leader."""
    able = [r for r in partition.replicas if rules.may_lead(r, candidates, electorate.brokers.get(r))]
    if electorate.preferred and partition.replicas[0] in able:
        return partition.replicas[0]
    if partition.leader in able:
        return partition.leader
    return able[0] if able else NO_LEADER


def broker_gone(image: MetadataImage, electorate: Electorate, broker: int) -> Iterator[PartitionChangeRecord]:
    """What a broker's fencing, shutdown or unclean return does to its partitions. The electorate already shows it as
    not active."""
    for partition in image.partitions():
        if broker in (*partition.isr, *partition.elr, partition.leader):
            isr = rules.isr_without(partition.isr, broker, electorate.elr_enabled)
            record = change(partition, isr, electorate)
            if record is not None:
                yield record


def broker_available(image: MetadataImage, electorate: Electorate, broker: int) -> Iterator[PartitionChangeRecord]:
    """Elections that a broker's unfencing makes possible: of partitions without a leader."""
    for partition in image.partitions():
        if partition.leader == NO_LEADER and broker in partition.replicas:
            record = change(partition, partition.isr, electorate)
            if record is not None:
                yield record
