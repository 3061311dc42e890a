"""M12: a follower whose whole log lies past where it parts from its leader's gives up.

It has deleted what lay below, so that what the leader answers is out of its range: it takes that for an error, and
never fetches again.
"""

from __future__ import annotations

from . import Bug, original


def gives_up(end_if_cut: int, log_start: int) -> bool:
    from cluster_image.storage.errors import NonContiguousAppend

    if original(BUG)(end_if_cut, log_start):
        raise NonContiguousAppend(f"offset {end_if_cut} is out of range: the log starts at {log_start}")
    return False


BUG = Bug(
    id="M12",
    title="a follower that has nothing below where its log parts from its leader's gives up",
    source="KAFKA-12996 (c6d2778)",
    nemesis="choreography:lagging-replica-leads",
    properties=("IsrExpands", "Liveness"),
    module="replication.rules",
    rule="keeps_nothing",
    replacement=gives_up,
    options="--delete-records 1s --set unclean.recovery.strategy=proactive",
)
