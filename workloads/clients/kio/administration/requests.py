"""Requests that make, change and delete topics and records of them, and what their responses say. In versions that any
broker since Kafka 2.8 serves."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Final, NamedTuple

from kio.schema.errors import ErrorCode

from cluster_image.network import Entity
from workloads.clients.kio.requests import request_module

_OFFSET_FOR_LEADER_EPOCH: Final = request_module(23, 4)
_CREATE_TOPICS: Final = request_module(19, 7)
_DELETE_TOPICS: Final = request_module(20, 6)
_DELETE_RECORDS: Final = request_module(21, 2)
_CREATE_PARTITIONS: Final = request_module(37, 2)
_ALTER_CONFIGS: Final = request_module(44, 1)

#: What a setting is of.
TOPIC: Final = 2
BROKER: Final = 4
_SET, _DELETE = 0, 1

#: Of a topic, by partition: broker ids, the preferred leader first.
Assignment = Sequence[Sequence[int]]


class DeleteAnswer(NamedTuple):
    error: ErrorCode
    low_watermark: int  # what the log starts at on all live replicas; -1 with an error


def create_topic_request(
    topic: str, partitions: int, replication_factor: int, configs: Mapping[str, str], timeout: float,
    *, assignment: Assignment = (), only_validate: bool = False,
) -> Entity:  # fmt: skip
    """timeout: seconds that the cluster may take. assignment: () leaves it to the controller."""
    return _CREATE_TOPICS.CreateTopicsRequest(
        topics=(
            _CREATE_TOPICS.CreatableTopic(
                name=topic,
                num_partitions=-1 if assignment else partitions,
                replication_factor=-1 if assignment else replication_factor,
                assignments=tuple(
                    _CREATE_TOPICS.CreatableReplicaAssignment(partition_index=index, broker_ids=tuple(replicas))
                    for index, replicas in enumerate(assignment)
                ),
                configs=tuple(
                    _CREATE_TOPICS.CreatableTopicConfig(name=name, value=value) for name, value in configs.items()
                ),
            ),
        ),
        timeout=timedelta(seconds=timeout),
        validate_only=only_validate,
    )


def topic_id(response: Entity) -> uuid.UUID | None:
    """Of an answer to create_topic_request(); None: it says that the topic is there already."""
    (topic,) = response.topics
    return topic.topic_id or None


def create_partitions_request(topic: str, count: int, timeout: float, *, assignment: Assignment = ()) -> Entity:
    """count: of all partitions, those that there are included. timeout: seconds that the cluster may take. assignment:
    of the new ones; () leaves it to the controller."""
    assignments = tuple(
        _CREATE_PARTITIONS.CreatePartitionsAssignment(broker_ids=tuple(replicas)) for replicas in assignment
    )
    return _CREATE_PARTITIONS.CreatePartitionsRequest(
        topics=(_CREATE_PARTITIONS.CreatePartitionsTopic(name=topic, count=count, assignments=assignments or None),),
        timeout=timedelta(seconds=timeout),
        validate_only=False,
    )


def delete_topic_request(topic: str | uuid.UUID, timeout: float, *, also: str | uuid.UUID | None = None) -> Entity:
    """topic, also: names or ids. timeout: seconds that the cluster may take."""
    topics = tuple(
        _DELETE_TOPICS.DeleteTopicState(name=None, topic_id=each) if isinstance(each, uuid.UUID)
        else _DELETE_TOPICS.DeleteTopicState(name=each, topic_id=None)
        for each in (topic, also) if each is not None
    )  # fmt: skip
    return _DELETE_TOPICS.DeleteTopicsRequest(topics=topics, timeout=timedelta(seconds=timeout))


def alter_settings_request(settings: Mapping[tuple[int, str], Mapping[str, str | None]]) -> Entity:
    """settings: by what they are of, TOPIC or BROKER and its name, values by name; None: as if it was never set."""
    return _ALTER_CONFIGS.IncrementalAlterConfigsRequest(
        resources=tuple(
            _ALTER_CONFIGS.AlterConfigsResource(
                resource_type=kind,
                resource_name=of,
                configs=tuple(
                    _ALTER_CONFIGS.AlterableConfig(
                        name=name, config_operation=_DELETE if value is None else _SET, value=value
                    )
                    for name, value in values.items()
                ),
            )
            for (kind, of), values in settings.items()
        ),
        validate_only=False,
    )


def epoch_end_request(topic: str, partition: int, epoch: int, leader_epoch: int) -> Entity:
    """OffsetForLeaderEpoch. epoch: whose end is asked for. leader_epoch: the client's idea of the present one, or
    -1."""
    asked = _OFFSET_FOR_LEADER_EPOCH.OffsetForLeaderPartition(
        partition=partition, current_leader_epoch=leader_epoch, leader_epoch=epoch
    )
    topics = (_OFFSET_FOR_LEADER_EPOCH.OffsetForLeaderTopic(topic=topic, partitions=(asked,)),)
    return _OFFSET_FOR_LEADER_EPOCH.OffsetForLeaderEpochRequest(replica_id=-1, topics=topics)


def administered(response: Any) -> tuple[ErrorCode, str | None]:
    """The first error among the answers, and the broker's message about it; or that there is none."""
    answers = getattr(response, "topics", None) or getattr(response, "results", None) or response.responses
    answer = next((each for each in answers if each.error_code is not ErrorCode.none), answers[0])
    return answer.error_code, answer.error_message


def delete_records_request(topic: str, offsets: Mapping[int, int], timeout: float) -> Entity:
    """offsets: by partition, below which everything is to be deleted; -1: the high watermark. timeout: seconds that the
    leader may wait for its followers."""
    return _DELETE_RECORDS.DeleteRecordsRequest(
        topics=(
            _DELETE_RECORDS.DeleteRecordsTopic(
                name=topic,
                partitions=tuple(
                    _DELETE_RECORDS.DeleteRecordsPartition(partition_index=partition, offset=offset)
                    for partition, offset in offsets.items()
                ),
            ),
        ),
        timeout=timedelta(seconds=timeout),
    )


def delete_records_answers(response: Entity) -> dict[int, DeleteAnswer]:
    """By partition."""
    return {
        partition.partition_index: DeleteAnswer(partition.error_code, partition.low_watermark)
        for topic in response.topics
        for partition in topic.partitions
    }
