"""BrokerAnswered: brokers that are told what is not so, or get what they did not ask for.
(What is right is not: every test of the controller asks that, through controller_quorum.)"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any, Final
from uuid import UUID

import pytest
from kio.schema.broker_registration.v4.request import Listener
from kio.schema.errors import ErrorCode

from checkers.inside.violation import Violated
from cluster_image.kraft.controller.controller import Controller
from cluster_image.kraft.controller.term import Step
from cluster_image.kraft.metadata.records import UnregisterBrokerRecord
from cluster_image.wire.integers import BrokerId, i64
from tests.cluster_image.kraft.broker.test_partition import config
from tests.cluster_image.kraft.controller_quorum import SESSION, Quorum, three_brokers

Asked = tuple[Quorum, Any, Step]


@pytest.fixture(autouse=True)
def judged(monkeypatch: pytest.MonkeyPatch) -> None:
    """BrokerAnswered is asked of each decision."""
    monkeypatch.setattr(Quorum, "judges", True)


def beat(quorum: Quorum, broker: int, **wants: Any) -> Asked:
    request = quorum.beat(broker, **wants)
    return quorum, request, quorum.controller.heartbeat(request, SESSION)


def back() -> Asked:
    """A broker that was fenced, and has replayed all."""
    quorum = three_brokers()
    quorum.fence(3, SESSION)
    return beat(quorum, 3)


def wants_to_be_fenced() -> Asked:
    return beat(three_brokers(), 3, want_fence=True)


def leaves() -> Asked:
    """Broker 3 leads nothing, and nobody is behind."""
    quorum = three_brokers()
    for each in (1, 2, 3):
        quorum.heartbeat(each, 0.0)
    return beat(quorum, 3, want_shut_down=True)


def away_and_leaves() -> Asked:
    quorum = three_brokers()
    quorum.fence(3, SESSION)
    return beat(quorum, 3, want_shut_down=True)


def leads_and_leaves() -> Asked:
    return beat(three_brokers(), 1, want_shut_down=True)


def outdated() -> Asked:
    quorum = three_brokers()
    quorum.epochs[3] -= 1
    return beat(quorum, 3)


def proposed(sender: int = 1, isr: tuple[int, ...] = (1, 2), **changes: int) -> Asked:
    quorum = three_brokers()
    request = quorum.proposal(sender, {each: quorum.epochs[each] for each in isr}, **changes)
    return quorum, request, quorum.controller.alter_partition(request)


def told(step: Step, **fields: Any) -> Step:
    answer: Any = step.answer
    return step._replace(answer=replace(answer, **fields))


def told_of_partition(step: Step, **fields: Any) -> Step:
    answer: Any = step.answer
    (topic,) = answer.topics
    (partition,) = topic.partitions
    return told(step, topics=(replace(topic, partitions=(replace(partition, **fields),)),))


def nothing_written(step: Step) -> Step:
    return step._replace(records=())


#: By name: what is asked, what is made of the decision, and of what is told.
LIES: Final[dict[str, tuple[Callable[[], Asked], Callable[[Step], Step], str]]] = {
    "it is told that it is fenced, and is not": (
        back, lambda step: told(step, is_fenced=True), "broker 3 is fenced: False, and it is told: True"
    ),
    "it is told that it is not fenced, and is": (
        back, nothing_written, "broker 3 is fenced: True, and it is told: False"
    ),
    "it wants to be fenced, and is not": (
        wants_to_be_fenced, lambda step: nothing_written(told(step, is_fenced=False)),
        "broker 3 wants to be fenced, and is not",
    ),
    "it is said to be behind, and is not": (
        back, lambda step: told(step, is_caught_up=False), "replayed its registration: True, and it is told: False"
    ),
    "it is fenced, and may not stop": (
        away_and_leaves, lambda step: told(step, should_shut_down=False),
        "broker 3 is fenced, wants to stop, and may not",
    ),
    "it may stop without being fenced": (leaves, nothing_written, "broker 3 is told to stop; it is fenced: False"),
    "it may stop, and leads": (
        leads_and_leaves, lambda step: told(nothing_written(step), should_shut_down=True), "and leads ['t-0']"
    ),
    "it is to stop, and did not ask": (
        back, lambda step: told(step, should_shut_down=True), "broker 3 is told to stop, and did not ask"
    ),
    "an earlier session is taken": (
        outdated, lambda step: told(step, error_code=ErrorCode.none), "is not registered so, and it answers none"
    ),
    "a session that stands is refused": (
        back, lambda step: told(step, error_code=ErrorCode.stale_broker_epoch),
        "broker 3 is registered so, and it answers stale_broker_epoch",
    ),
    "a proposal that is refused is written": (
        proposed, lambda step: told_of_partition(step, error_code=ErrorCode.fenced_leader_epoch),
        "refused, and it becomes",
    ),
    "a proposal that is accepted is not written": (
        proposed, nothing_written, "accepted, and the ISR becomes [1, 2, 3]"
    ),
    "another epoch is told": (
        proposed, lambda step: told_of_partition(step, partition_epoch=7), "and is told (1, 0, 7, {1, 2})"
    ),
    "it refuses for another reason": (
        lambda: proposed(leader_epoch=5),
        lambda step: told_of_partition(step, error_code=ErrorCode.fenced_leader_epoch),
        "and it answers fenced_leader_epoch",
    ),
}  # fmt: skip


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_is_blamed(lie: str) -> None:
    asked, lied, message = LIES[lie]
    quorum, request, step = asked()
    quorum.judged(request, step)  # as it is decided it is right
    with pytest.raises(Violated) as blamed:
        quorum.judged(request, lied(step))
    assert blamed.value.property == "BrokerAnswered"
    assert message in str(blamed.value)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("rack", "another", "broker 4 is to be registered as"),
        ("incarnation_id", UUID(int=77), "broker 4 is to be registered as"),
        ("broker_id", 5, r"broker 4 is told that its epoch is \d+, and is registered as None"),
        ("listeners", (Listener(name="P", host="elsewhere", port=9092, security_protocol=0),), "broker 4 is at"),  # type: ignore[arg-type]
    ],
)
def test_a_registration_is_what_was_asked_for(
    monkeypatch: pytest.MonkeyPatch, field: str, value: Any, message: str
) -> None:
    quorum = three_brokers()
    decided = quorum.controller.register_broker
    monkeypatch.setattr(
        quorum.controller, "register_broker", lambda request, now: decided(replace(request, **{field: value}), now)
    )
    with pytest.raises(Violated, match=message):
        quorum.register(4)


def test_another_process_does_not_become_a_broker_that_was_just_heard_of(monkeypatch: pytest.MonkeyPatch) -> None:
    quorum = three_brokers()
    quorum.heartbeat(3, 1.0)
    assert quorum.register(3, 2.0, incarnation=9) is ErrorCode.duplicate_broker_registration
    with monkeypatch.context() as patched:
        patched.setattr("cluster_image.kraft.controller.rules.may_register", lambda *asked: True)
        with pytest.raises(Violated, match=r"broker 3 was heard of 1\.0 s ago, and another process becomes it"):
            quorum.register(3, 2.0, incarnation=9)


def test_sessions_of_an_earlier_term_may_have_ended_since() -> None:
    """The same node is active again, and the controller in between has taken the broker out."""
    quorum = three_brokers()
    quorum.heartbeat(3, 1.0)
    epoch = i64(quorum.epochs[3])
    quorum.do(Step([UnregisterBrokerRecord(broker_id=BrokerId(3), broker_epoch=epoch)]))
    quorum.controller = Controller(quorum.image.copy(), config(), "test", Random(1), now=1.5)
    assert quorum.register(3, 2.0, incarnation=9) is ErrorCode.none


def test_who_has_leave_to_stop_may_be_succeeded_at_once() -> None:
    quorum = three_brokers()
    for each in (1, 2, 3):
        quorum.heartbeat(each, 1.0)
    assert quorum.heartbeat(3, 1.0, want_shut_down=True).should_shut_down
    assert quorum.register(3, 1.1, incarnation=9) is ErrorCode.none
