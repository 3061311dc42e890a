"""Topics of this generation in containers come, move and go as 001 says, seen by Kafka's clients and in ZooKeeper."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from cluster_image.network.tcp import TcpNetwork
from cluster_image.v2.metadata import paths
from cluster_image.v2.metadata.paths import Isr, Leader
from harness.plan.plan import Plan
from harness.runtimes.docker import cleanup, engine
from harness.runtimes.docker.runtime import DockerCluster, DockerRuntime
from harness.targets.kafka_api.admin import KafkaAdmin
from harness.targets.v2.target import V2
from tests.cluster_image.clients.test_librdkafka import SAYS_NOTHING
from tests.harness.runtimes.docker.test_docker_runtime import quiet, removed_soon

pytestmark = pytest.mark.docker

TOPIC = "t"
PATIENCE_S = 40.0
SETTINGS = {"v2.idle.checks": "true", "replica.lag.time.max.ms": "1000"}


@pytest.fixture(scope="module")
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as made:
        yield made


@pytest.fixture(scope="module")
def cluster(runner: asyncio.Runner, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DockerCluster]:
    wanted = Plan(run=f"test-v2-{os.getpid()}", target="v2", brokers=4, settings=SETTINGS)
    try:
        started = runner.run(DockerRuntime(V2()).start(wanted, tmp_path_factory.mktemp("run"), quiet))
        yield started
        runner.run(started.stop())
        assert removed_soon(wanted.run)
    finally:
        cleanup.remove_run(engine.connect(), wanted.run)


@pytest.fixture(scope="module")
def zookeeper(cluster: DockerCluster) -> Iterator[KazooClient]:
    client = KazooClient(",".join(f"{host}:{port}" for host, port in (n.address for n in cluster.controllers)))
    client.start(timeout=PATIENCE_S)
    yield client
    client.stop()
    client.close()


def bootstrap(cluster: DockerCluster) -> dict[str, Any]:
    servers = ",".join(f"{host}:{port}" for host, port in (node.address for node in cluster.brokers))
    return {"bootstrap.servers": servers, **SAYS_NOTHING}


def until(holds: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + PATIENCE_S
    while not (found := holds()):
        assert time.monotonic() < deadline, "it has taken too long"
        time.sleep(0.1)
    return found


def read(zookeeper: KazooClient, path: str) -> bytes | None:
    try:
        data: bytes = zookeeper.get(path)[0]
    except NoNodeError:
        return None
    return data


def test_a_topic_is_made_extended_moved_and_deleted(
    cluster: DockerCluster, zookeeper: KazooClient, runner: asyncio.Runner
) -> None:
    admin = AdminClient(bootstrap(cluster))
    until(lambda: len(admin.list_topics(timeout=PATIENCE_S).brokers) == 4)
    admin.create_topics([NewTopic(TOPIC, num_partitions=1, replication_factor=2)])[TOPIC].result(PATIENCE_S)
    before = paths.decode_ids(read(zookeeper, paths.replicas(TOPIC, 0)) or b"")
    assert len(set(before)) == 2 and not zookeeper.get_children(paths.REASSIGNED), "it is made"
    until(lambda: read(zookeeper, paths.leader(TOPIC, 0)) == Leader(before[0], 0).encode())
    until(lambda: read(zookeeper, paths.isr(TOPIC, 0)) == Isr(tuple(sorted(before)), 0).encode())

    admin.create_partitions([NewPartitions(TOPIC, 3)])[TOPIC].result(PATIENCE_S)
    assert sorted(zookeeper.get_children(paths.topic(TOPIC))) == ["0", "1", "2"]

    producer = Producer({**bootstrap(cluster), "acks": "all"})
    errors: list[Any] = []
    for number in range(100):
        producer.produce(TOPIC, str(number).encode(), partition=0, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(PATIENCE_S) == 0 and errors == [None] * 100

    to = tuple(sorted({1, 2, 3, 4} - set(before)))

    async def move() -> None:
        asked = KafkaAdmin(lambda: cluster.brokers, TcpNetwork())
        assert await asked.reassign({(TOPIC, 0): to}) == {}
        async with asyncio.timeout(PATIENCE_S):
            while await asked.moves():
                await asyncio.sleep(0.2)

    runner.run(move())
    until(lambda: read(zookeeper, paths.replicas(TOPIC, 0)) == paths.encode_ids(to))
    until(lambda: (read(zookeeper, paths.leader(TOPIC, 0)) or b"").startswith(f"{to[0]};".encode()))
    until(lambda: Isr.decode(read(zookeeper, paths.isr(TOPIC, 0)) or b"").brokers == to)

    admin.delete_topics([TOPIC])[TOPIC].result(PATIENCE_S)
    assert zookeeper.get_children(paths.TOPICS) == zookeeper.get_children(paths.REASSIGNED) == []
    assert all(not zookeeper.get_children(paths.state(n)) for n in (1, 2, 3, 4)), "all state changes are done"
