"""What nodes tell of their state changes: each once, where it happens, after the state has changed."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from cluster_image.kraft.broker.partition import Partition
from cluster_image.kraft.metadata.records import BrokerRegistrationChangeRecord, PartitionChangeRecord, numbers
from cluster_image.kraft.raft import rpc
from cluster_image.kraft.raft.quorum import Quorum
from cluster_image.kraft.raft.snapshots import open_log
from cluster_image.kraft.raft.state import QuorumStateStore
from cluster_image.network.tcp import TcpNetwork
from cluster_image.storage.disk import LocalDisk
from cluster_image.storage.log import Log, LogConfig
from cluster_image.storage.records import iter_batches
from tests.cluster_image.kraft.broker.test_partition import EVERYONE, append, config, leaders_batch, registration
from tests.cluster_image.kraft.controller.test_unclean_recovery import address
from tests.cluster_image.kraft.raft.test_raft_quorum import CLUSTER, CONFIG, DIRECTORY, VOTERS, elect
from tests.cluster_image.network.test_hostile_clients import topic_request
from tests.cluster_image.replication.fetches import fetch_as_follower
from tests.cluster_image.storage.simulated_disk import simulated_disk
from tests.clusters.local_cluster import LocalCluster


class Heard:
    """A trace that keeps what it is told: event, where, and the fields' values in their order."""

    def __init__(self) -> None:
        self.events: list[tuple[Any, ...]] = []

    def __call__(self, event: str, where: str = "", **fields: object) -> None:
        self.events.append((event, where, *fields.values()))

    def take(self) -> list[tuple[Any, ...]]:
        events, self.events = self.events, []
        return events


@pytest.fixture
def heard() -> Heard:
    return Heard()


@pytest.fixture
def partition(tmp_path: Path, heard: Heard) -> Partition:
    disk = LocalDisk(tmp_path)
    disk.make_directory("t-0")
    return Partition(registration(-1), Log.open(disk, "t-0"), config(), 1, heard)


def fetched(partition: Partition, replica: int, offset: int) -> None:
    fetch_as_follower(partition, replica, 10, partition.leader_epoch, offset, -1, 1 << 20, 0.0, EVERYONE)


def test_a_leader_tells_its_role_isr_appends_and_high_watermark(partition: Partition, heard: Heard) -> None:
    partition.apply(registration(1, (2, 1), 4, 7), now=0.0)
    assert heard.take() == [("role", "t-0", 1, 4, 7, (1, 2), 0, 0)]
    append(partition)
    assert heard.take() == [("append", "t-0", 1)]
    fetched(partition, 2, 1)
    assert heard.take() == [("high watermark", "t-0", 1)]
    fetched(partition, 2, 1)
    assert heard.take() == [], "nothing has changed"
    fetched(partition, 3, 1)
    assert heard.take() == [("isr proposed", "t-0", (1, 2, 3), 4, 7)]
    assert partition.leadership is not None and partition.leadership.proposal is not None
    partition.proposal_accepted(partition.leadership.proposal, (1, 2, 3), 4, 8)
    assert heard.take() == [("isr", "t-0", (1, 2, 3), 4, 8)]
    partition.apply(registration(1, (1, 2, 3), 4, 8), now=0.0)
    assert heard.take() == [], "the metadata log brings what is known"
    partition.apply(registration(2, (2, 3), 5, 9), now=0.0)
    assert heard.take() == [("role", "t-0", 2, 5, 9, (2, 3), 1, 1)]


def test_a_follower_tells_what_it_appends_and_cuts(tmp_path: Path, partition: Partition, heard: Heard) -> None:
    partition.apply(registration(2, (1, 2, 3), 1, 0), now=0.0)
    heard.take()
    partition.apply_fetch(1, 0, leaders_batch(0, 1), 0, None)
    partition.apply_fetch(1, 1, leaders_batch(1, 1), 2, None)
    assert heard.take() == [("append", "t-0", 1), ("append", "t-0", 2), ("high watermark", "t-0", 2)]
    partition.apply_fetch(1, 2, b"", 2, (1, 1))
    assert heard.take() == [("truncate", "t-0", 1), ("high watermark", "t-0", 1)]
    partition.leader_starts_at(1, 1, 5, -1)
    assert heard.take() == [("truncate", "t-0", 5), ("high watermark", "t-0", 5), ("log start", "t-0", 5)]
    partition.apply(registration(2, (2, 3), 1, 1), now=0.0)
    assert heard.take() == [("isr", "t-0", (2, 3), 1, 1)]


def test_the_quorum_tells_roles_and_its_log_and_dates_it_by_the_wall_clock(heard: Heard) -> None:
    disk = simulated_disk()
    log, snapshots = open_log(disk, DIRECTORY, LogConfig())
    store, wall_clock = QuorumStateStore(disk, DIRECTORY), lambda: 1_700_000_000.5
    quorum = Quorum(
        1, VOTERS, CLUSTER, log, store, Random(1), CONFIG, 0.0, wall_clock=wall_clock, snapshots=snapshots, trace=heard
    )
    assert heard.take() == [("quorum", "", "unattached", 0, -1)]
    elect(quorum)
    assert heard.take() == [
        ("quorum", "", "prospective", 0, -1),
        ("quorum", "", "candidate", 1, -1),
        ("quorum", "", "leader", 1, 1),
        ("metadata append", "", 1),
    ]
    quorum.append([b"a", b"b"], 1.0)
    assert heard.take() == [("metadata append", "", 3)]
    times = [header.base_timestamp for _, _, header in iter_batches(log.read(0, 1 << 20))]
    assert times == [1_700_000_000_500] * 2
    quorum.receive(rpc.begin_quorum_epoch(CLUSTER, 1, 2, 7, VOTERS[2]), 1.0)
    assert heard.take() == [("quorum", "", "follower", 7, 2)]
    answer = rpc.partition(rpc.fetch_answer(ErrorCode.none, 2, 7, diverging=(0, 0)))
    quorum.replica.take(answer)
    assert heard.take() == [("metadata truncate", "", 0)]


def test_a_record_is_summed_up_by_its_numbers() -> None:
    change = PartitionChangeRecord(partition_id=3, topic_id=None, isr=(1, 2))
    assert numbers(change) == {"partition_id": 3, "isr": (1, 2)}, "what stays as it was is not named"
    fencing = BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=9, fenced=1)
    assert numbers(fencing) == {"broker_id": 1, "broker_epoch": 9, "fenced": 1, "in_controlled_shutdown": 0}


def test_a_whole_cluster_tells_of_itself_and_shows_itself(tmp_path: Path) -> None:
    controller, broker = Heard(), Heard()

    async def scenario() -> None:
        cluster = LocalCluster(
            tmp_path, 1, 1, lambda node: broker if node == 1 else controller,
            **{"min.insync.replicas": "1", "default.replication.factor": "1"},
        )  # fmt: skip
        await cluster.start()
        network = TcpNetwork()
        somebody = await network.connect(address(cluster, 1), client_id="test", timeout=5)
        await somebody.request(topic_request(replication=1), timeout=5)
        server = cluster.nodes[1].broker
        assert server is not None and cluster.nodes[1].controller is None
        while not server.partitions:
            await asyncio.sleep(0.01)
        (partition,) = server.partitions.values()
        assert partition.is_leader and partition.isr == {1}
        decider = cluster.nodes[101].controller
        assert decider is not None and decider.active is not None
        assert decider.active.image.brokers[1].epoch == server.broker_epoch >= 0 and server.ready
        for node in cluster.nodes.values():
            assert node.raft.quorum is not None
        end = decider.active.image.end_offset
        assert decider.image.end_offset == server.image.end_offset == end
        assert broker.events[-1] == controller.events[-1] == ("metadata", "", end)
        await network.close()
        await cluster.stop()

    asyncio.run(asyncio.wait_for(scenario(), 20))
    decided = [(event[2], event[1]) for event in controller.events if event[0] == "decide"]
    assert decided[:4] == [
        ("RegisterBrokerRecord", ""),
        ("BrokerRegistrationChangeRecord", ""),  # unfenced
        ("TopicRecord", ""),
        ("PartitionRecord", "t-0"),
    ]
    roles = [event for event in broker.events if event[0] == "role"]
    assert roles[0] == ("role", "t-0", 1, 0, 0, (1,), 0, 0)
