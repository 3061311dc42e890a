"""What is still broken of a simulated cluster is seen where it is broken, whoever did it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from harness.cluster import CLIENTS, Shape
from harness.runtimes.simulation.cluster import SimulatedCluster
from harness.runtimes.simulation.node import SimulatedNode
from tests.nemesis.test_nemesis_membership import Bench

Do = Callable[[SimulatedCluster, SimulatedNode], Awaitable[Any]]


async def replaced(cluster: SimulatedCluster, node: SimulatedNode) -> None:
    await node.kill()
    await node.replace(1001)


async def put_back(cluster: SimulatedCluster, node: SimulatedNode) -> None:
    await node.put_back()
    await node.start()


@pytest.mark.parametrize(
    ("left", "break_it", "heal"),
    [
        ("the network is cut for k", lambda c, n: c.block("k", [(n.name, CLIENTS)]), lambda c, n: c.unblock("k")),
        ("the network is cut for k", lambda c, n: c.block("k", [(CLIENTS, n.name)]), lambda c, n: c.heal()),
        ("the network is shaped for k", lambda c, n: c.shape("k", [("broker-2", n.name)], Shape(loss=0.1)),
         lambda c, n: c.unshape("k")),
        ("the network is shaped for k", lambda c, n: c.shape("k", [("broker-2", n.name)], Shape(rate_kbit=9)),
         lambda c, n: c.heal()),
        ("broker-1 has a disk that is full on purpose", lambda c, n: n.fill_disk(), lambda c, n: n.free_disk()),
        ("broker-1 has a disk that fails", lambda c, n: n.fail_disk(), lambda c, n: n.repair_disk()),
        ("broker-1 has a read-only disk", lambda c, n: n.make_disk_read_only(), lambda c, n: n.make_disk_writable()),
        ("broker-1 has a slow disk", lambda c, n: n.slow_disk(9_000, 9), lambda c, n: n.hasten_disk()),
        ("broker-1 is frozen", lambda c, n: n.pause(), lambda c, n: n.resume()),
        ("broker-1 is frozen", lambda c, n: n.pause(), lambda c, n: n.kill()),
        ("broker-1 has no power", lambda c, n: n.cut_power(), lambda c, n: n.restore_power()),
        ("broker-1 has a clock that is 3 s ahead and gains 0 s a second", lambda c, n: n.set_clock(3.0),
         lambda c, n: n.set_clock(0.0)),
        ("broker-1 is replaced by another broker", replaced, put_back),
    ],
)  # fmt: skip
def test_what_is_broken_is_seen_until_it_is_healed(left: str, break_it: Do, heal: Do) -> None:
    async def scenario(bench: Bench) -> None:
        cluster, node = bench.cluster, bench.cluster.node("broker-1")
        assert await cluster.leftovers() == []
        await break_it(cluster, node)
        assert await cluster.leftovers() == [left]
        await heal(cluster, node)
        assert await cluster.leftovers() == []

    Bench(partitions=1).run(scenario)


def test_all_of_it_is_seen_at_once() -> None:
    async def scenario(bench: Bench) -> None:
        cluster, node = bench.cluster, bench.cluster.node("broker-1")
        await cluster.block("one", [(node.name, "broker-2")])
        await cluster.block("nothing", [])
        await cluster.shape("one", [(node.name, "broker-2")], Shape(loss=0.1))
        await node.pause()
        node.disk.full = node.disk.failing = node.disk.read_only = True
        node.disk.limit = 1, 1
        await cluster.node("broker-2").set_clock(-1.0)
        left = await cluster.leftovers()
        assert len(left) == len(set(left)) == 8, left
        assert [each for each in left if "nothing" in each] == []

    Bench(partitions=1).run(scenario)
