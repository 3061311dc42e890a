"""DescribeLogDirs: what lies in this broker's log directory, of which there is one (KIP-113, KIP-827)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kio.schema.errors import ErrorCode
from kio.schema.types import TopicName

from cluster_image.network import Entity
from cluster_image.network.slices import Pauses
from cluster_image.replication.replica import PartitionKey, Replica
from cluster_image.wire.integers import i32, i64
from cluster_image.wire.messages import NO_THROTTLE, make, response_module


async def describe_log_dirs(directory: str, partitions: Mapping[PartitionKey, Replica], request: Any) -> Entity:
    """The sizes, in bytes, of the logs that the request names and this broker has; of all, if it names no topics."""
    module = response_module(request)
    pauses = Pauses()
    topics: dict[str, list[Entity]] = {}
    for partition in _wanted(partitions, request):
        await pauses.after(1)
        topics.setdefault(partition.topic, []).append(
            module.DescribeLogDirsPartition(
                partition_index=i32(partition.index),
                partition_size=i64(partition.log.size),
                offset_lag=i64(0),  # of a log that is to take the place of another, which there is not
                is_future_key=False,
            )
        )
    found = make(
        module.DescribeLogDirsResult,
        error_code=ErrorCode.none,
        log_dir=directory,
        topics=tuple(
            module.DescribeLogDirsTopic(name=TopicName(name), partitions=tuple(described))
            for name, described in topics.items()
        ),
        total_bytes=i64(-1),  # nobody has looked
        usable_bytes=i64(-1),
    )
    return make(module.DescribeLogDirsResponse, throttle_time=NO_THROTTLE, error_code=ErrorCode.none, results=(found,))


def _wanted(partitions: Mapping[PartitionKey, Replica], request: Any) -> Iterable[Replica]:
    """Each once, however often it is named."""
    present = list(partitions.values())
    if request.topics is None:
        return present
    named = {(str(topic.topic), int(index)) for topic in request.topics for index in topic.partitions}
    return [partition for partition in present if (partition.topic, partition.index) in named]
