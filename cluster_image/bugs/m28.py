"""M28: nobody asks in which uptime session a replica has caught up.

A fetch from before a power cut, or the proposal that it led to, brings into the ISR a broker that has since come back
with less than it had.
"""

from __future__ import annotations

from ..metadata.image import BrokerRegistration
from . import Bug


def any_session(replica_epoch: int, broker: BrokerRegistration | None) -> bool:
    return broker is not None and broker.active


BUG = Bug(
    id="M28",
    title="no broker epochs of replicas in Fetch and AlterPartition",
    source="KAFKA-14139, KAFKA-14617; mended by KIP-903 (8c88cdb, d5e216d)",
    nemesis="power-outage",
    properties=("LeaderCandidateCompleteness", "ReplicationQuorumSuperset", "log linearizability"),
    module="metadata.rules",
    rule="may_be_in_isr",
    replacement=any_session,
)
