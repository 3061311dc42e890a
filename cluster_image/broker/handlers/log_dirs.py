"""DescribeLogDirs: how many bytes this broker holds of each partition."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from kio.schema.errors import ErrorCode
from kio.schema.types import TopicName

from cluster_image.network import Entity
from cluster_image.wire.integers import i32, i64
from cluster_image.wire.messages import NO_THROTTLE, make, response_module

from ..replication.partition import Partition


def describe_log_dirs(directory: str, partitions: Iterable[Partition], request: Any) -> Entity:
    """directory: the one that this broker has. Of the partitions asked for, those that are here."""
    module = response_module(request)
    wanted = None if request.topics is None else {(t.topic, int(i)) for t in request.topics for i in t.partitions}
    topics: dict[str, list[Any]] = defaultdict(list)
    for partition in partitions:
        if wanted is None or (partition.topic, partition.index) in wanted:
            topics[partition.topic].append(
                module.DescribeLogDirsPartition(
                    partition_index=i32(partition.index),
                    partition_size=i64(partition.log.size),
                    offset_lag=i64(max(partition.high_watermark - partition.log.end_offset, 0)),
                    is_future_key=False,
                )
            )
    result = make(
        module.DescribeLogDirsResult,
        error_code=ErrorCode.none,
        log_dir=directory,
        topics=tuple(
            module.DescribeLogDirsTopic(name=TopicName(name), partitions=tuple(found)) for name, found in topics.items()
        ),
        total_bytes=i64(-1),
        usable_bytes=i64(-1),
    )
    return make(
        module.DescribeLogDirsResponse, throttle_time=NO_THROTTLE, error_code=ErrorCode.none, results=(result,)
    )
