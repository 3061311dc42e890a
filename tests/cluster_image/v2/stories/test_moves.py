"""001, reassignment, the preferred leader, and what happens only while something is produced."""

from __future__ import annotations

import asyncio

import pytest
from kio.schema.errors import ErrorCode

from cluster_image.v2.metadata import paths

from .cluster import V2Cluster, tell

QUICK = {"replica.lag.time.max.ms": "1000"}


async def made(c: V2Cluster, *replicas: int) -> None:
    assert await c.create(replicas) is ErrorCode.none
    await c.until(lambda: c.serves(replicas[0]) and c.isr() == set(replicas))


async def produce_until(c: V2Cluster, holds: object) -> None:
    number = 0
    async with asyncio.timeout(60):
        while not holds():  # type: ignore[operator]
            await c.produced(f"m{number}")
            number += 1
            await asyncio.sleep(0.05)


def test_a_partition_is_moved_and_its_leader_goes_last() -> None:
    async def story(c: V2Cluster) -> None:
        await made(c, 1, 2)
        assert await c.reassign((3, 4)) is ErrorCode.none
        await produce_until(c, lambda: c.replicas() == (3, 4))
        await c.until(lambda: c.leader() is not None and c.serves(3))
        assert c.isr() == {3, 4}, "it was in the ISR until the end, and is counted on no more"
        assert c.children(paths.REASSIGNED) == [] or c.children(paths.reassigned_topic("story")) == []
        await c.until(lambda: c.replica(1) is None and c.replica(2) is None)
        await c.produced("last")
        await c.until(lambda: c.log_of(3) == c.log_of(4) and c.log_of(3)[-1] == "last")

    tell(story, brokers=4, settings=QUICK)


def test_whoever_leads_next_goes_on_with_a_reassignment() -> None:
    """001, becomeLeader: "r.partition.RAR = replicas in /brokers/partitions_reassigned"."""

    async def story(c: V2Cluster) -> None:
        await made(c, 1, 2)
        c.cut((1, 3))
        assert await c.reassign((2, 3)) is ErrorCode.none
        await c.until(lambda: c.replica(3) is not None)
        await c.kill(1)
        await produce_until(c, lambda: c.replicas() == (2, 3) and c.isr() == {2, 3})
        assert c.log_of(2) == c.log_of(3)

    tell(story, settings={**QUICK, "v2.idle.checks": "true"})


@pytest.mark.parametrize("setting", ["false", "true"])
def test_a_leader_alone_in_its_isr_stays_alone_unless_it_looks_between_requests(setting: str) -> None:
    """By 001 who has a request as it is committed joins the ISR. Where the leader is alone in it, that is at once."""

    async def story(c: V2Cluster) -> None:
        await made(c, 1, 2)
        c.cut((1, 2))
        assert await c.produce("alone", 1) is ErrorCode.none
        assert c.isr() == {1}
        c.mend()
        await c.until(lambda: c.log_of(2) == ["alone"])
        for number in range(50):
            await c.produced(f"m{number}")
            await asyncio.sleep(0.05)
        assert c.isr() == ({1, 2} if setting == "true" else {1})

    tell(story, settings={**QUICK, "v2.idle.checks": setting})


def test_a_reassignment_is_given_up() -> None:
    async def story(c: V2Cluster) -> None:
        await made(c, 1, 2)
        c.cut((1, 3))
        assert await c.reassign((1, 3)) is ErrorCode.none
        await c.until(lambda: c.replica(3) is not None)
        assert await c.reassign(None) is ErrorCode.none
        await c.until(lambda: c.replica(3) is None)
        c.mend()
        await c.produced("m1")
        assert (c.replicas(), c.isr()) == ((1, 2), {1, 2})
        assert await c.reassign(None) is ErrorCode.no_reassignment_in_progress

    tell(story)


async def without_its_preferred_leader(c: V2Cluster) -> None:
    await made(c, 1, 2, 3)
    await c.kill(1)
    await c.until(lambda: (leader := c.leader()) is not None and leader.broker != 1 and c.serves(leader.broker))
    await c.start(1)
    leader = c.leader()
    assert leader is not None
    await c.until(lambda: (replica := c.replica(1)) is not None and replica.leader == leader.broker)


def test_the_preferred_replica_leads_again_once_it_has_caught_up() -> None:
    async def story(c: V2Cluster) -> None:
        await without_its_preferred_leader(c)
        await produce_until(c, lambda: c.serves(1))

    tell(story, settings=QUICK)


def test_on_an_idle_partition_nothing_of_the_kind_happens() -> None:
    """001 does all that as produce requests are committed."""

    async def story(c: V2Cluster) -> None:
        await without_its_preferred_leader(c)
        before = c.isr(), c.leader()
        assert 1 not in before[0]
        await asyncio.sleep(10.0)
        assert (c.isr(), c.leader()) == before
        assert await c.out_of_sync() is None, "it has all, and cannot do more"

    tell(story, settings=QUICK)


def test_idle_partitions_are_looked_at_too_where_the_setting_says_so() -> None:
    async def story(c: V2Cluster) -> None:
        await without_its_preferred_leader(c)
        await c.until(lambda: c.serves(1) and c.isr() == {1, 2, 3})

    tell(story, settings={**QUICK, "v2.idle.checks": "true"})


@pytest.mark.parametrize("setting", ["false", "true"])
def test_a_move_of_an_idle_partition_ends_where_the_setting_says_so(setting: str) -> None:
    """By 001 who is to go stays in the ISR: only a request that it does not have would make it leave."""

    async def story(c: V2Cluster) -> None:
        await made(c, 1, 2)
        await c.produced("m1")
        assert await c.reassign((3, 4)) is ErrorCode.none
        if setting == "true":
            await c.until(lambda: c.replicas() == (3, 4) and c.serves(3) and c.isr() == {3, 4})
            await c.until(lambda: c.replica(1) is None and c.replica(2) is None and c.log_of(4) == ["m1"])
        else:
            await asyncio.sleep(20.0)
            assert c.replicas() == (1, 2) and c.serves(1) and c.isr() == {1, 2}

    tell(story, brokers=4, settings={**QUICK, "v2.idle.checks": setting})


def test_a_slow_follower_leaves_the_isr_and_comes_back() -> None:
    async def story(c: V2Cluster) -> None:
        await made(c, 1, 2, 3)
        c.cut((1, 2))
        began = asyncio.get_running_loop().time()
        assert await c.produce("m1", 1) is ErrorCode.none
        assert asyncio.get_running_loop().time() - began > 1.0 and c.isr() == {1, 3}, "it was waited for so long"
        c.mend()
        await produce_until(c, lambda: c.isr() == {1, 2, 3})

    tell(story, settings=QUICK)


def test_asynchronous_replication_waits_for_nobody() -> None:
    """003: the leader's word is enough with acks=1."""

    async def story(c: V2Cluster) -> None:
        await made(c, 1, 2, 3)
        c.cut((1, 2), (1, 3))
        began = asyncio.get_running_loop().time()
        assert await c.produce("m1", 1, acks=1) is ErrorCode.none
        assert asyncio.get_running_loop().time() - began < 0.5
        replica = c.replica(1)
        assert replica is not None and replica.high_watermark == 0

    tell(story, settings=QUICK)


def test_who_leaves_and_has_started_again_before_the_move_is_over_leaves_once_more() -> None:
    """It was asked to close its replica, and has; it starts while ZooKeeper still names it."""

    async def story(c: V2Cluster) -> None:
        await made(c, 1, 2)
        assert await c.reassign((1, 3)) is ErrorCode.none
        await produce_until(c, lambda: c.replica(3) is not None and c.replica(2) is None)
        await c.kill(2)
        await c.start(2)
        assert c.replica(2) is not None and c.replicas() == (1, 2)
        await produce_until(c, lambda: c.replicas() == (1, 3))
        await c.until(lambda: c.replica(2) is None)

    tell(story, settings=QUICK)
