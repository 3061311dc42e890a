"""R02: the end of a reassignment, or the loss of a replica, keeps the leader epoch.

Fetches of a replica that is none any more are still of the current epoch, and so is a leader that was moved away.
"""

from __future__ import annotations

from collections.abc import Sequence

from . import Bug


def never(before: Sequence[int], after: Sequence[int], in_progress: bool, still_in_progress: bool) -> bool:
    return False


BUG = Bug(
    id="R02",
    title="two assignments of a partition share a leader epoch",
    source="no historical bug: 000, 2.3.1",
    nemesis="membership:reassign,kill,pause",
    properties=("LeaderCandidateCompleteness", "ReplicationQuorumSuperset", "StrongIsr"),
    module="kraft.controller.rules",
    rule="is_new_assignment",
    replacement=never,
    options="--brokers 4",
)
