"""Controllers that are cut off, killed and restarted (000, 1.2.1 and 1.2.2; description 6.3), in a whole cluster."""

from __future__ import annotations

import asyncio

import pytest
from kio.schema.create_topics.v7.request import CreatableTopic, CreateTopicsRequest
from kio.schema.errors import ErrorCode
from kio.schema.types import TopicName
from kio.static.primitive import i16, i32

from cluster_image.kraft.raft.quorum import Role
from cluster_image.wire.messages import milliseconds
from tests.cluster_image.stories.script import Script, tell

BROKERS = (1, 2, 3)
TINY = {"metadata.log.max.record.bytes.between.snapshots": "600", "metadata.log.segment.bytes": "1024"}
FETCH_TIMEOUT_S = 2.0  # controller.quorum.fetch.timeout.ms


def create(name: str, replicas: int = 3) -> CreateTopicsRequest:
    topic = CreatableTopic(
        name=TopicName(name), num_partitions=i32(1), replication_factor=i16(replicas), assignments=(), configs=()
    )
    return CreateTopicsRequest(topics=(topic,), timeout=milliseconds(5000))


def errors(answer: object) -> list[ErrorCode]:
    return [topic.error_code for topic in answer.topics]  # type: ignore[attr-defined]


def cut_off_from_quorum(s: Script, name: str) -> None:
    """From the other controllers, not from brokers and clients."""
    others = [controller for controller in s.controllers if controller != name]
    s.cut(*((name, other) for other in others), *((other, name) for other in others))


def topics_everywhere(s: Script) -> list[list[str]]:
    servers = [s.running(name).controller for name in s.controllers]
    servers += [s.running(f"broker-{broker}").broker for broker in BROKERS]
    return [sorted(server.image.topics) for server in servers]


def epochs(s: Script) -> dict[int, int]:
    return {broker: s.running(f"broker-{broker}").broker.broker_epoch for broker in BROKERS}


def registered(s: Script) -> dict[int, int]:
    """As the active controller has it."""
    (active,) = s.active_controllers
    return {broker.id: broker.epoch for broker in s.running(active).controller.active.image.brokers.values()}


# -- 000, 1.2.1 -------------------------------------------------------------------------------------------------


async def zombie(s: Script) -> None:
    (old,) = s.active_controllers
    cut_off_from_quorum(s, old)
    # It does not know yet. What it is asked for it decides and writes; nobody is told that it is done.
    asked = asyncio.create_task(s.ask_controller(old, create("of-the-zombie")))
    await s.until(lambda: "of-the-zombie" in s.running(old).controller.active.image.topics)
    assert "of-the-zombie" not in s.running(old).controller.image.topics
    await s.until(lambda: s.active_controllers not in ([], [old]))
    (new,) = [name for name in s.active_controllers if name != old]
    answer = await s.ask_controller(new, create("of-the-successor"))
    assert errors(answer) == [ErrorCode.none]
    assert all(error is not ErrorCode.none for error in errors(await asked)), "it never says so"
    answer = await s.ask_controller(old, create("of-the-zombie"))
    assert errors(answer) == [ErrorCode.not_controller], "by now it has noticed"
    s.mend()
    await s.settled()
    assert topics_everywhere(s) == [["of-the-successor", "story"]] * 6


def test_a_zombie_controller_changes_nothing() -> None:
    assert tell(zombie, BROKERS, 2).violation is None


def test_a_zombie_controller_changes_nothing_where_it_is_a_broker_too() -> None:
    assert tell(zombie, BROKERS, 2, combined=True).violation is None


async def isolated(s: Script) -> None:
    (old,) = s.active_controllers
    quorum = s.running(old).raft.quorum
    committed = quorum.replica.high_watermark
    cut_off_from_quorum(s, old)
    await s.passing(1.2 * FETCH_TIMEOUT_S)
    assert quorum.role is not Role.LEADER and s.active_controllers != [old], "check quorum"
    await s.until(lambda: len(s.active_controllers) == 1 and s.active_controllers != [old])
    answer = await s.ask_controller(s.active_controllers[0], create("after"))
    assert errors(answer) == [ErrorCode.none]
    await s.passing(5 * FETCH_TIMEOUT_S)
    assert quorum.replica.high_watermark < committed + 5, "and commits nothing"
    epoch = s.running(s.active_controllers[0]).raft.leader_epoch
    s.mend()
    await s.settled()
    assert s.running(old).raft.leader_epoch == epoch, "nor does it disturb the others when it is back (pre-vote)"


def test_an_isolated_leader_steps_down_and_commits_nothing() -> None:
    assert tell(isolated, BROKERS, 2).violation is None


async def restarts(s: Script) -> None:
    (old,) = s.active_controllers
    epoch = s.running(old).raft.leader_epoch
    await s.cut_power(old)
    await s.restore_power(old)
    await s.until(lambda: len(s.active_controllers) == 1)
    (new,) = s.active_controllers
    assert s.running(new).raft.leader_epoch > epoch, "the old epoch has no leader any more"
    await s.settled()


def test_a_leader_that_restarts_never_leads_in_its_old_epoch() -> None:
    for seed in range(3):
        assert tell(restarts, BROKERS, 2, seed=seed).violation is None


async def two_of_five(s: Script) -> None:
    for _ in range(2):
        await s.until(lambda: len(s.active_controllers) == 1)
        (active,) = s.active_controllers
        answer = await s.ask_controller(active, create(f"before-{active}"))
        assert errors(answer) == [ErrorCode.none]
        await s.kill_active_controller()
    await s.until(lambda: len(s.active_controllers) == 1)
    answer = await s.ask_controller(s.active_controllers[0], create("after"))
    assert errors(answer) == [ErrorCode.none]
    for name in s.controllers:
        if s.running(name) is None:
            await s.restore_power(name)
    await s.settled()
    assert all(len(topics) == 4 for topics in topics_everywhere(s))


@pytest.mark.parametrize("settings", [{}, TINY], ids=["", "snapshots"])
def test_five_controllers_go_on_without_two(settings: dict[str, str]) -> None:
    assert tell(two_of_five, BROKERS, 2, controllers=5, settings=settings).violation is None


# -- 000, 1.2.2 -------------------------------------------------------------------------------------------------


async def failover(s: Script) -> None:
    before = epochs(s)
    assert registered(s) == before
    for _ in range(2):
        (old,) = s.active_controllers
        await s.kill_active_controller()
        await s.until(lambda old=old: s.active_controllers not in ([], [old]))  # type: ignore[misc]
        assert registered(s) == before, "nobody registers with the successor"
        await s.passing(1.0)
        lifecycles = [s.running(f"broker-{broker}").broker.lifecycle for broker in BROKERS]
        await s.until(lambda lifecycles=lifecycles: all(each.holds_lease() for each in lifecycles))  # type: ignore[misc]
        await s.restore_power(old)
        await s.settled()
        assert epochs(s) == before and registered(s) == before
    assert s.states == ["Leader=1, ISR=[1, 2, 3], ELR=[], LastKnownELR=[]"], "nor does the partition notice"


@pytest.mark.parametrize("settings", [{}, TINY], ids=["", "snapshots"])
def test_broker_epochs_survive_controller_failover(settings: dict[str, str]) -> None:
    assert tell(failover, BROKERS, 2, settings=settings).violation is None


async def all_anew(s: Script) -> None:
    """All controllers lose power; what they come back to is a snapshot and the end of a log."""
    before = epochs(s)
    for n in range(8):
        answer = await s.ask_controller(s.active_controllers[0], create(f"topic-{n}"))
        assert errors(answer) == [ErrorCode.none]
    logs = [s.running(name).raft.quorum.replica.log for name in s.controllers]
    await s.until(lambda: all(log.start_offset > 0 for log in logs))
    for name in s.controllers:
        await s.cut_power(name)
    for name in s.controllers:
        await s.restore_power(name)
    await s.until(lambda: len(s.active_controllers) == 1)
    await s.settled()
    assert epochs(s) == before and registered(s) == before
    assert topics_everywhere(s) == [["story", *(f"topic-{n}" for n in range(8))]] * 6


def test_broker_epochs_and_all_else_survive_in_snapshots() -> None:
    assert tell(all_anew, BROKERS, 2, settings=TINY).violation is None


async def far_behind(s: Script) -> None:
    """Broker 3 hears no controller for a while; it is given a snapshot, and acts on what has changed in between."""
    s.cut(*(("broker-3", name) for name in s.controllers), *((name, "broker-3") for name in s.controllers))
    await s.until(lambda: s.registration.isr == (1, 2))
    for n in range(8):
        answer = await s.ask_controller(s.active_controllers[0], create(f"topic-{n}", 2))
        assert errors(answer) == [ErrorCode.none]
    (active,) = s.active_controllers
    log = s.running("broker-3").raft.quorum.replica.log
    assert s.running(active).raft.quorum.replica.log.start_offset > log.end_offset
    s.mend()
    await s.until(lambda: log.start_offset > 0)
    await s.settled()
    assert topics_everywhere(s) == [["story", *(f"topic-{n}" for n in range(8))]] * 6


def test_a_broker_that_fell_behind_is_given_a_snapshot() -> None:
    assert tell(far_behind, BROKERS, 2, settings=TINY).violation is None
