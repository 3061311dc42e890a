"""This generation's safety rules: one function each, called in one place. Those that 001 got wrong stand here as it has
them, each with the setting that mends it."""

from __future__ import annotations

from collections.abc import Collection, Sequence, Set
from typing import Final

from cluster_image.replication.replica import FollowerStart

from .metadata.paths import Isr

#: The epoch of requests that an administrator makes, who knows of no leader (001, "Admin commands").
NO_EPOCH: Final = -1
ANY_VERSION: Final = -1


def may_lead(broker: int, isr: Collection[int], replicas: Collection[int], is_deleted: bool) -> bool:
    """May this replica stand for election (001, "Leader election")? If it is assigned, and in the ISR or there is none
    yet. is_deleted: the partition is about to go; then nobody leads it any more (001 does not say so)."""
    return not is_deleted and broker in replicas and (not isr or broker in isr)


def next_epoch(isr_epoch: int) -> int:
    """Of the partition, as a new leader has it (001, getNewEpoch): it never goes back, as long as the ISR's does not.
    isr_epoch: NO_EPOCH for a partition that nobody has led."""
    return isr_epoch + 1


def start_following(high_watermark: int, end_offset: int, leader_epochs: bool) -> FollowerStart:
    """What does a new follower cut (001, becomeFollower)? All above its own high watermark: which lags behind what is
    committed, so that acknowledged records are lost if it leads next (004).

    leader_epochs (v2.leader.epochs): 004's cure. Nothing; the leader tells where the logs part."""
    if leader_epochs:
        return FollowerStart(end_offset, names_epoch=True)
    return FollowerStart(min(high_watermark, end_offset), names_epoch=False)


def watermark_on_election(high_watermark: int, end_offset: int, from_checkpoint: bool) -> int:
    """A new leader's high watermark (001, becomeLeader, which asks itself whether that is right): its log's end, so
    that what may be on no other replica counts as committed, and consumers see it.

    from_checkpoint (v2.election.watermark=checkpoint): what it was."""
    return high_watermark if from_checkpoint else end_offset


def isr_of_new_leader(found: Collection[int], assigned: Collection[int], caught_up: Collection[int]) -> Sequence[int]:
    """Whom does a new leader count on once its followers have had their time (001, becomeLeader)? Replicas that have
    caught up, itself included, and nobody else, whoever stands in the ISR that it found: that can name a broker that a
    reassignment has removed, as a leader that goes leaves it last (KAFKA-9672)."""
    return [replica for replica in assigned if replica in caught_up]


def may_start(request_epoch: int, latest_epoch: int, has_leader: bool) -> bool:
    """Is a start-replica request carried out (001, stateChangeListener)? Not if an earlier leader has sent it. An
    administrator's, of a new partition, always: by 001 the second replica to read it would ignore it, as the first
    leads by then."""
    return not has_leader or request_epoch in (NO_EPOCH, latest_epoch)


def may_close(request_epoch: int, latest_epoch: int, is_assigned: bool, checks_epoch: bool) -> bool:
    """Is a close-replica request carried out (001, stateChangeListener)? Always, so that what waits for a dead broker
    is done when it is back; and so a topic of the same name that was created since loses a replica.

    checks_epoch (v2.close.epochs): of what the broker is to have by now (is_assigned) only if the latest leader has
    sent it: what an earlier one has asked for, or an administrator, who has no epoch, may have been undone. What it is
    not to have it closes at anybody's word: a leader that has moved the partition away from its own broker asks that as
    the last thing that it does, and another may be elected before it is done."""
    return not checks_epoch or not is_assigned or (request_epoch != NO_EPOCH and request_epoch >= latest_epoch)


def expected_isr_version(known_version: int, versioned: bool) -> int:
    """Which version of the ISR's node does a leader write over (001, "write p.ISR to ZK")? Any: also its successor's,
    if it was deposed and does not know yet.

    versioned (v2.isr.versioned): the one that it wrote last; else it leads no longer."""
    return known_version if versioned else ANY_VERSION


def is_own_isr(found: Isr | None, isr: Isr) -> bool:
    """Has this leader itself written what stands in its way? Of a write that was made, and of which nobody heard, the
    repetition is refused; whoever gave up for that would lead no longer without need (KAFKA-14144). found: what the
    ISR's node holds."""
    return found == isr


def is_committed(ends: Collection[int], offset: int) -> bool:
    """Has every member of the ISR a request's records (001, commit thread)? ends: as far as each has fetched."""
    return all(end >= offset for end in ends)


def has_stopped_fetching(last_caught_up: float, now: float, keep_in_sync: float, idle_checks: bool) -> bool:
    """Does a member of the ISR leave it that has everything and fetches no more? By 001 never: only a new request is
    waited for. On an idle partition a replica that was closed would stay, and a reassignment not end. Times in seconds.

    idle_checks (v2.idle.checks): once it has not been caught up for KeepInSyncTime."""
    return idle_checks and now - last_caught_up > keep_in_sync


def may_join_isr(follower_end: int, offset: int) -> bool:
    """Does a replica that is catching up join the ISR (001, commit thread)? With the request that is being
    committed."""
    return follower_end >= offset


def has_reassignment_caught_up(ends: Collection[int], offset: int) -> bool:
    """Have all replicas of a reassignment what is being committed (001, checkReassignedReplicas)?"""
    return all(end >= offset for end in ends)


def may_complete_reassignment(old: Set[int], isr: Set[int], leader: int) -> bool:
    """Have the replicas that are to go stopped to fetch (001, checkReassignedReplicas)? All but the leader, which goes
    last."""
    return not (old - {leader}) & isr


def isr_before_closing(isr: Set[int], going: Set[int], coming: Set[int], leaves_isr: bool) -> Set[int]:
    """Who is in the ISR when the replicas that are to go are asked to close (001, checkReassignedReplicas)? Whoever
    was: they leave it as they stop to fetch. One whose broker starts again until then, or that is to stay after all,
    begins with an empty log, may lead with it, and what was acknowledged is lost.

    leaves_isr (v2.close.isr): nobody who is asked, and in their place those that come and have caught up."""
    return (isr - going) | coming if leaves_isr else isr


def ends_term(moved_to: Set[int] | None, assigned: Set[int], leaves_isr: bool) -> bool:
    """Is a leader's term over once the reassignment that it was about is given up, or goes elsewhere? By 001, which
    has no such thing, not.

    moved_to: None if it was about none. assigned: as it is now; the new replicas, if it was complete by then.

    leaves_isr (v2.close.isr): yes. Replicas that it has asked to close, or that an administrator has, may stay or come
    back after all, and be closed while they do, with an empty log after it; this leader knows of them how far they
    fetched before. Of what came before its own term the next one believes nothing, and what was asked for in an earlier
    one is not done (may_close)."""
    return leaves_isr and moved_to is not None and assigned != moved_to


def gives_way_to_preferred(leader: int, preferred: int, isr: Collection[int]) -> bool:
    """Does a leader step down for the preferred replica (001, checkLoadBalancing)?"""
    return leader != preferred and preferred in isr
