"""Balanced unclean recovery: a leader for a partition of which nobody is known to be complete (002, 5.3).

When ISR and ELR are empty, the replicas once eligible (LastKnownELR) are asked how far their logs go, all of them, and
the one with the highest epoch and offset is elected: if one of them has lost nothing, it is that one. Each recovery is
reported as a possible loss, as the controller cannot tell.

The question is Kafka's OffsetForLeaderEpoch with the replica id of a debugging consumer, which any replica answers.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final

from kio.schema.errors import ErrorCode
from kio.schema.offset_for_leader_epoch.v4.request import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from kio.schema.types import BrokerId, TopicName

from ..integers import i32
from ..metadata.image import BrokerRegistration, MetadataImage, PartitionRegistration
from ..metadata.records import NO_LEADER
from ..network import Address, Network

log = logging.getLogger(__name__)

_DEBUGGING_CONSUMER: Final = -2  # see broker/api.py
_ANY_EPOCH: Final = i32(2**31 - 1)
_TIMEOUT_SECONDS: Final = 2.0

LogEnd = tuple[int, int]  # last leader epoch, end offset


def recoverable(image: MetadataImage) -> list[PartitionRegistration]:
    """Partitions that only unclean recovery can give a leader, and all of whose candidates can be asked."""
    return [
        p
        for p in image.partitions()
        if p.leader == NO_LEADER
        and not p.isr
        and not p.elr
        and p.last_known_elr
        and all(_available(image.brokers.get(r)) for r in p.last_known_elr)
    ]


def _available(broker: BrokerRegistration | None) -> bool:
    return broker is not None and broker.active


def best_log(partition: PartitionRegistration, ends: Mapping[int, LogEnd]) -> int | None:
    """Whom to elect: the candidate with the highest epoch, then offset (never the longest log alone: M44), the first in
    the partition's order among equals. None unless every candidate has told."""
    candidates = [r for r in partition.replicas if r in partition.last_known_elr]
    if not set(partition.last_known_elr) <= ends.keys():
        return None
    return max(candidates, key=lambda r: ends[r], default=None)


async def inspect_logs(
    network: Network, brokers: Mapping[int, Address], partitions: Sequence[PartitionRegistration]
) -> dict[tuple[Any, int], dict[int, LogEnd]]:
    """What every candidate of these partitions says of its log, by partition and broker. Who does not answer is
    missing."""
    ends: dict[tuple[Any, int], dict[int, LogEnd]] = {(p.topic_id, p.index): {} for p in partitions}

    async def ask(broker: int) -> None:
        mine = [p for p in partitions if broker in p.last_known_elr]
        by_name = {(p.topic, p.index): (p.topic_id, p.index) for p in mine}
        request = OffsetForLeaderEpochRequest(
            replica_id=BrokerId(_DEBUGGING_CONSUMER),
            topics=tuple(
                OffsetForLeaderTopic(
                    topic=TopicName(p.topic),
                    partitions=(OffsetForLeaderPartition(partition=i32(p.index), leader_epoch=_ANY_EPOCH),),
                )
                for p in mine
            ),
        )
        try:
            connection = await network.connect(brokers[broker], client_id="controller", timeout=_TIMEOUT_SECONDS)
            try:
                answer = await connection.request(request, timeout=_TIMEOUT_SECONDS)
            finally:
                connection.close()
        except (ConnectionError, TimeoutError):
            return
        for topic in answer.topics:
            for data in topic.partitions:
                key = by_name.get((topic.topic, int(data.partition)))
                if key is not None and data.error_code is ErrorCode.none:
                    ends[key][broker] = (int(data.leader_epoch), int(data.end_offset))

    await asyncio.gather(*(ask(broker) for broker in sorted({r for p in partitions for r in p.last_known_elr})))
    return ends
