"""What users' clients do works against brokers in containers: see adapters.py. Every client reads what every other
wrote."""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from collections.abc import Callable, Iterator

import pytest

from harness.plan.plan import Plan
from harness.runtimes.docker import cleanup, engine
from harness.runtimes.docker.runtime import DockerCluster, DockerRuntime
from harness.targets.kraft.target import Kraft
from tests.cluster_image.clients.adapters import Aiokafka, Client, Confluent, KafkaPython, Kcat

pytestmark = pytest.mark.docker

PARTITIONS = 3
CLIENTS: dict[str, Callable[[str], Client]] = {
    "confluent-kafka": Confluent,
    "kcat": Kcat,
    "kafka-python": KafkaPython,
    "aiokafka": Aiokafka,
}
ADMINS = [name for name in CLIENTS if name != "kcat"]


def some(client: str) -> dict[int, list[bytes]]:
    """Values by partition."""
    return {p: [f"{client}-{p}-{i}".encode() for i in range(200)] for p in range(PARTITIONS)}


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Of three brokers and three controllers, shared by all tests."""
    plan = Plan(run=f"test-clients-{os.getpid()}")
    with asyncio.Runner() as runner:
        try:
            cluster = runner.run(DockerRuntime(Kraft()).start(plan, tmp_path_factory.mktemp("run"), lambda line: None))
            addresses = ",".join("{}:{}".format(*node.address) for node in cluster.brokers)
            runner.run(all_brokers_known(cluster, addresses))
            yield addresses
            runner.run(cluster.stop())
        finally:
            cleanup.remove_run(engine.connect(), plan.run)


async def all_brokers_known(cluster: DockerCluster, bootstrap: str) -> None:
    async with asyncio.timeout(60):
        while True:
            try:
                # librdkafka that finds nobody listening may ask nobody else until its time is up.
                described = await asyncio.to_thread(Confluent(bootstrap, patience_s=2).describe)
            except Exception:  # nobody answers yet
                await asyncio.sleep(0.2)
                continue
            if len(described.brokers) == len(cluster.brokers):
                return


@pytest.fixture
def topic(bootstrap: str, request: pytest.FixtureRequest) -> str:
    name = "".join(c if c.isalnum() else "-" for c in request.node.name)
    Confluent(bootstrap).create(name, PARTITIONS)
    known_everywhere(bootstrap, name)
    return name


def known_everywhere(bootstrap: str, topic: str, known: bool = True) -> None:
    """Returns once every broker lists the topic, or none of them does if not `known`.

    Brokers learn of topics one after the other, and clients ask any of them. A client that was just opened asks the one
    broker whose address it has been given."""
    deadline = time.monotonic() + 10
    for broker in bootstrap.split(","):
        while (topic in Confluent(broker).topics()) is not known:
            assert time.monotonic() < deadline
            time.sleep(0.05)


def client(name: str, bootstrap: str) -> Client:
    if name == "kcat" and shutil.which("kcat") is None and not os.environ.get("CI"):
        pytest.skip("kcat is not installed")
    return CLIENTS[name](bootstrap)


@pytest.mark.parametrize("name", CLIENTS)
def test_acknowledged_records_stand_where_the_client_was_told(bootstrap: str, topic: str, name: str) -> None:
    values = some(name)
    acknowledged = client(name, bootstrap).produce(topic, values)
    assert {p: [v for (q, _), v in sorted(acknowledged.items()) if q == p] for p in values} == values
    for reader in CLIENTS:
        assert client(reader, bootstrap).consume(topic, len(acknowledged)) == acknowledged, reader


@pytest.mark.parametrize("name", CLIENTS)
def test_offsets_are_those_of_the_log(bootstrap: str, topic: str, name: str) -> None:
    asked = client(name, bootstrap)
    assert asked.offsets(topic) == dict.fromkeys(range(PARTITIONS), (0, 0))
    Confluent(bootstrap).produce(topic, {0: [b"a", b"b"], 2: [b"c"]})
    assert asked.offsets(topic) == {0: (0, 2), 1: (0, 0), 2: (0, 1)}


@pytest.mark.parametrize("name", ADMINS)
def test_a_topic_lives_from_creation_to_deletion(bootstrap: str, name: str) -> None:
    admin, topic = client(name, bootstrap), f"made-by-{name}"
    admin.create(topic, PARTITIONS)
    known_everywhere(bootstrap, topic)
    assert topic in admin.topics()
    Confluent(bootstrap).produce(topic, {0: [b"of the first"]})
    admin.delete(topic)
    known_everywhere(bootstrap, topic, known=False)
    assert topic not in admin.topics()
    admin.create(topic, PARTITIONS)
    known_everywhere(bootstrap, topic)
    # A new topic of an old name is empty.
    assert admin.offsets(topic) == dict.fromkeys(range(PARTITIONS), (0, 0))
    admin.delete(topic)


@pytest.mark.parametrize("name", CLIENTS)
def test_the_cluster_is_described(bootstrap: str, name: str) -> None:
    described = client(name, bootstrap).describe()
    assert described.brokers == [1, 2, 3]
    assert described.controller in described.brokers
