"""The controller's safety rules: one function each, called in one place.

`cluster_image/kraft/bugs/` replaces one of them at a time, so callers go through the module (`rules.may_register(…)`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, NamedTuple

from kio.schema.errors import ErrorCode

from cluster_image.config import Config

from ..metadata.image import BrokerRegistration, MetadataImage, PartitionRegistration
from ..metadata.records import NO_LEADER, RECOVERED, RECOVERING, MetadataRecord

#: Strategies of unclean recovery (`unclean.recovery.strategy`; 002, 5.3).
PROACTIVE: Final = "proactive"
BALANCED: Final = "balanced"
MANUAL: Final = "manual"
#: Not a setting: an operator has asked for it (ElectLeaders, type UNCLEAN).
OPERATOR: Final = "operator"


class LogInfo(NamedTuple):
    """What a replica tells of its log (GetReplicaLogInfo)."""

    broker_epoch: int
    current_leader_epoch: int  # that it knows of
    last_epoch: int  # of its last record, -1: of an empty log
    end_offset: int


def apply(image: MetadataImage, offset: int, record: MetadataRecord) -> None:
    """A committed record becomes part of what this controller takes for the state. Raises KeyError if it contradicts
    that: the node stops then, as one that went on would decide by another state than the others (KAFKA-14275)."""
    image.replay(offset, record)


def may_register(registration: BrokerRegistration | None, session_alive: bool, same_incarnation: bool) -> bool:
    """May a starting broker take over its id? Only when the session before has ended by fencing, or when it is a
    retry of the same start (description 8.1; 6.5.1: an epoch ends by fencing and a new registration)."""
    return registration is None or same_incarnation or not session_alive


def is_registered(registration: BrokerRegistration | None, same_incarnation: bool) -> bool:
    """Is a registration the retry of one that stands, whose answer was lost or is late? Then the broker keeps its
    epoch, and the state that it is in by now (KAFKA-16952, KAFKA-16757)."""
    return registration is not None and same_incarnation


def may_unregister(registration: BrokerRegistration, session_alive: bool, holds: int) -> str | None:
    """May a broker be taken out of the cluster? None, or why not: it must have stopped, and `holds`, the number of
    partitions that it is a replica of, be 0 (003: taken offline once its partitions are reassigned). Apache Kafka asks
    for neither, and its partitions then have a replica that no broker is."""
    if not registration.fenced or session_alive:
        return f"broker {registration.id} is running"
    if holds:
        return f"broker {registration.id} is a replica of {holds} partition{'s' * (holds > 1)}, which must move first"
    return None


def may_unfence(registration: BrokerRegistration, metadata_offset: int) -> bool:
    """May a fenced broker become available? Once it has replayed its own registration (description 8.1). The
    registration's offset is the broker epoch."""
    return registration.fenced and metadata_offset >= registration.epoch


def may_shut_down(leads: bool, moved_below: int, seen: int | None) -> bool:
    """May a broker in controlled shutdown go? Once it leads nothing, and every other active broker has replayed the
    metadata log up to where its leaderships were moved (description 8.3). `moved_below`: the end of the log after that;
    `seen`: the last offset that all the others have replayed, None if there are none."""
    return not leads and (seen is None or seen >= moved_below - 1)


def may_lead(replica: int, candidates: Sequence[int], broker: BrokerRegistration | None) -> bool:
    """May this replica be elected? It must be of the leader candidate pool, the ISR and the ELR (Leader Candidate
    Completeness, 000 2.4.1; 002 5.2), and its broker neither fenced nor shutting down (000 2.8; KIP-841)."""
    return replica in candidates and broker is not None and broker.active


def is_unclean(registration: BrokerRegistration | None, previous_epoch: int) -> bool:
    """Did a broker's last session end without a clean shutdown? It names the epoch of a session that it has ended
    cleanly, and any other word than that session's own epoch is none (002, 5.2; KAFKA-15582)."""
    return registration is not None and previous_epoch != registration.epoch


def is_unclean_election(leader: int, isr: Collection[int], elr: Collection[int]) -> bool:
    """May this new leader lack what is committed? Nobody of the ISR does, and nobody of the ELR (002, 5.2; to count an
    election from the ELR is a false alarm: KAFKA-18940). An unclean election is told of: to the leader (KIP-704), and
    in the metrics."""
    return leader not in isr and leader not in elr


def eligible_leader_replicas(
    isr_before: Sequence[int], elr_before: Sequence[int], isr: Sequence[int], unclean: int | None
) -> tuple[int, ...]:
    """The ELR beside an ISR below MinISR: who leaves such an ISR stays complete, as the high watermark stands still
    (002, 5.2.1, cases A and C), unless its disk may have lost something (Unclean Exclusion)."""
    return tuple(r for r in sorted({*isr_before, *elr_before}) if r not in isr and r != unclean)


def last_known_eligible(partition: PartitionRegistration, isr: Sequence[int], elr: Sequence[int]) -> tuple[int, ...]:
    """Those that were candidates since the ISR fell below MinISR and no longer are (002, 5.3.1)."""
    once = sorted({*partition.isr, *partition.elr, *partition.last_known_elr})
    return tuple(r for r in once if r not in isr and r not in elr)


def min_insync_replicas(config: Config, topic_settings: Mapping[str, str]) -> int:
    """MinISR of a topic, as the brokers have it: its own value, or else that of the settings which controllers and
    brokers share. Were it another here, records would be committed without members of the ELR, or not be with them
    (KAFKA-16540)."""
    minimum: int = config.for_topic(topic_settings)["min.insync.replicas"]
    return minimum


def needs_elr(isr_size: int, min_isr: int, elr_enabled: bool) -> bool:
    """Is there anybody eligible beside the ISR? Not while it has MinISR members and the high watermark can advance
    without the others (002, 5.2.1, cases D, F and G; M36)."""
    return elr_enabled and isr_size < min_isr


def refuse_alter_partition(
    partition: PartitionRegistration,
    sender: int,
    leader_epoch: int,
    partition_epoch: int,
    isr: Sequence[int],
    eligible: Callable[[int], bool],
    recovery_state: int,
) -> ErrorCode | None:
    """Why a proposed ISR is not accepted, None if it is current, well-formed and adds only replicas that are `eligible`
    (000, 2.9.2).

    recovery_state: of the leader, by its own word. While it recovers from an unclean election nobody else is in sync
    with it, and from RECOVERED there is no way back (KIP-704).

    The order matters: a controller that is behind the leader must not answer as if it were authoritative
    (KAFKA-14154)."""
    if leader_epoch > partition.leader_epoch or partition_epoch > partition.partition_epoch:
        return ErrorCode.not_controller
    if leader_epoch < partition.leader_epoch:
        return ErrorCode.fenced_leader_epoch
    if sender != partition.leader:
        return ErrorCode.invalid_request
    if partition_epoch < partition.partition_epoch:
        return ErrorCode.invalid_update_version
    if partition.leader not in isr or not set(isr) <= set(partition.replicas) or len(set(isr)) != len(isr):
        return ErrorCode.invalid_request
    if recovery_state == RECOVERING and (len(isr) > 1 or partition.leader_recovery_state == RECOVERED):
        return ErrorCode.invalid_request
    if not all(eligible(r) for r in isr if r not in partition.isr):
        return ErrorCode.ineligible_replica
    return None


def may_complete_reassignment(target: Sequence[int], adding: Sequence[int], isr: Sequence[int], min_isr: int) -> bool:
    """May a reassignment drop the replicas it takes out? Once every replica of its target is in sync, so that it
    neither lowers redundancy nor leaves the ISR below MinISR (description 6.7, rules 1 and 3; M49, KAFKA-15665). The
    model and description 4.2 wait for the added replicas only (`adding`); Apache Kafka waits for all, as here."""
    members = [r for r in isr if r in target]
    return set(target) <= set(members) and len(members) >= min_isr


def may_drop_replicas(candidates_dropped: Sequence[int], isr_size: int, min_isr: int) -> bool:
    """May a cancelled or replaced reassignment drop the replicas it has added? They may be all that is complete: if
    some of them are in the ISR, the ELR or the LastKnownELR, an ISR of MinISR must be left (description 4.5; 6.7,
    rule 1)."""
    return not candidates_dropped or isr_size >= min_isr


def members_kept(members: Sequence[int], replicas: Sequence[int]) -> tuple[int, ...]:
    """Who of an ISR, ELR or LastKnownELR stays in it when these are the replicas? Who is none deletes its log, and must
    neither be counted nor elected (000, 2.3; KAFKA-6638)."""
    return tuple(r for r in members if r in replicas)


def is_new_assignment(before: Sequence[int], after: Sequence[int], in_progress: bool, still_in_progress: bool) -> bool:
    """Does a change of replicas need a leader epoch of its own? One leader epoch is unique to one assignment (000,
    2.3.1): a reassignment that ends raises it, whoever leads, and so does every loss of a replica, whose fetches must
    no longer count. Growing does not (description 4.2)."""
    return (in_progress and not still_in_progress) or not set(before) <= set(after)


def isr_without(isr: Sequence[int], broker: int, elr_enabled: bool) -> tuple[int, ...]:
    """The ISR after a broker is fenced or shuts down. Without an ELR the last member stays: it is the only candidate
    for being elected again (000, 2.8). With one it goes there, so that an unclean return can take it out."""
    rest = tuple(r for r in isr if r != broker)
    return rest if rest or elr_enabled else tuple(isr)


# -- unclean recovery (002, 5.3) --------------------------------------------------------------------------------


def recovery_candidates(partition: PartitionRegistration, strategy: str) -> tuple[int, ...]:
    """Whose logs are looked at, and who may be elected; nobody while there is no reason to (002, 5.3.1; KIP-966).

    `balanced`: those who were eligible once, and only when nobody is any more: until then a clean election may still
    come. `proactive`, and at an operator's word: any replica, as soon as no candidate is available. `manual`: nobody,
    before the operator has spoken."""
    if partition.leader != NO_LEADER or strategy == MANUAL:
        return ()
    if strategy != BALANCED:
        return partition.replicas
    if partition.isr or partition.elr:
        return ()
    return tuple(r for r in partition.replicas if r in partition.last_known_elr)


def log_info_counts(info: LogInfo, partition: PartitionRegistration, broker: BrokerRegistration | None) -> bool:
    """Is what a replica told of its log still true? Its process must be the one that is registered: one that came after
    may have lost the end of the log in a power cut (description 6.5.1; KIP-966, failover). And it must know that the
    partition has no leader: else it follows the one before, and its log still changes."""
    return (
        broker is not None and info.broker_epoch == broker.epoch and info.current_leader_epoch == partition.leader_epoch
    )


def heard_enough(strategy: str, candidates: Collection[int], heard: Collection[int], timed_out: bool) -> bool:
    """May a leader be chosen by now? `balanced`: once all candidates have told, however long it takes, as any of them
    may be the one that has lost nothing (002, 5.3.2). Else: once all have, or the time is up and anybody has."""
    everyone = bool(candidates) and set(candidates) <= set(heard)
    return everyone or (strategy != BALANCED and timed_out and bool(heard))


def best_log(candidates: Sequence[int], logs: Mapping[int, LogInfo]) -> int | None:
    """Whose log goes furthest, of the candidates that have told: the highest epoch, then offset (002, 5.3.1; never the
    longest log alone: M44), the first in the partition's order among equals. If one of them has the whole committed
    log, so has this one."""
    heard = [r for r in candidates if r in logs]
    return max(heard, key=lambda r: (logs[r].last_epoch, logs[r].end_offset), default=None)


def may_recover(broker: BrokerRegistration | None) -> bool:
    """May this broker's replica be elected uncleanly? As in any election, it must be neither fenced nor shutting down
    (KAFKA-19522, M40)."""
    return broker is not None and broker.active
