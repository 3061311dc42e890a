"""A topic is deleted, and one of its name created: brokers stop serving it, and nothing of its logs is seen again."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from kio.schema.create_topics.v7.request import CreateTopicsRequest
from kio.schema.delete_topics.v6.request import DeleteTopicsRequest, DeleteTopicState
from kio.schema.errors import ErrorCode
from kio.schema.types import TopicName

from cluster_image.wire.messages import milliseconds
from tests.cluster_image.stories.script import TOPIC, Script, assigned, tell
from workloads.clients.kio import requests

REPLICAS = (1, 2, 3)


async def delete(s: Script, through: int = 1) -> None:
    topics = (DeleteTopicState(name=TopicName(TOPIC), topic_id=None),)
    answer = await s._ask(through, DeleteTopicsRequest(topics=topics, timeout=milliseconds(5000)))
    assert answer.responses[0].error_code is ErrorCode.none


async def create(s: Script, through: int = 1) -> None:
    answer = await s._ask(through, CreateTopicsRequest(topics=(assigned(REPLICAS),), timeout=milliseconds(5000)))
    assert answer.topics[0].error_code is ErrorCode.none


def names(s: Script, broker: int) -> list[str]:
    """Of what is on its disk, the metadata log apart."""
    return [n for n in s._node(broker).disk.list("") if n.startswith(TOPIC)]


def partitions(s: Script, broker: int) -> list[Any]:
    running = s._node(broker).running
    return list(running.broker.partitions.values()) if running is not None and running.broker is not None else []


async def gone(s: Script, *brokers: int) -> None:
    await s.until(lambda: not any(partitions(s, broker) for broker in brokers))


def fetch(max_wait: int) -> Any:
    return requests.fetch_request(
        TOPIC, [requests.FetchFrom(0, 1, -1)], max_wait=max_wait, min_bytes=1, max_bytes=1 << 20,
        partition_max_bytes=1 << 20,
    )  # fmt: skip


def test_who_waits_hears_that_the_topic_is_gone_and_so_does_who_comes_later() -> None:
    async def story(s: Script) -> None:
        await s.produce("old")
        s.cut((1, 2), (2, 1), (1, 3), (3, 1))
        producer = s.send("never committed")
        await s.until(lambda: s.end_of(1) == 2)
        consumer = asyncio.create_task(s._ask(1, fetch(20)))
        await s.passing(0.1)
        await delete(s)
        assert await producer is ErrorCode.unknown_topic_or_partition
        assert requests.fetch_answers(await consumer)[0].error is ErrorCode.unknown_topic_or_partition
        assert names(s, 1) == []
        assert requests.fetch_answers(await s._ask(1, fetch(20)))[0].error is ErrorCode.unknown_topic_or_partition
        s.mend()
        await gone(s, 1, 2, 3)
        assert [names(s, broker) for broker in REPLICAS] == [[], [], []]

    assert tell(story, REPLICAS, 2).violation is None


@pytest.mark.parametrize("trouble", ["none", "killed", "power"])
def test_a_new_topic_of_the_name_has_nothing_of_the_old_one(trouble: str) -> None:
    """Not even on a broker that was down meanwhile."""

    async def story(s: Script) -> None:
        await s.produce("old 1", "old 2", "old 3")
        await s.settled()
        s.write_back(*REPLICAS)
        if trouble == "killed":
            await s.kill(3)
        elif trouble == "power":
            await s.cut_power(3)
        await delete(s)
        await create(s)
        if trouble == "killed":
            await s.start(3)
        elif trouble == "power":
            await s.restore_power(3)
        await s.until(lambda: s.leader > 0 and s.has_replica(1) and s.has_replica(2) and s.has_replica(3))
        await s.settled()
        await s.produce("new")
        await s.settled()
        assert [s.log_of(broker) for broker in REPLICAS] == [["new"]] * 3
        assert [names(s, broker) for broker in REPLICAS] == [[f"{TOPIC}-0"]] * 3
        assert await s.read() == ["new"]

    assert tell(story, REPLICAS, 2).violation is None


def test_a_broker_that_was_down_deletes_what_was_deleted_meanwhile() -> None:
    async def story(s: Script) -> None:
        await s.produce("old")
        s.write_back(3)
        await s.cut_power(3)
        await delete(s)
        await gone(s, 1, 2)
        assert names(s, 3) == [f"{TOPIC}-0"]
        await s.restore_power(3)
        await s.until(lambda: names(s, 3) == [])

    assert tell(story, REPLICAS, 2).violation is None


def test_a_replica_that_moves_away_is_deleted_and_comes_back_empty() -> None:
    async def story(s: Script) -> None:
        await s.produce("m1")
        await s.settled()
        await s.reassign(1, 2, 4)
        await s.until(lambda: s.registration.replicas == (1, 2, 4))
        await s.until(lambda: not s.has_replica(3))
        assert names(s, 3) == []
        await s.produce("m2")
        await s.reassign(1, 2, 3)
        await s.until(lambda: set(s.registration.replicas) == {1, 2, 3} and set(s.registration.isr) == {1, 2, 3})
        await s.until(lambda: s.has_replica(3) and s.end_of(3) == 2)
        assert s.log_of(3) == ["m1", "m2"]
        await s.until(lambda: names(s, 4) == [])

    assert tell(story, REPLICAS, 2, spare=1).violation is None
