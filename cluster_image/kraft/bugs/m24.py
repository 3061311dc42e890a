"""M24: a follower joins the ISR without having reached the leader epoch start offset.

A new leader's high watermark lags behind what is committed, and after a restart of the whole partition it is as old as
the checkpoint. A follower that has reached the watermark need not have everything.
"""

from __future__ import annotations

from . import Bug


def may_join_isr(follower_end: int, high_watermark: int, epoch_start: int, eligible: bool) -> bool:
    return follower_end >= high_watermark and eligible


BUG = Bug(
    id="M24",
    title="a follower joins the ISR below the leader epoch start offset",
    source="KAFKA-7128 (70c5163)",
    nemesis="choreography:watermark-of-a-successor",
    properties=("LeaderCandidateCompleteness", "ReplicationQuorumSuperset", "log linearizability"),
    module="kraft.broker.rules",
    rule="may_join_isr",
    replacement=may_join_isr,
)
