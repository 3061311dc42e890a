"""LeaderEpochCheckpoint: what a node knows of the leader epochs in a log is what the log's batches say.

By it logs are compared and cut (KIP-101, KIP-279): who has an epoch begin elsewhere cuts off what it should keep, or
keeps what it should cut off, as Apache Kafka has done (KAFKA-10706, and docs/findings.md). Of an epoch whose begin is
deleted only the end is asked; of one in which nothing was written, nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

from checkers.inside.violation import Violated
from cluster_image.storage.log import Log


def check_epochs(node: str, where: str, log: Log, batches: Iterable[tuple[int, int]]) -> None:
    """batches: of all that the log holds, leader epoch and end. Raises Violated."""
    for epoch, end in dict(batches).items():  # of each epoch the last end: a log has its epochs in their order
        told = log.epoch_before(end), log.end_offset_for_epoch(epoch)
        if told != (epoch, (epoch, end)):
            raise Violated(
                "LeaderEpochCheckpoint",
                f"{node} takes the record before offset {end} for one of leader epoch {told[0]}, and epoch "
                f"{told[1][0]} to end at {told[1][1]}; in its log epoch {epoch} ends there",
                where,
                (node,),
            )
