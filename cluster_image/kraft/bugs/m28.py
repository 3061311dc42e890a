"""M28: nobody checks whether a replica caught up in its broker's present session or before a restart.

A fetch from before a power cut, or the proposal that it led to, brings into the ISR a broker that has since come back
with less than it had.
"""

from __future__ import annotations

from . import Bug


def all_sessions_are_one(broker_epoch: int, known: int) -> bool:
    return False


BUG = Bug(
    id="M28",
    title="no broker epochs of replicas in Fetch and AlterPartition",
    source="KAFKA-14139, KAFKA-14617; mended by KIP-903 (8c88cdb, d5e216d)",
    nemesis="power-outage",
    properties=("LeaderCandidateCompleteness", "StrongIsr", "log linearizability"),
    module="kraft.metadata.rules",
    rule="is_earlier_session",
    replacement=all_sessions_are_one,
    # A fetch from before matters only while its broker, back with less, is far behind, and nothing was committed
    # meanwhile: slow catching up, and partitions that are seldom written to.
    options="--latency-ms 50 --set replica.fetch.max.bytes=100 --partitions 24 --rate 4",
)
