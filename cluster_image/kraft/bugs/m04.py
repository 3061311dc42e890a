"""M04: a leader serves a fetch or an OffsetForLeaderEpoch of another leader epoch.

A follower that has not heard of the last elections fetches from a leader that has been deposed and elected again
since, and the leader counts it; or the fetch itself was sent that long ago. The follower may still truncate to the log
of the leader in between, and lose what has been committed with its help (Kip320FirstTry.tla, StrongIsr). It takes two
elections while a follower's metadata or its fetch is on the way, and the leader's check of the last fetched epoch
(KIP-595) catches the cases in which the leader itself has followed meanwhile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import Bug

if TYPE_CHECKING:
    from kio.schema.errors import ErrorCode


def serve_any_leader_epoch(ours: int, theirs: int) -> ErrorCode | None:
    return None


BUG = Bug(
    id="M04",
    title="no fence on the current leader epoch of Fetch and OffsetForLeaderEpoch",
    source="KAFKA-7395; mended by KIP-320 (ed3bd79)",
    nemesis="partition,pause",
    properties=("ReplicationQuorumSuperset", "LeaderCandidateCompleteness", "log linearizability"),
    module="kraft.broker.rules",
    rule="refuse_leader_epoch",
    replacement=serve_any_leader_epoch,
)
