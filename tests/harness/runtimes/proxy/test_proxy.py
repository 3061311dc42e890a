"""The proxy between clients and brokers, with real clients and a cluster in this process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest

from harness.plan.plan import Plan
from harness.runtimes.proxy.proxy import APIS, Proxy, Rule
from nemesis import requests
from tests.clusters.local_cluster import LocalCluster, local_cluster
from tests.workloads.clients.driving import driving
from tests.workloads.clients.test_meanings import _create
from workloads.clients.kio.client import Client, Link
from workloads.clients.kio.requests import produce_answers, produce_request


class Behind:
    def __init__(self, cluster: LocalCluster, proxy: Proxy) -> None:
        self.cluster = cluster
        self.proxy = proxy
        self.bootstrap = ",".join(f"{host}:{port}" for host, port in proxy.addresses.values())

    async def produced(self, client: str, count: int, **settings: str) -> int:
        """How many records the log has once so many have been acknowledged. As the cluster tells it, past the proxy."""
        async with driving(client, "producer", self.bootstrap, **settings) as told:
            await told.produce("t", count)
            left = count
            while left:
                answer = await told.hear("produced")
                assert "error" not in answer, answer
                left -= answer["count"]
        await asyncio.sleep(0.7)  # what is repeated, arrives
        return await self.end()

    async def end(self) -> int:
        async with self.asking() as end:
            return await end()

    @asynccontextmanager
    async def asking(self) -> AsyncIterator[Callable[[], Awaitable[int]]]:
        """Which asks for the log's end, without the time that a process needs to start."""
        async with driving("librdkafka", "consumer", self.cluster.bootstrap) as told:

            async def end() -> int:
                await told.say("offsets", id=1, topic="t", partitions=[0], which="latest", seconds=10)
                return int((await told.hear("offsets"))["offsets"]["0"])

            yield end


@asynccontextmanager
async def proxied(directory: Path) -> AsyncIterator[Behind]:
    """A cluster with a topic t of one partition, and a proxy before it."""
    async with local_cluster(directory) as cluster:
        await asyncio.to_thread(_create, cluster.bootstrap, {})
        proxy = Proxy({node: ("127.0.0.1", cluster.ports[node]) for node in (1, 2, 3)})
        await proxy.start()
        try:
            yield Behind(cluster, proxy)
        finally:
            await proxy.close()


def run(directory: Path, story: Callable[[Behind], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(100), proxied(directory) as behind:
            await story(behind)

    asyncio.run(bounded())


@pytest.mark.parametrize("client", ["librdkafka", "kafka-python", "aiokafka", "java"])
def test_a_client_that_comes_by_it_goes_on_by_it(client: str, tmp_path: Path) -> None:
    """All that it is told of brokers leads to the proxy: none of its Produce requests goes past it."""

    async def story(behind: Behind) -> None:
        behind.proxy.strike("seen", Rule("Produce", "delay", (0, 0), 1.0, Random(1)))
        assert await behind.produced(client, 100) == 100
        evidence = behind.proxy.end("seen")
        assert evidence["api"] == "Produce" and evidence["requests"] == evidence["delayed_requests"] > 0

    run(tmp_path, story)


def test_what_is_repeated_is_in_the_log_twice_unless_its_producer_is_idempotent(tmp_path: Path) -> None:
    async def story(behind: Behind) -> None:
        behind.proxy.strike("twice", Rule("Produce", "repeat", (0.1, 0.2), 1.0, Random(1)))
        assert await behind.produced("librdkafka", 50) == 100
        assert await behind.produced("librdkafka", 50, enable_idempotence="true") == 150
        assert behind.proxy.end("twice")["repeated_requests"] >= 2
        assert behind.proxy.end("twice") == {}
        assert await behind.produced("librdkafka", 50) == 200

    run(tmp_path, story)


def test_what_is_held_back_arrives_though_its_client_has_hung_up(tmp_path: Path) -> None:
    async def story(behind: Behind) -> None:
        from cluster_image.network import Address
        from cluster_image.network.tcp import TcpNetwork
        from cluster_image.storage.records import encode_int64s

        network = TcpNetwork()
        client = Client(network, [Address(*address) for address in behind.proxy.addresses.values()], "t")
        client.start()
        await client.wait_ready(1, 3)
        leader = client.metadata.partitions[0].leader
        assert leader is not None and client.metadata.brokers[leader] in behind.proxy.addresses.values()
        behind.proxy.strike("late", Rule("Produce", "delay", (4.0, 4.0), 1.0, Random(1)))
        link = Link(client)
        batch = encode_int64s([7], timestamp_ms=1)
        async with behind.asking() as end:
            assert await end() == 0
            connection = await link.to(leader)
            with pytest.raises(TimeoutError):
                await connection.request(produce_request("t", {0: batch}, -1, 5.0), timeout=0.3)
            link.close()
            assert await end() == 0
            while await end() == 0:  # within the time that the story has
                await asyncio.sleep(0.1)
            assert await end() == 1, "it has been delivered"
        evidence: Mapping[str, Any] = behind.proxy.end("late")
        assert evidence["delivered_after_hang_up"] == 1 and evidence["held_ms"] == 4000
        again = await Link(client).to(leader)
        answer = produce_answers(await again.request(produce_request("t", {0: batch}, -1, 5.0), timeout=3.0))[0]
        assert answer.base_offset == 1, "and then another"
        await client.close()
        await network.close()

    run(tmp_path, story)


def test_the_nemesis_knows_the_same_requests() -> None:
    assert set(requests.APIS) == set(APIS)


def test_a_network_that_repeats_makes_no_duplicate_a_violation_but_of_idempotent_producers() -> None:
    def idempotence(**fields: Any) -> bool:
        plan = Plan(run="r", on="docker", **fields).model_dump()
        return bool(plan["idempotence"])

    assert idempotence()
    assert not idempotence(nemesis=("requests:repeat",))
    assert idempotence(nemesis=("requests:repeat",), workload="idempotent")
    assert idempotence(nemesis=("requests:repeat",), client="java")
    assert not idempotence(nemesis=("requests:repeat",), client="librdkafka", client_settings={"retries": "0"})
