"""Asks one broker how far its logs go (GetReplicaLogInfo), for unclean recovery."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import Final

from kio.schema.errors import ErrorCode

from cluster_image.network import Address, Network
from cluster_image.replication.replica import PartitionKey
from cluster_image.wire.integers import i32
from cluster_image.wire.own_messages import GetReplicaLogInfoRequest, TopicPartitions

from .rules import LogInfo

#: For the connection, and for the answer.
TIMEOUT_SECONDS: Final = 2.0


async def ask_for_logs(
    network: Network, address: Address, partitions: Iterable[PartitionKey]
) -> dict[PartitionKey, LogInfo]:
    """What the broker at this address tells of its replicas; those that it has not, or not yet, are missing. Empty if
    it does not answer."""
    by_topic: dict[uuid.UUID, list[int]] = {}
    for topic_id, index in partitions:
        by_topic.setdefault(topic_id, []).append(index)
    request = GetReplicaLogInfoRequest(
        topic_partitions=tuple(
            TopicPartitions(topic_id=topic_id, partitions=tuple(map(i32, indexes)))
            for topic_id, indexes in by_topic.items()
        )
    )
    try:
        connection = await network.connect(address, client_id="controller", timeout=TIMEOUT_SECONDS)
        try:
            answer = await connection.request(request, timeout=TIMEOUT_SECONDS)
        finally:
            connection.close()
    except (ConnectionError, TimeoutError):
        return {}
    return {
        (topic.topic_id, int(info.partition)): LogInfo(
            int(answer.broker_epoch),
            int(info.current_leader_epoch),
            int(info.last_written_leader_epoch),
            int(info.log_end_offset),
        )
        for topic in answer.topic_partition_log_info_list
        for info in topic.partition_log_info
        if info.error_code is ErrorCode.none
    }
