"""001, "Become leader" and "Become follower", and the two flaws of them that 004 does not tell of."""

from __future__ import annotations

import asyncio

import pytest
from kio.schema.errors import ErrorCode

from cluster_image.v2.metadata import paths

from .cluster import V2Cluster, tell

#: The watermark gets into the checkpoint soon; a new leader waits long.
SETTINGS = {"replica.high.watermark.checkpoint.interval.ms": "200", "replica.lag.time.max.ms": "6000"}


async def while_it_waits(c: V2Cluster) -> None:
    """m1 is everywhere, m2 on the leader and on 2, and not acknowledged. The leader is killed, 2 is elected, and waits
    for 3, which cannot reach it."""
    assert await c.create((1, 2, 3)) is ErrorCode.none
    await c.until(lambda: c.serves(1) and c.isr() == {1, 2, 3})
    await c.produced("m1")
    await c.until(lambda: all((r := c.replica(n)) is not None and r.high_watermark == 1 for n in (1, 2, 3)))
    await c.until(lambda: [c.checkpointed(n) for n in (1, 2, 3)] == [1, 1, 1])
    c.cut((1, 3), (2, 3))
    waiting = asyncio.create_task(c.ask_to_produce("m2", 1))
    await c.until(lambda: c.log_of(2) == ["m1", "m2"])
    await c.kill(1)
    await c.until(lambda: any((r := c.replica(n)) is not None and r.is_leader for n in (2, 3)))
    waiting.cancel()
    replica = c.replica(2)
    assert replica is not None and replica.is_leader, "with this seed it is faster than 3"


def test_nobody_is_served_and_no_watermark_is_kept_before_a_new_leaders_followers_had_their_time() -> None:
    async def story(c: V2Cluster) -> None:
        await while_it_waits(c)
        await asyncio.sleep(1.0)
        assert not c.serves(2)
        assert await c.produce("m3", 2) is await c.consume_error(2) is ErrorCode.not_leader_or_follower
        replica = c.replica(2)
        assert replica is not None and replica.high_watermark == 2
        assert c.checkpointed(2) == 1, "001: the checkpoint thread is stopped before, and started after"
        await c.until(lambda: c.serves(2) and c.isr() == {2})
        await c.until(lambda: c.checkpointed(2) == 2)

    tell(story, seed=1, settings=SETTINGS)


@pytest.mark.parametrize(("watermark", "seen"), [("end", ["m1", "m2"]), ("checkpoint", ["m1"])])
def test_a_new_leader_shows_what_is_on_no_other_replica(watermark: str, seen: list[str]) -> None:
    """001, becomeLeader: "TODO: check if this should actually be r.hw = last checkpointed HW for r"."""

    async def story(c: V2Cluster) -> None:
        await while_it_waits(c)
        await c.until(lambda: c.serves(2) and c.isr() == {2})
        assert await c.consumed(2) == seen and c.log_of(3) == ["m1"]
        await c.produced("m3")
        assert await c.consumed(2) == ["m1", "m2", "m3"]

    tell(story, seed=1, settings={**SETTINGS, "v2.election.watermark": watermark})


def test_who_does_not_lead_takes_no_records_and_shows_none() -> None:
    async def story(c: V2Cluster) -> None:
        assert await c.create((1, 2)) is ErrorCode.none
        await c.produced("m1")
        await c.until(lambda: c.log_of(2) == ["m1"])
        assert await c.produce("m2", 2) is await c.consume_error(2) is ErrorCode.not_leader_or_follower
        assert await c.produce("m2", 3) is ErrorCode.unknown_topic_or_partition
        assert c.log_of(1) == c.log_of(2) == ["m1"]

    tell(story)


def test_readers_see_what_is_committed() -> None:
    async def story(c: V2Cluster) -> None:
        assert await c.create((1, 2)) is ErrorCode.none
        await c.until(lambda: c.serves(1) and c.isr() == {1, 2})
        await c.produced("m1")
        c.cut((1, 2))
        waiting = asyncio.create_task(c.produce("m2", 1))
        await c.until(lambda: c.log_of(1) == ["m1", "m2"])
        assert await c.consumed(1) == ["m1"]
        assert await waiting is ErrorCode.none and c.isr() == {1}
        assert await c.consumed(1) == ["m1", "m2"]

    tell(story, settings={"replica.lag.time.max.ms": "2000"})


@pytest.mark.parametrize(("settings", "closed"), [({}, True), ({"v2.close.epochs": "true"}, False)])
def test_a_deposed_leader_closes_a_replica_of_its_successors_isr(settings: dict[str, str], closed: bool) -> None:
    """001, stateChangeListener: "we don't need to check epoch here". What a leader has sent before it was deposed is
    carried out whenever it is read."""

    async def story(c: V2Cluster) -> None:
        assert await c.create((1, 2, 3)) is ErrorCode.none
        await c.until(lambda: c.serves(1) and c.isr() == {1, 2, 3})
        await c.kill(1)
        await c.until(lambda: (leader := c.leader()) is not None and c.serves(leader.broker))
        await c.produced("m1")
        leader = c.leader()
        assert leader is not None and leader.epoch == 1 and c.isr() == {2, 3}
        follower = 5 - leader.broker
        await c.ask_for("close-replica", follower, 0, by=leader.broker)
        await c.until(lambda: any(event == "state change completed" and told["kind"] == "close-replica"
                                  for _, event, _, told in c.trace))  # fmt: skip
        assert (c.replica(follower) is None) is closed
        assert follower in c.isr()

    tell(story, settings=settings)


def test_slow_followers_are_waited_for_in_turn() -> None:
    """001 has one commit thread, and a time-out for each of them: two take twice as long."""

    async def story(c: V2Cluster) -> None:
        assert await c.create((1, 2, 3)) is ErrorCode.none
        await c.until(lambda: c.serves(1) and c.isr() == {1, 2, 3})
        c.cut((1, 2), (1, 3))
        began = asyncio.get_running_loop().time()
        assert await c.produce("m1", 1) is ErrorCode.none
        assert 4.0 <= asyncio.get_running_loop().time() - began < 5.0 and c.isr() == {1}

    tell(story, settings={"replica.lag.time.max.ms": "2000"})


def test_what_an_earlier_leader_has_asked_to_start_is_not_started() -> None:
    async def story(c: V2Cluster) -> None:
        assert await c.create((1, 2, 3)) is ErrorCode.none
        await c.until(lambda: c.serves(1) and c.isr() == {1, 2, 3})
        await c.ask_for("close-replica", 3, 0, by=1)
        await c.until(lambda: c.replica(3) is None)
        await c.kill(1)
        await c.until(lambda: c.serves(2))
        for epoch, started in ((0, False), (1, True)):
            await c.ask_for("start-replica", 3, epoch, by=2)
            await c.until(lambda: not c.children(paths.state(3)))
            assert (c.replica(3) is not None) is started

    tell(story)


def test_who_waits_to_be_acknowledged_hears_that_nothing_comes_of_it() -> None:
    async def story(c: V2Cluster) -> None:
        assert await c.create((1, 2)) is ErrorCode.none
        await c.until(lambda: c.serves(1) and c.isr() == {1, 2})
        c.cut((1, 2))
        waiting = asyncio.create_task(c.produce("m1", 1))
        await c.until(lambda: c.log_of(1) == ["m1"])
        assert await c.delete(broker=2) is ErrorCode.none
        assert await waiting is ErrorCode.unknown_topic_or_partition

    tell(story, settings={"replica.lag.time.max.ms": "20000"})
