"""What administrators' tools ask a broker: DescribeTopicPartitions (KIP-966) and DescribeCluster (KIP-700); and what
consumers do, FindCoordinator.

Topics and brokers are answered from this broker's own metadata, which may lag behind, as Metadata is.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import Any, Final

from kio.schema.describe_topic_partitions.v0 import response as module
from kio.schema.errors import ErrorCode
from kio.schema.types import TopicName

from cluster_image.network import Entity
from cluster_image.network.slices import Pauses
from cluster_image.wire.integers import BrokerId, i8, i32
from cluster_image.wire.messages import NO_THROTTLE, make, response_module

from .known import KnownCluster, KnownPartition

#: Partitions in one answer at most (Kafka's max.request.partition.size.limit).
MAX_PARTITIONS: Final = 2000
#: Endpoint types of DescribeCluster.
_BROKERS: Final = 1
_CONTROLLERS: Final = 2
#: Key type of FindCoordinator, beside 0, of groups.
_TRANSACTION: Final = 1
_NO_AUTHORIZED_OPERATIONS: Final = i32(-2147483648)


async def describe_topic_partitions(image: KnownCluster, request: Any) -> Entity:
    """Topics in the order of their names, all of them if the request names none, from the request's cursor on. Others
    have their turn meanwhile.

    `next_cursor` of the answer says where the next page starts; None: this was the last one.
    """
    names = sorted({str(topic.name) for topic in request.topics} or image.topics)
    first_name, first_index = "", 0
    if request.cursor is not None:
        first_name, first_index = str(request.cursor.topic_name), int(request.cursor.partition_index)
    room = min(max(int(request.response_partition_limit), 1), MAX_PARTITIONS)
    topics: list[Entity] = []
    pauses = Pauses()
    for name in names[bisect_left(names, first_name) :]:
        await pauses.after(1)
        topic = image.topics.get(name)
        if topic is None:
            topics.append(_topic(name, None, ErrorCode.unknown_topic_or_partition, ()))
            continue
        start = first_index if name == first_name else 0
        left = [topic.partitions[index] for index in sorted(topic.partitions) if index >= start]
        if room or not left:
            topics.append(_topic(name, topic.id, ErrorCode.none, _partitions(image, left[:room])))
        if len(left) > room:
            cursor = module.Cursor(topic_name=TopicName(name), partition_index=i32(left[room].index))
            return _answer(topics, cursor)
        room -= len(left)
    return _answer(topics, None)


def _answer(topics: list[Entity], next_cursor: module.Cursor | None) -> Entity:
    return module.DescribeTopicPartitionsResponse(
        throttle_time=NO_THROTTLE, topics=tuple(topics), next_cursor=next_cursor
    )


def _topic(name: str, topic_id: Any, error: ErrorCode, partitions: Iterator[Entity] | tuple[()]) -> Entity:
    return module.DescribeTopicPartitionsResponseTopic(
        error_code=error, name=TopicName(name), topic_id=topic_id, partitions=tuple(partitions)
    )


def _partitions(image: KnownCluster, partitions: list[KnownPartition]) -> Iterator[Entity]:
    for partition in partitions:
        brokers = image.brokers
        offline = (r for r in partition.replicas if r not in brokers or brokers[r].fenced)
        yield module.DescribeTopicPartitionsResponsePartition(
            error_code=ErrorCode.none if partition.leader >= 0 else ErrorCode.leader_not_available,
            partition_index=i32(partition.index),
            leader_id=BrokerId(partition.leader),
            leader_epoch=i32(partition.leader_epoch),
            replica_nodes=tuple(map(BrokerId, partition.replicas)),
            isr_nodes=tuple(map(BrokerId, partition.isr)),
            eligible_leader_replicas=tuple(map(BrokerId, partition.elr)),
            last_known_elr=tuple(map(BrokerId, partition.last_known_elr)),
            offline_replicas=tuple(map(BrokerId, offline)),
        )


def describe_cluster(image: KnownCluster, cluster_id: str, controller_id: int, request: Any) -> Entity:
    """The cluster's brokers; fenced ones only if the request wants them. A broker does not describe controllers
    (KIP-919)."""
    answer = response_module(request)
    kind = int(getattr(request, "endpoint_type", _BROKERS))
    error, message = ErrorCode.none, None
    if kind == _CONTROLLERS:
        error, message = ErrorCode.mismatched_endpoint_type, "this is a broker, not a controller"
    elif kind != _BROKERS:
        error, message = ErrorCode.unsupported_endpoint_type, f"there is no endpoint type {kind}"
    fenced_too = getattr(request, "include_fenced_brokers", False)
    brokers = [] if error is not ErrorCode.none else [b for b in image.brokers.values() if fenced_too or not b.fenced]
    return make(
        answer.DescribeClusterResponse,
        throttle_time=NO_THROTTLE,
        error_code=error,
        error_message=message,
        endpoint_type=i8(kind),
        cluster_id=cluster_id,
        controller_id=BrokerId(controller_id),
        brokers=tuple(
            make(
                answer.DescribeClusterBroker,
                broker_id=BrokerId(b.id),
                host=b.address.host,
                port=i32(b.address.port),
                rack=b.rack,
                is_fenced=b.fenced,
            )
            for b in brokers
        ),
        cluster_authorized_operations=_NO_AUTHORIZED_OPERATIONS,
    )


async def find_coordinator(request: Any) -> Entity:
    """There are no groups and no transactions here. Who asks for their coordinator is refused in a way that clients
    take for final and tell their users: one that finds none would try again for ever."""
    answers = response_module(request)
    if getattr(request, "key_type", 0) == _TRANSACTION:
        error, message = ErrorCode.transactional_id_authorization_failed, "there are no transactions here"
    else:
        error, message = ErrorCode.group_authorization_failed, "there are no groups here: assign partitions instead"
    nobody = {"node_id": BrokerId(-1), "host": "", "port": i32(-1), "error_code": error, "error_message": message}
    keys = getattr(request, "coordinator_keys", ())
    coordinators, pauses = [], Pauses()
    for key in dict.fromkeys(keys):
        await pauses.after(1)
        coordinators.append(make(answers.Coordinator, key=key, **nobody))
    return make(answers.FindCoordinatorResponse, throttle_time=NO_THROTTLE, coordinators=tuple(coordinators), **nobody)
