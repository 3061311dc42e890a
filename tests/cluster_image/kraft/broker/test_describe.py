"""DescribeTopicPartitions, page by page, and DescribeQuorum when the controller is out of reach."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from random import Random
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.describe_topic_partitions.v0.request import Cursor, DescribeTopicPartitionsRequest, TopicRequest
from kio.schema.errors import ErrorCode
from kio.schema.list_offsets.v7.request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kio.schema.metadata.v12.request import MetadataRequest, MetadataRequestTopic

from cluster_image.kraft.broker.api import BrokerApi
from cluster_image.kraft.broker.handlers.describe_quorum import describe_quorum
from cluster_image.kraft.metadata.image import BrokerRegistration, MetadataImage, PartitionRegistration, Topic
from cluster_image.kraft.raft import rpc
from cluster_image.network import Address, Peer
from cluster_image.replication.answers.describe import describe_topic_partitions
from cluster_image.replication.answers.metadata import STARTING_S
from cluster_image.replication.quotas import ReplicationQuotas
from tests.cluster_image.kraft.broker.test_partition import config


def image(**partitions: int) -> MetadataImage:
    """With topics of so many partitions, on brokers 1 to 3, of which 3 is fenced and 4 has gone."""
    made = MetadataImage()
    for broker in (1, 2, 3):
        made.brokers[broker] = BrokerRegistration(broker, 1, None, Address("h", broker), None, broker == 3, False)
    for number, (name, count) in enumerate(partitions.items(), 1):
        topic = Topic(name, UUID(int=number))
        for index in range(count):
            topic.partitions[index] = PartitionRegistration(
                topic.id, name, index, (1, 3, 4), (1,), 1 if index else -1, 7, 9, elr=(3,), last_known_elr=(4,)
            )
        made.topics[name] = made.topics_by_id[topic.id] = topic
    return made


def ask(of: MetadataImage, *names: str, limit: int = 2000, cursor: tuple[str, int] | None = None) -> Any:
    request = DescribeTopicPartitionsRequest(
        topics=tuple(TopicRequest(name=name) for name in names),
        response_partition_limit=limit,
        cursor=None if cursor is None else Cursor(topic_name=cursor[0], partition_index=cursor[1]),
    )
    return asyncio.run(describe_topic_partitions(of, request))


def test_a_partition_is_shown_with_all_its_replica_sets() -> None:
    (topic,) = ask(image(t=2)).topics
    first, second = topic.partitions
    assert (first.error_code, first.leader_id) == (ErrorCode.leader_not_available, -1)
    assert (second.error_code, second.leader_id, second.leader_epoch) == (ErrorCode.none, 1, 7)
    assert (second.replica_nodes, second.isr_nodes, second.offline_replicas) == ((1, 3, 4), (1,), (3, 4))
    assert (second.eligible_leader_replicas, second.last_known_elr) == ((3,), (4,))


def test_an_unknown_topic_is_told_only_if_it_was_named() -> None:
    answer = ask(image(b=1, d=1), "d", "c", "d")
    assert [(t.name, t.error_code.name) for t in answer.topics] == [("c", "unknown_topic_or_partition"), ("d", "none")]
    assert [t.name for t in ask(image(b=1, d=1), cursor=("c", 0)).topics] == ["d"]


@given(st.lists(st.integers(0, 6), min_size=1, max_size=4), st.integers(1, 7))
def test_pages_together_are_everything_once(counts: list[int], limit: int) -> None:
    of = image(**{f"t{number}": count for number, count in enumerate(counts)})
    found: list[tuple[str, int]] = []
    cursor = None
    while True:
        answer = ask(of, limit=limit, cursor=cursor)
        page = [(t.name, p.partition_index) for t in answer.topics for p in t.partitions]
        assert len(page) <= limit
        found += page
        if answer.next_cursor is None:
            break
        assert len(page) == limit
        cursor = (answer.next_cursor.topic_name, answer.next_cursor.partition_index)
    assert found == [(f"t{number}", index) for number, count in enumerate(counts) for index in range(count)]


def test_no_page_is_larger_than_the_brokers_own_limit() -> None:
    answer = ask(image(t=2500), limit=2**31 - 1)
    assert len(answer.topics[0].partitions) == answer.next_cursor.partition_index == 2000
    assert len(ask(image(t=3), limit=-5).topics[0].partitions) == 1


@pytest.mark.parametrize("error", [ConnectionError("none is known"), TimeoutError()])
def test_a_controller_out_of_reach_is_an_error_in_the_answer(error: Exception) -> None:
    async def forward(request: Any) -> Any:
        raise error

    request = rpc.DescribeQuorumRequest(topics=())
    assert asyncio.run(describe_quorum(request, forward)).error_code is ErrorCode.request_timed_out


def answered(request: Any) -> Any:
    """By a broker with topic t of 3 partitions, whose replicas are elsewhere."""
    return asyncio.run(broker(image(t=3)).handle(request, Peer(None, "h")))


def broker(known: MetadataImage) -> BrokerApi:
    replicas: Any = SimpleNamespace(get=lambda key: None, is_eligible=None, quotas=ReplicationQuotas(known, 1))
    lifecycle: Any = SimpleNamespace(holds_lease=lambda: True)
    nothing: Any = None
    return BrokerApi(config(), known, replicas, lifecycle, nothing, nothing, nothing, Random(1))


def test_a_topic_that_is_named_often_is_told_of_once() -> None:
    """Else a request of a megabyte has an answer of gigabytes."""
    named = MetadataRequestTopic(topic_id=None, name="t"), MetadataRequestTopic(topic_id=UUID(int=1), name=None)
    request = MetadataRequest(
        topics=named * 9, allow_auto_topic_creation=False, include_topic_authorized_operations=False
    )
    assert [len(t.partitions) for t in answered(request).topics] == [3, 3]


def test_who_asks_a_broker_that_has_just_started_waits_until_one_is_available() -> None:
    """librdkafka does not ask again for minutes after an answer that names no broker."""
    request = MetadataRequest(topics=(), allow_auto_topic_creation=False, include_topic_authorized_operations=False)

    async def ask() -> list[list[int]]:
        known = image()
        all_available = dict(known.brokers)
        for number in (1, 2):
            known.brokers[number] = replace(known.brokers[number], fenced=True)
        starting, peer, answers = broker(known), Peer(None, "h"), []
        loop = asyncio.get_running_loop()
        loop.call_later(0.1, known.brokers.update, all_available)
        answers.append(await starting.handle(request, peer))
        known.brokers.clear()
        began = loop.time()
        answers.append(await starting.handle(request, peer))
        assert loop.time() - began < STARTING_S / 2, "only one that has just started waits"
        return [[each.node_id for each in answer.brokers] for answer in answers]

    assert asyncio.run(ask()) == [[1, 2], []]


def test_a_partition_whose_offsets_are_asked_for_twice_is_refused() -> None:
    """As by Apache Kafka: each time may mean reading through the whole log."""
    asked = [ListOffsetsPartition(partition_index=i, current_leader_epoch=-1, timestamp=5) for i in (0, 1, 0)]
    request = ListOffsetsRequest(
        replica_id=-1, isolation_level=0, topics=(ListOffsetsTopic(name="t", partitions=tuple(asked)),)
    )
    errors = [p.error_code for p in answered(request).topics[0].partitions]
    assert errors == [ErrorCode.invalid_request, ErrorCode.not_leader_or_follower, ErrorCode.invalid_request]
