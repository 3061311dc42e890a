"""The simulation's invariants: a healthy history of a partition breaks none, and each has one that breaks it.

Partitions and logs are the cluster's own, on disks in memory; metadata is committed by hand.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Sequence
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from kio.schema.types import BrokerId, TopicName
from kio.static.primitive import i8, i32, i64, u16

from cluster_image.broker import rules
from cluster_image.broker.partition import Partition
from cluster_image.config import parse
from cluster_image.disk import Disk
from cluster_image.metadata.image import NO_LEADER, MetadataImage, PartitionRegistration
from cluster_image.metadata.records import (
    BrokerEndpoint,
    BrokerRegistrationChangeRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
    encode,
)
from cluster_image.raft.quorum import Role
from cluster_image.records import build_batch
from cluster_image.storage.log import Log
from harness.runtimes.simulation.disk import SimulatedDisk
from harness.runtimes.simulation.invariants import PROPERTIES, Invariants, Violation, unmet

TOPIC = uuid.UUID(int=7)
BROKERS = (1, 2, 3)
_LOOP = asyncio.new_event_loop()


def _config(broker: int) -> Any:
    return parse(
        f"node.id={broker}\nprocess.roles=broker\ncluster.id=test\nlisteners=localhost:9092\nlog.dirs=/data\n"
        "controller.quorum.voters=101@localhost:9093\nmin.insync.replicas=2\nreplica.lag.time.max.ms=4000"
    )


def _mount(disk: SimulatedDisk) -> Disk:
    return disk.mount(lambda: True, lambda operation, path: None, lambda seconds: None)


class Voter:
    """A node of the quorum whose log and role are set by hand."""

    def __init__(self, node_id: int, voters: Sequence[int] = (101,)) -> None:
        log = Log.open(_mount(SimulatedDisk(Random(0))), "__cluster_metadata-0")
        self.log = log
        self.quorum = SimpleNamespace(
            id=node_id, role=Role.FOLLOWER, epoch=1, leader_id=101,
            replica=SimpleNamespace(log=log, high_watermark=0),
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
        log = Log.open(_mount(self.disk), "t-0")
        self.partition = Partition(registration, log, _config(self.id), self.id, self.trace)
        self.broker.partitions[TOPIC, 0] = self.partition
        self.broker.ready = True
        self.partition.apply(registration, 0.0)
        return self.partition

    def trace(self, event: str, where: str = "", **fields: object) -> None:
        self.world.invariants.changed(self.name, event, where, fields)


class World:
    """MinISR is 2. Brokers 1, 2, 3 are registered, in sync and led by 1; every step is checked."""

    def __init__(self, elr_enabled: bool = True) -> None:
        self.invariants = Invariants(2, elr_enabled)
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
            broker_id=BrokerId(broker), incarnation_id=TOPIC, broker_epoch=i64(epoch), end_points=(endpoint,),
            rack=None, fenced=fenced,
        )  # fmt: skip

    def fencing(self, broker: int, fenced: int = 1) -> BrokerRegistrationChangeRecord:
        epoch = self.image.brokers[broker].epoch
        return BrokerRegistrationChangeRecord(broker_id=BrokerId(broker), broker_epoch=i64(epoch), fenced=i8(fenced))

    def change(self, leader: int | None = None, **sets: Sequence[int]) -> PartitionChangeRecord:
        changed: dict[str, Any] = {name: tuple(map(BrokerId, ids)) for name, ids in sets.items()}
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
            build_batch([value], timestamp_ms=0), acks, lambda: asyncio.Future(loop=_LOOP)
        )  # fmt: skip
        self.check()

    def ask(self, follower: int, leader: int) -> Any:
        """Send a fetch, and return its answer, which is not applied yet."""
        asked, to = self.partition(follower), self.partition(leader)
        request = asked.leader_epoch, asked.log.end_offset
        read = to.fetch_as_follower(
            follower, self.brokers[follower].broker.broker_epoch, request[0], request[1], asked.log.last_epoch,
            1 << 20, 0.0, lambda replica, epoch: True,
        )  # fmt: skip
        self.check()
        return request, read

    def take(self, follower: int, answer: Any) -> bool:
        (epoch, offset), read = answer
        applied = self.partition(follower).apply_fetch(epoch, offset, read.records, read.high_watermark, read.diverging)
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
        assert property_ in PROPERTIES
        return _Violates(property_, words)


class _Violates:
    def __init__(self, property_: str, words: Sequence[str]) -> None:
        self.property, self.words = property_, words

    def __enter__(self) -> None: ...

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> bool:
        assert isinstance(error, Violation), f"{self.property} was not violated: {error!r}"
        assert error.property == self.property, error
        assert all(word in error.message for word in self.words), error.message
        return True


@pytest.fixture
def world() -> World:
    return World()


# -- healthy ----------------------------------------------------------------------------------------------------


def test_a_healthy_history_breaks_nothing(world: World) -> None:
    """Commits, an ISR that shrinks into the ELR, fail-over with divergence, a lossy power cut and the way back."""
    world.produce(1, b"a")
    world.fetch(1, 2, 3)
    assert world.partition(1).high_watermark == 1
    # 3 is fenced, then 2: it stays eligible. 1 writes on alone, uncommitted, and is fenced too; 2 takes over.
    world.commit(world.fencing(3), world.change(isr=(1, 2)))
    world.learn(1)
    world.produce(1, b"b")
    world.fetch(1, 2)
    world.commit(world.fencing(2), world.change(isr=(1,), eligible_leader_replicas=(2,)))
    world.learn(1)
    world.produce(1, b"c", acks=1)
    assert world.partition(1).high_watermark == 2
    world.commit(world.fencing(1), world.change(NO_LEADER, isr=(), eligible_leader_replicas=(1, 2)))
    world.commit(world.fencing(2, -1), world.change(2, isr=(2,), eligible_leader_replicas=(1,)))
    world.learn(2)
    world.produce(2, b"d", acks=1)
    world.invariants.check_all()
    # 1 comes back, with a tail that was never committed; 3 has lost its power, and all its log, meanwhile.
    world.commit(world.fencing(1, -1))
    world.learn(1)
    world.fetch(2, 1, times=3)
    world.lose(3)
    world.commit(world.change(isr=(2, 1), eligible_leader_replicas=()))
    world.learn(2, 1)
    world.fetch(2, 1)
    assert world.partition(2).high_watermark == 3
    world.return_(3)
    world.fetch(2, 3)
    world.commit(world.change(isr=(1, 2, 3)))
    world.learn(2, 1, 3)
    world.kill(2)
    world.invariants.check_all()
    assert not world.invariants.losses


def test_a_new_leaders_high_watermark_may_lag(world: World) -> None:
    world.produce(1, b"a")
    world.fetch(1, 2, 3, times=1)
    for follower in (2, 3):
        world.ask(follower, 1)  # commits at 1; the answers never come
    assert world.partition(1).high_watermark == 1
    world.commit(world.fencing(1), world.change(2, isr=(2, 3)))
    world.learn(2, 3)
    assert world.partition(2).high_watermark == 0
    world.fetch(2, 3)
    assert world.partition(2).high_watermark == 1


# -- controller -------------------------------------------------------------------------------------------------


def test_valid_controller_isr_and_elr(world: World) -> None:
    with world.violates("ValidControllerIsrAndElr", "[2] are in the ISR and in the ELR"):
        world.commit(world.change(isr=(1, 2), eligible_leader_replicas=(2,)))


def test_an_elr_beside_a_full_isr_is_not_valid(world: World) -> None:
    with world.violates("ValidControllerIsrAndElr", "the minimum is 2"):
        world.commit(world.change(isr=(1, 2), eligible_leader_replicas=(3,)))


def test_valid_controller_state(world: World) -> None:
    with world.violates("ValidControllerState", "[3] are in the ISR though fenced"):
        world.commit(world.fencing(3))


def test_min_isr_recovery_quorum(world: World) -> None:
    world.commit(world.fencing(3), world.change(isr=(1, 2)))
    world.commit(world.fencing(2), world.change(isr=(1,), eligible_leader_replicas=(2,)))
    world.commit(world.fencing(1), world.change(NO_LEADER, isr=(), eligible_leader_replicas=(1, 2)))
    world.commit(world.change(eligible_leader_replicas=(1,), last_known_elr=(2,)))
    with world.violates("MinIsrRecoveryQuorum", "only 1 replicas"):
        world.commit(world.change(eligible_leader_replicas=()))


# -- replication ------------------------------------------------------------------------------------------------


def test_replication_quorum_superset(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """M16: a proposed member does not count before the controller has agreed."""
    monkeypatch.setattr(rules, "maximal_isr", lambda isr, proposed: frozenset(isr))
    world.commit(world.fencing(3), world.change(isr=(1, 2)))
    world.learn(1)
    world.commit(world.fencing(3, -1))
    world.ask(3, 1)
    assert world.partition(1).leadership.proposal is not None  # type: ignore[union-attr]
    with world.violates("ReplicationQuorumSuperset", "maximal ISR [1, 2]", "elect [3]"):
        world.commit(world.change(isr=(1, 2, 3)))


def test_a_proposed_member_counts(world: World) -> None:
    world.commit(world.fencing(3), world.change(isr=(1, 2)))
    world.learn(1)
    world.commit(world.fencing(3, -1))
    world.ask(3, 1)
    world.commit(world.change(isr=(1, 2, 3)))
    world.learn(1)


def test_candidate_completeness_when_a_follower_truncates_to_its_high_watermark(world: World) -> None:
    """M01."""
    world.produce(1, b"a")
    world.fetch(1, 2, 3, times=1)
    world.ask(2, 1), world.ask(3, 1)
    world.commit(world.fencing(1), world.change(3, isr=(2, 3)))
    world.learn(3)
    follower = world.partition(2)
    follower._truncate_to(follower.high_watermark)
    with world.violates("LeaderCandidateCompleteness", "broker-2", "in the ISR", "up to offset 1", "below 0"):
        world.check()


def test_candidate_completeness_of_the_elr(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """M15: Last Replica Standing."""
    monkeypatch.setattr(rules, "may_commit", lambda *args: True)
    world.commit(world.fencing(3), world.change(isr=(1, 2)))
    world.kill(2)
    world.commit(world.fencing(2), world.change(isr=(1,), eligible_leader_replicas=(2,)))
    world.learn(1)
    with world.violates("LeaderCandidateCompleteness", "broker-2", "in the ELR"):
        world.produce(1, b"a", acks=1)


def test_candidate_completeness_of_a_replica_that_lost_its_log(world: World) -> None:
    """M28, M37. Until it has registered, the controller cannot know."""
    world.produce(1, b"a")
    world.fetch(1, 2, 3)
    world.lose(3)
    world.brokers[3].boot()
    world.invariants.check_all()
    world.commit(world.fencing(3), world.change(isr=(1, 2)))
    world.commit(world.register(3))
    world.commit(world.fencing(3, -1), world.change(isr=(1, 2, 3)))
    world.brokers[3].run()
    with world.violates("LeaderCandidateCompleteness", "broker-3", "in the ISR"):
        world.check()


def test_leader_completeness(world: World) -> None:
    world.commit(world.fencing(3), world.change(isr=(1, 2)))
    world.learn(1)
    world.produce(1, b"a")
    world.fetch(1, 2)
    with world.violates("LeaderCompleteness", "broker-3", "elected leader of epoch 1", "up to offset 1"):
        world.commit(world.fencing(3, -1), world.fencing(1), world.change(3, isr=(2, 3)))


def test_unclean_recovery_within_the_contract_must_find_the_complete_replica(world: World) -> None:
    world.produce(1, b"a")
    world.fetch(1, 2, 3)
    _everybody_out(world)
    world.lose(3)
    world.return_(3, eligible_leader_replicas=(2,), last_known_elr=(3,))
    world.commit(world.change(eligible_leader_replicas=(), last_known_elr=(2, 3)))
    with world.violates("LeaderCompleteness", "broker-3"):
        world.commit(world.change(3, isr=(3,), last_known_elr=(2,)))


def test_unclean_recovery_beyond_the_contract_is_noted(world: World) -> None:
    world.produce(1, b"a")
    world.fetch(1, 2, 3)
    _everybody_out(world)
    world.kill(1)
    world.lose(2)
    world.lose(3)
    world.return_(2, eligible_leader_replicas=(3,), last_known_elr=(2,))
    world.return_(3, eligible_leader_replicas=(), last_known_elr=(2, 3))
    world.commit(world.change(2, isr=(2,), last_known_elr=(3,)))
    assert "offsets 0 to 0 are lost: broker-2" in "".join(world.invariants.losses)
    world.learn(2, 3)
    world.produce(2, b"b", acks=1)
    world.fetch(2, 3)
    world.commit(world.change(isr=(2, 3), last_known_elr=()))
    world.learn(2)
    world.fetch(2, 3)
    assert world.partition(2).high_watermark == 1
    world.invariants.check_all()


def _everybody_out(world: World) -> None:
    world.commit(world.fencing(1), world.change(2, isr=(2, 3)))
    world.commit(world.fencing(2), world.change(3, isr=(3,), eligible_leader_replicas=(2,)))
    world.commit(world.fencing(3), world.change(NO_LEADER, isr=(), eligible_leader_replicas=(2, 3)))


def test_no_committed_record_lost_globally(world: World) -> None:
    """Neither is in the ISR or the ELR, so only this property sees what has happened."""
    world.produce(1, b"a")
    world.fetch(1, 2, 3)
    _everybody_out(world)
    world.commit(world.change(eligible_leader_replicas=(), last_known_elr=(2, 3)))
    world.learn(1, 2)
    for broker in (1, 2):
        world.partition(broker)._set_high_watermark(0)
        world.partition(broker)._truncate_to(0)
    world.lose(3)
    with world.violates("NoCommittedRecordLostGlobally", "offsets 0 to 0"):
        world.return_(3)


def test_a_loss_beyond_the_contract_is_noted_once(world: World) -> None:
    world.produce(1, b"a")
    world.fetch(1, 2, 3)
    _everybody_out(world)
    world.commit(world.change(eligible_leader_replicas=(), last_known_elr=(2, 3)))
    for broker in BROKERS:
        world.lose(broker)
    for broker in BROKERS:
        world.return_(broker)
    world.invariants.check_all()
    assert len(world.invariants.losses) == 1 and "no replica has them" in world.invariants.losses[0]


def test_last_replica_standing_without_an_elr_is_noted() -> None:
    world = World(elr_enabled=False)
    world.produce(1, b"a")
    world.fetch(1, 2, 3)
    world.commit(world.fencing(1), world.change(2, isr=(2, 3)))
    world.commit(world.fencing(2), world.change(3, isr=(3,)))
    world.lose(3)
    world.commit(world.fencing(3), world.change(NO_LEADER))
    world.return_(3)
    world.commit(world.change(3))
    assert "broker-3 was elected without them" in "".join(world.invariants.losses)


def test_log_matching_of_any_two_replicas(world: World) -> None:
    world.produce(1, b"a")
    other = world.partition(2)
    other.log.append_as_leader(build_batch([b"x"], timestamp_ms=0), 0)
    other._trace("append", "t-0", end=1)
    with world.violates("LogMatching", "broker-2", "broker-1", "offsets 0 to 0 of leader epoch 0"):
        world.check()


def test_log_matching_of_the_batches_before(world: World) -> None:
    """004's divergence: the same epoch begins at other offsets."""
    world.produce(1, b"a")
    world.commit(world.fencing(1), world.change(2, isr=(2, 3)))
    world.learn(2)
    world.produce(2, b"b")
    old = world.partition(1)
    old.log.append_as_leader(build_batch([b"c"], timestamp_ms=0), 1)
    old._trace("append", "t-0", end=2)
    with world.violates("LogMatching", "leader epoch 1 begins on broker-2", "on broker-1"):
        world.check()


def test_a_deposed_leaders_answer_breaks_log_matching(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """M13."""
    world.produce(1, b"a")
    late = world.ask(3, 1)
    world.commit(world.fencing(1), world.change(2, isr=(2, 3)))
    world.learn(2, 3)
    assert not world.take(3, late)
    monkeypatch.setattr(rules, "may_apply_fetch", lambda *args: True)
    with world.violates("LogMatching", "broker-3 follows broker-2 in leader epoch 1"):
        world.take(3, late)


def test_leader_append_only(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """M13, of a replica that leads by now."""
    world.produce(1, b"a")
    late = world.ask(2, 1)
    world.commit(world.fencing(1), world.change(2, isr=(2, 3)))
    world.learn(2)
    monkeypatch.setattr(rules, "may_apply_fetch", lambda *args: True)
    with world.violates("LeaderAppendOnly", "broker-2 leads epoch 1 from offset 0", "of leader epoch 0"):
        world.take(2, late)


def test_a_leader_that_cuts_its_log(world: World) -> None:
    world.produce(1, b"a")
    world.partition(1)._truncate_to(0)
    world.partition(1).append(build_batch([b"b"], timestamp_ms=0), 1, lambda: asyncio.Future(loop=_LOOP))
    with world.violates("LogMatching"):  # it has written two records at one offset of its epoch
        world.check()


def test_leader_append_only_when_nothing_is_written_after(world: World) -> None:
    world.produce(1, b"a")
    world.partition(1)._truncate_to(0)
    with world.violates("LeaderAppendOnly", "has cut its log from 1 to 0"):
        world.check()


def test_strong_isr(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """M04: a fetch of an epoch long over is taken for news. 3 has truncated since."""
    world.produce(1, b"a")
    world.fetch(1, 2, 3, times=1)
    late = world.partition(3).log.end_offset
    world.commit(world.fencing(3), world.change(isr=(1, 2)))
    world.commit(world.fencing(3, -1))
    world.commit(world.change(2))
    world.partition(2)._truncate_to(0)
    world.learn(2, 3)
    world.fetch(2, 3)
    assert world.partition(3).log.end_offset == 0
    world.commit(world.change(1))
    world.learn(1)
    monkeypatch.setattr(rules, "refuse_leader_epoch", lambda ours, theirs: None)
    with world.violates("StrongIsr", "broker-1", "broker-3", "up to offset 1"):
        epoch = world.brokers[3].broker.broker_epoch
        world.partition(1).fetch_as_follower(3, epoch, 0, late, 0, 1 << 20, 0.0, lambda replica, epoch: True)
        world.brokers[1].trace("isr proposed", "t-0")
        world.check()


def test_high_watermark_monotonicity(world: World) -> None:
    world.produce(1, b"a")
    world.fetch(1, 2, 3)
    leader = world.partition(1)
    leader._set_high_watermark(0)
    with world.violates("HighWatermarkMonotonicity", "fell from 1 to 0"):
        world.check()


def test_applied_high_watermark_monotonicity(world: World) -> None:
    """A new leader that takes its lagging watermark for the true one."""
    world.produce(1, b"a")
    world.fetch(1, 2, 3, times=1)
    world.ask(2, 1), world.ask(3, 1)
    world.commit(world.fencing(1), world.change(2, isr=(2, 3)))
    leader = world.partition(2)
    leader.apply(world.registration, 0.0)
    leader.leadership.epoch_start = 0  # type: ignore[union-attr]
    with world.violates("HighWatermarkMonotonicity", "epoch's start 0", "1 was reached before"):
        world.check()


def test_consistent_read(world: World) -> None:
    """A deposed leader goes on to commit by itself what others have committed otherwise."""
    world.commit(world.fencing(1), world.change(2, isr=(2, 3)))
    world.learn(2, 3)
    world.produce(2, b"a")
    world.produce(1, b"b")
    world.fetch(2, 3)
    assert world.partition(2).high_watermark == 1
    world.partition(1)._set_high_watermark(1)
    with world.violates("ConsistentRead", "broker-1, leader of epoch 0", "epoch 1"):
        world.check()


def test_check_all_sees_what_no_trace_told(world: World) -> None:
    world.produce(1, b"a")
    world.fetch(1, 2, 3)
    world.invariants.check_all()
    world.partition(2).log.truncate_to(0)
    world.check()
    with world.violates("LeaderCandidateCompleteness", "broker-2"):
        world.invariants.check_all()


def test_check_all_compares_what_it_has_seen_before(world: World) -> None:
    world.produce(1, b"a")
    world.fetch(1, 2, 3)
    world.invariants.check_all()
    log = world.partition(2).log
    log.truncate_to(0)
    log.append_as_leader(build_batch([b"x"], timestamp_ms=0), 0)
    with world.violates("LogMatching", "broker-2"):
        world.invariants.check_all()


# -- quorum -----------------------------------------------------------------------------------------------------


class Quorum:
    def __init__(self) -> None:
        self.invariants = Invariants(2)
        self.voters = {f"controller-{n}": Voter(100 + n, (101, 102, 103)) for n in (1, 2, 3)}
        for name, voter in self.voters.items():
            self.invariants.node_started(name, voter)  # type: ignore[arg-type]
        self.record = TopicRecord(name=TopicName("t"), topic_id=TOPIC)

    def see(self, number: int, commit: int | None = None) -> None:
        voter = self.voters[f"controller-{number}"]
        if commit is not None:
            voter.quorum.replica.high_watermark = commit
        self.invariants.changed(f"controller-{number}", "metadata append", "", {})
        self.invariants.check()

    def __getitem__(self, number: int) -> Voter:
        return self.voters[f"controller-{number}"]


def test_a_healthy_quorum(world: World) -> None:
    quorum = Quorum()
    quorum[1].lead(1)
    for number in (1, 2):
        quorum[number].append(quorum.record)
        quorum.see(number, 1)
    quorum[1].append(quorum.record)  # never committed
    quorum.see(1)
    quorum[2].lead(2)
    quorum[2].append(quorum.record, epoch=2)
    quorum.see(2)
    quorum.invariants.node_gone("controller-1", lossy=True)
    quorum.invariants.check_all()


def test_metadata_log_matching() -> None:
    quorum = Quorum()
    quorum[1].append(quorum.record)
    quorum.see(1)
    quorum[2].append(quorum.record, quorum.record)
    with _Violates("MetadataLogMatching", ("controller-2", "controller-1")):
        quorum.see(2)


def test_election_safety() -> None:
    quorum = Quorum()
    quorum[1].lead(3)
    quorum.see(1)
    quorum[2].lead(3)
    with _Violates("ElectionSafety", ("controller-1 and controller-2 both lead epoch 3",)):
        quorum.see(2)


def test_committed_prefix() -> None:
    quorum = Quorum()
    quorum[1].append(quorum.record)
    quorum.see(1, 1)
    quorum[2].append(quorum.record, epoch=2)
    with _Violates("CommittedPrefix", ("controller-2 takes offsets 0 to 0 of leader epoch 2",)):
        quorum.see(2, 1)


def test_a_quorum_leader_without_what_is_committed() -> None:
    quorum = Quorum()
    quorum[1].append(quorum.record)
    quorum.see(1, 1)
    quorum[3].lead(2)
    with _Violates("CommittedPrefix", ("controller-3 was elected for epoch 2",)):
        quorum.see(3)


def test_committed_metadata_is_on_a_majority_of_disks() -> None:
    quorum = Quorum()
    for number in (1, 2):
        quorum[number].append(quorum.record)
        quorum.see(number, 1)
    quorum.invariants.check_all()
    quorum.invariants.node_gone("controller-2", lossy=True)
    quorum.invariants.check_all()
    quorum.voters["controller-2"] = Voter(102, (101, 102, 103))
    quorum.invariants.node_started("controller-2", quorum[2])  # type: ignore[arg-type]
    with _Violates("CommittedPrefix", ("1 of 3 voters",)):
        quorum.invariants.check_all()


def test_the_quorums_high_watermark_never_falls() -> None:
    quorum = Quorum()
    quorum[1].append(quorum.record)
    quorum.see(1, 1)
    with _Violates("HighWatermarkMonotonicity", ("it was 1 before",)):
        quorum.see(1, 0)


# -- liveness ---------------------------------------------------------------------------------------------------


def test_unmet_names_the_first_thing_that_does_not_hold(world: World) -> None:
    for broker in world.brokers.values():
        follower = Voter(broker.id)
        follower.quorum.replica = world.controller.quorum.replica
        broker.raft.quorum = follower.quorum
    world.controller.controller = SimpleNamespace(active=SimpleNamespace(image=world.image), image=world.image)
    nodes: dict[str, Any] = {broker.name: broker for broker in world.brokers.values()}
    nodes["controller-1"] = world.controller
    assert unmet(nodes) is None
    assert unmet(nodes | {"broker-2": None}) == "broker-2 does not run"
    world.invariants.check = lambda: None  # type: ignore[method-assign]
    world.produce(1, b"a")
    world.ask(2, 1), world.ask(3, 1)
    assert unmet(nodes) is None, "what is not committed yet need not be everywhere"
    world.fetch(1, 2, times=1)
    world.partition(1)._set_high_watermark(1)
    assert unmet(nodes) == "the log of broker-3 ends at 0, the high watermark of t-0 is 1"
    world.fetch(1, 3, times=1)
    assert unmet(nodes) is None
    world.commit(world.change(isr=(1, 2)))
    assert unmet(nodes) == "the ISR of t-0 is [1, 2] of [1, 2, 3]"
    world.commit(world.fencing(3))
    assert unmet(nodes) == "broker-3 is fenced"
    world.brokers[2].broker.image = MetadataImage()
    assert unmet(nodes) == "the metadata of broker-2 is not that of the active controller"
    world.brokers[2].raft.quorum.epoch = 0
    assert unmet(nodes) == "broker-2 follows 101 in quorum epoch 0, not 101 in 1"
    world.controller.controller.active = None
    assert unmet(nodes) == "no controller is active"


def test_a_torn_log_of_a_power_cut_is_read_anew(world: World) -> None:
    """On a disk that really loses what was not synced."""
    world.produce(1, b"a")
    world.fetch(1, 2, 3)
    world.invariants.node_gone("broker-3", lossy=True)
    world.brokers[3].disk.lose_power()
    world.commit(world.fencing(3), world.change(isr=(1, 2)))
    world.learn(1)
    world.return_(3)
    world.learn(3)
    world.fetch(1, 3)
    world.commit(world.change(isr=(1, 2, 3)))
    world.invariants.check_all()
