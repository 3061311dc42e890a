"""M15: the high watermark advances while the ISR is smaller than MinISR.

The last replica standing commits on its own what the eligible leader replicas beside it do not have. Consumers read it,
and when it loses its disk or is fenced, one of the others is elected without it.
"""

from __future__ import annotations

from collections.abc import Set

from . import Bug


def commit_with_any_isr(isr: Set[int], min_insync_replicas: int, replication_factor: int, elr_enabled: bool) -> bool:
    return True


BUG = Bug(
    id="M15",
    title="the high watermark advances below min.insync.replicas",
    source="KAFKA-15583 (edc7e10), KIP-966",
    nemesis="power-outage,kill,pause",
    properties=("LeaderCandidateCompleteness", "NoCommittedRecordLostGlobally", "log linearizability"),
    module="kraft.broker.rules",
    rule="may_commit",
    replacement=commit_with_any_isr,
)
