"""Reassignments that are given up after replicas were asked to close (001 has no such thing), and v2.close.isr."""

from __future__ import annotations

import asyncio

import pytest
from kio.schema.errors import ErrorCode

from cluster_image.v2.metadata import paths

from .cluster import V2Cluster, tell

MENDED = {"v2.leader.epochs": "true", "v2.isr.versioned": "true", "v2.close.epochs": "true"}
QUICK = {**MENDED, "replica.lag.time.max.ms": "1000", "v2.idle.checks": "true"}


async def made(c: V2Cluster, *replicas: int) -> None:
    assert await c.create(replicas) is ErrorCode.none
    await c.until(lambda: c.serves(replicas[0]) and c.isr() == set(replicas))


def asked_to_close(c: V2Cluster, broker: int) -> bool:
    queue = paths.state(broker)
    return any(b"close-replica" in (c.znode(f"{queue}/{name}") or b"") for name in c.children(queue))


@pytest.mark.parametrize(("leaves_isr", "left"), [("false", []), ("true", ["m1"])])
def test_who_has_closed_its_replica_and_is_to_stay_after_all(leaves_isr: str, left: list[str]) -> None:
    """It begins with an empty log, and leads with it where it was left in the ISR: what was acknowledged is lost.

    Found by exploring: `--target v2 --nemesis membership:reassign,kill:follower --brokers 4 --partitions 6 --rate 5
    --interval 2s` with the other settings that mend, seed 22."""

    async def story(c: V2Cluster) -> None:
        await made(c, 1, 2, 3)
        assert await c.reassign((1, 2)) is ErrorCode.none
        await c.produced("m1")
        await c.until(lambda: c.replica(3) is None and c.log_of(2) == ["m1"])
        await c.node(1).pause()
        assert await c.reassign(None, broker=2) is ErrorCode.none
        await c.until(lambda: c.replica(3) is not None)
        await c.kill(2)
        await c.kill(1)
        if left:
            with pytest.raises(TimeoutError):
                await c.until(lambda: c.serves(3), seconds=60.0)
        else:
            await c.until(lambda: c.serves(3), seconds=60.0)
        await c.start(1)
        await c.start(2)
        await c.until(lambda: c.isr() == {1, 2, 3}, seconds=120.0)
        assert [c.log_of(n) for n in (1, 2, 3)] == [left] * 3

    # So long that nobody leaves the ISR by itself.
    tell(story, settings={**QUICK, "replica.lag.time.max.ms": "20000", "v2.close.isr": leaves_isr})


@pytest.mark.parametrize(("leaves_isr", "is_closed"), [("false", True), ("true", False)])
def test_who_comes_to_a_request_to_close_once_the_move_is_given_up(leaves_isr: str, is_closed: bool) -> None:
    """The leader's term has ended by then, so that the request is one of an earlier leader."""

    async def story(c: V2Cluster) -> None:
        await made(c, 1, 2, 3)
        await c.produced("m0")
        await c.until(lambda: c.log_of(3) == ["m0"])
        before = c.replica(3)
        assert await c.reassign((1, 2)) is ErrorCode.none
        await c.node(3).pause()
        await c.until(lambda: asked_to_close(c, 3))
        assert await c.reassign(None) is ErrorCode.none
        await c.until(lambda: c.serves(1) and (leader := c.leader()) is not None and leader.epoch == (not is_closed))
        await c.node(3).resume()
        await c.produced("m1")
        await c.until(lambda: not asked_to_close(c, 3) and c.replica(3) is not None)
        await c.until(lambda: c.isr() == {1, 2, 3} and c.log_of(3) == ["m0", "m1"])
        assert (c.replica(3) is not before) == is_closed

    tell(story, settings={**QUICK, "zookeeper.session.timeout.ms": "20000", "v2.close.isr": leaves_isr})


@pytest.mark.parametrize("leaves_isr", ["false", "true"])
def test_a_new_leader_asks_who_has_closed_its_replica_to_start_it(leaves_isr: str) -> None:
    """An administrator's request may have come before the request to close, and the term ended with that."""

    async def story(c: V2Cluster) -> None:
        await made(c, 1, 2, 3)
        await c.produced("m1")
        await c.ask_for("close-replica", 3, epoch=0, by=1)
        await c.until(lambda: c.replica(3) is None)
        await c.kill(1)
        await c.until(lambda: c.serves(2))
        if leaves_isr == "true":
            await c.until(lambda: c.replica(3) is not None and c.log_of(3) == ["m1"] and c.isr() == {2, 3})
        else:
            with pytest.raises(TimeoutError):
                await c.until(lambda: c.replica(3) is not None)

    tell(story, settings={**QUICK, "v2.close.isr": leaves_isr})


def test_a_move_that_is_complete_ends_no_term() -> None:
    async def story(c: V2Cluster) -> None:
        await made(c, 1, 2)
        assert await c.reassign((1, 3)) is ErrorCode.none
        await c.until(lambda: c.replicas() == (1, 3) and c.isr() == {1, 3} and c.replica(2) is None)
        await asyncio.sleep(5.0)
        leader = c.leader()
        assert leader is not None and (leader.broker, leader.epoch) == (1, 0)

    tell(story, settings={**QUICK, "v2.close.isr": "true"})
