"""003, "Failure scenarios", as this generation has them."""

from __future__ import annotations

import asyncio

from kio.schema.errors import ErrorCode

from .cluster import V2Cluster, tell

QUICK = {"replica.high.watermark.checkpoint.interval.ms": "200", "replica.lag.time.max.ms": "1000"}


async def made(c: V2Cluster) -> None:
    assert await c.create((1, 2, 3)) is ErrorCode.none
    await c.until(lambda: c.serves(1) and c.isr() == {1, 2, 3})
    await c.produced("m1")


def watermark(c: V2Cluster, broker: int) -> int:
    replica = c.replica(broker)
    return -1 if replica is None else replica.high_watermark


def test_a_follower_fails_and_comes_back() -> None:
    """It is dropped after a time, writes go on; it cuts its log at the watermark that its checkpoint has, catches up,
    and is in the ISR again."""

    async def story(c: V2Cluster) -> None:
        await made(c)
        await c.until(lambda: c.checkpointed(3) == 1)
        await asyncio.sleep(0.05)
        await c.produced("m2")
        await c.until(lambda: c.log_of(3) == ["m1", "m2"])
        await c.kill(3)
        assert c.checkpointed(3) == 1
        await c.produced("m3")
        assert c.isr() == {1, 2} and watermark(c, 1) == 3
        await c.start(3)
        cut = [told["end"] for node, event, _, told in c.trace if (node, event) == ("broker-3", "truncate")]
        assert cut == [1], "what is above its watermark goes"
        number = 4
        while 3 not in c.isr():
            await c.produced(f"m{number}")
            number += 1
        await c.until(lambda: c.log_of(3) == c.log_of(1))

    tell(story, settings=QUICK)


def test_a_leader_crashes_before_it_has_written() -> None:
    """Its client has no answer and sends again, to the next one."""

    async def story(c: V2Cluster) -> None:
        await made(c)
        await c.kill(1)
        await c.ask_to_produce("m2", 1)
        assert await c.produced("m2") != 1
        assert {tuple(c.log_of(n)) for n in (2, 3)} == {("m1", "m2")}

    tell(story, settings=QUICK)


def test_a_leader_crashes_after_it_has_written_and_before_it_has_answered() -> None:
    """All survivors have the record, or none: who leads decides. Without producer ids the client writes it twice."""

    async def story(c: V2Cluster) -> None:
        await made(c)
        c.cut((1, 3))
        asked = asyncio.create_task(c.ask_to_produce("m2", 1))
        await c.until(lambda: c.log_of(2) == ["m1", "m2"])
        assert not asked.done() and c.log_of(3) == ["m1"]
        await c.kill(1)
        c.mend()
        leader = await c.produced("m2")
        assert leader in (2, 3)
        twice = ["m1", "m2", "m2"]
        await c.until(lambda: c.log_of(2) == c.log_of(3) == (twice if leader == 2 else ["m1", "m2"]))

    tell(story, settings=QUICK)


def test_a_leader_crashes_after_it_has_answered() -> None:
    async def story(c: V2Cluster) -> None:
        await made(c)
        assert await c.produced("m2") == 1
        await c.kill(1)
        assert await c.produced("m3") != 1
        assert c.log_of(2) == c.log_of(3) == ["m1", "m2", "m3"]
        await c.start(1)
        await c.until(lambda: c.log_of(1) == c.log_of(2))

    tell(story, settings=QUICK)


def test_with_asynchronous_replication_a_record_goes_with_its_leader() -> None:
    async def story(c: V2Cluster) -> None:
        await made(c)
        await c.until(lambda: c.log_of(2) == c.log_of(3) == ["m1"])
        c.cut((1, 2), (1, 3))
        assert await c.produce("m2", 1, acks=1) is ErrorCode.none
        await c.kill(1)
        await c.produced("m3")
        assert c.log_of(2) == c.log_of(3) == ["m1", "m3"]

    tell(story, settings={**QUICK, "replica.lag.time.max.ms": "5000"})


def test_each_but_one_of_the_replicas_may_fail() -> None:
    """003: "Each partition has n replicas and can tolerate n-1 replica failures": if memory is kept."""

    async def story(c: V2Cluster) -> None:
        await made(c)
        await c.produced("m2")
        await c.kill(1)
        leader = await c.produced("m3")
        await c.kill(leader)
        last = 5 - leader
        assert await c.produced("m4") == last
        assert c.log_of(last) == ["m1", "m2", "m3", "m4"]

    tell(story, settings=QUICK)
