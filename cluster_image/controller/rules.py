"""The controller's safety rules: one function each, called in one place.

`cluster_image/bugs/` replaces one of them at a time, so callers go through the module (`rules.may_register(…)`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kio.schema.errors import ErrorCode

from ..metadata.image import BrokerRegistration, PartitionRegistration


def may_register(registration: BrokerRegistration | None, session_alive: bool, same_incarnation: bool) -> bool:
    """May a starting broker take over its id? Only when the session before has ended by fencing, or when it is a
    retry of the same start (description 8.1; 6.5.1: an epoch ends by fencing and a new registration)."""
    return registration is None or same_incarnation or not session_alive


def may_unfence(registration: BrokerRegistration, metadata_offset: int) -> bool:
    """May a fenced broker become available? Once it has replayed its own registration (description 8.1). The
    registration's offset is the broker epoch."""
    return registration.fenced and metadata_offset >= registration.epoch


def may_lead(replica: int, candidates: Sequence[int], broker: BrokerRegistration | None) -> bool:
    """May this replica be elected? It must be of the leader candidate pool, the ISR and the ELR (Leader Candidate
    Completeness, 000 2.4.1; 002 5.2), and its broker neither fenced nor shutting down (000 2.8; KIP-841)."""
    return replica in candidates and broker is not None and broker.active


def is_unclean(registration: BrokerRegistration | None, previous_epoch: int) -> bool:
    """Did a broker's last session end without a clean shutdown? It names the epoch of a session that it has ended
    cleanly, and any other word than that session's own epoch is none (002, 5.2; KAFKA-15582)."""
    return registration is not None and previous_epoch != registration.epoch


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
) -> ErrorCode | None:
    """Why a proposed ISR is not accepted, None if it is current, well-formed and adds only replicas that are `eligible`
    (000, 2.9.2).

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
    if not all(eligible(r) for r in isr if r not in partition.isr):
        return ErrorCode.ineligible_replica
    return None


def isr_without(isr: Sequence[int], broker: int, elr_enabled: bool) -> tuple[int, ...]:
    """The ISR after a broker is fenced or shuts down. Without an ELR the last member stays: it is the only candidate
    for being elected again (000, 2.8). With one it goes there, so that an unclean return can take it out."""
    rest = tuple(r for r in isr if r != broker)
    return rest if rest or elr_enabled else tuple(isr)
