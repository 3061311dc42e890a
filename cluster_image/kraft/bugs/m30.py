"""M30: a controller that is behind the leader answers AlterPartition as if it knew best.

It has been deposed and does not know; the leader already has a later epoch from its successor. The leader takes the
answer for the last word, and does not send the proposal again: unless something else changes the partition, it stays
pending for ever.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from . import Bug, original

if TYPE_CHECKING:
    from kio.schema.errors import ErrorCode

    from ..metadata.image import PartitionRegistration


def answer_as_one_that_knows(
    partition: PartitionRegistration,
    sender: int,
    leader_epoch: int,
    partition_epoch: int,
    isr: Sequence[int],
    eligible: Callable[[int], bool],
    recovery_state: int,
) -> ErrorCode | None:
    from kio.schema.errors import ErrorCode

    if leader_epoch > partition.leader_epoch:
        return ErrorCode.fenced_leader_epoch
    if partition_epoch > partition.partition_epoch and sender == partition.leader:
        return ErrorCode.invalid_update_version
    refused: ErrorCode | None = original(BUG)(
        partition, sender, leader_epoch, partition_epoch, isr, eligible, recovery_state
    )
    return refused


BUG = Bug(
    id="M30",
    title="a controller that is behind the leader refuses AlterPartition for good",
    source="KAFKA-14154 (520f729)",
    nemesis="partition,pause,kill:controller",
    properties=("Liveness",),
    module="kraft.controller.rules",
    rule="refuse_alter_partition",
    replacement=answer_as_one_that_knows,
)
