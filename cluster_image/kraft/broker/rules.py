"""The broker's safety rules: one function each, called in one place.

`cluster_image/kraft/bugs/` replaces one of them at a time, so callers go through the module (`rules.may_join_isr(…)`).
"""

from __future__ import annotations

from collections.abc import Iterable, Set

from kio.schema.errors import ErrorCode

from cluster_image.replication.replica import FollowerStart
from cluster_image.storage.log import Log

#: AlterPartition errors after which the proposal is known not to have been applied, now or later.
_NOT_APPLIED = frozenset({ErrorCode.ineligible_replica, ErrorCode.operation_not_attempted})


def refuse_leader_epoch(ours: int, theirs: int) -> ErrorCode | None:
    """Why a request with this leader epoch is not served (000, 2.10; KIP-320). -1: the sender checks nothing."""
    if theirs == -1 or theirs == ours:
        return None
    return ErrorCode.fenced_leader_epoch if theirs < ours else ErrorCode.unknown_leader_epoch


def refuse_follower(epoch_refused: ErrorCode | None, leads: bool, is_replica: bool) -> ErrorCode | None:
    """Why a follower's fetch is not served. epoch_refused: see refuse_leader_epoch; it comes first, as a sender that
    knows a later epoch must wait for this broker, not look for another; then whether this replica leads at all, for who
    does not knows nobody who follows it (KAFKA-14078). is_replica: is the sender one, as far as this leader knows?"""
    if epoch_refused is not None:
        return epoch_refused
    if not leads:
        return ErrorCode.not_leader_or_follower
    return None if is_replica else ErrorCode.unknown_leader_epoch


def enough_replicas(isr: Set[int], min_insync_replicas: int, replication_factor: int) -> bool:
    """Is an acks=all append taken, and acknowledged? Only with MinISR replicas in sync (000, 2.6); a partition with
    fewer replicas than that needs them all (KAFKA-21110)."""
    return len(isr) >= min(min_insync_replicas, replication_factor)


def may_join_isr(follower_end: int, high_watermark: int, epoch_start: int, eligible: bool) -> bool:
    """Has an out-of-sync follower proven itself complete (000, 2.9; description 6.5.3 and 6.5.4)?

    follower_end: as of its last fetch in this leader epoch; before the first it is -1, which is nowhere near. It must
    have reached the high watermark; and the leader epoch start offset, below which the leader's own watermark may lag;
    and its broker must be available in the session that it fetched in."""
    return follower_end >= high_watermark and follower_end >= epoch_start and eligible


def may_join_lagging(lags: bool, commits: bool) -> bool:
    """May a follower join that is complete (may_join_isr), even if it lags (000, 2.9: expanding asks for latency, too)?
    Only where the watermark can advance: there to have reached it proves something. Where nothing is committed, as the
    ISR is below MinISR, it stands still, and the ISR would grow and shrink again and again (KAFKA-19996). commits: see
    may_commit."""
    return commits or not lags


def waits_to_join_isr(lags: bool, eligible: bool) -> bool:
    """Is the high watermark held back for this follower outside the ISR? While it keeps up and its broker may be in the
    ISR: under steady writes it is one batch behind at every fetch, and would never reach a watermark that follows the
    ISR alone (Apache Kafka's Partition.shouldWaitForReplicaToJoinIsr)."""
    return eligible and not lags


def maximal_isr(isr: Set[int], proposed: Iterable[int]) -> frozenset[int]:
    """The replicas that must have a record before it is committed, while a proposal is under way: the union, as the
    controller may hold either (000, 2.7; description 6.5.2)."""
    return frozenset(isr).union(proposed)


def next_high_watermark(current: int, end_offsets: Iterable[int]) -> int:
    """Where the high watermark may advance to: what every member of the maximal ISR has, itself included
    (000, 2.7). It never goes back."""
    return max(current, min(end_offsets))


def readable_end(log: Log, high_watermark: int) -> int:
    """Below which offset consumers read: the high watermark as it is at the moment of the read, wherever it lies in the
    log's files (000, 2.7; KAFKA-9196, KAFKA-9807, KAFKA-9835)."""
    return min(high_watermark, log.end_offset)


def may_commit(isr: Set[int], min_insync_replicas: int, replication_factor: int, elr_enabled: bool) -> bool:
    """May the high watermark advance at all? Not below MinISR where the controller keeps an ELR: its members are taken
    to be complete because nothing is committed without them (description 6.5.2; KIP-966, M15)."""
    return not elr_enabled or enough_replicas(isr, min_insync_replicas, replication_factor)


def may_roll_back(error: ErrorCode) -> bool:
    """May a leader go back to its committed ISR after this answer to a proposal? Only if the proposal cannot have been
    applied: one accepted whose answer was lost looks outdated when it is sent again."""
    return error in _NOT_APPLIED


def start_following(high_watermark: int, end_offset: int) -> FollowerStart:
    """What does a new follower cut, and how does it find the rest? Nothing on its own: its high watermark lags behind
    what is committed, so what lies above may be acknowledged. Each fetch names the last epoch, and the leader answers
    where the logs part (004; description 3.2; KIP-101)."""
    return FollowerStart(end_offset, names_epoch=True)


def has_diverged(end_of_epoch: tuple[int, int], last_fetched_epoch: int, fetch_offset: int) -> bool:
    """Does a follower's log differ from the leader's (description 3.2)? end_of_epoch: epoch and end offset of the
    leader's lookup for last_fetched_epoch."""
    epoch, end = end_of_epoch
    return epoch < last_fetched_epoch or end < fetch_offset


def may_tell_end_of_log(high_watermark: int, epoch_start: int, lease_held: bool) -> bool:
    """May a leader answer where the committed log ends? Its watermark must have reached the leader epoch start offset,
    below which it may lag (applied HWM monotonicity, description 6.4.2; KIP-207).

    And its broker's session must be certain not to have run out: past that, the controller may have elected another
    leader, which has acknowledged records that this one knows nothing of."""
    return high_watermark >= epoch_start and lease_held


def may_delete_up_to(offset: int, high_watermark: int) -> bool:
    """May a client have everything below `offset` deleted? Only what is committed (KIP-107)."""
    return 0 <= offset <= high_watermark


def begins_elsewhere(
    fetch_offset: int, followers_start: int, last_fetched_epoch: int, log_start_offset: int, epoch_before_start: int
) -> bool:
    """Must a follower begin anew at the leader's log start? If its log is empty at another offset, and it does not know
    which record came before: nothing shows that it ever had what lies in between. Also at the same offset if the leader
    knows (epoch_before_start; -1: it does not): once the follower knows, too, any later leader can tell where it
    stands, which a member of the ISR must not begin anew for. followers_start: -1: not told."""
    is_empty = fetch_offset == followers_start
    at_the_same = fetch_offset == log_start_offset and epoch_before_start < 0
    return is_empty and last_fetched_epoch < 0 and not at_the_same


def low_watermark(own_start: int, starts_of_the_live: Iterable[int]) -> int:
    """Below which offset no live replica has records any more, as far as the leader knows from their fetches:
    DeleteRecords is answered once it is reached (KIP-107). -1: one of them has not told yet."""
    return min([own_start, *starts_of_the_live])
