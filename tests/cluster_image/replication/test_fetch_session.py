"""Incremental fetch sessions (KIP-227): the leader's cache of them, what its answers leave out, and that nothing is
lost by it."""

from __future__ import annotations

import asyncio
import importlib
import uuid
from collections.abc import Coroutine
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode

from cluster_image.config.throttling import LEADER
from cluster_image.kraft.broker.partition import Partition
from cluster_image.kraft.metadata.image import MetadataImage, PartitionRegistration, Topic
from cluster_image.network import UNLIMITED, Room
from cluster_image.replication import fetch_session
from cluster_image.replication.fetch import FetchHandler
from cluster_image.replication.fetch_session import FetchedPartition, FetchSessionCache
from cluster_image.replication.fetch_session_handler import FetchSessionHandler
from cluster_image.replication.quotas import ReplicationQuota
from cluster_image.storage.log import Log
from cluster_image.storage.records import build_batch
from cluster_image.wire.messages import make, milliseconds
from tests.cluster_image.kraft.broker.test_partition import TOPIC, config, future
from tests.cluster_image.storage.simulated_disk import simulated_disk


def registration(index: int, leader: int = 1, epoch: int = 0, isr: tuple[int, ...] = (1, 2)) -> PartitionRegistration:
    return PartitionRegistration(TOPIC, "t", index, (1, 2), isr, leader, epoch, epoch)


def replica(broker: int, index: int, disk: Any) -> Partition:
    log = Log.open(disk, f"t-{index}")
    partition = Partition(registration(index), log, config(min_insync_replicas="1"), broker)
    partition.apply(registration(index), 0.0)
    return partition


class Leader:
    """Broker 1, which leads some partitions of a topic, and how it is asked."""

    def __init__(self, partitions: int = 3, alone: bool = False) -> None:
        """alone: in the ISR, so that it commits on its own."""
        disk = simulated_disk()
        self.partitions = {index: replica(1, index, disk) for index in range(partitions)}
        topic = Topic("t", TOPIC, {index: registration(index) for index in range(partitions)})
        image = MetadataImage(topics={"t": topic}, topics_by_id={TOPIC: topic})
        if alone:
            for index, partition in self.partitions.items():
                partition.apply(registration(index, epoch=1, isr=(1,)), 0.0)
        quota = ReplicationQuota(image, 1, LEADER)
        self.handler = FetchHandler(config(), image, self._find, lambda *_: not alone, lambda: None, quota, Random(1))

    def _find(self, topic_id: Any, index: int) -> Partition | None:
        return self.partitions.get(index) if topic_id == TOPIC else None

    def write(self, index: int, value: bytes = b"v") -> None:
        self.partitions[index].append(build_batch([value], timestamp_ms=0), 1, future)

    async def fetch(
        self,
        offsets: dict[int, int],
        session: tuple[int, int] = (0, 0),
        *,
        forget: tuple[int, ...] = (),
        version: int = 17,
        replica: int = 2,
        max_wait: int = 0,
        topic: uuid.UUID = TOPIC,
        **fields: Any,
    ) -> Any:
        """session: id and epoch, (0, 0) asks for one. offsets: by partition."""
        module = importlib.import_module(f"kio.schema.fetch.v{version}.request")
        epochs = {i: p.leader_epoch for i, p in self.partitions.items()}
        partitions = tuple(
            make(
                module.FetchPartition, partition=i, fetch_offset=offset, partition_max_bytes=1 << 20,
                current_leader_epoch=-1 if replica < 0 else epochs.get(i, 0), last_fetched_epoch=-1,
                log_start_offset=0,
            )
            for i, offset in offsets.items()
        )  # fmt: skip
        topics = (make(module.FetchTopic, topic="t", topic_id=topic, partitions=partitions),) if offsets else ()
        forgotten: Any = ()
        if forget:
            forgotten = (make(module.ForgottenTopic, topic="t", topic_id=topic, partitions=forget),)
        broker_epoch = fields.get("broker_epoch", 10)
        state = {}
        if version >= 15:
            state["replica_state"] = module.ReplicaState(replica_id=replica, replica_epoch=broker_epoch)
        request = make(
            module.FetchRequest, replica_id=replica, max_wait=milliseconds(max_wait), min_bytes=1,
            max_bytes=fields.get("max_bytes", 1 << 20), isolation_level=0, session_id=session[0],
            session_epoch=session[1], topics=topics, forgotten_topics_data=forgotten, rack_id="", **state,
        )  # fmt: skip
        return await self.handler.handle(request, fields.get("room", UNLIMITED))


def reported(answer: Any) -> dict[int, Any]:
    assert answer.error_code is ErrorCode.none
    return {int(data.partition_index): data for topic in answer.responses for data in topic.partitions}


def run(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(story, 10))


@pytest.mark.parametrize("version", [7, 11, 12, 13, 17])
@pytest.mark.parametrize("sender", [-1, 2])
def test_a_session_tells_only_what_is_new(version: int, sender: int) -> None:
    async def story() -> None:
        leader = Leader(alone=True)
        ask = lambda *args, **more: leader.fetch(*args, version=version, replica=sender, **more)  # noqa: E731
        first = await ask({0: 0, 1: 0, 2: 0})
        assert first.session_id > 0 and list(reported(first)) == [0, 1, 2]
        session = first.session_id
        assert reported(await ask({}, (session, 1))) == {}
        leader.write(1)
        answer = await ask({}, (session, 2))
        assert answer.session_id == session and list(reported(answer)) == [1] and reported(answer)[1].records
        assert list(reported(await ask({}, (session, 3)))) == [1], "it has not moved: here are the records again"
        assert reported(await ask({1: 1}, (session, 4))) == {}
        leader.write(0)
        assert reported(await ask({}, (session, 5), forget=(0,))) == {}
        assert list(reported(await ask({0: 0}, (session, 6)))) == [0]

    run(story())


def test_a_new_high_watermark_is_news() -> None:
    async def story() -> None:
        leader = Leader(1)
        session = (await leader.fetch({0: 0})).session_id
        leader.write(0)
        assert reported(await leader.fetch({}, (session, 1)))[0].high_watermark == 0
        answer = reported(await leader.fetch({0: 1}, (session, 2)))
        assert (answer[0].high_watermark, answer[0].records) == (1, b"")
        assert reported(await leader.fetch({}, (session, 3))) == {}

    run(story())


def test_what_is_not_named_counts_as_fetched_again() -> None:
    """A follower in a session says nothing of partitions where it has not moved. It is caught up all the same."""

    async def story() -> None:
        leader = Leader(1)
        session = (await leader.fetch({0: 0})).session_id
        leadership = leader.partitions[0].leadership
        assert leadership is not None
        before = leadership.followers[2].last_caught_up
        await asyncio.sleep(0.01)
        await leader.fetch({}, (session, 1))
        assert leadership.followers[2].last_caught_up >= before + 0.01

    run(story())


def looked_at(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Partitions that a fetch has been noted for, from now on."""
    seen: list[int] = []
    record_fetch = Partition.record_fetch

    def noted(self: Partition, *args: Any) -> Any:
        seen.append(self.index)
        return record_fetch(self, *args)

    monkeypatch.setattr(Partition, "record_fetch", noted)
    return seen


async def idle_session(leader: Leader) -> int:
    """A session of a follower that has everything, with three requests so far."""
    session: int = (await leader.fetch(dict.fromkeys(leader.partitions, 0))).session_id
    for epoch in (1, 2):
        assert reported(await leader.fetch({}, (session, epoch))) == {}
    return session


def test_partitions_without_news_are_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else what each fetch costs would grow with the partitions, however quiet they are."""

    async def story() -> None:
        leader = Leader(5)
        session = await idle_session(leader)
        seen = looked_at(monkeypatch)
        assert reported(await leader.fetch({}, (session, 3))) == {} and seen == []
        leader.write(4)
        assert list(reported(await leader.fetch({}, (session, 4)))) == [4] and seen == [4]
        assert list(reported(await leader.fetch({4: 1}, (session, 5)))) == [4] and seen == [4, 4]
        assert reported(await leader.fetch({}, (session, 6))) == {} and seen == [4, 4]

    run(story())


def test_a_follower_of_idle_partitions_is_caught_up_with_each_fetch_until_the_log_grows() -> None:
    async def story() -> None:
        leader = Leader(1)
        session = await idle_session(leader)
        leadership = leader.partitions[0].leadership
        assert leadership is not None
        follower, loop = leadership.followers[2], asyncio.get_running_loop()
        await asyncio.sleep(0.01)
        asked = loop.time()
        await leader.fetch({}, (session, 3))
        caught_up = follower.last_caught_up
        assert caught_up >= asked
        leader.write(0)
        await asyncio.sleep(0.01)
        await leader.fetch({}, (session, 4))
        assert follower.last_caught_up == caught_up, "it had everything then, and has not since"
        assert follower.lags(1, caught_up + 1.01, 1.0) and not follower.lags(1, caught_up + 0.99, 1.0)
        asked = loop.time()
        await leader.fetch({0: 1}, (session, 5))
        assert follower.last_caught_up >= asked

    run(story())


@pytest.mark.parametrize("end", ["forgotten", "lost"])
def test_a_follower_whose_session_ends_does_not_go_on_being_caught_up(end: str) -> None:
    async def story() -> None:
        leader = Leader(2)
        session = await idle_session(leader)
        await asyncio.sleep(0.01)
        leadership = leader.partitions[0].leadership
        assert leadership is not None
        caught_up = leadership.followers[2].last_caught_up
        if end == "forgotten":
            await leader.fetch({}, (session, 3), forget=(0,))
            await leader.fetch({}, (session, 4))
        else:
            await leader.fetch({1: 0}, (session, 0))
        assert leadership.followers[2].last_caught_up == caught_up
        assert not any(isinstance(w, FetchedPartition) for w in leader.partitions[0].watchers)
        assert [isinstance(w, FetchedPartition) for w in leader.partitions[1].watchers] == [True]

    run(story())


def test_a_fetch_without_a_session_is_not_told_of_changes_when_it_is_over() -> None:
    async def story() -> None:
        leader = Leader(1)
        for replica in (-1, 2):
            await leader.fetch({0: 0}, (0, -1), replica=replica)
        assert not leader.partitions[0].watchers

    run(story())


def test_a_follower_that_left_the_isr_is_looked_at_again() -> None:
    """It has everything and says nothing: its leader proposes it all the same."""

    async def story() -> None:
        leader = Leader(1)
        session = await idle_session(leader)
        partition = leader.partitions[0]
        changed = PartitionRegistration(TOPIC, "t", 0, (1, 2), (1,), 1, 0, 1)
        partition.apply(changed, 0.0)
        await leader.fetch({}, (session, 3))
        assert partition.leadership is not None and partition.leadership.proposal is not None
        assert [broker for broker, _ in partition.leadership.proposal.isr] == [1, 2]

    run(story())


def test_a_follower_outside_the_isr_is_looked_at_with_each_fetch() -> None:
    """It may be proposed again."""

    async def story() -> None:
        leader = Leader(1)
        partition = leader.partitions[0]
        partition.apply(PartitionRegistration(TOPIC, "t", 0, (1, 2), (1,), 1, 0, 1), 0.0)
        session = await idle_session(leader)
        assert partition.leadership is not None
        for epoch in (3, 4):
            proposal = partition.leadership.proposal
            assert proposal is not None
            partition.proposal_refused(proposal, ErrorCode.ineligible_replica)
            assert partition.leadership.proposal is None
            await leader.fetch({}, (session, epoch))
        assert partition.leadership.proposal is not None

    run(story())


def test_a_follower_that_was_removed_and_is_added_again_is_looked_at_again() -> None:
    async def story() -> None:
        leader = Leader(1)
        session = await idle_session(leader)
        partition = leader.partitions[0]
        for epoch, replicas in enumerate(((1,), (1, 2)), 1):
            partition.apply(PartitionRegistration(TOPIC, "t", 0, replicas, (1,), 1, 0, epoch), 0.0)
        assert partition.leadership is not None and partition.leadership.followers[2].end_offset == -1
        await leader.fetch({}, (session, 3))
        assert partition.leadership.followers[2].end_offset == 0

    run(story())


def test_a_new_registration_of_the_follower_begins_a_new_session() -> None:
    async def story() -> None:
        leader = Leader(1)
        session = await idle_session(leader)
        answer = await leader.fetch({}, (session, 3), broker_epoch=11)
        assert answer.error_code is ErrorCode.fetch_session_id_not_found

    run(story())


def test_the_next_request_of_a_session_ends_one_that_waits() -> None:
    async def story() -> None:
        leader = Leader(1)
        session = await idle_session(leader)
        waiting = asyncio.create_task(leader.fetch({}, (session, 3), max_wait=5000))
        await asyncio.sleep(0.01)
        after = asyncio.create_task(leader.fetch({}, (session, 4), max_wait=5000))
        assert (await waiting).error_code is ErrorCode.invalid_fetch_session_epoch
        leader.write(0)
        assert list(reported(await after)) == [0]

    run(story())


class Full(Room):
    def __init__(self) -> None:
        self.free = asyncio.Event()

    async def wait(self) -> None:
        await self.free.wait()

    def hold(self, size: int) -> None: ...


def test_the_next_request_of_a_session_is_not_held_up_by_one_that_has_not_read_yet() -> None:
    async def story() -> None:
        leader, room = Leader(2, alone=True), Full()
        session = (await leader.fetch({0: 0, 1: 0}, replica=-1)).session_id
        reads = asyncio.create_task(leader.fetch({}, (session, 1), max_wait=5000, replica=-1, room=room))
        await asyncio.sleep(0)
        waits = asyncio.create_task(leader.fetch({}, (session, 2), max_wait=5000, replica=-1))
        await asyncio.sleep(0.01)
        room.free.set()
        assert (await reads).error_code is ErrorCode.invalid_fetch_session_epoch
        assert not waits.done()
        leader.write(1)
        assert list(reported(await asyncio.wait_for(waits, 1))) == [1]

    run(story())


def test_a_fetch_of_a_session_that_ends_does_not_wait_on() -> None:
    async def story() -> None:
        leader = Leader(1)
        session = await idle_session(leader)
        waiting = asyncio.create_task(leader.fetch({}, (session, 3), max_wait=5000))
        await asyncio.sleep(0.01)
        await leader.fetch({0: 0}, (session, 0))
        assert (await asyncio.wait_for(waiting, 1)).error_code is ErrorCode.invalid_fetch_session_epoch

    run(story())


def test_a_fetch_is_noted_when_it_arrives_and_not_when_it_wakes() -> None:
    async def story() -> None:
        leader = Leader(1)
        waiting = asyncio.create_task(leader.fetch({0: 0}, max_wait=1000))
        await asyncio.sleep(0.01)
        leadership = leader.partitions[0].leadership
        assert leadership is not None
        arrived = leadership.followers[2].last_caught_up
        await asyncio.sleep(0.05)
        leader.write(0)
        assert reported(await waiting)[0].records
        assert leadership.followers[2].last_caught_up == arrived

    run(story())


def test_errors_are_told_each_time_and_the_end_of_them_too() -> None:
    async def story() -> None:
        leader = Leader(2)
        session = (await leader.fetch({0: 0, 1: 0})).session_id
        gone = leader.partitions.pop(1)
        gone.remove(ErrorCode.not_leader_or_follower)
        for epoch in (1, 2):
            answer = reported(await leader.fetch({}, (session, epoch)))
            assert list(answer) == [1] and answer[1].error_code is ErrorCode.not_leader_or_follower
        leader.partitions[1] = replica(1, 1, simulated_disk())
        answer = reported(await leader.fetch({}, (session, 3)))
        assert list(answer) == [1] and answer[1].error_code is ErrorCode.none
        assert reported(await leader.fetch({}, (session, 4))) == {}

    run(story())


def test_a_waiting_fetch_hears_of_a_removed_partition_at_once() -> None:
    async def story() -> None:
        leader = Leader(1)
        waiting = asyncio.create_task(leader.fetch({0: 0}, max_wait=60_000))
        await asyncio.sleep(0.01)
        leader.partitions.pop(0).remove(ErrorCode.not_leader_or_follower)
        assert reported(await waiting)[0].error_code is ErrorCode.not_leader_or_follower

    run(story())


def test_a_waiting_fetch_of_an_earlier_epoch_hears_of_the_new_one() -> None:
    async def story() -> None:
        leader = Leader(1)
        waiting = asyncio.create_task(leader.fetch({0: 0}, max_wait=60_000))
        await asyncio.sleep(0.01)
        leader.partitions[0].apply(registration(0, epoch=1), 1.0)
        assert reported(await waiting)[0].error_code is ErrorCode.fenced_leader_epoch

    run(story())


def test_session_errors() -> None:
    async def story() -> None:
        leader = Leader(1)
        session = (await leader.fetch({0: 0})).session_id
        errors = [
            (await leader.fetch({}, (session + 1, 1))).error_code,
            (await leader.fetch({}, (session, 2))).error_code,
            (await leader.fetch({}, (session, 1), version=12)).error_code,
            (await leader.fetch({}, (session, 1), replica=3)).error_code,
        ]
        assert errors == [
            ErrorCode.fetch_session_id_not_found,
            ErrorCode.invalid_fetch_session_epoch,
            ErrorCode.fetch_session_topic_id_error,
            ErrorCode.fetch_session_id_not_found,
        ]
        assert reported(await leader.fetch({}, (session, 1))) == {}, "it is still there, for whose it is"

    run(story())


@pytest.mark.parametrize("epoch", [0, -1])
def test_a_full_fetch_ends_the_session_that_it_names(epoch: int) -> None:
    async def story() -> None:
        leader = Leader(1)
        session = (await leader.fetch({0: 0})).session_id
        answer = await leader.fetch({0: 0}, (session, epoch))
        assert list(reported(answer)) == [0]
        assert (answer.session_id == 0) == (epoch == -1) and answer.session_id != session
        assert (await leader.fetch({}, (session, 1))).error_code is ErrorCode.fetch_session_id_not_found
        assert len(leader.handler.sessions) == (0 if epoch else 1)

    run(story())


def test_a_session_without_partitions_ends() -> None:
    async def story() -> None:
        leader = Leader(1)
        session = (await leader.fetch({0: 0})).session_id
        answer = await leader.fetch({}, (session, 1), forget=(0,), max_wait=60_000)
        assert (answer.session_id, reported(answer), len(leader.handler.sessions)) == (0, {}, 0)

    run(story())


def test_a_request_of_the_same_session_supersedes_one_that_waits() -> None:
    """Whose answer nobody awaits any more: it must not count what it would have told as told."""

    async def story() -> None:
        leader = Leader(1)
        session = (await leader.fetch({0: 0})).session_id
        waiting = asyncio.create_task(leader.fetch({}, (session, 1), max_wait=60_000))
        await asyncio.sleep(0.01)
        leader.write(0)
        answer = await leader.fetch({}, (session, 2))
        assert reported(answer)[0].records
        assert (await waiting).error_code is ErrorCode.invalid_fetch_session_epoch

    run(story())


def test_epochs_wrap_to_one() -> None:
    assert (fetch_session.next_epoch(1), fetch_session.next_epoch(2**31 - 1)) == (2, 1)
    client = FetchSessionHandler(1)
    client.id, client.epoch = 7, 2**31 - 1
    client.answered(ErrorCode.none, 7)
    assert (client.id, client.epoch) == (7, 1)


def test_whoever_got_something_comes_last_the_next_time() -> None:
    """With room for one partition in an answer, each has its turn."""

    async def story() -> None:
        leader = Leader(3)
        session = (await leader.fetch({0: 0, 1: 0, 2: 0})).session_id
        for index in leader.partitions:
            leader.write(index)
        turns = []
        for epoch in range(1, 7):
            answer = reported(await leader.fetch({}, (session, epoch), max_bytes=1))
            turns += [index for index, data in answer.items() if data.records]
        assert turns == [0, 1, 2, 0, 1, 2]

    run(story())


def test_an_answer_exceeds_its_limit_by_one_batch_at_most() -> None:
    async def story() -> None:
        leader = Leader(3)
        for index in leader.partitions:
            leader.write(index, bytes(1000))
        answer = reported(await leader.fetch({0: 0, 1: 0, 2: 0}, max_bytes=1100))
        assert [len(data.records) > 1000 for data in answer.values()] == [True, True, False]

    run(story())


# -- the cache --------------------------------------------------------------------------------------------------


def created(cache: FetchSessionCache, replica: int, partitions: int, now: float) -> int:
    data = tuple(SimpleNamespace(partition=i, fetch_offset=0, partition_max_bytes=1) for i in range(partitions))
    request: Any = SimpleNamespace(
        __version__=17, session_id=0, session_epoch=0, topics=(SimpleNamespace(topic_id=TOPIC, partitions=data),)
    )
    fetch = cache.receive(request, replica, 1, now)
    assert not isinstance(fetch, ErrorCode)
    return cache.create(fetch, replica, 1, now)


def used(cache: FetchSessionCache, session: int, replica: int, epoch: int, now: float) -> ErrorCode | None:
    request: Any = SimpleNamespace(
        __version__=17, session_id=session, session_epoch=epoch, topics=(), forgotten_topics_data=()
    )
    fetch = cache.receive(request, replica, 1, now)
    return fetch if isinstance(fetch, ErrorCode) else None


def test_a_full_cache_gives_no_session_to_a_consumer() -> None:
    cache = FetchSessionCache(1, Random(1))
    assert created(cache, -1, 1, 0.0) and not created(cache, -1, 5, 1.0)
    assert not created(FetchSessionCache(0, Random(1)), -1, 1, 0.0)


def test_a_follower_displaces_the_smallest_consumer() -> None:
    cache = FetchSessionCache(3, Random(1))
    big, small, follower = created(cache, -1, 9, 0.0), created(cache, -1, 2, 0.0), created(cache, 3, 1, 0.0)
    other = created(cache, 2, 1, 1.0)
    assert other and used(cache, small, -1, 1, 1.0) is ErrorCode.fetch_session_id_not_found
    assert used(cache, big, -1, 1, 1.0) is used(cache, follower, 3, 1, 1.0) is None
    assert created(cache, 4, 1, 2.0) and not created(cache, 5, 1, 2.0), "no consumer is left to displace"


def test_consumers_sessions_are_bounded_by_the_partitions_that_they_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_session, "MAX_CONSUMED_PARTITIONS", 3)

    async def story() -> None:
        leader = Leader(partitions=5, alone=True)
        first = await leader.fetch({0: 0, 1: 0}, replica=-1)
        assert first.session_id > 0
        assert (await leader.fetch({0: 0, 1: 0}, replica=-1)).session_id == 0, "no room"
        assert (await leader.fetch({0: 0, 1: 0}, replica=2)).session_id > 0, "followers are as many as brokers"
        grown = await leader.fetch({2: 0, 3: 0}, (first.session_id, 1), replica=-1)
        assert grown.session_id == 0 and list(reported(grown)) == [0, 1, 2, 3], "all is told, and nothing kept"
        gone = await leader.fetch({}, (first.session_id, 2), replica=-1)
        assert gone.error_code is ErrorCode.fetch_session_id_not_found
        assert (await leader.fetch({0: 0, 1: 0}, replica=-1)).session_id > 0

    run(story())


def test_an_unused_session_makes_room_for_anybody() -> None:
    cache = FetchSessionCache(2, Random(1))
    idle, busy = created(cache, 3, 9, 0.0), created(cache, 2, 9, 0.0)
    assert used(cache, busy, 2, 1, 100.0) is None
    assert not created(cache, -1, 1, 119.0)
    assert created(cache, -1, 1, 121.0)
    assert used(cache, idle, 3, 1, 121.0) is ErrorCode.fetch_session_id_not_found
    assert used(cache, busy, 2, 2, 121.0) is None


def test_an_old_session_gives_way_to_one_that_is_worth_more() -> None:
    cache = FetchSessionCache(1, Random(1))
    old = created(cache, -1, 3, 0.0)
    assert used(cache, old, -1, 1, 100.0) is None
    assert not created(cache, -1, 2, 130.0)
    assert created(cache, -1, 4, 130.0)


# -- nothing is lost by it --------------------------------------------------------------------------------------

STEP = st.one_of(
    st.tuples(st.just("write"), st.integers(0, 2)),
    st.tuples(st.just("elect"), st.integers(0, 2)),
    st.tuples(st.just("usurp"), st.integers(0, 2)),
    st.tuples(st.just("delay"), st.integers(0, 2)),
    st.tuples(st.just("remove"), st.integers(0, 2)),
    st.tuples(st.just("lose the answer"), st.just(0)),
    st.tuples(st.just("lose the session"), st.just(0)),
    st.tuples(st.just("fetch"), st.integers(0, 1)),
)


@settings(max_examples=150, deadline=None)
@example([("usurp", 0), ("write", 0), ("usurp", 0), ("delay", 0), ("fetch", 0), ("lose the session", 0)])
@given(st.lists(STEP, max_size=40))
def test_sessions_bring_the_same_as_full_fetches(steps: list[tuple[str, int]]) -> None:
    """A follower that fetches in a session, whatever befalls it, has after each fetch what one without has."""

    async def story() -> None:
        leader = Leader(3)
        disk = simulated_disk()
        client = FetchSessionHandler(1 << 20)
        followed = {index: client.add(replica(2, index, disk)) for index in leader.partitions}
        for each in followed.values():
            each.partition.apply(registration(each.partition.index, epoch=0), 0.0)
        epochs = dict.fromkeys(leader.partitions, 0)
        now = 0.0
        request = importlib.import_module("kio.schema.fetch.v17.request")

        def note_who_has_everything(since: float) -> None:
            for index, each in followed.items():
                theirs, fetched = leader.partitions[index], each.asked is not None
                same = fetched and each.asked.current_leader_epoch == theirs.leader_epoch
                if same and theirs.leadership is not None and each.asked.fetch_offset == theirs.log.end_offset:
                    follower = theirs.leadership.followers[2]
                    assert follower.end_offset == theirs.log.end_offset or follower.last_caught_up < since
                    if follower.end_offset == theirs.log.end_offset:
                        assert follower.last_caught_up >= since

        async def fetch(lost: bool) -> None:
            session_id, session_epoch = client.id, client.epoch
            since = asyncio.get_running_loop().time()
            topics, forgotten = client.next_request(now)
            answer = await leader.handler.handle(
                request.FetchRequest(
                    replica_state=request.ReplicaState(replica_id=2, replica_epoch=10), max_wait=milliseconds(0),
                    min_bytes=0, max_bytes=1 << 20, session_id=session_id, session_epoch=session_epoch, topics=topics,
                    forgotten_topics_data=forgotten,
                )
            )  # fmt: skip
            if answer.error_code is ErrorCode.none:
                note_who_has_everything(since)
            if lost:
                client.lost()
                return
            client.answered(answer.error_code, answer.session_id)
            if answer.error_code is not ErrorCode.none:
                assert client.epoch == 0
                return
            for index, data in reported(answer).items():
                each = followed[index]
                assert each.asked is not None, "it was forgotten"
                if data.error_code is ErrorCode.none:
                    diverging = data.diverging_epoch
                    each.partition.apply_fetch(
                        each.asked.current_leader_epoch, each.asked.fetch_offset, data.records, data.high_watermark,
                        (diverging.epoch, diverging.end_offset) if diverging.end_offset >= 0 else None,
                    )  # fmt: skip

        def elect(index: int, broker: int) -> None:
            epochs[index] += 1
            for partition in (leader.partitions[index], followed[index].partition):
                partition.apply(registration(index, broker, epochs[index]), now)

        for step, index in steps:
            now += 1.0
            match step:
                case "write":
                    leader.write(index)
                case "elect":
                    elect(index, 1)
                case "usurp":  # the follower leads for a while, and what it writes is not committed
                    elect(index, 2)
                    followed[index].partition.append(build_batch([b"no"], timestamp_ms=0), 1, future)
                    elect(index, 1)
                case "delay":
                    client.delay(followed[index], now + 2.5)
                case "remove":  # and add it again, as when a leader changes and changes back
                    client.remove(followed[index].partition.key)
                    followed[index] = client.add(followed[index].partition)
                case "lose the session":
                    leader.handler.sessions._sessions.clear()
                case _:
                    await fetch(lost=step == "lose the answer")
        now += 10.0
        # A session may have to be found lost first; each epoch of the follower's own may take an answer that
        # diverges; a watermark follows its record.
        for _ in range(4 + sum(step == "usurp" for step, _ in steps)):
            await fetch(lost=False)
        for index, each in followed.items():
            ours, theirs = each.partition, leader.partitions[index]
            assert ours.log.read(0, 1 << 20) == theirs.log.read(0, 1 << 20)
            assert ours.high_watermark == theirs.high_watermark == theirs.log.end_offset

    run(story())
