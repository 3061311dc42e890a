"""M67: a vote is given before it is on disk.

A voter that restarts in the same epoch has forgotten it, and votes a second time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import Bug, original

if TYPE_CHECKING:
    from ..raft.state import ElectionState, QuorumStateStore


def store_no_vote(store: QuorumStateStore, old: ElectionState, new: ElectionState) -> None:
    original(BUG)(store, old._replace(voted_for=None), new._replace(voted_for=None))


BUG = Bug(
    id="M67",
    title="a vote is not persisted before it is answered",
    source="FileQuorumStateStore; Raft 5.2",
    nemesis="kill,power-outage",
    properties=("QuorumState", "ElectionSafety"),
    module="kraft.raft.rules",
    rule="store_before_acting",
    replacement=store_no_vote,
)
