"""Between a controller's decision and its effect lies the metadata log (000, 1.2.1 and 2.3.2; description 6.3)."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from kio.schema.broker_heartbeat.v1.request import BrokerHeartbeatRequest
from kio.schema.broker_registration.v4.request import BrokerRegistrationRequest, Listener
from kio.schema.create_topics.v7.request import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest
from kio.schema.errors import ErrorCode

from cluster_image.kraft.broker.server import BrokerServer
from cluster_image.kraft.controller import server as controller_server
from cluster_image.kraft.controller.controller import Controller
from cluster_image.kraft.controller.server import ControllerServer
from cluster_image.kraft.controller.topics import RECORDS_IN_STEP
from cluster_image.kraft.metadata.image import PartitionRegistration
from cluster_image.kraft.metadata.records import PartitionChangeRecord, PartitionRecord, TopicRecord, encode
from cluster_image.kraft.raft import NotLeader, rpc
from cluster_image.network import Peer
from cluster_image.wire.messages import milliseconds
from tests.cluster_image.kraft.broker.test_partition import TOPIC, config
from tests.cluster_image.kraft.controller.test_controller import Quorum, three_brokers
from tests.cluster_image.kraft.raft.test_raft_quorum import boot, disk_with
from tests.cluster_image.protocol.replication.group import Group
from tests.cluster_image.storage.simulated_disk import simulated_disk


class HeldRaft:
    """A quorum's log in which nothing is committed until a test says so."""

    def __init__(self) -> None:
        self.log: list[bytes] = []
        self.committed_end = 0
        self.listener: Any = None
        self.lost = False
        self._changed = asyncio.Event()

    @property
    def end_offset(self) -> int:
        return len(self.log)

    def expire(self) -> None: ...

    def append(self, records: Sequence[bytes]) -> int:
        self.log += records
        return len(self.log) - 1

    async def committed(self, offset: int, timeout: float) -> None:
        while offset >= self.committed_end:
            self._changed.clear()
            await self._changed.wait()
            if self.lost:
                raise NotLeader

    def commit(self) -> None:
        base, self.committed_end = self.committed_end, len(self.log)
        self.listener.on_commit(base, 1, self.log[base:])
        self._changed.set()

    def lose(self) -> None:
        """Another leads, and has none of what was not committed."""
        self.lost = True
        del self.log[self.committed_end :]
        self.listener.on_resign(1)
        self._changed.set()


class Office:
    def __init__(self) -> None:
        self.raft = HeldRaft()
        raft: Any = self.raft
        network: Any = None
        self.server = ControllerServer(config(), raft, network, Random(1), _fail)

    def ask(self, request: Any) -> asyncio.Task[Any]:
        return asyncio.create_task(self.server.handle(request, Peer("test", "somewhere")))


def _fail(error: BaseException) -> None:
    raise error


def reported(story: Callable[[Office], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        await story(Office())

    asyncio.run(asyncio.wait_for(run(), 10))


async def a_moment() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def registration(broker: int, incarnation: int = 1) -> BrokerRegistrationRequest:
    return BrokerRegistrationRequest(
        broker_id=broker, cluster_id="test", incarnation_id=uuid.UUID(int=incarnation), features=(), rack=None,
        listeners=(Listener(name="P", host="h", port=9092, security_protocol=0),), previous_broker_epoch=-1,
    )  # fmt: skip


# -- 1.2.1, 6.3 -------------------------------------------------------------------------------------------------


def test_a_controller_that_does_not_lead_does_nothing() -> None:
    async def story(office: Office) -> None:
        for request in (
            registration(1),
            BrokerHeartbeatRequest(
                broker_id=1, broker_epoch=0, current_metadata_offset=0, want_fence=False, want_shut_down=False
            ),
        ):
            answer = await office.ask(request)
            assert answer.error_code is ErrorCode.not_controller
        assert office.raft.log == []

    reported(story)


def test_nothing_is_answered_before_it_is_committed() -> None:
    async def story(office: Office) -> None:
        office.server.on_leader(1)
        answer = office.ask(registration(1))
        await a_moment()
        assert len(office.raft.log) == 1 and not answer.done()
        assert not office.server.image.brokers, "written, and nothing that anybody else may see"
        office.raft.commit()
        assert (await answer).error_code is ErrorCode.none
        assert list(office.server.image.brokers) == [1]

    reported(story)


def test_what_was_decided_on_uncommitted_state_waits_for_it_too() -> None:
    """A refusal writes nothing, and still must not be told before what it rests on is sure."""

    async def story(office: Office) -> None:
        office.server.on_leader(1)
        office.ask(registration(1, incarnation=1))
        refused = office.ask(registration(1, incarnation=2))
        await a_moment()
        assert not refused.done()
        office.raft.commit()
        assert (await refused).error_code is ErrorCode.duplicate_broker_registration

    reported(story)


def test_a_zombie_controller_changes_nothing() -> None:
    async def story(office: Office) -> None:
        office.server.on_leader(1)
        office.ask(registration(1))
        await a_moment()
        office.raft.commit()
        zombies = office.ask(registration(2))
        await a_moment()
        active = office.server.active
        assert active is not None and sorted(active.image.brokers) == [1, 2], "so it thinks"
        office.raft.lose()
        assert (await zombies).error_code is ErrorCode.request_timed_out, "what it wrote may survive, or not"
        assert office.server.active is None and list(office.server.image.brokers) == [1]
        office.raft.lost = False
        office.server.on_leader(3)
        active = office.server.active
        assert active is not None and list(active.image.brokers) == [1], "a new term begins with what is committed"

    reported(story)


def test_two_changes_at_once_are_decided_one_after_the_other() -> None:
    """Neither is committed when the second is decided: on the state that the first has left."""

    async def story(office: Office) -> None:
        office.server.on_leader(1)
        answers = [office.ask(registration(1, incarnation=i)) for i in (1, 2)]
        answers += [office.ask(registration(broker)) for broker in (2, 3)]
        await a_moment()
        office.raft.commit()
        found = [await answer for answer in answers]
        assert [a.error_code for a in found] == [
            ErrorCode.none, ErrorCode.duplicate_broker_registration, ErrorCode.none, ErrorCode.none,
        ]  # fmt: skip
        assert [int(a.broker_epoch) for a in found] == [0, -1, 1, 2]

    reported(story)


def many_topics(count: int, prefix: str = "t") -> CreateTopicsRequest:
    topics = tuple(
        CreatableTopic(
            name=f"{prefix}{number}", num_partitions=-1, replication_factor=-1, configs=(),
            assignments=(CreatableReplicaAssignment(partition_index=0, broker_ids=(1,)),),
        )
        for number in range(count)
    )  # fmt: skip
    return CreateTopicsRequest(topics=topics, timeout=milliseconds(1000), validate_only=False)


async def with_a_broker(office: Office) -> int:
    """How many records that takes."""
    office.server.on_leader(1)
    awake = BrokerHeartbeatRequest(
        broker_id=1, broker_epoch=0, current_metadata_offset=0, want_fence=False, want_shut_down=False
    )
    for request in (registration(1), awake):
        answer = office.ask(request)
        await a_moment()
        office.raft.commit()
        assert (await answer).error_code is ErrorCode.none
    return len(office.raft.log)


def test_many_topics_are_decided_in_steps_and_others_have_their_turn_between_them() -> None:
    async def story(office: Office) -> None:
        before = await with_a_broker(office)
        answer = office.ask(many_topics(3 * RECORDS_IN_STEP))
        await a_moment()
        assert len(office.raft.log) == before + RECORDS_IN_STEP
        other = office.ask(registration(2))
        await a_moment()
        office.raft.commit()
        assert (await other).error_code is ErrorCode.none
        while not answer.done():
            await asyncio.sleep(0.005)
            office.raft.commit()
        assert {t.error_code for t in (await answer).topics} == {ErrorCode.none}
        assert len(office.server.image.topics) == 3 * RECORDS_IN_STEP

    reported(story)


def test_requests_in_steps_take_turns() -> None:
    """However many there are, no more is written in a second."""

    async def story(office: Office) -> None:
        before = await with_a_broker(office)
        answers = [office.ask(many_topics(2 * RECORDS_IN_STEP, prefix)) for prefix in "abc"]
        await a_moment()
        assert len(office.raft.log) == before + RECORDS_IN_STEP
        while not all(answer.done() for answer in answers):
            written = len(office.raft.log)
            await asyncio.sleep(0.005)
            office.raft.commit()
            assert len(office.raft.log) <= written + RECORDS_IN_STEP
        assert len(office.server.image.topics) == 6 * RECORDS_IN_STEP

    reported(story)


def test_a_request_that_nobody_waits_for_any_more_does_not_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controller_server, "_COMMIT_TIMEOUT_SECONDS", 0.2)

    async def story(office: Office) -> None:
        await with_a_broker(office)
        request = replace(many_topics(20 * RECORDS_IN_STEP), timeout=milliseconds(0))
        answer = office.ask(request)
        while not answer.done():
            await asyncio.sleep(0.005)
            office.raft.commit()
        assert {t.error_code for t in (await answer).topics} == {ErrorCode.request_timed_out}
        written = len(office.raft.log)
        assert 0 < len(office.server.image.topics) < 20 * RECORDS_IN_STEP // 2
        for _ in range(20):
            await asyncio.sleep(0.005)
            office.raft.commit()
        assert len(office.raft.log) == written

    reported(story)


@pytest.mark.parametrize("steps", [0, 1])
def test_a_controller_deposed_between_the_steps_of_a_request_does_not_go_on(steps: int) -> None:
    async def story(office: Office) -> None:
        await with_a_broker(office)
        answer = office.ask(many_topics(3 * RECORDS_IN_STEP))
        if not steps:
            office.raft.lose()
        else:
            await a_moment()
            office.raft.commit()
            await a_moment()
            office.raft.lose()
            office.raft.lost = False
            office.server.on_leader(3)
        found = {t.error_code for t in (await answer).topics}
        assert found == {ErrorCode.request_timed_out if steps else ErrorCode.not_controller}
        assert len(office.server.image.topics) == steps * RECORDS_IN_STEP // 2

    reported(story)


def test_a_node_that_restarts_fetches_only_what_it_lacks() -> None:
    disk = disk_with(1, 1, 2)
    disk.lose_power(Random(0))
    observer = boot(disk, node_id=9)
    requests = observer.poll(0.0).requests
    assert requests
    for _, request in requests:
        asked = rpc.partition(request)
        assert asked is not None and (asked.fetch_offset, asked.last_fetched_epoch) == (3, 2)


def test_broker_epochs_survive_a_controller_failover() -> None:
    quorum = three_brokers()
    epochs = dict(quorum.epochs)
    quorum.controller = Controller(quorum.image.copy(), config(), "test", Random(2), now=50.0)
    for broker in (1, 2, 3):
        assert quorum.heartbeat(broker, 50.0).error_code is ErrorCode.none
    quorum.epochs[1] -= 1
    assert quorum.heartbeat(1, 50.0).error_code is ErrorCode.stale_broker_epoch
    assert quorum.register(1, now=50.1, incarnation=9) is ErrorCode.duplicate_broker_registration
    assert quorum.register(4, now=50.1) is ErrorCode.none
    assert quorum.epochs[4] > max(epochs.values()), "they go on from where they were"
    assert isinstance(quorum, Quorum)


# -- 2.3.2 ------------------------------------------------------------------------------------------------------


class Replicas:
    """In place of a broker's replicas: notes what they would act on."""

    def __init__(self, server: BrokerServer) -> None:
        self.server = server
        self.seen: list[list[PartitionRegistration | None]] = []

    def apply(self, changed: Any) -> None:
        self.seen.append([self.server.image.partition(*key) for key in changed])


def test_deltas_of_one_batch_are_acted_on_once_in_their_sum() -> None:
    """Replica 3 is taken out of the partition, put back, and the leader changes twice: one look at the outcome."""
    raft: Any = SimpleNamespace(listener=None)
    network: Any = None
    server = BrokerServer(config(), simulated_disk(), network, raft, Random(1), _fail, wall_clock=lambda: 0.0)
    replicas: Any = Replicas(server)
    server._replicas, server._ready = replicas, True
    created = PartitionRecord(partition_id=0, topic_id=TOPIC, replicas=(1, 2, 3), isr=(1, 2, 3), leader=1)
    server.on_commit(0, 1, [encode(TopicRecord(name="t", topic_id=TOPIC)), encode(created)])
    deltas: list[dict[str, Any]] = [
        {"replicas": (1, 2), "isr": (1, 2), "leader": 1},
        {"leader": 2},
        {"replicas": (1, 2, 3)},
        {"leader": 1, "isr": (1,), "eligible_leader_replicas": (2,)},
    ]
    server.on_commit(2, 1, [encode(PartitionChangeRecord(partition_id=0, topic_id=TOPIC, **d)) for d in deltas])
    first, second = replicas.seen
    assert [p.leader for p in first] == [1]
    (partition,) = second
    assert partition == PartitionRegistration(
        topic_id=TOPIC, topic="t", index=0, replicas=(1, 2, 3), isr=(1,), leader=1, leader_epoch=3, partition_epoch=4,
        elr=(2,),
    )  # fmt: skip


def test_a_replica_that_sees_only_the_sum_behaves_as_the_last_state_says(tmp_path: Any) -> None:
    """Its epochs jump; the leader it was meanwhile, it never was."""
    group = Group(tmp_path)
    group.tell(1, (1, 2, 3), leader_epoch=1)
    group.partition_epoch += 3
    group.tell(3, (1, 3), leader_epoch=4)
    assert not group.partitions[1].is_leader and group.partitions[1].leader == 3
    assert group.partitions[2].leader_epoch == 4 and group.partitions[3].is_leader
