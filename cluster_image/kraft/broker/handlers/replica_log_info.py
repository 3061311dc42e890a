"""GetReplicaLogInfo: how far this broker's logs go, for a controller in unclean recovery (002, 5.3; KIP-966)."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice

from kio.schema.errors import ErrorCode

from cluster_image.kraft.metadata.image import MetadataImage
from cluster_image.replication.replica import PartitionKey
from cluster_image.wire.integers import i32, i64
from cluster_image.wire.messages import NO_THROTTLE
from cluster_image.wire.own_messages import (
    MAX_PARTITIONS,
    GetReplicaLogInfoRequest,
    GetReplicaLogInfoResponse,
    PartitionLogInfo,
    TopicPartitionLogInfo,
)

from ..partition import Partition


def replica_log_info(
    image: MetadataImage,
    find: Callable[[PartitionKey], Partition | None],
    broker_epoch: int,
    request: GetReplicaLogInfoRequest,
) -> GetReplicaLogInfoResponse:
    """Whatever the replica's role. The broker epoch and the leader epoch say how long this stays true."""
    left = MAX_PARTITIONS
    truncated = False
    topics = []
    for topic in request.topic_partitions or ():
        asked = tuple(islice(topic.partitions, left))
        left -= len(asked)
        truncated = truncated or len(asked) < len(topic.partitions)
        if asked and topic.topic_id is not None:
            infos = tuple(_log_info(image, find, (topic.topic_id, int(index))) for index in asked)
            topics.append(TopicPartitionLogInfo(topic_id=topic.topic_id, partition_log_info=infos))
    return GetReplicaLogInfoResponse(
        throttle_time=NO_THROTTLE,
        broker_epoch=i64(broker_epoch),
        truncated=truncated,
        topic_partition_log_info_list=tuple(topics),
    )


def _log_info(
    image: MetadataImage, find: Callable[[PartitionKey], Partition | None], key: PartitionKey
) -> PartitionLogInfo:
    partition = find(key)
    epoch, current, end = -1, -1, -1
    if partition is not None:
        error = ErrorCode.none
        epoch, current, end = partition.log.last_epoch, partition.leader_epoch, partition.log.end_offset
    elif key[0] not in image.topics_by_id:
        error = ErrorCode.unknown_topic_id
    else:
        known = image.partition(*key) is not None
        error = ErrorCode.not_leader_or_follower if known else ErrorCode.unknown_topic_or_partition
    return PartitionLogInfo(
        partition=i32(key[1]),
        last_written_leader_epoch=i32(epoch),
        current_leader_epoch=i32(current),
        log_end_offset=i64(end),
        error_code=error,
    )
