"""Brokers that are taken out of the cluster (003, take brokers offline)."""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode
from kio.schema.unregister_broker.v0.request import UnregisterBrokerRequest

from cluster_image.kraft.metadata import snapshot
from tests.cluster_image.kraft.controller.test_reassignment import reassign
from tests.cluster_image.kraft.controller_quorum import SESSION, Quorum, unfenced


def unregister(quorum: Quorum, broker: int, now: float) -> Any:
    answer = quorum.do(quorum.controller.unregister_broker(UnregisterBrokerRequest(broker_id=broker), now))
    return answer.error_code, answer.error_message


def fence(quorum: Quorum, broker: int, now: float) -> None:
    for other in quorum.epochs.keys() - {broker}:
        quorum.heartbeat(other, now)
    while quorum.controller.fence_one_expired(now).records:
        quorum.do(quorum.controller.fence_one_expired(now))


def test_a_broker_that_has_stopped_and_holds_nothing_goes() -> None:
    quorum = unfenced(1, 2, 3, 4)
    quorum.create_on((1, 2, 3))
    fence(quorum, 4, SESSION + 1)
    assert unregister(quorum, 4, SESSION + 1) == (ErrorCode.none, None)
    assert 4 not in quorum.image.brokers
    again = snapshot.image_of(snapshot.encoded(quorum.image), quorum.image.end_offset)
    assert again.brokers.keys() == {1, 2, 3}


def test_one_that_runs_stays() -> None:
    quorum = unfenced(1, 2)
    assert unregister(quorum, 2, 0.0) == (ErrorCode.invalid_request, "broker 2 is running")


def test_one_that_is_starting_stays() -> None:
    """It is fenced, and heard of."""
    quorum = unfenced(1, 2)
    quorum.register(3)
    assert unregister(quorum, 3, 0.5) == (ErrorCode.invalid_request, "broker 3 is running")


def test_one_that_holds_a_replica_stays() -> None:
    """Also one that a reassignment is about to take away: it may still be cancelled."""
    quorum = unfenced(1, 2, 3, 4)
    quorum.create_on((1, 2, 3))
    reassign(quorum, (1, 2, 4))
    fence(quorum, 3, SESSION + 1)
    error, message = unregister(quorum, 3, SESSION + 1)
    assert error is ErrorCode.invalid_request
    assert message == "broker 3 is a replica of 1 partition, which must move first"
    assert 3 in quorum.image.brokers


def test_one_that_is_not_registered() -> None:
    quorum = unfenced(1)
    assert unregister(quorum, 7, 0.0) == (ErrorCode.broker_id_not_registered, "broker 7 is not registered")


def test_it_may_come_back_as_a_new_one() -> None:
    """Nothing of its earlier session counts: neither that it was unclean, nor what it had replayed."""
    quorum = unfenced(1, 2)
    fence(quorum, 2, SESSION + 1)
    unregister(quorum, 2, SESSION + 1)
    assert quorum.heartbeat(2, SESSION + 1).error_code is ErrorCode.stale_broker_epoch
    assert quorum.register(2, now=SESSION + 1, incarnation=9) is ErrorCode.none
    assert quorum.image.brokers[2].fenced


def test_a_plan_cannot_name_it_any_more() -> None:
    quorum = unfenced(1, 2, 3)
    quorum.create_on((1, 2))
    fence(quorum, 3, SESSION + 1)
    unregister(quorum, 3, SESSION + 1)
    answer = reassign(quorum, (1, 3)).responses[0].partitions[0]
    assert answer.error_code is ErrorCode.invalid_replica_assignment
