"""Faults of links while one node cannot be asked: what its others do, count and tell is as if it were not there."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest

from harness.cluster import CLIENTS, ClusterLost, NotAvailable, Shape
from harness.runtimes.nodes.asking import AgentError
from harness.runtimes.nodes.cluster import AgentCluster
from harness.runtimes.nodes.node import AgentNode


class Asked:
    """A node that counts 5 packets for what is undone, once. lost: it cannot be asked."""

    def __init__(self, number: int) -> None:
        self.name, self.address = f"broker-{number}", (f"10.0.0.{number}", 9092)
        self.lost: Exception | None = None
        self.in_force: dict[str, list[str]] = {}  # by key, from where
        self.asked: list[str] = []
        self.no_netem = ""

    def _ask(self, what: str) -> None:
        self.asked.append(what)
        if self.lost is not None:
            raise self.lost

    async def block(self, key: str, incoming: list[str], outgoing: list[str]) -> None:
        self._ask("block")
        self.in_force[key] = [*incoming, *outgoing]

    async def unblock(self, key: str) -> dict[str, int]:
        self._ask("unblock")
        return {f"saddr {address}": 5 for address in self.in_force.pop(key, [])}

    async def shape(self, key: str, wanted: dict[str, Any]) -> None:
        self._ask("shape")
        self.in_force[key] = wanted["incoming"]

    async def unshape(self, key: str) -> dict[str, dict[str, int]]:
        self._ask("unshape")
        return {f"saddr {address}": {"packets_dropped": 5} for address in self.in_force.pop(key, [])}

    async def mend_network(self) -> None:
        self._ask("mend")
        self.in_force.clear()

    async def leftovers(self) -> list[str]:
        self._ask("leftovers")
        return [f"has rules of {key}" for key in self.in_force]

    async def lacks(self, need: str) -> str | None:
        self._ask("lacks")
        return self.no_netem or None

    async def round_trips(self, addresses: list[str], patience: float) -> dict[str, Any]:
        if self.lost is not None:
            raise self.lost
        ms = 51.0 if any(self.in_force.values()) else 1.0
        return {address: {"ms": ms, "answered": 10, "overtaken": 0} for address in addresses}


class OfNodes(AgentCluster):
    def __init__(self, *nodes: Asked) -> None:
        super().__init__(cast(Any, None), cast(Any, None))
        self.machines = cast(Any, nodes)
        self._outside = "10.0.0.99"

    async def stop(self) -> None: ...

    async def _save_log_of(self, node: AgentNode, path: Path) -> None: ...


@pytest.fixture
def nodes() -> list[Asked]:
    return [Asked(1), Asked(2), Asked(3)]


LOST = AgentError("unblock on broker-3: host c does not answer")
BOTH = [("broker-1", "broker-2"), ("broker-2", "broker-1")]


def test_a_partition_between_others_is_made_and_healed_without_a_lost_node(nodes: list[Asked]) -> None:
    async def scenario() -> dict[str, Any]:
        cluster = OfNodes(*nodes)
        nodes[2].lost = LOST
        await cluster.block("partition", BOTH)
        return await cluster.unblock("partition")

    assert asyncio.run(scenario())["packets_dropped_by_link"] == {"broker-2 > broker-1": 5, "broker-1 > broker-2": 5}
    assert nodes[2].asked == []


def test_what_was_counted_is_told_once_the_lost_node_answers_again(nodes: list[Asked]) -> None:
    async def scenario() -> dict[str, Any]:
        cluster = OfNodes(*nodes)
        await cluster.block("partition", [*BOTH, ("broker-1", "broker-3")])
        nodes[2].lost = LOST
        for _ in range(2):
            with pytest.raises(AgentError, match="host c does not answer"):
                await cluster.unblock("partition")
        nodes[2].lost = None
        return await cluster.unblock("partition")

    assert asyncio.run(scenario())["packets_dropped"] == 15
    assert nodes[0].asked == ["block", "unblock"], "it has nothing to undo any more"


def test_what_one_could_not_be_told_the_others_do_and_undo(nodes: list[Asked]) -> None:
    async def scenario() -> None:
        cluster = OfNodes(*nodes)
        nodes[2].lost = LOST
        with pytest.raises(AgentError):
            await cluster.block("partition", [("broker-1", "broker-3"), ("broker-1", "broker-2")])
        assert nodes[1].in_force
        with pytest.raises(AgentError):  # it may have done it, for all that is known
            await cluster.unblock("partition")
        assert not nodes[1].in_force

    asyncio.run(scenario())


def test_one_that_was_mended_needs_not_be_asked_again_and_one_that_was_not_does(nodes: list[Asked]) -> None:
    async def scenario() -> dict[str, Any]:
        cluster = OfNodes(*nodes)
        await cluster.block("partition", [*BOTH, ("broker-1", "broker-3")])
        nodes[2].lost = LOST
        with pytest.raises(AgentError):
            await cluster.heal()
        with pytest.raises(AgentError):
            await cluster.unblock("partition")
        nodes[2].lost = None
        return await cluster.unblock("partition")

    assert asyncio.run(scenario())["packets_dropped_by_link"] == {"broker-1 > broker-3": 5}
    assert nodes[0].asked == ["block", "mend"]


def test_a_key_is_used_again_for_other_links(nodes: list[Asked]) -> None:
    async def scenario() -> None:
        cluster = OfNodes(*nodes)
        await cluster.block("story", BOTH)
        await cluster.block("story", [("broker-1", "broker-3"), (CLIENTS, "broker-2")])
        assert [list(node.in_force.values()) for node in nodes] == [[[]], [["10.0.0.99"]], [["10.0.0.1"]]]
        assert (await cluster.unblock("story"))["packets_dropped"] == 10
        assert (await cluster.unblock("story"))["packets_dropped"] == 0

    asyncio.run(scenario())


def test_links_are_shaped_and_measured_without_a_lost_node(nodes: list[Asked]) -> None:
    async def scenario() -> tuple[dict[str, Any], dict[str, Any]]:
        cluster = OfNodes(*nodes)
        nodes[0].lost = LOST
        links = [("broker-2", "broker-3"), ("broker-3", "broker-2")]
        shaped = await cluster.shape("slow", links, Shape(delay_ms=50.0))
        nodes[2].lost = LOST
        with pytest.raises(AgentError):
            await cluster.unshape("slow")
        nodes[2].lost = None
        return shaped, await cluster.unshape("slow")

    shaped, unshaped = asyncio.run(scenario())
    assert nodes[0].asked == []
    assert shaped["round_trip_ms"] == unshaped["round_trip_ms"] == {"before": 1.0, "while": 51.0}
    assert unshaped["packets_dropped"] == 10


def test_whoever_of_those_struck_has_no_netem_is_named(nodes: list[Asked]) -> None:
    cluster = OfNodes(*nodes)
    nodes[1].no_netem = "no netem"
    with pytest.raises(NotAvailable, match=r"^not available here: broker-2: no netem$"):
        asyncio.run(cluster.shape("slow", BOTH, Shape(delay_ms=50.0)))
    nodes[0].no_netem = "no netem"
    with pytest.raises(NotAvailable, match=r"^not available here: no netem$"):
        asyncio.run(cluster.shape("slow", BOTH, Shape(delay_ms=50.0)))


def test_what_one_that_cannot_be_looked_at_may_have_is_told_with_what_the_others_have(nodes: list[Asked]) -> None:
    nodes[0].in_force["x"] = []
    nodes[2].lost = LOST
    assert asyncio.run(OfNodes(*nodes).leftovers()) == [
        "broker-1 has rules of x", f"broker-3 cannot be looked at: {LOST}",
    ]  # fmt: skip
    nodes[2].lost = ClusterLost("the agent is gone")
    with pytest.raises(ClusterLost):
        asyncio.run(OfNodes(*nodes).leftovers())


def test_of_several_errors_each_is_told_and_a_cluster_that_is_lost_is_that(nodes: list[Asked]) -> None:
    nodes[0].lost, nodes[2].lost = AgentError("mend on broker-1: host a is down"), LOST
    with pytest.raises(AgentError, match=r"^mend on broker-1: host a is down; unblock on broker-3: host c does not"):
        asyncio.run(OfNodes(*nodes).heal())
    nodes[2].lost = ClusterLost("the agent is gone")
    with pytest.raises(ClusterLost):
        asyncio.run(OfNodes(*nodes).heal())
