"""From a partition and its brokers to the change record that keeps it led: elections, ISR and ELR (000, 2.8, 2.9.1;
002, 5.2).

Pure functions: the image goes in, records come out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kio.schema.types import BrokerId

from ..integers import i32
from ..metadata.image import BrokerRegistration, MetadataImage, PartitionRegistration
from ..metadata.records import NO_LEADER, NO_LEADER_CHANGE, PartitionChangeRecord
from . import rules


@dataclass(frozen=True, slots=True)
class Electorate:
    """What elections depend on besides the partition."""

    brokers: Mapping[int, BrokerRegistration]
    min_insync_replicas: Callable[[str], int]  # by topic
    elr_enabled: bool  # eligible.leader.replicas.version
    unclean: int | None = None  # a broker that comes back after an unclean shutdown
    recovered: int | None = None  # the replica that unclean recovery has chosen (002, 5.3)


class _Target(NamedTuple):
    leader: int
    isr: tuple[int, ...]
    elr: tuple[int, ...]
    last_known_elr: tuple[int, ...]


def change(
    partition: PartitionRegistration, isr: Sequence[int], electorate: Electorate
) -> PartitionChangeRecord | None:
    """The record that gives the partition this ISR, and the leader and ELR that follow from it; None if nothing
    changes."""
    before = _Target(partition.leader, partition.isr, partition.elr, partition.last_known_elr)
    after = _target(partition, tuple(isr), electorate)
    if after == before:
        return None

    def changed(old: tuple[int, ...], new: tuple[int, ...]) -> tuple[BrokerId, ...] | None:
        return None if old == new else tuple(BrokerId(r) for r in new)

    return PartitionChangeRecord(
        partition_id=i32(partition.index),
        topic_id=partition.topic_id,
        isr=changed(before.isr, after.isr),
        leader=BrokerId(NO_LEADER_CHANGE if after.leader == before.leader else after.leader),
        eligible_leader_replicas=changed(before.elr, after.elr),
        last_known_elr=changed(before.last_known_elr, after.last_known_elr),
    )


def _target(partition: PartitionRegistration, isr: tuple[int, ...], electorate: Electorate) -> _Target:
    elr, last_known = _eligible(partition, isr, electorate)
    leader = _elect(partition, isr, electorate)
    if leader == NO_LEADER and elr:
        leader = _elect(partition, elr, electorate)
    if leader == NO_LEADER and not isr and not elr and electorate.recovered in last_known:
        leader = _elect(partition, (electorate.recovered,), electorate)
    if leader != NO_LEADER and leader not in isr:
        isr = (*isr, leader)  # case B: from the ELR into the ISR
        elr, last_known = _eligible(partition, isr, electorate)
    return _Target(leader, isr, elr, last_known)


def _eligible(
    partition: PartitionRegistration, isr: Sequence[int], electorate: Electorate
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """ELR and LastKnownELR beside this ISR."""
    minimum = min(electorate.min_insync_replicas(partition.topic), len(partition.replicas))
    if not rules.needs_elr(len(isr), minimum, electorate.elr_enabled):
        return (), ()
    elr = rules.eligible_leader_replicas(partition.isr, partition.elr, isr, electorate.unclean)
    return elr, rules.last_known_eligible(partition, isr, elr)


def _elect(partition: PartitionRegistration, candidates: Sequence[int], electorate: Electorate) -> int:
    """The present leader while it may lead, else the first replica in the partition's order that may, else
    NO_LEADER."""
    able = [r for r in partition.replicas if rules.may_lead(r, candidates, electorate.brokers.get(r))]
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
