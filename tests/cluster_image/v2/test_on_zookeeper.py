"""Brokers of this generation on Apache ZooKeeper: topics come, move and go, and what 001 promises of itself.

CHAOS_TOPICS: how many topics of three partitions the watches are counted for; 1,000 in 001.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kio.schema.delete_topics.v5.request import DeleteTopicsRequest
from kio.schema.types import TopicName

from cluster_image.network.tcp import TcpNetwork
from cluster_image.storage.records import build_batch
from cluster_image.v2.metadata import paths
from cluster_image.v2.metadata.state_queue import StateChange
from cluster_image.v2.state_changes import StateChangeListener
from cluster_image.v2.topics import topic_id
from cluster_image.v2.zookeeper import Create, Delete
from cluster_image.v2.zookeeper.kazoo_client import KazooZooKeeper
from cluster_image.wire.messages import milliseconds
from harness.targets.kafka_api.admin import KafkaAdmin
from tests.clusters.local_v2 import LocalV2
from tests.clusters.real_zookeeper import RealZooKeeper
from workloads.clients.kio import requests
from workloads.clients.kio.client import Client

TOPICS = int(os.environ.get("CHAOS_TOPICS", "20"))
SERVERS = (1, 2, 3)
OF_NOBODY = "of-nobody"


@pytest.fixture
def zookeeper(tmp_path: Path) -> Iterator[RealZooKeeper]:
    servers = RealZooKeeper(tmp_path / "zookeeper")
    try:
        servers.start()
        yield servers
    finally:
        servers.stop()


async def until(holds: Callable[[], Any], seconds: float = 30.0) -> None:
    async with asyncio.timeout(seconds):
        while not holds():
            await asyncio.sleep(0.01)


def watches(zookeeper: RealZooKeeper) -> int:
    """Of all clients, as ZooKeeper's servers count them."""
    lines = [line.split("\t") for server in SERVERS for line in zookeeper.ask(server, "mntr").splitlines()]
    return sum(int(value) for name, value in lines if name == "zk_watch_count")


class Asking:
    """A topic's client, and an administrator."""

    def __init__(self, cluster: LocalV2, topic: str) -> None:
        self.network = TcpNetwork()
        self.cluster = cluster
        self.topic = topic
        self.client = Client(self.network, [cluster.address(n) for n in cluster.ports], topic)

    def replica(self, broker: int, index: int = 0) -> Any:
        return self.cluster.nodes[broker].broker.partitions.get((topic_id(self.topic), index))

    def leader(self, index: int = 0) -> int | None:
        leads = [n for n in self.cluster.nodes if (r := self.replica(n, index)) is not None and r.serves_clients]
        return leads[0] if leads else None

    async def ask(self, broker: int, request: Any) -> Any:
        connection = await self.network.connect(self.cluster.address(broker), client_id="test", timeout=3.0)
        try:
            return await connection.request(request, timeout=20.0)
        finally:
            connection.close()

    async def produce(self, batch: bytes) -> str:
        broker = self.leader()
        assert broker is not None
        answer = await self.ask(broker, requests.produce_request(self.topic, {0: batch}, -1, 10.0))
        return requests.produce_answers(answer)[0].error.name


def test_a_topic_is_made_moved_and_deleted(tmp_path: Path, zookeeper: RealZooKeeper) -> None:
    async def main() -> None:
        # In one process the follower that is asked first always answers first: where only what is produced makes a
        # leader look, the others never have a record at the moment at which that one has it.
        cluster = LocalV2(tmp_path, zookeeper, 4, **{"replica.lag.time.max.ms": "1000", "v2.idle.checks": "true"})
        await cluster.start()
        asking = Asking(cluster, "story")
        try:
            await asking.client.create_topic(1, 2, {})
            await until(lambda: asking.leader() is not None)
            before = next(r.replicas for n in cluster.nodes if (r := asking.replica(n)) is not None and r.is_leader)
            assert await asking.produce(build_batch([b"m1"], timestamp_ms=0)) == "none"
            to = tuple(n for n in cluster.ports if n not in before)

            class Node:
                def __init__(self, number: int) -> None:
                    self.address, self.id, self.own_id, self.rack = cluster.address(number), number, number, ""

            admin = KafkaAdmin(lambda: [Node(n) for n in cluster.ports], asking.network)  # type: ignore[arg-type, misc]
            assert await admin.reassign({("story", 0): to}) == {}
            async with asyncio.timeout(30):
                while await admin.moves():
                    if asking.leader() is not None:
                        await asking.produce(build_batch([b"more"], timestamp_ms=0))
                    await asyncio.sleep(0.05)
            await until(lambda: asking.leader() == to[0] and all(asking.replica(n) is None for n in before))
            assert await asking.produce(build_batch([b"last"], timestamp_ms=0)) == "none"
            answer = await asking.ask(
                1, DeleteTopicsRequest(topic_names=(TopicName("story"),), timeout=milliseconds(10_000))
            )
            assert answer.responses[0].error_code.name == "none"
            assert all(asking.replica(n) is None for n in cluster.ports)
        finally:
            await cluster.stop()
            await asking.network.close()

    asyncio.run(main())


def test_there_is_one_watch_a_partition(tmp_path: Path, zookeeper: RealZooKeeper) -> None:
    """001: 3,000 for 1,000 topics of three partitions, where the design before it needed 15,000."""

    async def main() -> None:
        cluster = LocalV2(tmp_path, zookeeper)
        await cluster.start()
        network = TcpNetwork()
        try:
            for number in range(TOPICS):
                client = Client(network, [cluster.address(n) for n in cluster.ports], f"t{number}")
                await client.create_topic(3, 1, {})
            led = [r for node in cluster.nodes.values() for r in node.broker.partitions.values()]
            await until(lambda: all(r.serves_clients for r in led))
            assert len(led) == 3 * TOPICS
            await asyncio.sleep(1.0)
            # And two a broker: of its queue of state changes, and of reassignments.
            assert watches(zookeeper) == 3 * TOPICS + 2 * len(cluster.ports)
        finally:
            await cluster.stop()
            await network.close()

    asyncio.run(main())


def test_a_leader_change_waits_for_no_state_change(
    tmp_path: Path, zookeeper: RealZooKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    """001: "leader change ZK notifications are not queued up on any other notifications". However long those take: none
    of the 1,000 state changes that the follower is asked for ends before it knows its leader, itself or the other."""
    waiting = 1_000
    may_go_on: list[asyncio.Event] = []
    do = StateChangeListener._do

    async def do_late(listener: StateChangeListener, change: StateChange) -> None:
        if change.topic == OF_NOBODY:
            await may_go_on[0].wait()
        await do(listener, change)

    monkeypatch.setattr(StateChangeListener, "_do", do_late)

    async def main() -> None:
        may_go_on.append(asyncio.Event())
        cluster = LocalV2(tmp_path, zookeeper, 2, **{"v2.preferred.replica.time.ms": "0"})
        await cluster.start()
        asking = Asking(cluster, "story")
        observer = KazooZooKeeper(list(zookeeper.addresses.values()), 10.0)
        await observer.start()
        try:
            await asking.client.create_topic(1, 2, {})
            await until(lambda: asking.leader() is not None)
            leader = asking.leader()
            assert leader is not None
            other = cluster.nodes[3 - leader].broker
            change = StateChange("close-replica", OF_NOBODY, 0, -1, -1).encode()
            asked = [Create(f"{paths.state(3 - leader)}/request-", change, sequence=True)] * waiting
            # All at one time, and the leader's node is gone as if its session had ended.
            await observer.multi([*asked, Delete(paths.leader("story", 0))])
            await until(lambda: other.backlog == waiting)
            await until(lambda: asking.replica(3 - leader).leader_epoch == 1)
            assert other.backlog == waiting, "they still wait"
            # Not by the observer's server, which may be behind.
            assert {asking.replica(1).leader_epoch, asking.replica(2).leader_epoch} <= {0, 1}
            may_go_on[0].set()
            await until(lambda: other.backlog == 0)
        finally:
            await cluster.stop()
            await observer.close()
            await asking.network.close()

    asyncio.run(main())
