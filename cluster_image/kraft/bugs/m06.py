"""M06: a fetch that names no epoch is answered as if the epoch ended where the leader's log ends.

That is never below the follower's end, so nothing is cut and the follower goes on from where it is. In the form that
the protocol has since KIP-595, where each fetch names the last epoch, a follower that names none is one whose log is
empty: it begins in the middle, and lacks what it has never had. This one's leaders tell such a follower where to begin.
"""

from __future__ import annotations

from . import Bug


def end_of_no_epoch_is_end_of_log(
    fetch_offset: int, followers_start: int, last_fetched_epoch: int, log_start_offset: int, epoch_before_start: int
) -> bool:
    return False


BUG = Bug(
    id="M06",
    title="the end of an epoch that is not known is told to be the end of the leader's log",
    source="KAFKA-6857 (a531872)",
    nemesis="disk:corrupt-stopped,disk:corrupt,power-outage,partition",
    properties=("FetchAnswered", "LogMatching", "LeaderCandidateCompleteness", "ValidLogStart", "Liveness"),
    module="kraft.broker.rules",
    rule="begins_elsewhere",
    replacement=end_of_no_epoch_is_end_of_log,
    # Logs that are deleted to their ends, and checkpoints that are damaged.
    options="--delete-records 1 --rate 10 --partitions 3",
)
