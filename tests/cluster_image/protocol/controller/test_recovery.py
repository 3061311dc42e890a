"""ISR, ELR and LastKnownELR together (002, 5.2 and 5.3)."""

from __future__ import annotations

from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode

from cluster_image.kraft.controller.rules import LogInfo
from cluster_image.kraft.controller.server import ControllerServer
from tests.cluster_image.kraft.broker.test_partition import config
from tests.cluster_image.kraft.controller.test_controller import SESSION, Quorum, three_brokers


def test_an_empty_isr_is_led_by_a_member_of_the_elr() -> None:
    quorum = three_brokers()
    for broker in (3, 2, 1):
        quorum.fence(broker, (4 - broker) * SESSION)
    assert quorum.state() == (-1, (), (1, 2), ())
    quorum.comes_back(2, 4 * SESSION, clean=True)
    assert quorum.state() == (2, (2,), (1,), ())


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_isr_and_elr_together_never_fall_below_min_isr(data: st.DataObject) -> None:
    """MinISR is 2. In any course of fencings, clean and unclean returns, and followers that catch up or lag: ISR and
    ELR together have MinISR members, less those that came back uncleanly since, who are in the LastKnownELR. So only
    MinISR unclean shutdowns empty both, and the LastKnownELR then has MinISR members."""
    quorum = three_brokers()
    unclean: set[int] = set()  # since the ISR last had MinISR members
    now = 0.0
    for _ in range(data.draw(st.integers(1, 14))):
        now += SESSION
        step(quorum, data, now, unclean)
        partition = quorum.partition()
        isr, elr, last_known = set(partition.isr), set(partition.elr), set(partition.last_known_elr)
        if len(isr) >= 2:
            unclean.clear()
            assert not elr and not last_known
            continue
        assert len(isr | elr | last_known) >= 2
        assert not isr & elr and not isr & last_known and not elr & last_known
        assert len(isr | elr) >= 2 - len(unclean)
        assert not unclean & elr, "Unclean Exclusion"
        if not isr and not elr:
            assert len(unclean) >= 2 and len(last_known) >= 2


def step(quorum: Quorum, data: st.DataObject, now: float, unclean: set[int]) -> None:
    broker = data.draw(st.sampled_from([1, 2, 3]))
    fenced = quorum.image.brokers[broker].fenced
    for other in (1, 2, 3):  # nobody's session runs out but by the step below
        if not quorum.image.brokers[other].fenced:
            quorum.heartbeat(other, now)
    if fenced:
        clean = data.draw(st.booleans())
        was_eligible = broker in (*quorum.partition().elr, *quorum.partition().isr)
        if not clean and was_eligible:
            unclean.add(broker)
        quorum.comes_back(broker, now + SESSION, clean)
        return
    match data.draw(st.sampled_from(["fence", "lag", "catch up"])):
        case "fence":
            quorum.fence(broker, now + SESSION)
        case change:
            leader = quorum.partition().leader
            if leader < 0 or broker == leader:
                return
            isr = {r: quorum.epochs[r] for r in quorum.partition().isr}
            if change == "lag":
                isr.pop(broker, None)
            else:
                isr[broker] = quorum.epochs[broker]
            assert quorum.alter(leader, isr) is ErrorCode.none


def test_every_unclean_recovery_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    """In the log, as a warning; and in the trace, for the report of the run. Also one that
    has found the complete replica: the controller cannot tell."""
    traced: list[tuple[str, str, dict[str, object]]] = []
    raft: Any = SimpleNamespace(listener=None)
    network: Any = None
    server = ControllerServer(
        config(),
        raft,
        network,
        Random(1),
        _fail,
        lambda event, where="", **fields: traced.append((event, where, fields)),
    )
    quorum = three_brokers()
    for broker in (3, 2, 1):
        quorum.fence(broker, (4 - broker) * SESSION)
    for broker in (1, 2):
        quorum.comes_back(broker, 4 * SESSION)
    recovery = quorum.controller.unclean_recovery
    recovery.look()
    for broker, question in recovery.questions(100.0).items():
        epoch, leader_epoch = quorum.epochs[broker], quorum.partition().leader_epoch
        key = (quorum.partition().topic_id, 0)
        recovery.hear(broker, question, {key: LogInfo(epoch, leader_epoch, 1, 10 + broker)})
    with caplog.at_level("WARNING"):
        quorum.do(server._recover(quorum.controller, 101.0))
    assert quorum.partition().leader == 2
    (line,) = [record for record in caplog.records if record.levelname == "WARNING"]
    assert "possible data loss" in line.message and line.__dict__["leader"] == 2
    (event,) = traced
    assert event[:2] == ("unclean recovery", "t-0") and (event[2]["leader"], event[2]["ends"]) == (2, (11, 12))


def _fail(error: BaseException) -> None:
    raise error
