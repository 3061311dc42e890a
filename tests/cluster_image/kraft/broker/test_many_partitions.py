"""Many partitions: of one topic, more than a request may create; and of topics that go before all are opened."""

from __future__ import annotations

import asyncio
import uuid
from pathlib import Path
from typing import Any

import pytest

from cluster_image.kraft.broker import replica_manager
from cluster_image.kraft.broker.replica_manager import DELETED_AT_ONCE, OPENED_AT_ONCE
from cluster_image.kraft.controller import topics
from cluster_image.kraft.metadata.records import PartitionChangeRecord, PartitionRecord, RemoveTopicRecord, TopicRecord
from cluster_image.network import Address
from cluster_image.network.tcp import TcpNetwork
from cluster_image.storage.records import with_offset_and_epoch
from tests.cluster_image.kraft.broker.test_partition import TOPIC, batch
from tests.cluster_image.protocol.replication.broker import Broker
from tests.clusters.local_cluster import local_cluster
from workloads.clients.kio import client as clients


@pytest.mark.parametrize("partitions", [4, 5, 6, 11])
def test_it_is_created_in_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, partitions: int) -> None:
    monkeypatch.setattr(topics, "MAX_NEW_PARTITIONS", 5)
    monkeypatch.setattr(clients, "PARTITIONS_AT_ONCE", 5)

    async def scenario() -> None:
        async with local_cluster(tmp_path) as cluster:
            network = TcpNetwork()
            addresses = [Address("127.0.0.1", cluster.ports[broker]) for broker in (1, 2, 3)]
            client = clients.Client(network, addresses, "t")
            client.start()
            for _ in range(2):  # again, it is there already
                await asyncio.wait_for(client.create_topic(partitions, 3, {}), 20)
            await asyncio.wait_for(client.wait_ready(partitions, 3), 20)
            assert len(client.metadata.partitions) == partitions
            await client.close()
            await network.close()

    asyncio.run(scenario())


def test_topics_deleted_before_all_of_their_replicas_are_here_are_gone() -> None:
    """Some are here and some are not when the deletion comes; and their logs do not go all at once."""

    async def scenario() -> None:
        broker = Broker()
        topics = [uuid.UUID(int=100 + number) for number in range(OPENED_AT_ONCE + 3 * DELETED_AT_ONCE)]

        def logs() -> int:
            return sum(name.startswith("many-") for name in broker.disk.list(""))

        for here in (OPENED_AT_ONCE, len(topics)):
            made: list[Any] = []
            for number, topic in enumerate(topics):
                made.append(TopicRecord(name=f"many-{number}", topic_id=topic))
                made.append(PartitionRecord(partition_id=0, topic_id=topic, replicas=(1, 2), isr=(1, 2), leader=1))
            broker.manager.apply(broker.replay(*made))
            assert len(broker.manager.partitions) == OPENED_AT_ONCE
            while len(broker.manager.partitions) < here:
                await asyncio.sleep(0)
            for partition in broker.manager.partitions.values():  # nothing of it is on the disk before
                partition.append(batch(), 1, asyncio.get_running_loop().create_future)
            assert logs() == len(broker.manager.partitions)
            broker.manager.apply(broker.replay(*(RemoveTopicRecord(topic_id=topic) for topic in topics)))
            assert not broker.manager.partitions and broker.manager.all_open
            assert logs() >= min(here, len(topics)) - DELETED_AT_ONCE, "not all at once"
            while logs():
                await asyncio.sleep(0)
            await asyncio.sleep(0.01)
        assert not broker.errors

    asyncio.run(scenario())


def test_directories_of_many_new_logs_are_made_little_by_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a few at once: whoever looks at the disk sees which replicas are here."""
    monkeypatch.setattr(replica_manager, "ANNOUNCED_AT_ONCE", 3)
    monkeypatch.setattr(replica_manager, "ANNOUNCE_EVERY_S", 0.01)

    async def scenario() -> None:
        broker = Broker()
        broker.manager.start()

        def here() -> int:
            return sum(name.startswith("t-") for name in broker.disk.list(""))

        for index in range(6):
            broker.create(index, leader=1)
        while not broker.manager.all_open:
            await asyncio.sleep(0)
        assert here() == 3
        gone = PartitionChangeRecord(partition_id=4, topic_id=TOPIC, replicas=(2, 3), leader=2)
        broker.manager.apply(broker.replay(gone))
        async with asyncio.timeout(5):
            while here() < 5:
                await asyncio.sleep(0.01)
        await asyncio.sleep(0.05)
        assert here() == 5 and not broker.disk.exists("t-4") and not broker.errors
        broker.manager.stop()

    asyncio.run(scenario())


def test_a_replica_that_is_added_again_before_its_log_is_deleted_begins_with_nothing() -> None:
    """Removed with many others, whose logs are deleted one after the other; what it had may not be what counts."""

    async def scenario() -> None:
        broker = Broker()
        many = range(3 * DELETED_AT_ONCE)
        for index in many:
            broker.create(index, leader=1)
            while not broker.manager.all_open:
                await asyncio.sleep(0)
        last = broker.manager.partitions[TOPIC, many[-1]]
        last.append(batch(b"old"), 1, asyncio.get_running_loop().create_future)
        removed = [PartitionChangeRecord(partition_id=i, topic_id=TOPIC, replicas=(2, 3), leader=2) for i in many]
        broker.manager.apply(broker.replay(*removed))
        broker.change(many[-1], {"replicas": (1, 2, 3), "leader": 2})
        while not broker.manager.all_open:
            await asyncio.sleep(0)
        again = broker.manager.partitions[TOPIC, many[-1]]
        assert again is not last and again.log.end_offset == 0
        while any(name != f"t-{many[-1]}" for name in broker.disk.list("") if name.startswith("t-")):
            await asyncio.sleep(0)
        assert list(broker.manager.partitions) == [(TOPIC, many[-1])]
        again.log.append_as_follower(with_offset_and_epoch(batch(b"new"), 0, 0))
        assert not broker.errors

    asyncio.run(scenario())
