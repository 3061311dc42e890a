"""M27: the controller takes an AlterPartition that was computed from an older partition epoch.

What the leader proposes overwrites what the controller has decided meanwhile: a broker that was fenced is in the ISR
again. That members must be eligible to be added (KIP-841, KIP-903) came later, and speaks of who is not in the present
ISR; here such a proposal's members were in the one that its leader knew, so that they are not asked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from . import Bug, original

if TYPE_CHECKING:
    from kio.schema.errors import ErrorCode

    from ..metadata.image import PartitionRegistration


def ignore_partition_epoch(
    partition: PartitionRegistration,
    sender: int,
    leader_epoch: int,
    partition_epoch: int,
    isr: Sequence[int],
    eligible: Callable[[int], bool],
    recovery_state: int,
) -> ErrorCode | None:
    if partition_epoch < partition.partition_epoch:
        partition_epoch, eligible = partition.partition_epoch, lambda replica: True
    refused: ErrorCode | None = original(BUG)(
        partition, sender, leader_epoch, partition_epoch, isr, eligible, recovery_state
    )
    return refused


BUG = Bug(
    id="M27",
    title="no compare-and-set on the partition epoch of AlterPartition",
    source="KAFKA-12367 (a8eda3c), KAFKA-12686 (aefe0e4)",
    nemesis="choreography:late-proposals",
    properties=("ValidControllerState", "LeaderCandidateCompleteness", "log linearizability"),
    module="kraft.controller.rules",
    rule="refuse_alter_partition",
    replacement=ignore_partition_epoch,
    # A proposal is late by half a session; one that is far longer or shorter ends before it arrives, or after.
    options="--set broker.session.timeout.ms=3000",
)
