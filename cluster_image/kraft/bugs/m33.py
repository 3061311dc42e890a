"""M33: a fetch is checked for its sender being a replica before anything else.

Who does not lead knows no followers, so it answers UNKNOWN_LEADER_EPOCH, which says "wait", where it should say that
another one leads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import Bug, original

if TYPE_CHECKING:
    from kio.schema.errors import ErrorCode


def replicas_first(epoch_refused: ErrorCode | None, leads: bool, is_replica: bool) -> ErrorCode | None:
    from kio.schema.errors import ErrorCode

    if not is_replica:
        return ErrorCode.unknown_leader_epoch
    refused: ErrorCode | None = original(BUG)(epoch_refused, leads, is_replica)
    return refused


BUG = Bug(
    id="M33",
    title="whether the sender of a fetch is a replica is asked before the leader epoch and who leads",
    source="KAFKA-14078 (a450fb7)",
    nemesis="membership:controlled-shutdown,membership:reassign,kill,partition",
    properties=("FetchAnswered", "Liveness"),
    module="kraft.broker.rules",
    rule="refuse_follower",
    replacement=replicas_first,
)
