"""Nodes that are broker and controller at once: settings, a real cluster, runs under faults, and the quorum of five."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from kio.schema.api_versions.v4 import request as api_versions
from kio.schema.metadata.v12 import request as metadata
from kio.schema.types import TopicName

from cluster_image import wire
from cluster_image.config import ConfigError, parse
from cluster_image.network import Address, Connection
from cluster_image.network.tcp import TcpNetwork
from harness.errors import BadArguments
from harness.explore.simulate import simulate
from harness.plan.plan import Plan, make_plan
from harness.runtimes.docker.runtime import DockerCluster
from harness.runtimes.docker.subnet import Subnet
from harness.targets.kraft.properties import node_properties
from harness.targets.kraft.target import Kraft
from tests.clusters.local_cluster import LocalCluster

NODE = """
node.id=1
process.roles={roles}
cluster.id=c
controller.quorum.voters=1@h:9093,2@i:9093
listeners={listeners}
log.dirs=/d
"""


def read(roles: str, listeners: str) -> Any:
    return parse(NODE.format(roles=roles, listeners=listeners))


# -- settings -------------------------------------------------------------------------------------------------


def test_a_node_with_two_roles_has_two_listeners() -> None:
    config = read("broker,controller", "PLAINTEXT://h:9092,CONTROLLER://h:9093")
    assert config["process.roles"] == ("broker", "controller")
    assert config.listener("broker") == Address("h", 9092)
    assert config.listener("controller") == Address("h", 9093)
    same = read("controller, broker", "CONTROLLER://h:9093,PLAINTEXT://h:9092")
    assert same.values == config.values


@pytest.mark.parametrize("listener", ["h:9092", "PLAINTEXT://h:9092", "CONTROLLER://h:9092"])
@pytest.mark.parametrize("role", ["broker", "controller"])
def test_one_listener_is_that_of_the_one_role(role: str, listener: str) -> None:
    config = read(role, listener)
    assert config.listener("broker") == config.listener("controller") == Address("h", 9092)


@pytest.mark.parametrize(
    ("roles", "listeners", "named"),
    [
        ("broker,controller", "h:9092", "two listeners"),
        ("broker,controller", "h:9092,h:9093", "listeners"),
        ("broker,controller", "A://h:9092,B://h:9093", "listeners"),
        ("broker,controller", "CONTROLLER://h:9092,CONTROLLER://h:9093", "listeners"),
        ("broker,editor", "h:9092", "process.roles"),
    ],
)
def test_what_cannot_be_is_named(roles: str, listeners: str, named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        read(roles, listeners)


def test_metrics_have_a_port_of_their_own() -> None:
    with pytest.raises(ConfigError, match=r"metrics\.port=9092 is a port of listeners"):
        parse(NODE.format(roles="broker", listeners="h:9092") + "metrics.port=9092\n")


def test_a_controller_is_among_the_voters() -> None:
    with pytest.raises(ConfigError, match="voters"):
        parse(NODE.format(roles="controller", listeners="h:9093").replace("node.id=1", "node.id=3"))


def test_a_plan_has_as_many_brokers_as_controllers_among_them() -> None:
    with pytest.raises(BadArguments, match="--controllers 5"):
        make_plan(run="r", combined=True, controllers=5)
    assert "--combined" in Plan(run="r", combined=True).command()


def test_the_harness_makes_the_first_brokers_controllers() -> None:
    plan = Plan(run="r", combined=True, brokers=4, controllers=3)
    cluster = DockerCluster(None, plan, Kraft())  # type: ignore[arg-type]
    nodes = cluster.add_nodes(Subnet("10.200.7.0/24"))
    assert [node.name for node in nodes] == [f"broker-{n}" for n in (1, 2, 3, 4)]
    assert list(cluster.controllers) == list(nodes[:3]) and list(cluster.brokers) == list(nodes)
    properties = node_properties(plan, nodes, "c", trusted=True)
    assert properties["broker-4"]["process.roles"] == "broker"
    for name, text in properties.items():
        config = parse("\n".join(f"{key}={value}" for key, value in text.items()))
        assert list(config["controller.quorum.voters"]) == [1, 2, 3]
        if name != "broker-4":
            assert config["controller.quorum.voters"][config["node.id"]] == config.listener("controller")


# -- a real cluster -------------------------------------------------------------------------------------------


async def connected(network: TcpNetwork, port: int) -> Connection:
    return await network.connect(Address("127.0.0.1", port), client_id="test", timeout=5)


async def served(network: TcpNetwork, port: int) -> set[int]:
    request = api_versions.ApiVersionsRequest(client_software_name="test", client_software_version="1")
    answer = await (await connected(network, port)).request(request, timeout=5)
    return {int(key.api_key) for key in answer.api_keys}


def test_each_listener_serves_what_its_role_does(tmp_path: Path) -> None:
    async def scenario() -> None:
        cluster = LocalCluster(tmp_path, combined=True, **{"controlled.shutdown.timeout.ms": "500"})  # type: ignore[arg-type]
        network = TcpNetwork()
        await cluster.start()
        try:
            for node in (1, 2, 3):
                assert await served(network, cluster.ports[node]) == set(wire.SUPPORTED["broker"])
                assert await served(network, cluster.quorum_ports[node]) == set(wire.SUPPORTED["controller"])
            request = metadata.MetadataRequest(
                topics=(metadata.MetadataRequestTopic(topic_id=None, name=TopicName("t")),),
                allow_auto_topic_creation=False,
                include_topic_authorized_operations=False,
            )
            answer = await (await connected(network, cluster.ports[2])).request(request, timeout=5)
            assert sorted(broker.node_id for broker in answer.brokers) == [1, 2, 3]
        finally:
            await network.close()
            await cluster.stop()

    asyncio.run(scenario())


def test_a_clean_stop_ends_the_broker_first_and_the_quorum_goes_on(tmp_path: Path) -> None:
    async def scenario() -> None:
        cluster = LocalCluster(tmp_path, combined=True, **{"controlled.shutdown.timeout.ms": "1000"})  # type: ignore[arg-type]
        await cluster.start()
        try:
            leader = next(number for number, node in cluster.nodes.items() if node.raft.is_leader)
            broker = cluster.nodes[leader].broker
            assert broker is not None
            epoch = broker.broker_epoch
            await cluster.stop(leader)
            async with asyncio.timeout(10):
                while not any(node.raft.is_leader for node in cluster.nodes.values()):
                    await asyncio.sleep(0.02)
            await cluster.start(leader)
            broker = cluster.nodes[leader].broker
            assert broker is not None and broker.broker_epoch > epoch
            assert broker._logs.previous_epoch == epoch, "it said that it ended cleanly"
        finally:
            await cluster.stop()

    asyncio.run(scenario())


def test_a_node_may_be_told_to_stop_before_it_has_started(tmp_path: Path) -> None:
    async def scenario() -> None:
        cluster = LocalCluster(tmp_path, combined=True)
        starting = asyncio.create_task(cluster.start(1))
        while 1 not in cluster.nodes:
            await asyncio.sleep(0)
        broker = cluster.nodes[1].broker
        assert broker is not None and broker.lifecycle is None
        starting.cancel()
        await cluster.stop()
        assert cluster.nodes == {}

    asyncio.run(scenario())


# -- under faults ---------------------------------------------------------------------------------------------

TINY = {"metadata.log.max.record.bytes.between.snapshots": "1500", "metadata.log.segment.bytes": "1024"}
NEMESES = ("power-outage", "kill", "pause", "partition")


@pytest.mark.parametrize(
    "changes",
    [
        {"combined": True, "seed": 3},
        {"combined": True, "seed": 12, "settings": TINY, "encode_messages": True},
        {"combined": True, "seed": 3, "brokers": 5, "controllers": 5, "settings": TINY},
        {"controllers": 5, "seed": 4},
        {"seed": 8, "settings": TINY},
    ],
    ids=lambda changes: " ".join(f"{name}" for name in changes),
)
def test_a_run_under_faults_passes(changes: dict[str, Any]) -> None:
    plan = Plan(run="r", on="simulation", nemesis=NEMESES, time_limit=20.0, rate=100.0, **changes)
    run = simulate(plan)
    assert run.crash == "" and run.violation is None
    verdict = run.judge()
    assert verdict["verdict"] == "pass", verdict["reason"]
