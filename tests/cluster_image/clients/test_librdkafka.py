"""librdkafka, by confluent-kafka, against a cluster of three controllers and three brokers."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic

from tests.clusters.local_cluster import LocalCluster, local_cluster

PARTITIONS = 4
#: One that outlives its test would say on standard error, in the midst of another's, that the cluster is gone.
SAYS_NOTHING: dict[str, Any] = {"log_level": 0}


def create_topic(bootstrap: str, name: str = "t", **config: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, **SAYS_NOTHING})
    topic = NewTopic(name, num_partitions=PARTITIONS, replication_factor=3, config=config)
    admin.create_topics([topic], operation_timeout=10)[name].result(10)


def produce(bootstrap: str, count: int, **settings: Any) -> dict[tuple[int, int], bytes]:
    """Values by partition and offset, as acknowledged."""
    acknowledged: dict[tuple[int, int], bytes] = {}
    errors: list[KafkaError] = []

    def delivered(error: KafkaError | None, message: Any) -> None:
        if error is not None:
            errors.append(error)
        else:
            acknowledged[message.partition(), message.offset()] = message.value()

    producer = Producer({"bootstrap.servers": bootstrap, **SAYS_NOTHING, "acks": "all", **settings})
    for i in range(count):
        producer.produce("t", value=b"value-%d" % i, partition=i % PARTITIONS, on_delivery=delivered)
        producer.poll(0)
    producer.flush(20)
    assert not errors, errors
    return acknowledged


def consume(bootstrap: str, count: int) -> dict[tuple[int, int], bytes]:
    consumer = Consumer({"bootstrap.servers": bootstrap, **SAYS_NOTHING, "group.id": "g", "enable.auto.commit": False})
    consumer.assign([TopicPartition("t", p, 0) for p in range(PARTITIONS)])
    found: dict[tuple[int, int], bytes] = {}
    for _ in range(20):
        for message in consumer.consume(num_messages=count, timeout=1.0):
            if message.error() is not None and message.error().code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
                continue  # librdkafka looks for the group's coordinator, whether it is needed or not
            assert message.error() is None
            found[message.partition(), message.offset()] = message.value()
        if len(found) >= count:
            break
    consumer.close()
    return found


async def in_thread(cluster: LocalCluster, function: Any, *args: Any, **kwargs: Any) -> Any:
    return await asyncio.wait_for(asyncio.to_thread(function, cluster.bootstrap, *args, **kwargs), 60)


@pytest.mark.parametrize(
    "settings",
    [{}, {"enable.idempotence": True}, {"compression.type": "gzip", "linger.ms": 50}, {"acks": "1"}],
    ids=["acks all", "idempotent", "compressed", "acks 1"],
)
def test_what_is_produced_is_consumed(tmp_path: Path, settings: dict[str, Any]) -> None:
    async def scenario() -> None:
        async with local_cluster(tmp_path) as cluster:
            await in_thread(cluster, create_topic)
            acknowledged = await in_thread(cluster, produce, 1000, **settings)
            assert len(acknowledged) == 1000
            assert await in_thread(cluster, consume, 1000) == acknowledged

    asyncio.run(scenario())


def test_a_subscription_is_refused_at_once_and_says_why(tmp_path: Path) -> None:
    """Without an answer it waits for the group's coordinator for ever, and says nothing."""

    def subscribe(bootstrap: str) -> KafkaError:
        consumer = Consumer({"bootstrap.servers": bootstrap, **SAYS_NOTHING, "group.id": "g"})
        consumer.subscribe(["t"])
        try:
            message = consumer.poll(10)
            assert message is not None, "it waits"
            return message.error()
        finally:
            consumer.close()

    async def scenario() -> None:
        async with local_cluster(tmp_path) as cluster:
            await in_thread(cluster, create_topic)
            error = await in_thread(cluster, subscribe)
            assert error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED
            assert "there are no groups here: assign partitions instead" in error.str()

    asyncio.run(scenario())


def test_a_topic_is_made_for_who_asks_for_it_where_that_is_on(tmp_path: Path) -> None:
    def ask(bootstrap: str) -> int:
        """Partitions of a topic that nobody has made; 0 if it is not there after a while."""
        producer = Producer({"bootstrap.servers": bootstrap, **SAYS_NOTHING, "allow.auto.create.topics": True})
        for _ in range(20):
            if partitions := producer.list_topics("asked-for", timeout=5).topics["asked-for"].partitions:
                return len(partitions)
            time.sleep(0.1)
        return 0

    async def scenario(enabled: str) -> int:
        settings = {"auto.create.topics.enable": enabled, "num.partitions": "5"}
        async with local_cluster(tmp_path / enabled, **settings) as cluster:
            found: int = await in_thread(cluster, ask)
            return found

    assert asyncio.run(scenario("true")) == 5
    assert asyncio.run(scenario("false")) == 0


def test_settings_of_a_topic_are_changed_while_it_is_written_to(tmp_path: Path) -> None:
    def change(bootstrap: str, name: str, value: str) -> None:
        admin = AdminClient({"bootstrap.servers": bootstrap, **SAYS_NOTHING})
        entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ConfigResource.Type.TOPIC, "t", incremental_configs=[entry])
        admin.incremental_alter_configs([resource])[resource].result(10)

    def listed(bootstrap: str) -> dict[str, str]:
        admin = AdminClient({"bootstrap.servers": bootstrap, **SAYS_NOTHING})
        resource = ConfigResource(ConfigResource.Type.TOPIC, "t")
        entries = admin.describe_configs([resource])[resource].result(10)
        return {name: entry.value for name, entry in entries.items()}

    async def scenario() -> None:
        async with local_cluster(tmp_path) as cluster:
            await in_thread(cluster, create_topic)
            await cluster.stop(2)
            await cluster.stop(3)
            with pytest.raises(AssertionError, match=r"NOT_ENOUGH_REPLICAS|TIMED_OUT"):
                await in_thread(cluster, produce, 4, **{"message.timeout.ms": 2000})
            await in_thread(cluster, change, "min.insync.replicas", "1")
            assert len(await in_thread(cluster, produce, 4)) == 4
            assert (await in_thread(cluster, listed))["min.insync.replicas"] == "1"
            with pytest.raises(KafkaException) as refused:
                await in_thread(cluster, change, "min.insync.replicas", "0")
            assert refused.value.args[0].code() == KafkaError.INVALID_CONFIG

    asyncio.run(scenario())


def test_records_survive_a_rolling_restart(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with local_cluster(tmp_path) as cluster:
            await in_thread(cluster, create_topic)
            acknowledged = await in_thread(cluster, produce, 300)
            for node in (1, 2, 3, 101, 102, 103):
                await cluster.stop(node)
                acknowledged |= await in_thread(cluster, produce, 40)
                await cluster.start(node)
            assert len(acknowledged) == 300 + 6 * 40
            assert await in_thread(cluster, consume, len(acknowledged)) == acknowledged

    asyncio.run(scenario())


def test_a_topic_that_exists_is_refused_by_name(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with local_cluster(tmp_path) as cluster:
            await in_thread(cluster, create_topic)
            with pytest.raises(KafkaException) as refused:
                await in_thread(cluster, create_topic)
            assert refused.value.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS
            with pytest.raises(KafkaException) as invalid:
                await in_thread(cluster, create_topic, "u", **{"min.insync.replicas": "none"})
            assert invalid.value.args[0].code() == KafkaError.INVALID_CONFIG

    asyncio.run(scenario())
