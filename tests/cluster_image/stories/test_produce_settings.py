"""What a topic's settings and a producer's acks change: flushes by time, the largest batch, and errors of acks=0."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from kio.schema.create_topics.v7.request import CreatableTopic as Topic
from kio.schema.create_topics.v7.request import CreatableTopicConfig, CreateTopicsRequest
from kio.schema.errors import ErrorCode
from kio.schema.types import TopicName
from kio.static.primitive import i16, i32

from cluster_image.network import Address
from cluster_image.storage.records import build_batch
from cluster_image.wire.messages import milliseconds
from tests.cluster_image.stories.script import PATIENCE_S, TOPIC, Script, tell
from workloads.clients.kio import requests

REPLICAS = (1, 2, 3)


async def create(s: Script, name: str, **configs: str) -> None:
    settings = tuple(CreatableTopicConfig(name=k.replace("_", "."), value=v) for k, v in configs.items())
    topic = Topic(
        name=TopicName(name), num_partitions=i32(1), replication_factor=i16(3), assignments=(), configs=settings
    )
    answer = await s._ask(1, CreateTopicsRequest(topics=(topic,), timeout=milliseconds(5000)))
    assert answer.topics[0].error_code is ErrorCode.none, answer
    await s.until(lambda: all(replica(s, broker, name) is not None for broker in REPLICAS))


def replica(s: Script, broker: int, topic: str) -> Any:
    running: Any = s._node(broker).running
    return next((p for p in running.broker.partitions.values() if p.topic == topic), None)


def leader_of(s: Script, topic: str) -> int:
    leader: int = replica(s, 1, topic).leader
    return leader


async def produce(s: Script, topic: str, size: int = 1, acks: str = "all") -> ErrorCode:
    batch = build_batch([bytes(size)], timestamp_ms=0)
    answer = await s._ask(leader_of(s, topic), requests.produce_request(topic, {0: batch}, requests.ACKS[acks], 5.0))
    error: ErrorCode = requests.produce_answers(answer)[0].error
    return error


@pytest.mark.parametrize("interval_ms", [20, 150, 700])
def test_flush_ms_is_kept_to_the_millisecond(interval_ms: int) -> None:
    """A record is durable so long after it was written at the latest, plus what a sync takes."""

    async def story(s: Script) -> None:
        await create(s, "timed", flush_ms=str(interval_ms))
        await create(s, "lazy")
        loop = asyncio.get_running_loop()
        logs = [replica(s, broker, "timed").log for broker in REPLICAS]
        waits = []
        for number in range(5):
            assert await produce(s, "timed") is await produce(s, "lazy") is ErrorCode.none
            written = loop.time()
            await s.until(lambda: all(log.flushed_offset == log.end_offset for log in logs))
            waits.append((loop.time() - written) * 1000)
            await s.passing(0.013 + 0.004 * number)  # at different times between two syncs
        assert interval_ms / 4 < max(waits) <= interval_ms + 70, waits
        assert all(replica(s, broker, "lazy").log.flushed_offset == 0 for broker in REPLICAS)

    assert tell(story, REPLICAS, 2).violation is None


def test_a_topics_own_largest_batch_counts() -> None:
    async def story(s: Script) -> None:
        await create(s, "large", max_message_bytes="5000")
        await create(s, "small", max_message_bytes="500")
        sizes = {
            (topic, size): (await produce(s, topic, size)).name
            for topic in ("large", "small", TOPIC)
            for size in (400, 1500, 6000)
        }
        refused = {key for key, error in sizes.items() if error == "message_too_large"}
        assert refused == {("large", 6000), ("small", 1500), ("small", 6000), (TOPIC, 1500), (TOPIC, 6000)}
        assert {sizes[key] for key in sizes.keys() - refused} == {"none"}

    assert tell(story, REPLICAS, 2, settings={"message.max.bytes": "1000"}).violation is None


@pytest.mark.parametrize("where", ["leader", "follower", "unknown topic"])
def test_acks_0_that_fails_closes_the_connection(where: str) -> None:
    async def story(s: Script) -> None:
        address = Address(*s._node(2 if where == "follower" else s.leader).address)
        connection = await s._clients.connect(address, client_id="producer", timeout=PATIENCE_S)
        topic = "nobody's" if where == "unknown topic" else TOPIC
        batch = build_batch([b"x"], timestamp_ms=0)
        await connection.request(requests.produce_request(topic, {0: batch}, 0, 5.0), timeout=5.0)
        await s.passing(0.5)
        assert connection.closed == (where != "leader")
        connection.close()
        if where == "leader":
            assert await s.read() == ["x"]

    assert tell(story, REPLICAS, 2).violation is None
