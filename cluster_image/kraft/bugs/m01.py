"""M01: a new follower truncates to its high watermark instead of to where its log parts from the leader's.

A follower's watermark comes with the leader's next answer, and after a restart from a checkpoint that may be seconds
old. So records that are committed, and that this replica had, go; if it is elected before it has fetched them again,
they are lost. And what lies below its watermark is never compared: where a leader has lost it and written something
else, the two logs stay different (004's two examples). Both halves are one rule here: an implementation that compares
epochs would mend on the first fetch what the other half breaks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import Bug

if TYPE_CHECKING:
    from ...replication.replica import FollowerStart


def truncate_to_high_watermark(high_watermark: int, end_offset: int) -> FollowerStart:
    from ...replication.replica import FollowerStart

    return FollowerStart(high_watermark, names_epoch=False)


BUG = Bug(
    id="M01",
    title="a follower truncates to its high watermark, not by leader epoch",
    source="KAFKA-1211; mended by KIP-101 (0baea2a)",
    nemesis="power-outage,kill,pause,partition",
    properties=("LeaderCandidateCompleteness", "ReplicationQuorumSuperset", "LogMatching", "log linearizability"),
    module="kraft.broker.rules",
    rule="start_following",
    replacement=truncate_to_high_watermark,
)
