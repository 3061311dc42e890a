"""LeaderEpochCheckpoint: what a node knows of the leader epochs in a log is what the log's batches say.

By it logs are compared and cut (KIP-101, KIP-279): who has an epoch begin elsewhere cuts off what it should keep, or
keeps what it should cut off, as Apache Kafka has done (KAFKA-10706, and docs/findings.md). Of an epoch whose begin is
deleted only the end is asked; of one in which nothing was written, nothing.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from checkers.inside.violation import Violated
from cluster_image.storage.log import Log

if TYPE_CHECKING:
    from .logs import Replica


def check_epochs(replica: Replica, log: Log, where: str) -> None:
    """replica: all that the log holds. Raises Violated."""
    here = replica.batches[replica.count_below(log.start_offset) :]
    for epoch, group in groupby(here, key=lambda batch: batch.epoch):
        end = list(group)[-1].end
        told = log.epoch_before(end), log.end_offset_for_epoch(epoch)
        if told != (epoch, (epoch, end)):
            raise Violated(
                "LeaderEpochCheckpoint",
                f"{replica.node} takes the record before offset {end} for one of leader epoch {told[0]}, and epoch "
                f"{told[1][0]} to end at {told[1][1]}; in its log epoch {epoch} ends there",
                where,
                (replica.node,),
            )
