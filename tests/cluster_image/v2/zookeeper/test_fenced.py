"""A client whose writes ask for a node, on the model and on Apache ZooKeeper."""

from __future__ import annotations

import pytest

from cluster_image.v2.zookeeper import Create, NodeExists, NoNode, ZooKeeper
from cluster_image.v2.zookeeper.fenced import Fenced, FencedZooKeeper

from .worlds import World


async def _started(world: World) -> ZooKeeper:
    client = world.client()
    await client.start()
    return client


def test_it_writes_as_long_as_the_node_is_there(world: World) -> None:
    async def scenario(world: World) -> None:
        client = await _started(world)
        fence, a = f"{world.base}/fence", f"{world.base}/a"
        await client.create(fence, ephemeral=True)
        fenced = FencedZooKeeper(client, fence)
        assert await fenced.create(a, b"1") == a
        assert (await fenced.set(a, b"2")).version == 1
        assert await fenced.create(f"{a}/q-", sequence=True) == f"{a}/q-0000000000"
        await client.delete(fence)
        for write in (
            lambda: fenced.create(f"{a}/b"),
            lambda: fenced.set(a, b"3"),
            lambda: fenced.delete(f"{a}/q-0000000000"),
            lambda: fenced.multi([Create(f"{a}/b")]),
        ):
            with pytest.raises(Fenced):
                await write()
        assert (await fenced.get(a))[0] == b"2" and await fenced.children(a) == ["q-0000000000"]

    world.run(scenario)


def test_it_goes_with_the_session_that_made_the_node(world: World) -> None:
    async def scenario(world: World) -> None:
        holder, other = await _started(world), await _started(world)
        fence = f"{world.base}/fence"
        await holder.create(fence, ephemeral=True)
        fenced = FencedZooKeeper(other, fence)
        await fenced.create(f"{world.base}/a")
        await holder.close()
        await world.forget(holder)
        with pytest.raises(Fenced):
            await fenced.create(f"{world.base}/b")
        assert await other.exists(f"{world.base}/b") is None

    world.run(scenario)


def test_what_is_refused_for_itself_is_told_as_such(world: World) -> None:
    async def scenario(world: World) -> None:
        client = await _started(world)
        fence = f"{world.base}/fence"
        await client.create(fence, ephemeral=True)
        fenced = FencedZooKeeper(client, fence)
        with pytest.raises(NoNode):
            await fenced.set(f"{world.base}/none", b"")
        with pytest.raises(NodeExists):
            await fenced.create(fence)

    world.run(scenario)
