"""Throttled replication (KIP-73): who is held back by a quota and who never is, and that a move keeps to its rate."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from random import Random
from statistics import quantiles
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from kio.schema.fetch.v17.request import FetchPartition, FetchRequest, FetchTopic, ReplicaState

from cluster_image.config.throttling import FOLLOWER, LEADER, SIDES, Side
from cluster_image.kraft.metadata.image import MetadataImage, Topic
from cluster_image.kraft.metadata.records import BROKER_RESOURCE, ConfigRecord, PartitionRecord
from cluster_image.replication.quotas import CREDIT_S, PORTION_S, ReplicationQuota
from cluster_image.tools.cluster import request_of
from cluster_image.tools.throttle import Move, Reassignment, throttle, unthrottle
from cluster_image.wire.messages import milliseconds
from tests.cluster_image.kraft.broker.test_partition import TOPIC, leaders_batch
from tests.cluster_image.protocol.replication.broker import Broker, living
from tests.cluster_image.protocol.replication.group import Group
from tests.cluster_image.replication.test_fetcher import answer, data, next_request, said
from tests.cluster_image.stories import script
from tests.cluster_image.stories.script import Script, tell

RATE = 100_000  # bytes a second


# -- the balance of a quota, by a clock that the test turns ------------------------------------------------------


def quota_of(rate: int, side: Side = LEADER) -> ReplicationQuota:
    image = MetadataImage()
    image.replay(0, rate_record("1", side, rate))
    return ReplicationQuota(image, 1, side)


def rate_record(broker: str, side: Side, rate: int | None) -> ConfigRecord:
    value = None if rate is None else str(rate)
    return ConfigRecord(resource_type=BROKER_RESOURCE, resource_name=broker, name=side.rate, value=value)


@pytest.mark.parametrize("latency", [0.0, 0.001, 0.03, 0.25, 0.8])
@pytest.mark.parametrize("batch", [100, 16_384, 1 << 20])
def test_a_move_is_within_a_tenth_of_its_quota(latency: float, batch: int) -> None:
    """Whatever the way between the brokers takes, and however large the batches are: one is read whole."""
    quota, began = quota_of(1_000_000), 1000.0
    random = Random(7)
    now, moved, ends = began, 0, began + 60
    while True:
        now += quota.wait(now) + latency * random.random()
        if now >= ends:
            break
        assert not quota.is_exceeded(now), "it is waited for no longer than it takes"
        size = -(-quota.portion(now) // batch) * batch
        moved += size
        quota.record(size, now)
    assert moved / 60 == pytest.approx(1_000_000, rel=0.1)
    assert quota.recorded == moved


def test_a_move_does_not_begin_with_a_burst() -> None:
    quota = quota_of(1_000_000)
    assert not quota.is_exceeded(500.0) and quota.portion(500.0) == PORTION_S * 1_000_000
    quota.record(100_000, 500.0)
    assert quota.is_exceeded(500.05) and quota.wait(500.05) == pytest.approx(0.05)
    # A short pause is made up for, a long one is not.
    assert quota.portion(500.1 + CREDIT_S / 2) == pytest.approx(CREDIT_S / 2 * 1_000_000)
    assert quota.portion(500.1 + CREDIT_S * 2) == PORTION_S * 1_000_000


def test_what_is_about_to_be_sent_counts() -> None:
    quota = quota_of(1_000_000)
    assert quota.is_exceeded(500.0, pending=1000)


def test_a_rate_of_zero_lets_nothing_pass_and_a_new_rate_begins_anew() -> None:
    image = MetadataImage()
    quota = ReplicationQuota(image, 1, LEADER)
    assert not quota.limited and not quota.is_exceeded(5.0) and quota.wait(5.0) == 0
    image.replay(0, rate_record("1", LEADER, 0))
    assert quota.limited and quota.is_exceeded(5.0) and quota.wait(5.0) == float("inf")
    image.replay(1, rate_record("1", LEADER, 10))
    quota.record(1_000_000, 5.0)
    assert quota.wait(5.0) == 100_000
    image.replay(2, rate_record("1", LEADER, 1_000_000))
    assert quota.wait(5.0) == 0 and not quota.is_exceeded(5.0)
    image.replay(3, rate_record("1", LEADER, None))
    assert not quota.limited


# -- the leader ---------------------------------------------------------------------------------------------------


class Leading(Group):
    """Replica 1 leads a partition with one record of 50,000 bytes: half a second of the quota. 2 is in the ISR, 3 is
    not."""

    def __init__(self, directory: Path, rate: int | None = RATE, throttled: str = "0:1") -> None:
        super().__init__(directory)
        topic = Topic("t", TOPIC, {}, {LEADER.replicas: throttled})
        self.image.topics["t"] = self.image.topics_by_id[TOPIC] = topic
        self.image.replay(0, rate_record("1", LEADER, rate))
        self.tell(1, (1, 2), leader_epoch=1)
        self.may_join = False  # may replica 3?
        self.eligible = lambda replica, epoch: replica != 3 or self.may_join
        self.served = self.handler(1)
        self.add()

    def add(self) -> None:
        self.partitions[1].append(leaders_batch(self.partitions[1].log.end_offset, 1, b"v" * 50_000), 1, _future)

    async def asks(self, replica: int, offset: int = 0, wait_ms: int = 0) -> tuple[int, float]:
        """Bytes that it gets, and after how many seconds."""
        loop = asyncio.get_running_loop()
        partition = FetchPartition(
            partition=0, current_leader_epoch=1, fetch_offset=offset, last_fetched_epoch=-1, log_start_offset=0,
            partition_max_bytes=1 << 20,
        )  # fmt: skip
        state = ReplicaState(replica_id=replica, replica_epoch=10 + replica if replica >= 0 else -1)
        request = FetchRequest(
            replica_state=state, max_wait=milliseconds(wait_ms), min_bytes=1, max_bytes=1 << 20, session_id=0,
            session_epoch=-1, topics=(FetchTopic(topic_id=TOPIC, partitions=(partition,)),), forgotten_topics_data=(),
            rack_id="",
        )  # fmt: skip
        began = loop.time()
        response = await self.served.handle(request)
        (data,) = response.responses[0].partitions  # type: ignore[attr-defined]
        assert data.error_code is ErrorCode.none
        return len(data.records or b""), loop.time() - began


def _future() -> Any:
    raise AssertionError("acks=1 has none")


def gets(leading: Leading, *asked: tuple[int, int]) -> list[bool]:
    """Does each get records at once: replica and offset, one after the other?"""

    async def ask() -> list[bool]:
        return [(await leading.asks(replica, offset))[0] > 0 for replica, offset in asked]

    return asyncio.run(ask())


def test_a_replica_out_of_sync_gets_what_the_quota_allows(tmp_path: Path) -> None:
    assert gets(Leading(tmp_path), (3, 0), (3, 0), (3, 0)) == [True, False, False]


def test_members_of_the_isr_are_never_throttled(tmp_path: Path) -> None:
    leading = Leading(tmp_path)
    assert gets(leading, (3, 0), (2, 0), (2, 0), (3, 0)) == [True, True, True, False]


def test_what_members_of_the_isr_get_counts_against_no_quota(tmp_path: Path) -> None:
    assert gets(Leading(tmp_path), (2, 0), (2, 0), (3, 0)) == [True, True, True]


def test_whom_the_high_watermark_is_held_back_for_is_not_throttled(tmp_path: Path) -> None:
    """Producers would wait for the quota else."""
    leading = Leading(tmp_path)
    assert gets(leading, (3, 0), (3, 0)) == [True, False]
    assert gets(leading, (3, 1), (2, 1)) == [False, False], "they have all there is"
    leading.add()
    assert gets(leading, (2, 2)) == [False] and leading.partitions[1].high_watermark == 2
    leading.may_join = True
    assert gets(leading, (3, 1)) == [True], "it keeps up, and is waited for"
    assert leading.proposed(1) is None and leading.leadership(1).joining == {3}
    leading.add()
    assert gets(leading, (2, 3)) == [False] and leading.partitions[1].high_watermark == 2, "it does wait"
    assert gets(leading, (3, 2)) == [True] and leading.proposed(1) == [1, 2, 3]
    leading.add()
    assert gets(leading, (3, 3)) == [True], "nor is one that is proposed"


@pytest.mark.parametrize(
    ("rate", "throttled"), [(None, "0:1"), (RATE, ""), (RATE, "0:2"), (RATE, "1:1"), (RATE, "0:3,1:1")]
)
def test_only_the_listed_replicas_of_a_broker_with_a_rate_are_throttled(
    tmp_path: Path, rate: int | None, throttled: str
) -> None:
    assert gets(Leading(tmp_path, rate, throttled), (3, 0), (3, 0), (3, 0)) == [True, True, True]


def test_consumers_are_never_throttled_and_count_against_no_quota(tmp_path: Path) -> None:
    leading = Leading(tmp_path, throttled="*")
    assert gets(leading, (2, 1), (3, 0)) == [False, True]  # 2 has it: it is committed
    assert gets(leading, (-1, 0), (-1, 0)) == [True, True]
    assert leading.served._quota.recorded < 60_000


def test_a_fetch_waits_for_the_quota_and_not_for_its_whole_time(tmp_path: Path) -> None:
    """Half a second is to be paid back; appends to the partition meanwhile end no wait, and it does not spin."""
    leading = Leading(tmp_path)
    reads = []

    async def story() -> None:
        await leading.asks(3)
        partition = leading.partitions[1]
        read = partition.read_as_follower

        def counted(*arguments: Any) -> bytes:
            reads.append(arguments)
            return read(*arguments)

        partition.read_as_follower = counted  # type: ignore[method-assign]
        waiting = asyncio.create_task(leading.asks(3, wait_ms=4_000))
        for _ in range(10):
            await asyncio.sleep(0.02)
            leading.add()
        size, seconds = await waiting
        assert size > 0 and 0.4 < seconds < 3

    asyncio.run(story())
    assert len(reads) == 2, "when it came, and when the quota allowed it"


def test_who_waits_for_the_quota_hears_of_a_new_leader_epoch(tmp_path: Path) -> None:
    leading = Leading(tmp_path, rate=1)

    async def story() -> None:
        await leading.asks(3)
        waiting = asyncio.create_task(leading.asks(3, wait_ms=20_000))
        await asyncio.sleep(0.01)
        leading.tell(1, (1, 2), leader_epoch=2)
        with pytest.raises(AssertionError, match="fenced_leader_epoch"):
            await waiting

    asyncio.run(asyncio.wait_for(story(), 10))


# -- the follower -------------------------------------------------------------------------------------------------


def throttle_follower(broker: Broker, rate: int | None, throttled: str = "0:1") -> None:
    broker.replay(
        rate_record("1", FOLLOWER, rate), ConfigRecord(resource_name="t", name=FOLLOWER.replicas, value=throttled)
    )


async def behind(broker: Broker, rate: int = 1000, watermark: int = 9) -> tuple[Any, Any]:
    """Broker 1, out of sync, has got 5 s of the quota of partition 0, and 1 has nothing new. What it asks next."""
    throttle_follower(broker, rate)
    for index in (0, 1):
        broker.create(index, leader=2)
        broker.change(index, {"isr": (2, 3)})
    while not broker.links:
        await asyncio.sleep(0.001)
    (link,) = broker.links
    first = await next_request(link)
    assert said(first)[2] == {0: 0, 1: 0}
    answer(link, data(0, leaders_batch(0, 0, b"v" * 5000), watermark=watermark), data(1))
    return link, await next_request(link, first)


def test_a_follower_out_of_sync_leaves_out_what_is_beyond_its_quota_and_takes_it_up_again() -> None:
    async def story(broker: Broker) -> None:
        link, second = await behind(broker)
        assert said(second) == (5, 1, {}, [0]), "the others are asked for as before"
        throttle_follower(broker, None)
        # It is looked at again within a second, whatever the quota was when it was left out.
        asked, request = {}, second
        while not asked:
            answer(link)
            request = await next_request(link, request)
            asked = said(request)[2]
            await asyncio.sleep(0.02)
        assert asked == {0: 1}, "from where it was, and named anew"

    living(story, session=5)


def test_a_follower_in_sync_is_never_throttled() -> None:
    """As its metadata tells, or as it has reached the leader's high watermark; or had it a while ago: its leader may
    hold the watermark back for it, and producers would wait for the quota."""

    async def in_isr(broker: Broker) -> None:
        throttle_follower(broker, 0)
        broker.create(0, leader=2)
        await asyncio.sleep(0.01)
        assert said(broker.links[0].asked)[2] == {0: 0}

    async def caught_up(broker: Broker) -> None:
        _, second = await behind(broker, watermark=1)
        assert said(second)[2:] == ({0: 1}, [])

    async def kept_up(broker: Broker) -> None:
        link, second = await behind(broker, watermark=1)
        answer(link, data(0, leaders_batch(1, 0, b"v" * 5000), watermark=9))
        third = await next_request(link, second)
        assert said(third)[2:] == ({0: 2}, []) and third.topics[0].partitions[0].partition_max_bytes == 1 << 20
        await asyncio.sleep(0.15)
        answer(link, data(0, leaders_batch(2, 0, b"v" * 5000), watermark=9))
        assert said(await next_request(link, third))[2:] == ({}, [0]), "too long ago"

    living(in_isr, session=5)
    living(caught_up, session=5)
    living(kept_up, session=5, replica_lag_time_max_ms="100")


def test_a_new_replica_does_not_begin_beyond_the_quota() -> None:
    async def story(broker: Broker) -> None:
        throttle_follower(broker, 0)
        record = PartitionRecord(partition_id=0, topic_id=TOPIC, replicas=(2, 3, 1), isr=(2, 3), leader=2)
        broker.manager.apply(broker.replay(record))
        await asyncio.sleep(0.05)
        assert [request for link in broker.links for request in link.sent] == []

    living(story)


def test_only_what_is_throttled_counts_on_the_follower() -> None:
    async def story(broker: Broker) -> None:
        throttle_follower(broker, 1_000_000, throttled="0:2,1:1")
        broker.create(0, leader=2)
        broker.change(0, {"isr": (2, 3)})
        while not broker.links or broker.links[0].asked is None:
            await asyncio.sleep(0.001)
        records = leaders_batch(0, 0, b"v" * 5000)
        answer(broker.links[0], data(0, records))
        await asyncio.sleep(0.01)
        assert broker.manager.quotas.follower.recorded == 0
        throttle_follower(broker, 1_000_000, throttled="*")
        answer(broker.links[0], data(0, leaders_batch(1, 0, b"v" * 5000)))
        await asyncio.sleep(0.01)
        assert broker.manager.quotas.follower.recorded == len(records)

    living(story, session=5)


def test_a_request_for_the_rest_is_back_when_the_throttled_one_may_be_fetched() -> None:
    async def story(broker: Broker) -> None:
        _, second = await behind(broker, rate=50_000)
        assert 0 < second.max_wait.total_seconds() <= 0.11

    living(story, session=5, replica_fetch_wait_max_ms="5000")


# -- a cluster ----------------------------------------------------------------------------------------------------

MOVE: Reassignment = {script.TOPIC: {0: Move((1, 2, 3), (1, 2, 4))}}
BATCHES, BATCH_BYTES = 200, 10_000  # 2 MB: twenty seconds


@pytest.mark.parametrize("sides", [SIDES, (LEADER,), (FOLLOWER,)], ids=["both", "leader", "follower"])
def test_a_partition_moves_at_its_quota_and_producers_do_not_notice(sides: Sequence[Side]) -> None:
    """In virtual time: the new replica gets within a tenth of the rate, over any two seconds; nobody leaves the ISR,
    and the 99th percentile of what producers wait is within one and a half of that without a move."""

    async def story(cluster: Script) -> None:
        for _ in range(BATCHES):
            await cluster.produce("v" * BATCH_BYTES)
        before = []
        for _ in range(300):
            before.append(await latency(cluster))
            await cluster.passing(0.05)
        changes = [c for c in throttle(MOVE, RATE) if c.name in [n for side in sides for n in side]]
        await alter(cluster, changes)
        states = len(cluster.states)
        began = asyncio.get_running_loop().time()
        assert await cluster.reassign(1, 2, 4) is ErrorCode.none
        await cluster.until(lambda: cluster.has_replica(4))
        latencies, seen = [], [(began, 0)]
        while cluster.has_replica(3):
            latencies.append(await latency(cluster))
            await cluster.passing(0.05)
            seen.append((asyncio.get_running_loop().time(), size_of(cluster, 4)))
        assert seen[-1][0] - began == pytest.approx(size_of(cluster, 1) / RATE, rel=0.1)
        for (t0, s0), (t1, s1) in pairs(seen[:-2], 2.0):
            assert (s1 - s0) / (t1 - t0) == pytest.approx(RATE, rel=0.1)
        assert [s for s in cluster.states[states:] if "ISR=[1, 2" not in s] == []
        assert quantiles(latencies, n=100)[98] <= 1.5 * quantiles(before, n=100)[98]
        sent, taken = replicated(cluster, 1)[0], replicated(cluster, 4)[1]
        counted = [bytes_ for side, bytes_ in ((LEADER, sent), (FOLLOWER, taken)) if side in sides]
        assert counted == [pytest.approx(size_of(cluster, 1), rel=0.01)] * len(sides), "and nothing else"
        await alter(cluster, unthrottle(MOVE))
        await cluster.settled()
        assert cluster.log_of(4) == cluster.log_of(1)

    ending = tell(story, (1, 2, 3), 2, spare=1)
    assert ending.violation is None and ending.losses == []


def pairs(seen: list[tuple[float, int]], apart: float) -> list[tuple[tuple[float, int], tuple[float, int]]]:
    """Each with the first that came so many seconds later."""
    later = [(each, next((s for s in seen if s[0] >= each[0] + apart), None)) for each in seen]
    return [(each, after) for each, after in later if after is not None]


async def latency(cluster: Script) -> float:
    began = asyncio.get_running_loop().time()
    await cluster.produce("w")
    return asyncio.get_running_loop().time() - began


def size_of(cluster: Script, broker: int) -> int:
    return cluster._replica(broker).log.size


def replicated(cluster: Script, broker: int) -> tuple[int, int]:
    """Bytes that have counted, as leader and as follower: what its metrics tell."""
    counted: tuple[int, int] = cluster.running(f"broker-{broker}").broker.replicated
    return counted


async def alter(cluster: Script, changes: Sequence[Any]) -> None:
    response: Any = await cluster._ask(1, request_of(changes))
    assert [(r.error_code, r.error_message) for r in response.responses if r.error_code is not ErrorCode.none] == []
