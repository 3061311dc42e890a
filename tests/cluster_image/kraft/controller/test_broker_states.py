"""The controller's table of broker states (kraft/controller/brokers.py; description 8), where protocol/ has no word."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.schema.broker_heartbeat.v1.request import BrokerHeartbeatRequest
from kio.schema.errors import ErrorCode

from cluster_image.config import ConfigError
from cluster_image.kraft.controller import rules
from cluster_image.kraft.controller.controller import Controller
from harness.errors import BadArguments
from harness.plan.plan import make_plan
from tests.cluster_image.kraft.broker.test_partition import config
from tests.cluster_image.kraft.controller_quorum import SESSION, Quorum, three_brokers, unfenced


@pytest.fixture
def quorum() -> Quorum:
    return three_brokers()


def test_a_broker_that_wants_to_be_fenced_is(quorum: Quorum) -> None:
    answer = quorum.heartbeat(1, 1.0, want_fence=True)
    assert answer.is_fenced and not answer.should_shut_down
    assert quorum.image.brokers[1].fenced
    assert quorum.partition().leader == 2 and 1 not in quorum.partition().isr
    assert not quorum.heartbeat(1, 1.0).is_fenced, "and unfenced when it wants to be"


def test_a_broker_that_wants_both_may_go_at_once(quorum: Quorum) -> None:
    answer = quorum.heartbeat(1, 1.0, want_fence=True, want_shut_down=True)
    assert answer.should_shut_down and answer.is_fenced
    assert quorum.partition().leader == 2


def test_a_fenced_broker_may_go_at_once(quorum: Quorum) -> None:
    """It leads nothing, and nobody has to see anything."""
    quorum.fence(1, SESSION)
    before = quorum.image.end_offset
    assert quorum.heartbeat(1, SESSION, want_shut_down=True).should_shut_down
    assert quorum.image.end_offset == before
    assert quorum.heartbeat(1, SESSION, want_shut_down=True).should_shut_down, "the answer may have been lost"
    assert quorum.register(1, SESSION, incarnation=9) is ErrorCode.none


def test_a_stale_heartbeat_does_not_keep_a_session_alive(quorum: Quorum) -> None:
    stale = BrokerHeartbeatRequest(
        broker_id=1,
        broker_epoch=quorum.epochs[1] - 1,
        current_metadata_offset=quorum.image.end_offset,
        want_fence=False,
        want_shut_down=False,
    )
    step = quorum.controller.heartbeat(stale, SESSION)
    assert step.answer.error_code is ErrorCode.stale_broker_epoch  # type: ignore[union-attr]
    assert not step.records and not quorum.controller.session_alive(1, SESSION)


def test_a_retried_registration_leaves_fencing_as_it_is(quorum: Quorum) -> None:
    """M47: a broker that lost the answer to its registration is neither fenced nor unfenced by asking again."""
    for fenced in (False, True):
        if fenced:
            quorum.fence(1, 2 * SESSION)
        before = quorum.image.end_offset
        assert quorum.register(1, SESSION) is ErrorCode.none
        assert quorum.image.end_offset == before and quorum.image.brokers[1].fenced == fenced


def test_a_controller_that_takes_over_finishes_a_controlled_shutdown(quorum: Quorum) -> None:
    """It knows that the leaderships were moved, not who has seen it. Records of the quorum's own follow those of the
    controller before; no broker can tell that it has replayed them."""
    quorum.heartbeat(1, 1.0, want_shut_down=True)
    assert quorum.image.brokers[1].in_controlled_shutdown
    last = quorum.image.end_offset - 1
    quorum.controller = Controller(quorum.image.copy(), config(), "test", Random(1), now=1.0)
    quorum.image.end_offset += 1  # a LeaderChange record
    assert not quorum.heartbeat(1, 1.0, want_shut_down=True).should_shut_down, "2 and 3 have not been heard"
    quorum.heartbeat(2, 1.0, offset=last)
    assert not quorum.heartbeat(1, 1.0, want_shut_down=True).should_shut_down
    quorum.heartbeat(3, 1.0, offset=last)
    assert quorum.heartbeat(1, 1.0, want_shut_down=True).should_shut_down


def test_the_last_broker_need_not_wait_for_anybody() -> None:
    quorum = unfenced(1)
    quorum.create_on((1,))
    assert not quorum.heartbeat(1, 1.0, want_shut_down=True).should_shut_down
    assert quorum.heartbeat(1, 1.0, want_shut_down=True).should_shut_down
    assert quorum.state() == (-1, (), (1,), ()), "nobody else could have taken over; it stays eligible"


@settings(max_examples=60, deadline=None)
@given(order=st.permutations((1, 2, 3)), lags=st.lists(st.booleans(), min_size=3, max_size=3))
def test_no_controlled_shutdown_takes_a_leader_away_that_could_be_replaced(order: list[int], lags: list[bool]) -> None:
    """8.3: a rolling restart, each broker back before the next one goes, whoever of the others is in sync."""
    quorum = unfenced(1, 2, 3)
    quorum.create_on((1, 2, 3), (2, 3, 1), (3, 1, 2))
    now = 1.0
    for broker, lag in zip(order, lags, strict=True):
        while not quorum.heartbeat(broker, now, want_shut_down=True).should_shut_down:
            for other in (1, 2, 3):
                if other != broker:
                    quorum.heartbeat(other, now, offset=quorum.image.end_offset - 1)
            assert all(p.leader not in (broker, -1) for p in quorum.image.partitions())
        assert all(p.leader not in (broker, -1) for p in quorum.image.partitions())
        now += 1.0
        quorum.register(broker, now, 1000 + broker, quorum.epochs[broker])
        quorum.heartbeat(broker, now)
        if not lag:
            for index in (0, 1, 2):
                _join(quorum, index, broker)


def _join(quorum: Quorum, index: int, broker: int) -> None:
    partition = quorum.image.topics["t"].partitions[index]
    if broker not in partition.isr:
        joined = replace(partition, isr=(*partition.isr, broker), elr=(), last_known_elr=())
        quorum.image.topics["t"].partitions[index] = joined


@pytest.mark.parametrize(
    ("leads", "seen", "may"), [(False, 9, True), (False, None, True), (False, 8, False), (True, 9, False)]
)
def test_who_may_shut_down(leads: bool, seen: int | None, may: bool) -> None:
    assert rules.may_shut_down(leads, moved_below=10, seen=seen) is may


def test_heartbeats_must_come_more_often_than_sessions_end() -> None:
    message = r"broker\.heartbeat\.interval\.ms=500 must be less than broker\.session\.timeout\.ms=500"
    with pytest.raises(ConfigError, match=message):
        config(broker_session_timeout_ms="500")
    with pytest.raises(BadArguments, match="^--set: " + message):
        make_plan(run="r", settings={"broker.session.timeout.ms": "500"})
    assert config(broker_session_timeout_ms="501")["broker.session.timeout.ms"] == 501
