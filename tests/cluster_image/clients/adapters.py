"""Four Kafka clients behind one face: librdkafka (by confluent-kafka, and by kcat), kafka-python and aiokafka.

Each adapter does with its client what users do: produce with acks=all, consume by assignment, list offsets, create and
delete topics, describe the cluster. kcat has no way to create or delete a topic.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import confluent_kafka
import kafka
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioTopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin import NewTopic as AioNewTopic
from confluent_kafka import admin as confluent_admin
from kafka import admin as python_admin

PATIENCE_S = 30
_NO_GROUPS = confluent_kafka.KafkaError.GROUP_AUTHORIZATION_FAILED

Records = Mapping[tuple[int, int], bytes]  # values by partition and offset
Offsets = Mapping[int, tuple[int, int]]  # first and next offset by partition


class Described(NamedTuple):
    brokers: Sequence[int]
    controller: int


class Client(Protocol):
    """bootstrap: `host:port,…`. Every method opens a client of its own and closes it."""

    def __init__(self, bootstrap: str) -> None: ...

    def produce(self, topic: str, values: Mapping[int, Sequence[bytes]]) -> Records:
        """Values by partition. Returns where they were acknowledged to stand."""

    def consume(self, topic: str, count: int) -> Records:
        """The first `count` records that assignment to all partitions, from their start, brings."""

    def offsets(self, topic: str) -> Offsets: ...

    def create(self, topic: str, partitions: int) -> None: ...

    def delete(self, topic: str) -> None: ...

    def topics(self) -> Sequence[str]: ...

    def describe(self) -> Described: ...


class Confluent:
    """librdkafka by confluent-kafka."""

    def __init__(self, bootstrap: str, patience_s: float = PATIENCE_S) -> None:
        self._patience_s = patience_s
        self._settings = {"bootstrap.servers": bootstrap}
        self._admin = confluent_admin.AdminClient(self._settings)

    def produce(self, topic: str, values: Mapping[int, Sequence[bytes]]) -> Records:
        acknowledged: dict[tuple[int, int], bytes] = {}
        errors: list[Any] = []

        def delivered(error: Any, message: Any) -> None:
            if error is not None:
                errors.append(error)
            else:
                acknowledged[message.partition(), message.offset()] = message.value()

        producer = confluent_kafka.Producer({**self._settings, "acks": "all", "enable.idempotence": True})
        for partition, batch in values.items():
            for value in batch:
                producer.produce(topic, value=value, partition=partition, on_delivery=delivered)
        producer.flush(PATIENCE_S)
        assert not errors, errors
        return acknowledged

    def consume(self, topic: str, count: int) -> Records:
        consumer = confluent_kafka.Consumer({**self._settings, "group.id": "unused", "enable.auto.commit": False})
        consumer.assign([confluent_kafka.TopicPartition(topic, p, 0) for p in self._partitions(topic)])
        found: dict[tuple[int, int], bytes] = {}
        for _ in range(PATIENCE_S):
            for message in consumer.consume(num_messages=count, timeout=1.0):
                if (error := message.error()) is not None and error.code() == _NO_GROUPS:
                    continue  # librdkafka looks for the group's coordinator, whether it is needed or not
                assert error is None, error
                found[message.partition(), message.offset()] = message.value()
            if len(found) >= count:
                break
        consumer.close()
        return found

    def offsets(self, topic: str) -> Offsets:
        consumer = confluent_kafka.Consumer({**self._settings, "group.id": "unused"})
        found = {
            p: consumer.get_watermark_offsets(confluent_kafka.TopicPartition(topic, p), timeout=PATIENCE_S)
            for p in self._partitions(topic)
        }
        consumer.close()
        return found

    def create(self, topic: str, partitions: int) -> None:
        new = confluent_admin.NewTopic(topic, num_partitions=partitions, replication_factor=3)
        self._admin.create_topics([new], operation_timeout=PATIENCE_S)[topic].result(PATIENCE_S)

    def delete(self, topic: str) -> None:
        self._admin.delete_topics([topic], operation_timeout=PATIENCE_S)[topic].result(PATIENCE_S)

    def topics(self) -> Sequence[str]:
        return sorted(self._admin.list_topics(timeout=PATIENCE_S).topics)

    def describe(self) -> Described:
        cluster = self._admin.describe_cluster(request_timeout=self._patience_s).result(self._patience_s)
        return Described(sorted(node.id for node in cluster.nodes), cluster.controller.id)

    def _partitions(self, topic: str) -> Sequence[int]:
        return sorted(self._admin.list_topics(topic, timeout=PATIENCE_S).topics[topic].partitions)


class Kcat:
    """librdkafka by kcat, a process a call."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    def produce(self, topic: str, values: Mapping[int, Sequence[bytes]]) -> Records:
        """kcat exits with an error unless all are acknowledged, but does not tell the offsets."""
        before = self.offsets(topic)
        acknowledged = {}
        for partition, batch in values.items():
            self._run("-P", "-t", topic, "-p", str(partition), "-X", "acks=all", given=b"\n".join(batch))
            start = before[partition][1]
            acknowledged |= {(partition, start + i): value for i, value in enumerate(batch)}
        return acknowledged

    def consume(self, topic: str, count: int) -> Records:
        found: dict[tuple[int, int], bytes] = {}
        for partition in self._partitions(topic):
            reported = self._run(
                "-C", "-t", topic, "-p", str(partition), "-o", "beginning", "-e", "-q", "-f", r"%o %s\n"
            )
            for line in reported.splitlines():
                offset, _, value = line.partition(b" ")
                found[partition, int(offset)] = value
        return found

    def offsets(self, topic: str) -> Offsets:
        found = {}
        for partition in self._partitions(topic):
            first, after = (
                int(self._run("-Q", "-t", f"{topic}:{partition}:{which}").split()[-1]) for which in ("-2", "-1")
            )
            found[partition] = (first, after)
        return found

    def create(self, topic: str, partitions: int) -> None:
        raise NotImplementedError

    def delete(self, topic: str) -> None:
        raise NotImplementedError

    def topics(self) -> Sequence[str]:
        return sorted(topic["topic"] for topic in self._listed()["topics"])

    def describe(self) -> Described:
        listed = self._listed()
        return Described(sorted(broker["id"] for broker in listed["brokers"]), listed["controllerid"])

    def _partitions(self, topic: str) -> Sequence[int]:
        described = next(t for t in self._listed()["topics"] if t["topic"] == topic)
        return sorted(p["partition"] for p in described["partitions"])

    def _listed(self) -> Any:
        return json.loads(self._run("-L", "-J"))

    def _run(self, *arguments: str, given: bytes = b"") -> bytes:
        done = subprocess.run(
            ["kcat", "-b", self._bootstrap, *arguments], input=given, capture_output=True, timeout=PATIENCE_S
        )
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout


class KafkaPython:
    def __init__(self, bootstrap: str) -> None:
        self._servers = bootstrap.split(",")

    def produce(self, topic: str, values: Mapping[int, Sequence[bytes]]) -> Records:
        producer = kafka.KafkaProducer(bootstrap_servers=self._servers, acks="all")
        sent = [
            (value, producer.send(topic, value=value, partition=partition))
            for partition, batch in values.items()
            for value in batch
        ]
        acknowledged = {}
        for value, future in sent:
            metadata = future.get(timeout=PATIENCE_S)
            acknowledged[metadata.partition, metadata.offset] = value
        producer.close()
        return acknowledged

    def consume(self, topic: str, count: int) -> Records:
        consumer = kafka.KafkaConsumer(bootstrap_servers=self._servers, enable_auto_commit=False)
        partitions = self._partitions(consumer, topic)
        consumer.assign(partitions)
        consumer.seek_to_beginning(*partitions)
        found: dict[tuple[int, int], bytes] = {}
        for _ in range(PATIENCE_S):
            for records in consumer.poll(timeout_ms=1000).values():
                found |= {(record.partition, record.offset): record.value for record in records}
            if len(found) >= count:
                break
        consumer.close()
        return found

    def offsets(self, topic: str) -> Offsets:
        consumer = kafka.KafkaConsumer(bootstrap_servers=self._servers)
        partitions = self._partitions(consumer, topic)
        first, after = consumer.beginning_offsets(partitions), consumer.end_offsets(partitions)
        consumer.close()
        return {p.partition: (first[p], after[p]) for p in partitions}

    def create(self, topic: str, partitions: int) -> None:
        with _closing(self._admin()) as admin:
            admin.create_topics([python_admin.NewTopic(topic, num_partitions=partitions, replication_factor=3)])

    def delete(self, topic: str) -> None:
        with _closing(self._admin()) as admin:
            admin.delete_topics([topic])

    def topics(self) -> Sequence[str]:
        with _closing(self._admin()) as admin:
            return sorted(admin.list_topics())

    def describe(self) -> Described:
        with _closing(self._admin()) as admin:
            cluster = admin.describe_cluster()
        return Described(
            sorted(int(broker.get("node_id", broker.get("broker_id"))) for broker in cluster["brokers"]),
            int(cluster["controller_id"]),
        )

    def _admin(self) -> Any:
        return python_admin.KafkaAdminClient(bootstrap_servers=self._servers)

    @staticmethod
    def _partitions(consumer: Any, topic: str) -> list[Any]:
        return [kafka.TopicPartition(topic, p) for p in sorted(consumer.partitions_for_topic(topic))]


class _closing:
    def __init__(self, closed: Any) -> None:
        self._closed = closed

    def __enter__(self) -> Any:
        return self._closed

    def __exit__(self, *_: object) -> None:
        self._closed.close()


class Aiokafka:
    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    def produce(self, topic: str, values: Mapping[int, Sequence[bytes]]) -> Records:
        async def work() -> Records:
            producer = AIOKafkaProducer(bootstrap_servers=self._bootstrap, acks="all", enable_idempotence=True)
            await producer.start()
            try:
                sent = [
                    (value, await producer.send(topic, value, partition=partition))
                    for partition, batch in values.items()
                    for value in batch
                ]
                metadata = [(value, await future) for value, future in sent]
            finally:
                await producer.stop()
            return {(m.partition, m.offset): value for value, m in metadata}

        return _run(work())

    def consume(self, topic: str, count: int) -> Records:
        async def work() -> Records:
            consumer = AIOKafkaConsumer(bootstrap_servers=self._bootstrap, enable_auto_commit=False)
            await consumer.start()
            try:
                partitions = await self._partitions(topic)
                consumer.assign(partitions)
                await consumer.seek_to_beginning(*partitions)
                found: dict[tuple[int, int], bytes] = {}
                while len(found) < count:
                    for records in (await consumer.getmany(timeout_ms=1000)).values():
                        found |= {(record.partition, record.offset): record.value for record in records}
                return found
            finally:
                await consumer.stop()

        return _run(work())

    def offsets(self, topic: str) -> Offsets:
        async def work() -> Offsets:
            consumer = AIOKafkaConsumer(bootstrap_servers=self._bootstrap)
            await consumer.start()
            try:
                partitions = await self._partitions(topic)
                first = await consumer.beginning_offsets(partitions)
                after = await consumer.end_offsets(partitions)
            finally:
                await consumer.stop()
            return {p.partition: (first[p], after[p]) for p in partitions}

        return _run(work())

    def create(self, topic: str, partitions: int) -> None:
        new = AioNewTopic(topic, num_partitions=partitions, replication_factor=3)
        answer = self._with_admin(lambda admin: admin.create_topics([new]))
        assert [error[1] for error in answer.topic_errors] == [0], answer

    def delete(self, topic: str) -> None:
        self._with_admin(lambda admin: admin.delete_topics([topic]))

    def topics(self) -> Sequence[str]:
        return sorted(self._with_admin(lambda admin: admin.list_topics()))

    def describe(self) -> Described:
        cluster = self._with_admin(lambda admin: admin.describe_cluster())
        return Described(sorted(int(b["node_id"]) for b in cluster["brokers"]), int(cluster["controller_id"]))

    async def _partitions(self, topic: str) -> list[Any]:
        admin = AIOKafkaAdminClient(bootstrap_servers=self._bootstrap)
        await admin.start()
        try:
            (described,) = await admin.describe_topics([topic])
        finally:
            await admin.close()
        return [AioTopicPartition(topic, p["partition"]) for p in described["partitions"]]

    def _with_admin(self, use: Any) -> Any:
        async def work() -> Any:
            admin = AIOKafkaAdminClient(bootstrap_servers=self._bootstrap)
            await admin.start()
            try:
                return await use(admin)
            finally:
                await admin.close()

        return _run(work())


def _run(work: Coroutine[Any, Any, Any]) -> Any:
    async def within_time() -> Any:
        async with asyncio.timeout(2 * PATIENCE_S):
            return await work

    return asyncio.run(within_time())
