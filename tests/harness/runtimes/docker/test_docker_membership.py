"""A broker in Docker that another takes the place of, as librdkafka sees it from outside."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from harness.plan.plan import Plan
from harness.runtimes.docker import cleanup, engine
from harness.runtimes.docker.runtime import DockerCluster, DockerRuntime
from harness.targets.kraft.target import Kraft
from nemesis.membership import ControlledShutdown, NewId
from tests.cluster_image.clients.test_librdkafka import SAYS_NOTHING
from tests.harness.runtimes.docker.test_docker_runtime import quiet, removed_soon

pytestmark = pytest.mark.docker

TOPIC = "t"
PATIENCE_S = 20.0


@pytest.fixture(scope="module")
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as made:
        yield made


@pytest.fixture(scope="module")
def cluster(runner: asyncio.Runner, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DockerCluster]:
    """Three brokers and a controller, and a topic with a replica of each partition on each broker."""
    wanted = Plan(run=f"test-membership-{os.getpid()}", controllers=1)
    try:
        started = runner.run(DockerRuntime(Kraft()).start(wanted, tmp_path_factory.mktemp("run"), quiet))
        assert sorted(wait_for(started, lambda seen: len(seen.brokers) == 3).brokers) == [1, 2, 3]
        asked = client(started)
        asked.create_topics([NewTopic(TOPIC, num_partitions=3, replication_factor=3)])[TOPIC].result(PATIENCE_S)
        yield started
        runner.run(started.stop())
        assert removed_soon(wanted.run)
    finally:
        cleanup.remove_run(engine.connect(), wanted.run)


def client(cluster: DockerCluster) -> AdminClient:
    addresses = (f"{host}:{port}" for host, port in (node.address for node in cluster.brokers))
    return AdminClient({"bootstrap.servers": ",".join(addresses), **SAYS_NOTHING})


def wait_for(cluster: DockerCluster, condition: Any) -> Any:
    """The metadata, once it is so."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        seen = client(cluster).list_topics(timeout=PATIENCE_S)
        if condition(seen):
            return seen
        assert time.monotonic() < deadline, (seen.brokers, replicas(seen))
        time.sleep(0.1)


def replicas(seen: Any) -> dict[int, list[int]]:
    """By partition, once all are in sync."""
    partitions = seen.topics[TOPIC].partitions if TOPIC in seen.topics else {}
    return {p: state.replicas for p, state in partitions.items() if set(state.isrs) == set(state.replicas)}


def files(cluster: DockerCluster, name: str) -> set[str]:
    """Names on its volume, as the node's process sees them."""
    node = next(node for node in cluster.nodes if node.name == name)
    made = cluster._api.exec_create(node.process, ["ls", "/data"])
    return set(cluster._api.exec_start(made).decode().split())


def test_another_broker_in_its_place_and_itself_again(runner: asyncio.Runner, cluster: DockerCluster) -> None:
    before = replicas(wait_for(cluster, lambda seen: len(replicas(seen)) == 3))
    node, nemesis = cluster.brokers[2], NewId()
    evidence = runner.run(nemesis.inject(cluster, [node], {"stop": "kill"}))
    assert nemesis.effective(evidence) and evidence["new_id"] == 1003

    expected = {partition: [1003 if id == 3 else id for id in ids] for partition, ids in before.items()}
    seen = wait_for(cluster, lambda seen: replicas(seen) == expected)
    assert sorted(seen.brokers) == [1, 2, 1003]
    assert (seen.brokers[1003].host, seen.brokers[1003].port) == node.address
    assert {f"{TOPIC}-0", f"{TOPIC}-1", f"{TOPIC}-2", "other"} <= files(cluster, "broker-3"), "its own logs are kept"
    assert set(runner.run(cluster.leftovers())) >= {
        "broker-3 is replaced by another broker", "broker-3 has the logs of another node on its disk",
    }  # fmt: skip

    healed = runner.run(nemesis.heal(cluster, [node]))
    reported = healed["metadata"]
    assert reported["while"]["brokers"] == [1, 2, 1003] and reported["healed"]["brokers"] == [1, 2, 3]
    runner.run(nemesis.heal(cluster, [node]))
    seen = wait_for(cluster, lambda seen: replicas(seen) == before)
    assert sorted(seen.brokers) == [1, 2, 3]
    assert "other" not in files(cluster, "broker-3")
    assert not runner.run(cluster.leftovers())


def test_who_is_shut_down_has_handed_its_leaderships_over(runner: asyncio.Runner, cluster: DockerCluster) -> None:
    seen = wait_for(cluster, lambda seen: len(replicas(seen)) == 3)
    leader = seen.topics[TOPIC].partitions[0].leader
    node, nemesis = next(node for node in cluster.brokers if node.id == leader), ControlledShutdown()
    evidence = runner.run(nemesis.inject(cluster, [node], {}))
    reported = evidence["nodes"][node.name]
    assert (
        nemesis.effective(evidence) and reported["exit_status"] == 0 and reported["moved_ns"] < reported["stopping_ns"]
    )
    seen = wait_for(cluster, lambda seen: leader not in seen.brokers)
    assert seen.topics[TOPIC].partitions[0].leader not in (-1, leader)
    runner.run(nemesis.heal(cluster, [node]))
    wait_for(cluster, lambda seen: len(replicas(seen)) == 3)
