"""A broker's queue of state changes, on the model of ZooKeeper."""

from __future__ import annotations

import pytest

from cluster_image.v2.metadata import paths
from cluster_image.v2.metadata.state_queue import FollowerStateChangeQueueFull, StateChange, StateQueue
from cluster_image.v2.zookeeper import ZooKeeper
from tests.cluster_image.v2.zookeeper.worlds import Model, World


async def queue(world: World, limit: int) -> tuple[ZooKeeper, StateQueue]:
    client = world.client()
    await client.start()
    for path in (*paths.PARENTS, paths.state(1)):
        await client.create(path)
    return client, StateQueue(client, 1, limit)


async def content(queue: StateQueue) -> list[StateChange]:
    read = [await queue.read(name) for name in await queue.names()]
    return [change for change in read if change is not None]


def start(topic: str, epoch: int) -> StateChange:
    return StateChange("start-replica", topic, 0, epoch, 2)


def close(topic: str, epoch: int) -> StateChange:
    return StateChange("close-replica", topic, 0, epoch, 2)


def test_what_is_asked_for_first_comes_first() -> None:
    async def scenario(world: World) -> None:
        _, asked = await queue(world, 10)
        wanted = [start("a", 1), close("b", 2), start("a", 3)]
        for change in wanted:
            await asked.put(change)
        assert await content(asked) == wanted
        first = (await asked.names())[0]
        await asked.remove(first)
        await asked.remove(first)  # which is done already
        assert await content(asked) == wanted[1:] and await asked.read(first) is None

    Model().run(scenario)


def test_a_full_queue_keeps_one_close_of_each_partition_with_the_latest_epoch() -> None:
    async def scenario(world: World) -> None:
        _, asked = await queue(world, 5)
        for change in (start("a", 1), close("a", 1), close("a", 4), start("b", 1), close("b", 2)):
            await asked.put(change)
        await asked.put(start("c", 1))
        assert await content(asked) == [close("a", 4), close("b", 2), start("c", 1)]

    Model().run(scenario)


def test_one_that_is_full_all_the_same_is_an_error() -> None:
    async def scenario(world: World) -> None:
        _, asked = await queue(world, 2)
        await asked.put(close("a", 1))
        await asked.put(close("b", 1))
        with pytest.raises(FollowerStateChangeQueueFull, match="broker 1 has 2 state changes"):
            await asked.put(close("c", 1))
        assert await content(asked) == [close("a", 1), close("b", 1)]

    Model().run(scenario)
