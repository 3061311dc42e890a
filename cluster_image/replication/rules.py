"""The safety rules that hold for a replica of any generation: one function each, called in one place.

`cluster_image/kraft/bugs/` replaces one of them at a time, so callers go through the module
(`rules.may_apply_fetch(…)`).
"""

from __future__ import annotations


def is_out_of_sync(follower_end: int, leader_end: int, last_caught_up: float, now: float, max_lag: float) -> bool:
    """Must a follower leave the ISR? When it has not been caught up for replica.lag.time.max.ms (000, 2.9).
    Times in seconds."""
    return follower_end != leader_end and now - last_caught_up > max_lag


def is_throttled_on_leader(exceeded: bool, awaited: bool) -> bool:
    """Are records of a throttled replica left out of the answer to a follower (KIP-73)? While the leader's quota is
    exceeded; but never of one that the high watermark is held back for: a member of the ISR would leave it for the
    quota's sake, and whoever is about to join it would make producers wait for the quota."""
    return exceeded and not awaited


def is_throttled_on_follower(exceeded: bool, in_isr: bool, keeps_up: bool) -> bool:
    """Does a follower leave a throttled replica out of its fetch (KIP-73)? While its quota is exceeded; but not one
    that is in the ISR, as the metadata tells, and not one that keeps up with the leader's high watermark: its leader
    may hold that back for it (see waits_to_join_isr)."""
    return exceeded and not in_isr and not keeps_up


def truncation_offset(leaders: tuple[int, int], own: tuple[int, int]) -> int:
    """Where a follower's diverging log is cut: the smaller end of the leader's diverging epoch and of the follower's
    own lookup for it (description 3.2, cases C to G)."""
    return min(leaders[1], own[1])


def keeps_nothing(end_if_cut: int, log_start: int) -> bool:
    """Does not one record stay of a follower's log that is cut where it diverges? Then it begins anew where its
    leader's log starts: where its own would end, it may lack what its leader has below (KAFKA-12996). end_if_cut: where
    it would end, as batches are kept whole."""
    return end_if_cut < log_start


def may_apply_fetch(
    requested_epoch: int, current_epoch: int, requested_offset: int, end_offset: int, still_following: bool
) -> bool:
    """May a fetch response touch the log? Only while nothing has changed since its request: an answer of a deposed
    leader must not (bug catalogue, M13)."""
    return still_following and requested_epoch == current_epoch and requested_offset == end_offset


def next_log_start_offset(current: int, told: int, high_watermark: int) -> int:
    """Where a log start offset moves when another replica tells that its log starts at `told`: up to there, but never
    beyond what this replica knows to be committed, and never back (Apache Kafka: maybeIncrementLogStartOffset; there
    only followers listen)."""
    return max(current, min(told, high_watermark))


def deleted_below(followers_start: int, last_fetched_epoch: int) -> int:
    """Below which offset has a follower deleted records that it had? Below its log start, if its fetch names the epoch
    of its last record, or of the one before its start. A log that knows neither is only empty there, and nothing shows
    that anybody deleted what it lacks (retention-10). followers_start: -1: not told. -1: below none."""
    return followers_start if last_fetched_epoch >= 0 else -1


def watermark_of_begun_anew(high_watermark: int, offset: int) -> int:
    """The high watermark of a log that begins anew at `offset`, where its leader's log starts. What lies below was
    committed, or it would not be deleted; and a watermark below its own log's start, with which this replica may come
    to lead, is one at which nothing can be read (KAFKA-9491, KAFKA-3978). high_watermark: before."""
    return offset


def may_delete_segment(end_offset: int, high_watermark: int, is_leader: bool) -> bool:
    """May retention take a segment? Only where all of it is committed, and only the leader decides: it tells its
    followers by its log start offset, so that all replicas come to start alike."""
    return is_leader and end_offset <= high_watermark


def is_out_of_date(latest_timestamp: int | None, now: int, retention: int) -> bool:
    """Are all records of a segment older than retention.ms? Times in ms since 1970; retention -1: never. Without a time
    of their own (-1) they have no age."""
    has_age = latest_timestamp is not None and latest_timestamp >= 0
    return has_age and 0 <= retention < now - (latest_timestamp or 0)


def is_beyond_size(log_size: int, segment_size: int, retention: int) -> bool:
    """Does a log keep retention.bytes without its oldest segment? retention -1: no limit."""
    return retention >= 0 and log_size - segment_size >= retention


def lacks_its_begin(first_offset: int, noted_start: int) -> bool:
    """Does a log lack records that nobody has deleted? Its start is noted on disk before any file below it goes, so
    what begins above that has lost files. Then its start is no news for others to follow."""
    return first_offset > noted_start
