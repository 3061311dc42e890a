"""A broker's life, as its controller and as it itself sees it (description 8; 000, 1.2.2; 6.5.1)."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Coroutine
from dataclasses import replace
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.schema.broker_heartbeat.v1.response import BrokerHeartbeatResponse
from kio.schema.broker_registration.v4.request import BrokerRegistrationRequest, Listener
from kio.schema.broker_registration.v4.response import BrokerRegistrationResponse
from kio.schema.errors import ErrorCode

from cluster_image.kraft.broker.lifecycle import Lifecycle, State
from cluster_image.kraft.broker.server import BrokerServer
from cluster_image.kraft.metadata.records import (
    BrokerEndpoint,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
    encode,
)
from cluster_image.replication.log_manager import LogManager
from cluster_image.storage.disk import Disk
from cluster_image.storage.records import build_batch
from cluster_image.wire.messages import NO_THROTTLE
from tests.cluster_image.kraft.broker.test_partition import TOPIC, config
from tests.cluster_image.kraft.controller.test_controller import SESSION, Quorum, three_brokers
from tests.cluster_image.storage.simulated_disk import simulated_disk

# -- the controller's side --------------------------------------------------------------------------------------


@settings(max_examples=50, deadline=None)
@given(starts=st.lists(st.tuples(st.sampled_from([1, 2, 3]), st.booleans()), max_size=12))
def test_every_start_gets_a_higher_epoch_than_any_before_in_the_cluster(starts: list[tuple[int, bool]]) -> None:
    quorum = three_brokers()
    highest = max(quorum.epochs.values())
    assert len(set(quorum.epochs.values())) == 3
    now = 0.0
    for incarnation, (broker, clean) in enumerate(starts, 100):
        now += 2 * SESSION
        assert quorum.register(broker, now, incarnation, quorum.epochs[broker] if clean else -1) is ErrorCode.none
        assert quorum.epochs[broker] > highest
        highest = quorum.epochs[broker]
        quorum.heartbeat(broker, now)


def test_the_epoch_is_the_offset_of_the_registration() -> None:
    quorum = Quorum()
    step = quorum.controller.register_broker(registration_request(1), 0.0)
    before = quorum.image.end_offset
    (record,) = step.records
    assert isinstance(record, RegisterBrokerRecord)
    answer = quorum.do(step)
    assert answer.broker_epoch == record.broker_epoch == before
    broker = quorum.image.brokers[1]
    assert (broker.epoch, broker.fenced, broker.in_controlled_shutdown) == (before, True, False)


def registration_request(broker: int) -> BrokerRegistrationRequest:
    return BrokerRegistrationRequest(
        broker_id=broker, cluster_id="test", incarnation_id=uuid.UUID(int=1), features=(), rack=None,
        listeners=(Listener(name="P", host="h", port=9092, security_protocol=0),), previous_broker_epoch=-1,
    )  # fmt: skip


def registration_record(broker: int, epoch: int) -> bytes:
    endpoint = BrokerEndpoint(name="P", host="h", port=9092)
    return encode(
        RegisterBrokerRecord(
            broker_id=broker, incarnation_id=uuid.UUID(int=1), broker_epoch=epoch, end_points=(endpoint,), rack=None
        )
    )


def test_when_a_registration_is_accepted() -> None:
    quorum = Quorum()
    assert quorum.register(1, now=0.0, incarnation=7) is ErrorCode.none, "there is none of it"
    first = quorum.epochs[1]
    assert quorum.register(1, now=0.1, incarnation=7) is ErrorCode.none, "a retry"
    assert quorum.epochs[1] == first
    assert quorum.register(1, now=0.1, incarnation=8) is ErrorCode.duplicate_broker_registration
    quorum.heartbeat(1, 1.0, want_fence=True)
    assert quorum.image.brokers[1].fenced
    late = 1.0 + SESSION - 0.1
    assert quorum.register(1, now=late, incarnation=8) is ErrorCode.duplicate_broker_registration, (
        "fenced, but its session lives"
    )
    assert quorum.register(1, now=1.0 + SESSION, incarnation=8) is ErrorCode.none, "expired"
    assert quorum.epochs[1] > first


def test_a_broker_of_another_cluster_is_refused() -> None:
    quorum = Quorum()
    step = quorum.controller.register_broker(replace(registration_request(1), cluster_id="another"), 0.0)
    assert step.records == ()
    assert quorum.do(step).error_code is ErrorCode.inconsistent_cluster_id


def test_a_registration_finds_the_broker_out_of_every_isr() -> None:
    """Also where its session has run out and the controller has not yet got round to fencing it."""
    quorum = three_brokers()
    for broker in (2, 3):
        quorum.heartbeat(broker, SESSION)
    assert not quorum.image.brokers[1].fenced and quorum.partition().leader == 1
    assert quorum.register(1, SESSION, incarnation=9) is ErrorCode.none
    assert quorum.image.brokers[1].fenced
    assert (quorum.partition().leader, quorum.partition().isr) == (2, (2, 3))


def test_a_heartbeat_unfences_and_keeps_the_epoch() -> None:
    quorum = three_brokers()
    epoch = quorum.epochs[3]
    quorum.fence(3, SESSION)
    assert quorum.image.brokers[3].fenced and quorum.image.brokers[3].epoch == epoch
    answer = quorum.heartbeat(3, SESSION)
    assert answer.error_code is ErrorCode.none and not answer.is_fenced
    assert not quorum.image.brokers[3].fenced and quorum.image.brokers[3].epoch == epoch


def test_an_epoch_ends_with_the_next_registration() -> None:
    quorum = three_brokers()
    old = quorum.epochs[3]
    quorum.fence(3, SESSION)
    assert quorum.heartbeat(3, SESSION).error_code is ErrorCode.none, "fencing alone does not end it"
    quorum.fence(3, 2 * SESSION)
    quorum.comes_back(3, 2 * SESSION)
    quorum.epochs[3], new = old, quorum.epochs[3]
    assert quorum.heartbeat(3, 2 * SESSION).error_code is ErrorCode.stale_broker_epoch
    quorum.epochs[3] = new
    assert quorum.heartbeat(3, 2 * SESSION).error_code is ErrorCode.none


def test_a_leader_waits_in_controlled_shutdown() -> None:
    quorum = three_brokers()
    behind = quorum.image.end_offset - 1
    answer = quorum.heartbeat(1, 1.0, want_shut_down=True)
    broker = quorum.image.brokers[1]
    assert (broker.in_controlled_shutdown, broker.fenced, answer.should_shut_down) == (True, False, False)
    assert quorum.partition().leader == 2 and 1 not in quorum.partition().isr
    moved = quorum.image.end_offset - 1
    for offset in (behind, moved - 1):
        for other in (2, 3):
            quorum.heartbeat(other, 1.0, offset=offset)
        assert not quorum.heartbeat(1, 1.0, want_shut_down=True).should_shut_down
    quorum.heartbeat(2, 1.0, offset=moved)
    assert not quorum.heartbeat(1, 1.0, want_shut_down=True).should_shut_down, "3 has not seen it"
    quorum.heartbeat(3, 1.0, offset=moved)
    assert quorum.heartbeat(1, 1.0, want_shut_down=True).should_shut_down
    assert quorum.image.brokers[1].fenced


@pytest.mark.parametrize("why", ["fenced", "shutting down"])
def test_who_is_fenced_or_shutting_down_itself_holds_nobody_up(why: str) -> None:
    quorum = three_brokers()
    if why == "fenced":
        quorum.fence(3, SESSION)
    quorum.heartbeat(1, SESSION, want_shut_down=True)
    if why == "shutting down":
        quorum.heartbeat(3, SESSION, offset=0, want_shut_down=True)
    quorum.heartbeat(2, SESSION)
    assert quorum.heartbeat(1, SESSION, want_shut_down=True).should_shut_down


def test_a_broker_that_leads_nothing_may_stop_at_once() -> None:
    quorum = three_brokers()
    answer = quorum.heartbeat(3, 1.0, want_shut_down=True)
    assert answer.should_shut_down and quorum.image.brokers[3].fenced
    assert (quorum.partition().leader, quorum.partition().isr) == (1, (1, 2))


# -- the broker's side ------------------------------------------------------------------------------------------


class Channel:
    """To a controller that grants what it is told to grant."""

    def __init__(self) -> None:
        self.sent: list[Any] = []
        self.registers = False
        self.unfences = True
        self.lets_go = False
        self.at: list[float] = []

    async def request(self, request: Any) -> Any:
        self.sent.append(request)
        if "Registration" in type(request).__name__:
            error = ErrorCode.none if self.registers else ErrorCode.duplicate_broker_registration
            return BrokerRegistrationResponse(throttle_time=NO_THROTTLE, error_code=error, broker_epoch=5)
        self.at.append(asyncio.get_running_loop().time())
        return BrokerHeartbeatResponse(
            throttle_time=NO_THROTTLE, error_code=ErrorCode.none, is_caught_up=True,
            is_fenced=request.want_fence or not self.unfences, should_shut_down=request.want_shut_down and self.lets_go,
        )  # fmt: skip

    def close(self) -> None: ...

    @property
    def heartbeats(self) -> list[Any]:
        return [r for r in self.sent if "Heartbeat" in type(r).__name__]

    async def heard(self, more: int = 1) -> Any:
        """The last of so many more heartbeats."""
        until = len(self.heartbeats) + more
        while len(self.heartbeats) < until:
            await asyncio.sleep(0.005)
        return self.heartbeats[-1]


def living(story: Callable[[Lifecycle, Channel], Coroutine[Any, Any, None]], previous_epoch: int = -1) -> None:
    async def run() -> None:
        channel: Any = Channel()
        settings = config(broker_heartbeat_interval_ms="20")
        errors: list[BaseException] = []
        lifecycle = Lifecycle(settings, channel, Random(1), previous_epoch, lambda: 41, errors.append)
        try:
            await story(lifecycle, channel)
        finally:
            await lifecycle.close()
        assert errors == []

    asyncio.run(asyncio.wait_for(run(), 20))


def test_states_of_a_start() -> None:
    async def story(lifecycle: Lifecycle, channel: Channel) -> None:
        assert lifecycle.state is State.STARTING
        registering = asyncio.create_task(lifecycle.register())
        while not channel.sent:
            await asyncio.sleep(0.005)
        assert lifecycle.state is State.STARTING and not channel.heartbeats, "not before it is registered"
        channel.registers = True
        await registering
        ids = {r.incarnation_id for r in channel.sent if "Registration" in type(r).__name__}
        assert len(ids) == 1 and ids != {None}, "a retry names the same incarnation"
        assert lifecycle.state is State.RECOVERY and lifecycle.broker_epoch == 5
        heartbeat = await channel.heard(2)
        assert (heartbeat.want_fence, heartbeat.broker_epoch, heartbeat.current_metadata_offset) == (True, 5, 41)
        channel.unfences = False
        lifecycle.run()
        assert not (await channel.heard(2)).want_fence
        assert lifecycle.state is State.RECOVERY and lifecycle.fenced, "not before the controller says so"
        channel.unfences = True
        await lifecycle.unfenced.wait()
        assert lifecycle.state is State.RUNNING and not lifecycle.fenced

    living(story)


def test_another_start_has_another_incarnation() -> None:
    def incarnation(seed: int) -> uuid.UUID | None:
        channel: Any = Channel()
        channel.registers = True
        lifecycle = Lifecycle(config(), channel, Random(seed), -1, lambda: 0, lambda error: None)

        async def register() -> None:
            await lifecycle.register()
            await lifecycle.close()

        asyncio.run(register())
        found: uuid.UUID | None = channel.sent[0].incarnation_id
        return found

    assert incarnation(1) != incarnation(2)


@pytest.mark.parametrize("previous_epoch", [-1, 17])
def test_the_registration_names_the_epoch_of_the_clean_shutdown(previous_epoch: int) -> None:
    async def story(lifecycle: Lifecycle, channel: Channel) -> None:
        channel.registers = True
        await lifecycle.register()
        assert channel.sent[0].previous_broker_epoch == previous_epoch

    living(story, previous_epoch)


def test_heartbeats_go_on_at_their_interval() -> None:
    async def story(lifecycle: Lifecycle, channel: Channel) -> None:
        channel.registers = True
        await lifecycle.register()
        lifecycle.run()
        await channel.heard(6)
        pauses = [b - a for a, b in zip(channel.at[2:], channel.at[3:], strict=False)]
        assert all(0.015 < pause < 2 for pause in pauses), pauses

    living(story)


def test_a_running_broker_that_is_fenced_stays_running_and_is_unfenced() -> None:
    async def story(lifecycle: Lifecycle, channel: Channel) -> None:
        channel.registers = True
        await lifecycle.register()
        lifecycle.run()
        await lifecycle.unfenced.wait()
        channel.unfences = False
        while not lifecycle.fenced:
            await asyncio.sleep(0.005)
        heartbeat = await channel.heard(2)
        assert lifecycle.state is State.RUNNING and not lifecycle.holds_lease()
        assert (heartbeat.want_fence, heartbeat.broker_epoch) == (False, 5), "it asks to be back, in the same session"
        channel.unfences = True
        while lifecycle.fenced:
            await asyncio.sleep(0.005)
        assert lifecycle.state is State.RUNNING and lifecycle.holds_lease()

    living(story)


def test_states_of_a_controlled_shutdown() -> None:
    async def story(lifecycle: Lifecycle, channel: Channel) -> None:
        channel.registers = True
        await lifecycle.register()
        lifecycle.run()
        await lifecycle.unfenced.wait()
        stopping = asyncio.create_task(lifecycle.shut_down(timeout=10))
        heartbeat = await channel.heard(3)
        assert lifecycle.state is State.PENDING_CONTROLLED_SHUTDOWN and heartbeat.want_shut_down
        assert not stopping.done()
        channel.lets_go = True
        assert await stopping
        assert lifecycle.state is State.SHUTTING_DOWN
        said = len(channel.heartbeats)
        await asyncio.sleep(0.1)
        assert len(channel.heartbeats) == said, "another would ask to be unfenced again"

    living(story)


class Starting:
    """A broker that starts on this disk, and is registered with epoch 5 as soon as it asks."""

    def __init__(self, disk: Disk) -> None:
        raft: Any = SimpleNamespace(listener=None)
        network: Any = self
        self.listening = asyncio.Event()
        self.server = BrokerServer(config(), disk, network, raft, Random(1), lambda error: None, wall_clock=lambda: 0.0)
        self.channel: Any = Channel()
        self.channel.registers = self.channel.lets_go = True
        self.server._channel = lambda purpose, timeout=None: self.channel  # type: ignore[method-assign, misc, assignment]
        self.started = asyncio.create_task(self.server.start())

    async def listen(self, *arguments: Any, **more: Any) -> Any:
        self.listening.set()

        async def close() -> None: ...

        return SimpleNamespace(close=close)

    async def connect(self, *arguments: Any, **more: Any) -> Any:
        raise ConnectionError


def test_a_broker_asks_to_be_unfenced_only_at_its_own_registration() -> None:
    """And it acts on no metadata before."""

    async def scenario() -> None:
        broker = Starting(simulated_disk())
        server, channel = broker.server, broker.channel
        while not channel.heartbeats:
            await asyncio.sleep(0.005)
        for offset in range(5):
            server.on_commit(offset, 1, [registration_record(10 + offset, offset)])
            await asyncio.sleep(0.01)
            assert not server.ready and not broker.listening.is_set(), "its own registration is at offset 5"
        assert (await channel.heard(2)).want_fence
        server.on_commit(5, 1, [registration_record(1, 5)])
        await asyncio.wait_for(broker.started, 5)
        assert server.ready and not channel.heartbeats[-1].want_fence
        await server.shut_down()

    asyncio.run(asyncio.wait_for(scenario(), 20))


def test_a_log_is_taken_for_a_stray_only_by_metadata_as_new_as_the_registration() -> None:
    """By older metadata the partition has left this broker, by newer it is back: its log may be the only one."""

    async def scenario() -> None:
        disk = simulated_disk()
        logs = LogManager(config(), disk)
        logs.load()
        for topic, topic_id in (("t", TOPIC), ("gone", uuid.UUID(int=9))):
            log = logs.get(topic, topic_id, 0, config())
            log.append_as_leader(build_batch([b"1"], timestamp_ms=0), 0)
            log.flush()
        broker = Starting(disk)
        while not broker.channel.heartbeats:
            await asyncio.sleep(0.005)
        elsewhere = PartitionRecord(partition_id=0, topic_id=TOPIC, replicas=(2, 3), isr=(2, 3), leader=2)
        back = PartitionChangeRecord(partition_id=0, topic_id=TOPIC, replicas=(1, 2, 3))
        topic = encode(TopicRecord(name="t", topic_id=TOPIC))
        leader = registration_record(2, 2)
        for offset, record in enumerate((topic, encode(elsewhere), leader, encode(back))):
            broker.server.on_commit(offset, 1, [record])
            await asyncio.sleep(0.01)
            assert {"t-0", "gone-0"} <= set(disk.list(""))
        broker.server.on_commit(5, 1, [registration_record(1, 5)])
        await asyncio.wait_for(broker.started, 5)
        assert "t-0" in disk.list("") and "gone-0" not in disk.list("")
        assert broker.server.partitions[TOPIC, 0].log.end_offset == 1
        await broker.server.shut_down()

    asyncio.run(asyncio.wait_for(scenario(), 20))
