"""Fetchers and fetch sessions (000, 2.2.1): who asks whom for what."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from kio.schema.fetch.v17.request import FetchPartition, FetchRequest, FetchTopic, ReplicaState

from cluster_image.wire.messages import milliseconds
from tests.cluster_image.kraft.broker.test_partition import TOPIC, leaders_batch
from tests.cluster_image.protocol.replication.broker import Broker, living
from tests.cluster_image.protocol.replication.group import Group

#: The example of figure 4: leader and followers of each partition.
FIGURE_4 = {0: (1, (1, 2, 3)), 1: (2, (2, 1, 3)), 2: (2, (2, 1, 3))}


@pytest.mark.parametrize(
    ("me", "expected"), [(1, {2: [1, 2]}), (2, {1: [0]}), (3, {1: [0], 2: [1, 2]})], ids=["b1", "b2", "b3"]
)
def test_the_sessions_of_figure_4(me: int, expected: dict[int, list[int]]) -> None:
    """With one fetcher a broker pair: b1 asks b2 for p1 and p2, b2 asks b1 for p0, b3 asks both. Nobody asks b3."""

    async def story(broker: Broker) -> None:
        for index, (leader, replicas) in FIGURE_4.items():
            broker.create(index, leader, replicas)
        links = await broker.settled()
        assert sorted(link.leader for link in links) == sorted(expected), "one request a pair of brokers"
        assert {link.leader: [p for p, _ in named(link.asked)] for link in links} == expected

    living(story, me)


@pytest.mark.parametrize("fetchers", [1, 3])
def test_a_pair_of_brokers_has_as_many_fetchers_as_configured(fetchers: int) -> None:
    """Each with its own requests and its own part of the partitions, which it keeps."""

    async def story(broker: Broker) -> None:
        for index in range(12):
            broker.create(index, leader=2 if index < 9 else 3)
        shares = []
        for _ in range(2):
            links = await broker.settled()
            of_2 = [link for link in links if link.leader == 2]
            assert Counter(link.leader for link in links) == {2: fetchers, 3: fetchers}
            shares.append(sorted([p for p, _ in named(link.asked)] for link in of_2))
        assert shares[0] == shares[1]
        assert sorted(p for share in shares[0] for p in share) == list(range(9)), "each partition has one fetcher"
        assert [len(share) for share in shares[0]] == [9 // fetchers] * fetchers

    living(story, num_replica_fetchers=str(fetchers))


def test_within_a_session_a_request_names_only_what_has_changed() -> None:
    """The follower's side: first everything, then nothing, then the one that has got a record."""

    async def story(broker: Broker) -> None:
        partitions = [broker.create(index, leader=2) for index in range(3)]
        (link,) = await broker.settled()
        assert [(r.session_id, r.session_epoch) for r in link.sent] == [(0, 0), (5, 1), (5, 2)][: len(link.sent)]
        assert [named(r) for r in link.sent] == [[(0, 0), (1, 0), (2, 0)], [], []][: len(link.sent)]
        assert len(link.sent) > 1
        before = len(link.sent)
        partitions[1].apply_fetch(0, 0, leaders_batch(0, 0), 0, None)
        await broker.settled()
        assert [(1, 1)] in [named(r) for r in link.sent[before:]]
        assert all(named(r) in ([], [(1, 1)]) for r in link.sent[before:])

    living(story, session=5)


def named(request: Any) -> list[tuple[int, int]]:
    """Partitions and offsets."""
    return sorted((int(p.partition), int(p.fetch_offset)) for t in request.topics for p in t.partitions)


def test_within_a_session_an_answer_names_only_what_is_new(tmp_path: Path) -> None:
    """The leader's side: it knows what it was asked for, and what it has told."""
    group = Group(tmp_path, (1, 2), min_isr=1)
    group.tell(1, (1,), leader_epoch=1)
    handler = group.handler(1)

    async def story() -> None:
        async def ask(session: int, epoch: int, *partitions: FetchPartition) -> Any:
            topics = (FetchTopic(topic_id=TOPIC, partitions=partitions),) if partitions else ()
            return await handler.handle(
                FetchRequest(
                    cluster_id=None, replica_state=ReplicaState(replica_id=2, replica_epoch=12), min_bytes=0,
                    max_wait=milliseconds(0), session_id=session, session_epoch=epoch, topics=topics,
                    forgotten_topics_data=(),
                )
            )  # fmt: skip

        wanted = FetchPartition(
            partition=0, current_leader_epoch=1, fetch_offset=0, last_fetched_epoch=-1, log_start_offset=0,
            partition_max_bytes=1 << 20,
        )  # fmt: skip
        first = await ask(0, 0, wanted)
        session = first.session_id
        assert session > 0 and len(first.responses) == 1, "the first tells of everything"
        assert (await ask(session, 1)).responses == ()
        group.write(1, "a", acks=1)
        reported = await ask(session, 2)
        (data,) = reported.responses[0].partitions
        assert data.records == group.partitions[1].log.read(0, 1 << 20)
        assert (await ask(session + 1, 3)).error_code is ErrorCode.fetch_session_id_not_found
        assert (await ask(session, 9)).error_code is ErrorCode.invalid_fetch_session_epoch

    asyncio.run(story())
