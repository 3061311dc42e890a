"""What administrators ask of a cluster, through any broker, by librdkafka and kafka-python."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import ElectionType, KafkaError, KafkaException, Producer, TopicCollection
from confluent_kafka import TopicPartition as Partition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)
from kafka import TopicPartition
from kafka.admin import KafkaAdminClient

from cluster_image import wire
from cluster_image.kraft.broker.handlers import describe_configs
from cluster_image.kraft.metadata.image import BrokerRegistration, MetadataImage
from cluster_image.network import Address
from cluster_image.replication.answers import describe
from cluster_image.replication.answers.describe_log_dirs import describe_log_dirs
from tests.cluster_image.clients.test_librdkafka import SAYS_NOTHING
from tests.cluster_image.kraft.broker.test_partition import config
from tests.clusters.local_cluster import LocalCluster, local_cluster


def eventually(what: Callable[[], Any], expected: Any, patience: float = 10.0) -> None:
    """Brokers learn what the controller has decided a moment later."""
    until = time.monotonic() + patience
    while (found := what()) != expected:
        assert time.monotonic() < until, (found, expected)
        time.sleep(0.05)


def with_librdkafka(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, **SAYS_NOTHING})
    cluster = admin.describe_cluster().result(10)
    assert cluster.cluster_id == "local" and sorted(node.id for node in cluster.nodes) == [1, 2, 3]
    assert cluster.controller.id in (1, 2, 3)

    topic = NewTopic("t", num_partitions=2, replication_factor=3, config={"min.insync.replicas": "1"})
    admin.create_topics([topic])["t"].result(10)

    def partitions() -> int:
        return len(admin.list_topics(timeout=10).topics["t"].partitions)

    eventually(partitions, 2)
    admin.create_partitions([NewPartitions("t", 5)])["t"].result(10)
    eventually(partitions, 5)
    with pytest.raises(KafkaException) as refused:
        admin.create_partitions([NewPartitions("t", 3)])["t"].result(10)
    assert refused.value.args[0].code() == KafkaError.INVALID_PARTITIONS

    resource = ConfigResource(ResourceType.TOPIC, "t")
    settings = admin.describe_configs([resource])[resource].result(10)
    assert settings["min.insync.replicas"].value == "1" and not settings["min.insync.replicas"].is_default
    assert settings["segment.bytes"].is_default

    throttled(admin)
    records(admin, bootstrap)

    described = admin.describe_topics(TopicCollection(["t"]))["t"].result(10)
    assert [p.replicas[0].id for p in described.partitions] == [p.leader.id for p in described.partitions]
    elected = admin.elect_leaders(ElectionType.PREFERRED, [Partition("t", 0)]).result(10)
    ((_, error),) = elected.items()
    assert error.code() == KafkaError.ELECTION_NOT_NEEDED

    admin.delete_topics(["t"])["t"].result(10)
    eventually(lambda: "t" in admin.list_topics(timeout=10).topics, False)
    with pytest.raises(KafkaException) as unknown:
        admin.delete_topics(["t"])["t"].result(10)
    assert unknown.value.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART


def records(admin: AdminClient, bootstrap: str) -> None:
    """The first of them are deleted, and the partition says where it begins and ends."""
    partition = Partition("t", 1)
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", **SAYS_NOTHING})
    for _ in range(6):
        producer.produce("t", b"x", partition=1)
    assert producer.flush(10) == 0

    def offset(of: OffsetSpec) -> int:
        return int(admin.list_offsets({partition: of})[partition].result(10).offset)

    assert (offset(OffsetSpec.earliest()), offset(OffsetSpec.latest())) == (0, 6)
    deleted = admin.delete_records([Partition("t", 1, 4)])[partition].result(10)
    assert deleted.low_watermark == 4
    assert (offset(OffsetSpec.earliest()), offset(OffsetSpec.latest())) == (4, 6)
    with pytest.raises(KafkaException) as refused:
        admin.delete_records([Partition("t", 1, 7)])[partition].result(10)
    assert refused.value.args[0].code() == KafkaError.OFFSET_OUT_OF_RANGE


def throttled(admin: AdminClient) -> None:
    """The throttle of a reassignment, which tools set before it and remove after it (KIP-73)."""
    topic, rate = "leader.replication.throttled.replicas", "leader.replication.throttled.rate"
    named = {topic: ConfigResource(ResourceType.TOPIC, "t"), rate: ConfigResource(ResourceType.BROKER, "2")}

    def seen(name: str) -> tuple[Any, int]:
        setting = admin.describe_configs([named[name]])[named[name]].result(10)[name]
        assert not setting.is_read_only
        return setting.value, setting.source

    def alter(operation: AlterConfigOpType) -> None:
        for name, value in ((topic, "0:1,1:2"), (rate, "1000")):
            resource = ConfigResource(
                named[name].restype,
                named[name].name,
                incremental_configs=[ConfigEntry(name, value, incremental_operation=operation)],
            )
            admin.incremental_alter_configs([resource])[resource].result(10)

    alter(AlterConfigOpType.SET)
    eventually(lambda: seen(topic), ("0:1,1:2", ConfigSource.DYNAMIC_TOPIC_CONFIG.value))
    eventually(lambda: seen(rate), ("1000", ConfigSource.DYNAMIC_BROKER_CONFIG.value))
    alter(AlterConfigOpType.DELETE)
    eventually(lambda: seen(topic), ("", ConfigSource.DEFAULT_CONFIG.value))
    eventually(lambda: seen(rate), (str(2**63 - 1), ConfigSource.DEFAULT_CONFIG.value))
    fetchers = ConfigEntry("num.replica.fetchers", "2", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.BROKER, "2", incremental_configs=[fetchers])
    with pytest.raises(KafkaException) as refused:
        admin.incremental_alter_configs([resource])[resource].result(10)
    assert refused.value.args[0].code() == KafkaError.INVALID_REQUEST
    assert refused.value.args[0].str().startswith("num.replica.fetchers is read-only: ")


def with_kafka_python(bootstrap: str) -> None:
    admin = KafkaAdminClient(bootstrap_servers=bootstrap.split(","))
    try:
        assert len(admin.describe_cluster()["brokers"]) == 3
        admin.create_topics({"t": {"assignments": {0: [1, 2]}}})
        partition = TopicPartition("t", 0)

        def replicas() -> list[int]:
            (topic,) = admin.describe_topics(["t"])
            return [*topic["partitions"][0]["replica_nodes"]] if topic["partitions"] else []

        eventually(replicas, [1, 2])
        logs = admin.describe_log_dirs()
        assert "t" in str(logs)
        assert admin.alter_partition_reassignments({partition: [3, 2]}) == {partition: None}
        eventually(lambda: admin.list_partition_reassignments(), {})
        eventually(replicas, [3, 2])
        (refused,) = admin.alter_partition_reassignments({partition: [7]}).values()
        assert refused is not None
        admin.delete_topics(["t"])
        eventually(lambda: "t" in admin.list_topics(), False)
    finally:
        admin.close()


@pytest.mark.parametrize("client", [with_librdkafka, with_kafka_python])
def test_an_administrators_day(tmp_path: Path, client: Callable[[str], None]) -> None:
    async def scenario() -> None:
        cluster: LocalCluster
        async with local_cluster(tmp_path) as cluster:
            await asyncio.wait_for(asyncio.to_thread(client, cluster.bootstrap), 60)

    asyncio.run(scenario())


# -- answers in every version -----------------------------------------------------------------------------------


def image() -> MetadataImage:
    """Broker 2 is fenced."""
    brokers = {b: BrokerRegistration(b, b, None, Address("h", 9092), "r", b == 2, False) for b in (1, 2, 3)}
    return MetadataImage(brokers=brokers)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_describe_cluster(version: int) -> None:
    schema = wire.request_schema(60, version)
    answer = describe.describe_cluster(image(), "c", 3, schema(**_filled(schema)))
    assert wire.encode_response(answer, 1)
    assert [b.broker_id for b in answer.brokers] == [1, 3]  # type: ignore[attr-defined]
    if version == 2:
        answer = describe.describe_cluster(image(), "c", 3, schema(**_filled(schema, include_fenced_brokers=True)))
        assert [(b.broker_id, b.is_fenced) for b in answer.brokers] == [  # type: ignore[attr-defined]
            (1, False),
            (2, True),
            (3, False),
        ]
    for kind, error in ((2, "mismatched_endpoint_type"), (5, "unsupported_endpoint_type")):
        if version:
            answer = describe.describe_cluster(image(), "c", 3, schema(**_filled(schema, endpoint_type=kind)))
            assert answer.error_code.name == error and not answer.brokers  # type: ignore[attr-defined]


@pytest.mark.parametrize("version", [1, 2, 3, 4])
def test_describe_configs(version: int) -> None:
    schema = wire.request_schema(32, version)
    settings = config(min_insync_replicas="2")

    def ask(kind: int, name: str, *keys: str, times: int = 1) -> Any:
        module: Any = sys.modules[schema.__module__]
        resource = module.DescribeConfigsResource(
            resource_type=kind, resource_name=name, configuration_keys=keys or None
        )
        answer: Any = describe_configs.describe_configs(image(), settings, schema(resources=(resource,) * times))
        assert wire.encode_response(answer, 1)
        return answer.results[0]

    assert {c.name: c.value for c in ask(4, "1", "min.insync.replicas", "delete.topic.enable").configs} == {
        "min.insync.replicas": "2",
        "delete.topic.enable": "true",
    }
    sources = {c.name: c.config_source for c in ask(4, "1").configs}
    assert (sources["min.insync.replicas"], sources["num.partitions"]) == (4, 5)
    assert not {"node.id", "listeners"} & sources.keys()
    assert ask(4, "2").error_code.name == "invalid_request"
    assert ask(2, "t").error_code.name == "unknown_topic_or_partition"
    assert ask(8, "x").error_code.name == "invalid_request"
    assert not ask(4, "").configs
    assert ask(4, "1", times=2).error_code.name == "invalid_request", "an answer as long as anybody likes"


def _filled(schema: Any, **values: Any) -> dict[str, Any]:
    required = {"include_cluster_authorized_operations": False, "include_fenced_brokers": False}
    return {k: v for k, v in {**required, **values}.items() if k in schema.__dataclass_fields__}


@pytest.mark.parametrize("version", [1, 2, 3, 4])
def test_describe_log_dirs(version: int) -> None:
    schema = wire.request_schema(35, version)
    module: Any = sys.modules[schema.__module__]
    partitions: Any = {
        (topic, index): SimpleNamespace(topic=topic, index=index, log=SimpleNamespace(size=10 * index))
        for topic, index in (("t", 1), ("t", 2), ("u", 7))
    }

    def ask(topics: Any) -> dict[tuple[str, int], int]:
        answer: Any = asyncio.run(describe_log_dirs("/data", partitions, schema(topics=topics)))
        assert wire.encode_response(answer, 1)
        (directory,) = answer.results
        assert directory.log_dir == "/data"
        sizes = [
            ((t.name, int(p.partition_index)), int(p.partition_size)) for t in directory.topics for p in t.partitions
        ]
        assert len(sizes) == len(dict(sizes)), "each once"
        return dict(sizes)

    def named(topic: str, *indexes: int) -> Any:
        return module.DescribableLogDirTopic(topic=topic, partitions=indexes)

    assert ask(None) == {("t", 1): 10, ("t", 2): 20, ("u", 7): 70}
    assert ask((named("t", 2, 2, 9), named("t", 2), named("v", 1))) == {("t", 2): 20}
    assert ask(()) == {}
