"""Requests that are well-formed and ask for much."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any, Final

from kio.schema.create_partitions.v3.request import CreatePartitionsRequest, CreatePartitionsTopic
from kio.schema.create_topics.v7.request import CreatableTopic, CreateTopicsRequest
from kio.schema.delete_records.v2.request import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from kio.schema.delete_topics.v6.request import DeleteTopicsRequest, DeleteTopicState
from kio.schema.describe_configs.v4.request import DescribeConfigsRequest, DescribeConfigsResource
from kio.schema.describe_log_dirs.v4.request import DescribableLogDirTopic, DescribeLogDirsRequest
from kio.schema.describe_topic_partitions.v0.request import DescribeTopicPartitionsRequest, TopicRequest
from kio.schema.fetch.v12.request import FetchPartition, FetchRequest, FetchTopic
from kio.schema.find_coordinator.v4.request import FindCoordinatorRequest
from kio.schema.incremental_alter_configs.v1.request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kio.schema.init_producer_id.v4.request import InitProducerIdRequest
from kio.schema.list_offsets.v7.request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kio.schema.metadata.v12.request import MetadataRequest, MetadataRequestTopic
from kio.schema.offset_for_leader_epoch.v4.request import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

from cluster_image.wire.integers import i32
from cluster_image.wire.messages import milliseconds

from .stranger import Kind, Target, asked, reported, stranger


def _fetch(topic: str, partitions: list[int], session: int = 0, epoch: int = -1) -> FetchRequest:
    asked_for = tuple(FetchPartition(partition=p, fetch_offset=0, partition_max_bytes=1 << 20) for p in partitions)
    return FetchRequest(
        replica_id=-1, max_wait=milliseconds(0), min_bytes=1, max_bytes=50 << 20, session_id=session,
        session_epoch=epoch, topics=(FetchTopic(topic=topic, partitions=asked_for),), forgotten_topics_data=(),
    )  # fmt: skip


def _create(name: str, partitions: int, count: int = 1) -> CreateTopicsRequest:
    return CreateTopicsRequest(
        topics=tuple(
            CreatableTopic(
                name=f"{name}-{i}", num_partitions=partitions, replication_factor=3, assignments=(), configs=()
            )
            for i in range(count)
        ),
        timeout=milliseconds(2000),
    )


async def sessions_without_end(target: Target) -> str:
    async with stranger(random.choice(target.brokers)) as one:

        async def begin() -> str:
            for _ in range(100):
                await one.ask(_fetch(target.topic, [0, 1, 2], epoch=0))
            return "taken"

        return await reported(begin())


async def topics_made_and_deleted(target: Target) -> str:
    """A thousand and five hundred, of which one request may make a thousand."""
    broker = random.choice(target.brokers)
    made = _create("many", 1, 1_500)
    deleted = DeleteTopicsRequest(
        topics=tuple(DeleteTopicState(name=topic.name, topic_id=None) for topic in made.topics),
        timeout=milliseconds(2000),
    )
    return f"{await asked(broker, made)}; deleted: {await asked(broker, deleted)}"


async def many_topics_by_name(target: Target) -> str:
    topics = tuple(MetadataRequestTopic(topic_id=None, name=f"no-such-topic-{i}") for i in range(20_000))
    request = MetadataRequest(topics=topics, allow_auto_topic_creation=True, include_topic_authorized_operations=True)
    return await asked(random.choice(target.brokers), request)


def _of_any(make: Any) -> Kind:
    async def ask(target: Target) -> str:
        return await asked(random.choice(target.brokers), make(target))

    return ask


def _list_offsets(target: Target) -> ListOffsetsRequest:
    partitions = tuple(ListOffsetsPartition(partition_index=p % 3, timestamp=0) for p in range(50_000))
    return ListOffsetsRequest(
        replica_id=-1, isolation_level=0, topics=(ListOffsetsTopic(name=target.topic, partitions=partitions),)
    )


def _epochs(target: Target) -> OffsetForLeaderEpochRequest:
    partitions = tuple(OffsetForLeaderPartition(partition=p, leader_epoch=0) for p in range(1900))
    return OffsetForLeaderEpochRequest(
        replica_id=-2, topics=(OffsetForLeaderTopic(topic=target.topic, partitions=partitions),)
    )


def _deletions(target: Target) -> DeleteRecordsRequest:
    """Of what is not there: what is there must stay."""
    partitions = tuple(DeleteRecordsPartition(partition_index=p, offset=2**62) for p in range(1900))
    return DeleteRecordsRequest(
        topics=(DeleteRecordsTopic(name=target.topic, partitions=partitions),), timeout=milliseconds(2000)
    )


def _configs(target: Target) -> DescribeConfigsRequest:
    resources = [(2, target.topic), *((4, str(broker)) for broker in range(500))]
    return DescribeConfigsRequest(
        resources=tuple(
            DescribeConfigsResource(resource_type=type_, resource_name=name, configuration_keys=None)
            for type_, name in resources
        ),
        include_synonyms=True, include_documentation=True,
    )  # fmt: skip


def _alter_configs(target: Target) -> IncrementalAlterConfigsRequest:
    configs = tuple(AlterableConfig(name=f"no.such.{i}", config_operation=0, value="x" * 100) for i in range(500))
    resource = AlterConfigsResource(resource_type=2, resource_name=target.topic, configs=configs)
    return IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False)


def _alter_brokers(target: Target) -> IncrementalAlterConfigsRequest:
    """Most of which there are not, each with a rate that no broker takes."""
    name = "leader.replication.throttled.rate"
    configs = (AlterableConfig(name=name, config_operation=0, value="9" * 1000),)
    resources = (AlterConfigsResource(resource_type=4, resource_name=str(i), configs=configs) for i in range(500))
    return IncrementalAlterConfigsRequest(resources=tuple(resources), validate_only=False)


def _throttled_replicas(target: Target) -> IncrementalAlterConfigsRequest:
    listed = ",".join(f"{i}:1" for i in range(20_000))
    config = AlterableConfig(name="leader.replication.throttled.replicas", config_operation=0, value=listed)
    resource = AlterConfigsResource(resource_type=2, resource_name=target.topic, configs=(config,))
    return IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False)


def _log_dirs(target: Target) -> DescribeLogDirsRequest:
    topics = tuple(DescribableLogDirTopic(topic=f"topic-{i}", partitions=(i32(0),)) for i in range(3000))
    return DescribeLogDirsRequest(topics=topics)


def _more_partitions(target: Target) -> CreatePartitionsRequest:
    topic = CreatePartitionsTopic(name=target.topic, count=9000, assignments=None)
    return CreatePartitionsRequest(topics=(topic,), timeout=milliseconds(2000), validate_only=False)


def _pages(target: Target) -> DescribeTopicPartitionsRequest:
    topics = tuple(TopicRequest(name=f"topic-{i}") for i in range(7000))
    return DescribeTopicPartitionsRequest(topics=topics, response_partition_limit=2**31 - 1, cursor=None)


def _coordinators(target: Target) -> FindCoordinatorRequest:
    return FindCoordinatorRequest(key_type=0, coordinator_keys=tuple(f"group-{i}" for i in range(7000)))


async def producer_ids(target: Target) -> str:
    """A thousand, each for nothing."""
    request = InitProducerIdRequest(
        transactional_id=None, transaction_timeout=milliseconds(1000), producer_id=-1, producer_epoch=-1
    )
    async with stranger(random.choice(target.brokers)) as one:

        async def ask() -> str:
            for _ in range(1000):
                await one.ask(request)
            return "given"

        return await reported(ask())


KINDS: Final[Mapping[str, Kind]] = {
    "Fetch of 100,000 partitions": _of_any(lambda t: _fetch(t.topic, list(range(60_000)))),
    "Fetch of one partition 1,900 times": _of_any(lambda t: _fetch(t.topic, [0] * 1900)),
    "fetch sessions without end": sessions_without_end,
    "ListOffsets of 50,000 partitions": _of_any(_list_offsets),
    "OffsetForLeaderEpoch of 1,900": _of_any(_epochs),
    "DeleteRecords of 1,900": _of_any(_deletions),
    "Metadata of 20,000 unknown topics": many_topics_by_name,
    "CreateTopics of 10,000 partitions": _of_any(lambda t: _create("huge", 10_000)),
    "CreateTopics of 2,000 partitions": _of_any(lambda t: _create("large", 2_000)),
    "CreateTopics of 2^31 - 1": _of_any(lambda t: _create("endless", 2**31 - 1)),
    "1,500 topics created and deleted": topics_made_and_deleted,
    "CreatePartitions to 9,000": _of_any(_more_partitions),
    "DescribeConfigs of 500 brokers": _of_any(_configs),
    "IncrementalAlterConfigs, 500 unknown": _of_any(_alter_configs),
    "IncrementalAlterConfigs, 500 brokers": _of_any(_alter_brokers),
    "20,000 throttled replicas": _of_any(_throttled_replicas),
    "DescribeLogDirs of 3,000": _of_any(_log_dirs),
    "DescribeTopicPartitions of 7,000": _of_any(_pages),
    "FindCoordinator of 7,000 groups": _of_any(_coordinators),
    "1,000 producer ids": producer_ids,
}
