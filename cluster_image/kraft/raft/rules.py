"""The quorum's safety rules: one function each, called in one place.

"Raft" is Ongaro and Ousterhout, "In Search of an Understandable Consensus Algorithm" (extended version, 2014);
KIP-595 is Kafka's form of it, in which followers pull.
"""

from __future__ import annotations

from collections.abc import Iterable

from cluster_image.storage.log import Log

from .state import ElectionState, QuorumStateStore

#: Epochs that a quorum may have gone through since a replica heard of it: as many as seconds in half a year.
MAX_EPOCH_JUMP = 1 << 24


class InvariantViolation(Exception):
    """Something that the protocol rules out has happened: this node must stop before it spreads."""


def is_known_to_be_whole() -> bool:
    """Is the metadata log taken to be complete and undamaged at a start, as a broker takes its logs to be after a clean
    shutdown? Never: its tail decides elections, and there is no file that would prove it (Kafka #10363)."""
    return False


# -- elections ------------------------------------------------------------------------------------------------


def store_before_acting(store: QuorumStateStore, old: ElectionState, new: ElectionState) -> None:
    """Epochs, votes and leaders are on disk before any answer or request shows them: a voter that forgot its vote
    could cast a second one (Raft 5.2, figure 2). Epochs only grow; within one, a vote and a leader, once there, stay
    (Election Safety). Raises InvariantViolation, OSError."""
    if new == old:
        return
    kept = old.leader_id in (None, new.leader_id) and old.voted_for in (None, new.voted_for)
    if new.epoch < old.epoch or (new.epoch == old.epoch and not kept):
        raise InvariantViolation(f"election state may not go from {old} to {new}")
    store.write(new)


def state_after_restart(stored: ElectionState | None, log_epoch: int, is_voter: bool) -> ElectionState:
    """What a replica knows of elections when it starts. Only a voter that was never in the quorum, whose log is
    empty, may start without a file: another has forgotten its votes and could vote twice in an epoch (Raft 5.2)."""
    if stored is None:
        if is_voter and log_epoch >= 0:
            raise InvariantViolation(
                f"there is no quorum-state file beside a metadata log of epoch {log_epoch}: "
                "votes cast by this voter are not known"
            )
        return ElectionState(epoch=max(log_epoch, 0))
    if stored.epoch < log_epoch:
        raise InvariantViolation(f"quorum-state is of epoch {stored.epoch}, the metadata log of {log_epoch}")
    return stored


def is_epoch_in_reach(ours: int, theirs: int) -> bool:
    """Is a higher epoch believed? It is for good, and after 2^31 - 1 there is none: one request that named it would end
    elections for ever. A replica that was away finds the quorum some thousands of epochs on, not millions."""
    return theirs - ours <= MAX_EPOCH_JUMP


def is_log_up_to_date(log: Log, last_epoch: int, end_offset: int) -> bool:
    """Is a candidate's log, so described, at least as up to date as `log` (Raft 5.4.1)?"""
    return (last_epoch, end_offset) >= (log.last_epoch, log.end_offset)


def may_grant_vote(state: ElectionState, candidate: int, up_to_date: bool) -> bool:
    """`state`: of the candidate's epoch. One vote an epoch, to a candidate whose log has everything committed, and
    only while the epoch has no leader (Raft 5.2, 5.4.1)."""
    return up_to_date and state.leader_id is None and state.voted_for in (None, candidate)


def may_grant_pre_vote(hears_leader: bool, up_to_date: bool) -> bool:
    """Would a vote be granted? Not while there is a leader to be heard, so that a replica that was cut off cannot
    unseat it (Raft thesis 9.6; KIP-996). Binds nobody, so nothing is stored."""
    return up_to_date and not hears_leader


def is_majority(count: int, voters: int) -> bool:
    return count > voters // 2


# -- replication ----------------------------------------------------------------------------------------------


def own_acknowledged_offset(log: Log) -> int:
    """How far a leader counts its own log towards the high watermark: what its disk has for good
    (KAFKA-10533)."""
    return log.flushed_offset


def make_durable_before_fetch(log: Log, is_voter: bool) -> None:
    """A voter's fetch offset tells the leader that it has everything below, so it must be on disk before
    (KIP-595, KAFKA-10533). Observers never count."""
    if is_voter:
        log.flush()


def majority_offset(offsets: Iterable[int]) -> int:
    """The highest offset that a majority of the voters, whose end offsets these are, has reached (Raft 5.3)."""
    descending = sorted(offsets, reverse=True)
    return descending[len(descending) // 2]


def next_high_watermark(current: int, replicated: int, epoch_start_offset: int) -> int:
    """A leader's high watermark once `replicated` is on a majority. It never falls, and it stands still until a
    record of the leader's own epoch, the LeaderChange at `epoch_start_offset`, is on a majority: older records
    alone could still be overwritten (Raft 5.4.2 and figure 8, KAFKA-12619)."""
    return max(current, replicated) if replicated > epoch_start_offset else current


def diverging_epoch(log: Log, fetch_offset: int, last_fetched_epoch: int) -> tuple[int, int] | None:
    """Leader: where the log of a follower that ends so parts from `log`, as (epoch, end offset); None if it is a
    prefix of it (log divergence, 3.2)."""
    if fetch_offset == log.start_offset == 0:
        return None
    epoch, end_offset = log.end_offset_for_epoch(last_fetched_epoch)
    return None if epoch == last_fetched_epoch and end_offset >= fetch_offset else (epoch, end_offset)


def truncation_offset(log: Log, diverging: tuple[int, int], high_watermark: int) -> int:
    """Follower: where to cut its log off after its leader's answer `diverging` (log divergence, 3.2). What is
    committed is never cut. Raises InvariantViolation."""
    epoch, end_offset = diverging
    offset = min(log.end_offset_for_epoch(epoch)[1], end_offset)
    if offset < high_watermark:
        raise InvariantViolation(f"truncation to {offset} would undo what is committed below {high_watermark}")
    return offset


# -- snapshots ------------------------------------------------------------------------------------------------


def snapshot_id(log: Log, end: int) -> tuple[int, int]:
    """What a snapshot of everything below `end` is called: `end` itself, exclusive as all ends are, and the epoch of
    the record before it. One off, and who loads it applies a record twice or never (KIP-630, KAFKA-14618)."""
    return end, log.epoch_before(end)


def trimmed_start(earliest_snapshot_end: int, high_watermark: int) -> int:
    """Where the log may start, given the earliest snapshot that is kept: at its end and no later, or nobody could be
    given what lies between (KAFKA-14238). Only what is committed is ever given up. Raises InvariantViolation."""
    if earliest_snapshot_end > high_watermark:
        raise InvariantViolation(
            f"a snapshot up to {earliest_snapshot_end} holds more than what is committed below {high_watermark}"
        )
    return earliest_snapshot_end


def needs_snapshot(at_start: tuple[int, int] | None, fetch_offset: int, last_fetched_epoch: int) -> bool:
    """Leader: must a follower whose log ends so begin anew from a snapshot? Yes, if what it needs, or the place where
    its log parts from this one, lies below the log's start. `at_start`: end offset and epoch of the snapshot that the
    log starts after, None if it has its begin (KIP-630)."""
    if at_start is None:
        return False
    end, epoch = at_start
    return fetch_offset < end or last_fetched_epoch < epoch or (fetch_offset == end and last_fetched_epoch != epoch)


def may_install_snapshot(end: int, high_watermark: int) -> bool:
    """Follower: may a leader's snapshot replace the log? Not if that would undo what is committed."""
    return end >= high_watermark


def continues_snapshot(log: Log, end: int, epoch: int) -> bool:
    """After a restart: does the log go on from this snapshot? Not if the crash came after the snapshot was there and
    before it had replaced a log that was behind, or had parted from the leader's (KIP-630)."""
    return log.start_offset <= end <= log.end_offset and log.epoch_before(end) == epoch


# -- leadership -----------------------------------------------------------------------------------------------


def leadership_lapses_at(last_heard: Iterable[float], timeout: float) -> float:
    """When a leader whose other voters last fetched at these times must resign, because others may have elected a
    new one that it does not hear of (check quorum, Raft thesis 6.2; KAFKA-15489)."""
    newest_first = sorted(last_heard, reverse=True)
    needed = (1 + len(newest_first)) // 2  # besides itself, for a majority
    return newest_first[needed - 1] + timeout if needed else float("inf")
