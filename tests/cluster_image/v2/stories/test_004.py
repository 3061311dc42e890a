"""004 told step by step, on the design that it is about: A and B are the brokers 1 and 2, and B leads."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from kio.schema.errors import ErrorCode

from checkers.inside.v2.simulated import Invariants

from .cluster import V2Cluster, tell

A, B = 1, 2
#: The watermark gets into the checkpoint soon.
QUICK: Final[Mapping[str, str]] = {
    "replica.high.watermark.checkpoint.interval.ms": "300", "replica.lag.time.max.ms": "1000",
}  # fmt: skip
MENDED: Final = {**QUICK, "v2.leader.epochs": "true"}


def watermark(c: V2Cluster, broker: int) -> int:
    replica = c.replica(broker)
    return -1 if replica is None else replica.high_watermark


async def m2_is_acknowledged_and_a_does_not_know(c: V2Cluster) -> None:
    assert await c.create((B, A)) is ErrorCode.none
    await c.until(lambda: c.serves(B) and c.isr() == {A, B})
    await c.produced("m1")
    await c.until(lambda: watermark(c, A) == 1)
    m2 = asyncio.create_task(c.produce("m2", B))
    await c.until(lambda: c.log_of(A) == ["m1", "m2"])
    c.cut_one_way(B, A)  # A has m2, and what B has committed it does not hear any more
    assert (await m2, watermark(c, A), watermark(c, B)) == (ErrorCode.none, 1, 2)
    await asyncio.sleep(0.5)


async def a_restarts_and_b_fails(c: V2Cluster) -> None:
    """Before A has fetched again."""
    await m2_is_acknowledged_and_a_does_not_know(c)
    await c.kill(A)
    await c.start(A)
    await c.until(lambda: (replica := c.replica(A)) is not None and replica.leader == B)
    await c.kill(B)
    c.mend()
    await c.until(lambda: c.serves(A))


def test_the_new_leader_lacks_what_was_acknowledged() -> None:
    async def story(c: V2Cluster) -> None:
        await a_restarts_and_b_fails(c)
        assert c.log_of(A) == ["m1"]

    tell(story, brokers=2, settings=QUICK)


def test_with_leader_epochs_it_does_not() -> None:
    async def story(c: V2Cluster) -> None:
        await a_restarts_and_b_fails(c)
        assert c.log_of(A) == ["m1", "m2"]
        await c.start(B)
        await c.produced("m3")
        await c.until(lambda: c.log_of(A) == c.log_of(B) == ["m1", "m2", "m3"])

    tell(story, brokers=2, settings=MENDED)


def test_logs_diverge_and_nobody_notices() -> None:
    async def story(c: V2Cluster) -> None:
        await a_restarts_and_b_fails(c)
        await c.produced("m3")
        await c.start(B)
        await c.until(lambda: (replica := c.replica(B)) is not None and replica.leader == A)
        await c.produced("m4")
        await c.until(lambda: len(c.log_of(B)) == 3)
        assert (c.log_of(A), c.log_of(B)) == (["m1", "m3", "m4"], ["m1", "m2", "m4"])

    tell(story, brokers=2, settings=QUICK)


def test_a_follower_stands_still_in_the_middle_of_a_batch() -> None:
    async def story(c: V2Cluster) -> None:
        await a_restarts_and_b_fails(c)
        assert await c.produce("m3", A, and_also=("m4", "m5")) is ErrorCode.none
        await c.start(B)
        await c.until(lambda: (replica := c.replica(B)) is not None and replica.leader == A)
        await asyncio.sleep(5.0)
        assert (c.log_of(A), c.log_of(B)) == (["m1", "m3", "m4", "m5"], ["m1", "m2"])
        assert "broker 2 is not in the ISR of partition 0 and has" in str(await c.out_of_sync())
        unsettled = Invariants().unsettled(c.processes())
        assert unsettled == "the log of broker-2 ends at 2, and that of broker-1, which leads story-0, at 4"

    tell(story, brokers=2, settings=QUICK)
