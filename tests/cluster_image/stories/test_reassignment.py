"""A partition moves to other brokers while it is written to and nodes fail (000, 2.3; description 4 and 6.7)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from kio.schema.errors import ErrorCode

from tests.cluster_image.stories.script import Script, tell


@asynccontextmanager
async def load(s: Script) -> AsyncIterator[list[str]]:
    """Record after record, whoever leads. Yields what has been acknowledged, and goes on in the background."""
    acknowledged: list[str] = []

    async def produce() -> None:
        for number in range(1_000_000):
            await s.passing(0.02)
            if s.leader < 0:
                continue
            try:
                error = await asyncio.wait_for(s.send(f"r{number}"), 2.0)
            except (ConnectionError, TimeoutError):
                continue
            if error is ErrorCode.none:
                acknowledged.append(f"r{number}")

    writing = asyncio.create_task(produce())
    try:
        yield acknowledged
    finally:
        writing.cancel()


async def some_more(s: Script, acknowledged: list[str]) -> None:
    until = len(acknowledged) + 20
    await s.until(lambda: len(acknowledged) >= until)


def done(s: Script, *target: int) -> bool:
    r = s.registration
    return r.replicas == target and set(r.isr) == set(target) and not r.adding and not r.removing


async def nothing_is_lost(s: Script, acknowledged: list[str], *target: int) -> None:
    values = await s.read()
    assert set(acknowledged) <= set(values) and len(set(values)) == len(values)
    ends = [s.end_of(broker) for broker in target]
    await s.until(lambda: len({s.end_of(broker) for broker in target}) == 1)
    assert max(ends) >= len(acknowledged)
    for broker in target:
        assert s.log_of(broker) == s.log_of(target[0])


@pytest.mark.parametrize("trouble", ["none", "leader killed", "target killed", "target cut off", "controller killed"])
def test_a_move_under_load_completes_and_loses_nothing(trouble: str) -> None:
    async def story(s: Script) -> None:
        async with load(s) as acknowledged:
            await some_more(s, acknowledged)
            if trouble == "target cut off":
                s.cut((4, 1), (1, 4))
            elif trouble == "target killed":
                await s.kill(5)
            assert await s.reassign(4, 5, through=2) is ErrorCode.none
            if trouble == "leader killed":
                await s.until(lambda: 4 in s.registration.isr)
                await s.kill(1)
            elif trouble == "controller killed":
                await s.kill_active_controller()
            elif trouble != "none":
                await s.passing(6.0)
                assert not done(s, 4, 5) and len(s.registration.isr) >= 2, "it waits for all of the target"
                await some_more(s, acknowledged)
                if trouble == "target killed":
                    await s.start(5)
                s.mend()
            await s.until(lambda: done(s, 4, 5))
            assert s.leader in (4, 5)
            await some_more(s, acknowledged)
            survivors = (2, 3) if trouble == "leader killed" else (1, 2, 3)
            await s.until(lambda: not any(s.has_replica(broker) for broker in survivors))
        await nothing_is_lost(s, acknowledged, 4, 5)

    ending = tell(story, (1, 2, 3), 2, spare=2)
    assert ending.violation is None and not ending.losses, ending


def test_a_replica_that_comes_back_begins_anew() -> None:
    """Moved away and back again: what was on the disk before is not what the partition is now."""

    async def story(s: Script) -> None:
        async with load(s) as acknowledged:
            await some_more(s, acknowledged)
            assert await s.reassign(2, 4) is ErrorCode.none
            await s.until(lambda: done(s, 2, 4) and not s.has_replica(1) and not s.has_replica(3))
            await some_more(s, acknowledged)
            assert await s.reassign(1, 3, through=2) is ErrorCode.none
            await s.until(lambda: done(s, 1, 3))
            await some_more(s, acknowledged)
        await nothing_is_lost(s, acknowledged, 1, 3)

    ending = tell(story, (1, 2, 3), 2, spare=1)
    assert ending.violation is None and not ending.losses, ending


def test_a_cancelled_move_leaves_the_partition_as_it_was() -> None:
    async def story(s: Script) -> None:
        async with load(s) as acknowledged:
            await some_more(s, acknowledged)
            await s.kill(5)
            assert await s.reassign(4, 5, through=2) is ErrorCode.none
            await s.until(lambda: 4 in s.registration.isr)
            assert await s.reassign(through=2) is ErrorCode.none
            await s.until(lambda: done(s, 1, 2, 3) and not s.has_replica(4))
            await some_more(s, acknowledged)
        await nothing_is_lost(s, acknowledged, 1, 2, 3)

    ending = tell(story, (1, 2, 3), 2, spare=2)
    assert ending.violation is None and not ending.losses, ending
