"""A cluster of three brokers with one partition, for tests of the simulation's invariants.

Partitions and logs are the cluster's own, on simulated disks; metadata is committed by hand.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Sequence
from random import Random
from types import SimpleNamespace
from typing import Any

from kio.schema.types import BrokerId, TopicName
from kio.static.primitive import i8, i32, i64, u16

from checkers.inside.kraft.simulated import BALANCED, Invariants, Violated
from checkers.properties import INVARIANTS
from cluster_image.config import parse
from cluster_image.kraft.broker.partition import Partition
from cluster_image.kraft.metadata.image import MetadataImage, PartitionRegistration
from cluster_image.kraft.metadata.records import (
    BrokerEndpoint,
    BrokerRegistrationChangeRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
    encode,
)
from cluster_image.kraft.raft.quorum import Role
from cluster_image.storage.disk import Disk
from cluster_image.storage.log import Log
from cluster_image.storage.records import build_batch
from harness.runtimes.simulation.disk.disk import SimulatedDisk
from tests.cluster_image.replication.fetches import fetch_as_follower

TOPIC = uuid.UUID(int=7)
BROKERS = (1, 2, 3)
LOOP = asyncio.new_event_loop()


def config_of(broker: int) -> Any:
    return parse(
        f"node.id={broker}\nprocess.roles=broker\ncluster.id=test\nlisteners=localhost:9092\nlog.dirs=/data\n"
        "controller.quorum.voters=101@localhost:9093\nmin.insync.replicas=2\nreplica.lag.time.max.ms=4000"
    )


def mount(disk: SimulatedDisk) -> Disk:
    return disk.mount(lambda: True, lambda operation, path: None, lambda seconds: None)


class Voter:
    """A node of the quorum whose log and role are set by hand."""

    def __init__(self, node_id: int, voters: Sequence[int] = (101,)) -> None:
        log = Log.open(mount(SimulatedDisk(Random(0))), "__cluster_metadata-0")
        self.log = log
        self.quorum = SimpleNamespace(
            id=node_id, role=Role.FOLLOWER, epoch=1, leader_id=101, leadership=None,
            replica=SimpleNamespace(
                log=log, high_watermark=0, snapshots=SimpleNamespace(earliest=None, latest=None)
            ),
        )  # fmt: skip
        self.raft = SimpleNamespace(node_id=node_id, voters=dict.fromkeys(voters), quorum=self.quorum)
        self.broker: Any = None
        self.controller: Any = None

    def append(self, *records: MetadataRecord, epoch: int = 1) -> None:
        self.log.append_as_leader(build_batch([encode(r) for r in records], timestamp_ms=0), epoch)

    def lead(self, epoch: int) -> None:
        self.quorum.role, self.quorum.epoch, self.quorum.leader_id = Role.LEADER, epoch, self.quorum.id


class Broker:
    """A node with one partition at most."""

    def __init__(self, world: World, number: int) -> None:
        self.world = world
        self.name = f"broker-{number}"
        self.id = number
        self.disk = SimulatedDisk(Random(number))
        self.partition: Partition | None = None
        self.raft = SimpleNamespace(node_id=number, voters={101: None}, quorum=None)
        self.controller = None
        self.epoch = -1
        self.broker: Any = None

    def boot(self) -> None:
        self.broker = SimpleNamespace(partitions={}, broker_epoch=-1, ready=False, image=self.world.image)
        self.world.invariants.node_started(self.name, self)  # type: ignore[arg-type]

    def run(self) -> Partition:
        """It has registered, and acts on the metadata."""
        self.broker.broker_epoch = self.world.image.brokers[self.id].epoch
        registration = self.world.registration
        log = Log.open(mount(self.disk), "t-0")
        self.partition = Partition(registration, log, config_of(self.id), self.id, self.trace)
        self.broker.partitions[TOPIC, 0] = self.partition
        self.broker.ready = True
        self.partition.restore_high_watermark(0)
        self.partition.apply(registration, 0.0)
        return self.partition

    def trace(self, event: str, where: str = "", **fields: object) -> None:
        self.world.invariants.changed(self.name, event, where, fields)


class World:
    """MinISR is 2. Brokers 1, 2, 3 are registered, in sync and led by 1; every step is checked."""

    def __init__(self, elr_enabled: bool = True, unclean_strategy: str = BALANCED) -> None:
        self.invariants = Invariants(2, elr_enabled, unclean_strategy)
        self.image = MetadataImage()
        self.controller = Voter(101)
        self.invariants.node_started("controller-1", self.controller)  # type: ignore[arg-type]
        self.controller.lead(1)
        self.brokers = {number: Broker(self, number) for number in BROKERS}
        for broker in self.brokers.values():
            broker.boot()
        ids = tuple(map(BrokerId, BROKERS))
        self.commit(*(self.register(b, fenced=False) for b in BROKERS))
        self.commit(
            TopicRecord(name=TopicName("t"), topic_id=TOPIC),
            PartitionRecord(partition_id=i32(0), topic_id=TOPIC, replicas=ids, isr=ids, leader=ids[0]),
        )
        for broker in self.brokers.values():
            broker.run()
        self.check()

    @property
    def registration(self) -> PartitionRegistration:
        found = self.image.partition(TOPIC, 0)
        assert found is not None
        return found

    def check(self) -> None:
        self.invariants.check()

    # -- metadata ---------------------------------------------------------------------------------------------

    def commit(self, *records: MetadataRecord) -> None:
        for offset, record in enumerate(records, self.controller.log.end_offset):
            self.image.replay(offset, record)
        self.controller.append(*records)
        self.controller.quorum.replica.high_watermark = self.controller.log.end_offset
        self.invariants.changed("controller-1", "metadata", "", {"offset": self.controller.log.end_offset})
        self.check()

    def register(self, broker: int, fenced: bool = True) -> RegisterBrokerRecord:
        endpoint = BrokerEndpoint(name="PLAINTEXT", host="localhost", port=u16(9092))
        epoch = self.controller.log.end_offset + (broker - 1 if not fenced else 0)
        return RegisterBrokerRecord(
            broker_id=BrokerId(broker), incarnation_id=uuid.UUID(int=epoch + 1), broker_epoch=i64(epoch),
            end_points=(endpoint,), rack=None, fenced=fenced,
        )  # fmt: skip

    def fencing(self, broker: int, fenced: int = 1) -> BrokerRegistrationChangeRecord:
        epoch = self.image.brokers[broker].epoch
        return BrokerRegistrationChangeRecord(broker_id=BrokerId(broker), broker_epoch=i64(epoch), fenced=i8(fenced))

    def change(
        self, leader: int | None = None, recovery_state: int | None = None, **sets: Sequence[int]
    ) -> PartitionChangeRecord:
        changed: dict[str, Any] = {name: tuple(map(BrokerId, ids)) for name, ids in sets.items()}
        if recovery_state is not None:
            changed["leader_recovery_state"] = i8(recovery_state)
        if leader is not None:
            changed["leader"] = BrokerId(leader)
        return PartitionChangeRecord(partition_id=i32(0), topic_id=TOPIC, **changed)

    def learn(self, *brokers: int) -> None:
        """These replay the metadata."""
        for broker in brokers:
            partition = self.brokers[broker].partition
            assert partition is not None
            partition.apply(self.registration, 0.0)
            self.check()

    # -- replication ------------------------------------------------------------------------------------------

    def partition(self, broker: int) -> Partition:
        partition = self.brokers[broker].partition
        assert partition is not None
        return partition

    def produce(self, leader: int, value: bytes, acks: int = -1) -> None:
        self.partition(leader).append(
            build_batch([value], timestamp_ms=0), acks, lambda: asyncio.Future(loop=LOOP)
        )  # fmt: skip
        self.check()

    def ask(self, follower: int, leader: int) -> Any:
        """Send a fetch, and return its answer, which is not applied yet."""
        asked, to = self.partition(follower), self.partition(leader)
        request = asked.leader_epoch, asked.log.end_offset
        read = fetch_as_follower(
            to, follower, self.brokers[follower].broker.broker_epoch, *request, asked.log.last_epoch,
            1 << 20, 0.0, lambda replica, epoch: True, asked.log.start_offset,
        )  # fmt: skip
        self.check()
        return request, read

    def take(self, follower: int, answer: Any) -> bool:
        (epoch, offset), read = answer
        applied = self.partition(follower).apply_fetch(
            epoch, offset, read.records, read.high_watermark, read.diverging, read.log_start_offset
        )
        self.check()
        return applied

    def fetch(self, leader: int, *followers: int, times: int = 2) -> None:
        for _ in range(times):
            for follower in followers:
                self.take(follower, self.ask(follower, leader))

    # -- nodes ------------------------------------------------------------------------------------------------

    def kill(self, broker: int) -> None:
        self.invariants.node_gone(f"broker-{broker}", lossy=False)
        self.check()

    def drop(self, broker: int) -> None:
        """It learns that it is no replica any more, and deletes its log."""
        node = self.brokers[broker]
        del node.broker.partitions[TOPIC, 0]
        node.partition = None
        node.disk = SimulatedDisk(Random(broker))
        self.invariants.check_all()

    def lose(self, broker: int, keep: int = 0) -> None:
        """A power cut after which the log ends at `keep`."""
        node = self.brokers[broker]
        assert node.partition is not None
        node.partition.log.truncate_to(keep)
        self.invariants.node_gone(node.name, lossy={"t-0"})
        self.check()

    def return_(self, broker: int, **change: Any) -> None:
        """It boots, and registers uncleanly: `change` is what that does to the partition."""
        self.brokers[broker].boot()
        records = [self.change(**change)] if change else []
        self.commit(self.register(broker), *records)
        self.commit(self.fencing(broker, -1))
        self.brokers[broker].run()
        self.check()

    def violates(self, property_: str, *words: str) -> Any:
        assert property_ in INVARIANTS
        return Violates(property_, words)


class Violates:
    def __init__(self, property_: str, words: Sequence[str]) -> None:
        self.property, self.words = property_, words

    def __enter__(self) -> None: ...

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> bool:
        assert isinstance(error, Violated), f"{self.property} was not violated: {error!r}"
        assert error.property == self.property, error
        assert all(word in error.message for word in self.words), error.message
        return True
