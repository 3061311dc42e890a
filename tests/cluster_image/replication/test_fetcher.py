"""Fetchers: which has which partition, and what their requests say within a session and after one is lost."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode
from kio.schema.fetch.v17.response import FetchableTopicResponse, FetchResponse, PartitionData

from cluster_image.kraft.metadata.records import PartitionRecord
from cluster_image.replication.fetcher import fetcher_of
from cluster_image.replication.log_manager import LogManager
from cluster_image.wire.messages import NO_THROTTLE
from tests.cluster_image.kraft.broker.test_partition import TOPIC, config, leaders_batch
from tests.cluster_image.protocol.replication.broker import Broker, Link, living

SESSION = 5


def answer(link: Link, *partitions: PartitionData, error: ErrorCode = ErrorCode.none, session: int = SESSION) -> None:
    topics = (FetchableTopicResponse(topic_id=TOPIC, partitions=partitions),) if partitions else ()
    response = FetchResponse(throttle_time=NO_THROTTLE, error_code=error, session_id=session, responses=topics)
    assert link._answer is not None
    link._answer.set_result(response)


def data(index: int, records: bytes = b"", error: ErrorCode = ErrorCode.none, watermark: int = 0) -> PartitionData:
    return PartitionData(
        partition_index=index,
        error_code=error,
        high_watermark=watermark,
        log_start_offset=0,
        records=records,
        aborted_transactions=None,
    )


async def next_request(link: Link, after: Any = None) -> Any:
    for _ in range(1000):
        if link.asked is not None and link.asked is not after:
            return link.asked
        await asyncio.sleep(0.001)
    raise AssertionError("nothing is asked")


def said(request: Any) -> tuple[int, int, dict[int, int], list[int]]:
    """Session id and epoch, the offset asked for of each partition named, and those to forget."""
    asked = {int(p.partition): int(p.fetch_offset) for t in request.topics for p in t.partitions}
    forgotten = [int(p) for t in request.forgotten_topics_data for p in t.partitions]
    return int(request.session_id), int(request.session_epoch), asked, forgotten


async def in_session(broker: Broker, partitions: int = 2) -> tuple[Link, Any]:
    """A fetcher whose first request has been answered, and what it asked next."""
    for index in range(partitions):
        broker.create(index, leader=2)
    while not broker.links:
        await asyncio.sleep(0.001)
    first = await next_request(broker.links[0])
    assert said(first) == (0, 0, dict.fromkeys(range(partitions), 0), [])
    answer(broker.links[0], *(data(index) for index in range(partitions)))
    return broker.links[0], await next_request(broker.links[0], first)


def test_partitions_of_a_topic_take_turns() -> None:
    numbers = [fetcher_of((UUID(int=12345), index), 3) for index in range(6)]
    assert sorted(numbers[:3]) == [0, 1, 2] and numbers[3:] == numbers[:3]


def test_each_fetcher_asks_for_its_share() -> None:
    async def story(broker: Broker) -> None:
        for index in range(4):
            broker.create(index, leader=2)
        links = await broker.settled()
        shares = [sorted(said(link.sent[0])[2]) for link in links]
        assert sorted(shares) == [[0, 2], [1, 3]]

    living(story, num_replica_fetchers="2")


def test_in_a_session_only_what_has_changed_is_said() -> None:
    async def story(broker: Broker) -> None:
        link, request = await in_session(broker)
        assert said(request) == (SESSION, 1, {}, [])
        answer(link, data(1, leaders_batch(0, 0), watermark=1))
        request = await next_request(link, request)
        assert said(request) == (SESSION, 2, {1: 1}, [])
        assert broker.manager.partitions[TOPIC, 1].log.end_offset == 1
        broker.change(0, {"leader": 3})
        answer(link)
        assert said(await next_request(link, request)) == (SESSION, 3, {}, [0])

    living(story)


def test_where_a_log_begins_anew_is_on_disk_before_its_leader_hears_what_it_holds() -> None:
    async def story(broker: Broker) -> None:
        link, request = await in_session(broker, partitions=1)
        answer(link, replace(data(0, error=ErrorCode.offset_out_of_range), log_start_offset=7))
        request = await next_request(link, request)
        while not said(request)[2]:  # it waits a little after an error
            answer(link)
            request = await next_request(link, request)
        assert said(request)[2] == {0: 7}
        again = LogManager(config(), broker.disk)
        again.load()
        found = again.get("t", TOPIC, 0, config())
        assert (found.start_offset, found.lacks_from) == (7, None)

    living(story)


def test_a_new_leader_epoch_is_said_though_nothing_else_has_changed() -> None:
    async def story(broker: Broker) -> None:
        link, request = await in_session(broker)
        broker.change(0, {"leader": 2})
        answer(link)
        request = await next_request(link, request)
        assert said(request) == (SESSION, 2, {0: 0}, [])
        assert request.topics[0].partitions[0].current_leader_epoch == 1

    living(story)


def test_the_only_partition_of_a_leader_is_asked_for_anew_at_once_in_a_new_leader_epoch() -> None:
    """The request of the epoch before may wait at a process that is gone, and is given up. That is no error to wait
    after: the leader commits nothing before this follower's next fetch."""

    async def story(broker: Broker) -> None:
        link, _ = await in_session(broker, 1)
        broker.change(0, {"leader": 2})
        while len(broker.links) < 2:
            await asyncio.sleep(0.001)
        assert link.closed
        request = await next_request(broker.links[1])
        assert said(request) == (SESSION, 0, {0: 0}, [])
        assert request.topics[0].partitions[0].current_leader_epoch == 1
        broker.links[1].close()  # this one is an error
        await asyncio.sleep(0.2)
        assert len(broker.links) == 2

    async def in_time(broker: Broker) -> None:
        async with asyncio.timeout(10):
            await story(broker)

    living(in_time, replica_fetch_backoff_ms="60000")


def test_a_partition_in_error_is_left_out_for_a_while() -> None:
    async def story(broker: Broker) -> None:
        link, request = await in_session(broker)
        answer(link, data(0, error=ErrorCode.not_leader_or_follower))
        request = await next_request(link, request)
        assert said(request) == (SESSION, 2, {}, [0])
        await asyncio.sleep(0.15)
        answer(link)
        assert said(await next_request(link, request)) == (SESSION, 3, {0: 0}, [])

    living(story, replica_fetch_backoff_ms="100")


@pytest.mark.parametrize(
    ("error", "session"),
    [(ErrorCode.fetch_session_id_not_found, 0), (ErrorCode.invalid_fetch_session_epoch, SESSION)],
)
def test_after_a_session_error_everything_is_said_again_at_once(error: ErrorCode, session: int) -> None:
    """And the session is ended that may still be there."""

    async def story(broker: Broker) -> None:
        link, request = await in_session(broker)
        answer(link, error=error, session=0)
        request = await next_request(link, request)
        assert said(request) == (session, 0, {0: 0, 1: 0}, [])
        answer(link, session=6)
        assert said(await next_request(link, request)) == (6, 1, {}, [])

    living(story, replica_fetch_backoff_ms="60000")


def test_a_partition_whose_end_its_leader_no_longer_has_is_asked_for_from_the_leaders_start() -> None:
    async def story(broker: Broker) -> None:
        link, request = await in_session(broker, 1)
        answer(link, replace(data(0, error=ErrorCode.offset_out_of_range), log_start_offset=7))
        while (request := await next_request(link, request)) and said(request)[2] != {0: 7}:
            answer(link)
        log = broker.manager.partitions[TOPIC, 0].log
        assert (log.start_offset, log.end_offset) == (7, 7)

    living(story, session=SESSION)


def test_after_a_lost_connection_everything_is_said_again() -> None:
    async def story(broker: Broker) -> None:
        link, _ = await in_session(broker)
        link.close()
        while len(broker.links) < 2:
            await asyncio.sleep(0.001)
        assert said(await next_request(broker.links[1])) == (SESSION, 0, {0: 0, 1: 0}, [])

    living(story)


def test_a_connection_that_nobody_answers_is_tried_anew_long_before_a_fetch_would_be() -> None:
    """The leader is cut off: TCP begins its connection again after 1, 3, 7 and 15 s, and is not yet there long after
    the leader can be reached again."""

    async def story(broker: Broker) -> None:
        connect, patience = broker.connect, []

        async def first_in_vain(address: Any, *, timeout: float, **of: Any) -> Link:
            patience.append(timeout)
            if len(patience) == 1:
                raise TimeoutError
            return await connect(address, **of)

        broker.connect = first_in_vain  # type: ignore[method-assign,assignment]
        broker.create(0, leader=2)
        while not broker.links:
            await asyncio.sleep(0.001)
        assert said(await next_request(broker.links[0])) == (0, 0, {0: 0}, [])
        assert patience == [0.7, 0.7]

    living(story, replica_socket_timeout_ms="30000", socket_connection_setup_timeout_ms="700")


def test_without_a_session_everything_is_said_each_time() -> None:
    async def story(broker: Broker) -> None:
        broker.create(0, leader=2)
        while not broker.links:
            await asyncio.sleep(0.001)
        link = broker.links[0]
        first = await next_request(link)
        answer(link, data(0), session=0)
        assert said(await next_request(link, first)) == (0, 0, {0: 0}, [])

    living(story)


def test_a_broker_that_has_stopped_follows_nobody_any_more() -> None:
    """Its logs are closed, and a file says that all in them is on the disk: the metadata must not begin anything."""

    async def story(broker: Broker) -> None:
        partition = broker.create(0, leader=2)
        await broker.settled()
        broker.manager.stop()
        broker.manager.close_cleanly(77)
        broker.change(0, {"leader": 3})
        assert await broker.settled() == [] and {link.leader for link in broker.links} == {2}
        assert partition.leader == 2
        broker.manager.apply(broker.replay(PartitionRecord(
            partition_id=1, topic_id=TOPIC, replicas=(1, 2), isr=(1, 2), leader=2
        )))  # fmt: skip
        assert list(broker.manager.partitions) == [(TOPIC, 0)]

    living(story)
