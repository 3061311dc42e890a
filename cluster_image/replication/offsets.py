"""ListOffsets and OffsetForLeaderEpoch: offsets by time and by leader epoch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from kio.schema.errors import ErrorCode

from cluster_image.network import Aside, Entity, here
from cluster_image.network.slices import Pauses
from cluster_image.storage.record_times import record_since
from cluster_image.wire.integers import i32, i64
from cluster_image.wire.messages import NO_THROTTLE, make, repeated, response_module

from .served import Refused, ServedPartition

LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
#: Without tiered storage, what is here is all there is.
EARLIEST_LOCAL: Final = -4


class OffsetsHandler:
    """find: a partition by its topic's name; raises Refused. holds_lease: may this broker still lead?"""

    def __init__(self, find: Callable[[str, int], ServedPartition], holds_lease: Callable[[], bool]) -> None:
        self._find = find
        self._holds_lease = holds_lease

    async def list_offsets(self, request: Any, aside: Aside = here) -> Entity:
        """aside: see network.Peer."""
        module = response_module(request)
        twice = repeated((t.name, p.partition_index) for t in request.topics for p in t.partitions)
        topics, pauses = [], Pauses()
        for topic in request.topics:
            answers = []
            for data in topic.partitions:
                await pauses.after(1)
                error, offset, timestamp, epoch = ErrorCode.none, -1, -1, -1
                try:
                    if (topic.name, data.partition_index) in twice:
                        raise Refused(ErrorCode.invalid_request)
                    offset, timestamp, epoch = await self._offset_at(topic.name, data, aside)
                except Refused as refused:
                    error = refused.error
                answers.append(
                    make(
                        module.ListOffsetsPartitionResponse,
                        partition_index=data.partition_index,
                        error_code=error,
                        timestamp=i64(timestamp),
                        offset=i64(offset),
                        leader_epoch=i32(epoch),
                    )
                )
            topics.append(module.ListOffsetsTopicResponse(name=topic.name, partitions=tuple(answers)))
        return make(module.ListOffsetsResponse, throttle_time=NO_THROTTLE, topics=tuple(topics))

    async def _offset_at(self, topic: str, data: Any, aside: Aside) -> tuple[int, int, int]:
        """Offset, timestamp (ms) and leader epoch. Raises Refused."""
        partition = self._find(topic, int(data.partition_index))
        timestamp = int(data.timestamp)
        leader_epoch = int(getattr(data, "current_leader_epoch", -1))
        if timestamp in (EARLIEST, EARLIEST_LOCAL):
            start = partition.start_of_log(leader_epoch)
            return start, -1, partition.log.epoch_before(start + 1)
        end = partition.end_of_committed_log(leader_epoch, self._holds_lease())
        if timestamp == LATEST:
            return end, -1, partition.leader_epoch
        if timestamp == MAX_TIMESTAMP:
            latest = partition.log.latest_timestamp(end)
            return await record_since(partition.log, latest, end, aside) if latest is not None else (-1, -1, -1)
        if timestamp < 0:
            raise Refused(ErrorCode.unsupported_for_message_format)
        return await record_since(partition.log, timestamp, end, aside)

    async def offset_for_leader_epoch(self, request: Any) -> Entity:
        module = response_module(request)
        topics, pauses = [], Pauses()
        for topic in request.topics:
            answers = []
            for data in topic.partitions:
                await pauses.after(1)
                error, epoch, end = ErrorCode.none, -1, -1
                try:
                    partition = self._find(topic.topic, int(data.partition))
                    epoch, end = partition.end_offset_for_epoch(int(data.leader_epoch), int(data.current_leader_epoch))
                except Refused as refused:
                    error = refused.error
                answers.append(
                    make(
                        module.EpochEndOffset,
                        error_code=error,
                        partition=data.partition,
                        leader_epoch=i32(epoch),
                        end_offset=i64(end),
                    )
                )
            topics.append(module.OffsetForLeaderTopicResult(topic=topic.topic, partitions=tuple(answers)))
        return make(module.OffsetForLeaderEpochResponse, throttle_time=NO_THROTTLE, topics=tuple(topics))
