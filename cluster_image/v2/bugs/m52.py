"""M52: a request to close a replica is carried out whichever leader has sent it.

One that waited for a broker that was away comes through when a later leader counts on its replica: the log is deleted,
and what the replica was counted on for may be lost with the next election.
"""

from __future__ import annotations

from . import Bug


def always(request_epoch: int, latest_epoch: int, is_assigned: bool, checks_epoch: bool) -> bool:
    return True


BUG = Bug(
    id="M52",
    title="a late request to close a replica is carried out",
    source="KAFKA-9539, KIP-570",
    nemesis="choreography:reassigned-while-frozen",
    properties=("ClosedByLatestLeader", "log linearizability"),
    module="v2.rules",
    rule="may_close",
    replacement=always,
    # A broker that is frozen while it is asked to close and until another leads, and keeps its session.
    options="--brokers 4 --rate 10 --partitions 1 --set zookeeper.session.timeout.ms=30000",
)
