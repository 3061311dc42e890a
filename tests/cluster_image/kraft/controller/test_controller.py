"""The controller's decisions: registration, fencing, elections, ELR, AlterPartition, topics (000, 2.8, 2.9; 002, 5.2;
description 8)."""

from __future__ import annotations

from random import Random

import pytest
from kio.schema.errors import ErrorCode

from cluster_image.kraft.controller.controller import Controller
from tests.cluster_image.kraft.broker.test_partition import config
from tests.cluster_image.kraft.controller_quorum import SESSION, Quorum, three_brokers


@pytest.fixture(autouse=True)
def judged(monkeypatch: pytest.MonkeyPatch) -> None:
    """BrokerAnswered is asked of each decision."""
    monkeypatch.setattr(Quorum, "judges", True)


@pytest.fixture
def quorum() -> Quorum:
    return three_brokers()


def test_a_broker_is_fenced_until_it_has_replayed_its_own_registration() -> None:
    quorum = Quorum()
    quorum.register(1)
    assert quorum.heartbeat(1, 0.0, offset=quorum.epochs[1] - 1).is_fenced
    assert quorum.heartbeat(1, 0.0, want_fence=True).is_fenced
    assert not quorum.heartbeat(1, 0.0, offset=quorum.epochs[1]).is_fenced
    assert not quorum.image.brokers[1].fenced


def test_a_registration_that_nobody_could_replay_is_not_written() -> None:
    """Once in the log it would end every node, and again at each start."""
    quorum = Quorum()
    assert quorum.register(1, listeners=0) is ErrorCode.invalid_request
    assert not quorum.image.brokers


def test_an_id_is_taken_while_its_session_lives(quorum: Quorum) -> None:
    quorum.heartbeat(1, 1.0)
    assert quorum.register(1, now=2.0, incarnation=9) is ErrorCode.duplicate_broker_registration
    before = quorum.epochs[1]
    assert quorum.register(1, now=2.0) is ErrorCode.none, "a retry of the same start"
    assert quorum.epochs[1] == before, "is the same session (KAFKA-16952)"
    assert quorum.register(1, now=2.0 + SESSION, incarnation=9) is ErrorCode.none
    assert quorum.epochs[1] > before
    assert quorum.partition().leader != 1 and 1 not in quorum.partition().isr


def test_a_silent_broker_is_fenced_and_its_leadership_moves(quorum: Quorum) -> None:
    for broker in (2, 3):
        quorum.heartbeat(broker, SESSION)
    before = quorum.partition()
    quorum.fence_expired(SESSION)
    after = quorum.partition()
    assert quorum.image.brokers[1].fenced
    assert (after.leader, after.isr) == (2, (2, 3))
    assert (after.leader_epoch, after.partition_epoch) == (before.leader_epoch + 1, before.partition_epoch + 1)


def test_a_follower_is_fenced_without_an_election(quorum: Quorum) -> None:
    for broker in (1, 2):
        quorum.heartbeat(broker, SESSION)
    quorum.fence_expired(SESSION)
    assert (quorum.partition().leader, quorum.partition().isr, quorum.partition().leader_epoch) == (1, (1, 2), 0)


def test_without_an_elr_the_last_in_sync_replica_stays_and_leads_again() -> None:
    """000, 2.8: the ISR cannot shrink to empty."""
    quorum = three_brokers(eligible_leader_replicas_version="0")
    quorum.fence_expired(SESSION)
    assert (quorum.partition().leader, len(quorum.partition().isr)) == (-1, 1)
    last = quorum.partition().isr[0]
    others = [b for b in (1, 2, 3) if b != last]
    quorum.heartbeat(others[0], SESSION)
    assert quorum.partition().leader == -1, "an out-of-sync replica may not lead"
    quorum.heartbeat(last, SESSION)
    assert quorum.partition().leader == last


def test_clean_recovery_as_002_tells_it(quorum: Quorum) -> None:
    """002, 5.2.2: the sole member of the ISR is lost, and what it acknowledged is not."""
    quorum.alter(1, {1: quorum.epochs[1], 3: quorum.epochs[3]})
    assert quorum.state() == (1, (1, 3), (), ())
    quorum.alter(1, {1: quorum.epochs[1]})
    assert quorum.state() == (1, (1,), (3,), ())
    quorum.fence(1, SESSION)
    leader, isr, elr, _ = quorum.state()
    assert (leader, isr, elr) == (3, (3,), (1,)), "case C: 1 stays eligible until it comes back unclean"
    quorum.comes_back(1, 2 * SESSION)
    assert quorum.state()[:3] == (3, (3,), ())
    assert quorum.alter(3, {3: quorum.epochs[3], 1: quorum.epochs[1]}) is ErrorCode.none
    assert quorum.state() == (3, (3, 1), (), ()), "case G: nobody is eligible beside a whole ISR"


def test_brokers_fenced_by_mistake_lead_again_rather_than_one_that_lost_its_data(quorum: Quorum) -> None:
    """A run of power-outage lost records this way: a controller died together with broker 3, its successor heard of
    nobody in time and fenced 1, 2 and 3, and the last of them, 3, was elected with what its disk had kept."""
    quorum.fence(1, SESSION)
    quorum.fence(2, 2 * SESSION)
    quorum.fence(3, 3 * SESSION)
    quorum.comes_back(3, 4 * SESSION)
    assert quorum.state()[0] == -1
    quorum.heartbeat(2, 4 * SESSION)
    assert quorum.state()[:2] == (2, (2,))


def test_a_clean_restart_keeps_its_eligibility_and_another_epoch_does_not(quorum: Quorum) -> None:
    """M38: the file of an earlier session is no proof."""
    for outdated in (False, True):
        quorum = three_brokers()
        quorum.fence(1, SESSION)
        quorum.fence(2, 2 * SESSION)
        quorum.register(2, 3 * SESSION, 99, quorum.epochs[2] - outdated)
        assert (2 in quorum.partition().elr) != outdated


def test_a_new_controller_gives_everyone_a_whole_session(quorum: Quorum) -> None:
    later = 100.0
    controller = Controller(quorum.image.copy(), config(), "test", Random(1), now=later)
    assert not controller.fence_one_expired(later + SESSION - 0.1).records
    deposed = config()["controller.quorum.fetch.timeout.ms"] / 1000  # so long may the one before have answered
    assert not controller.fence_one_expired(later + SESSION + deposed - 0.1).records
    assert controller.fence_one_expired(later + SESSION + deposed).records


def test_alter_partition_is_checked_in_order(quorum: Quorum) -> None:
    e = quorum.epochs
    everyone = {1: e[1], 2: e[2], 3: e[3]}
    current = quorum.partition()
    assert quorum.alter(1, everyone, leader_epoch=current.leader_epoch + 1) is ErrorCode.not_controller
    assert quorum.alter(1, everyone, partition_epoch=current.partition_epoch + 1) is ErrorCode.not_controller
    assert quorum.alter(2, everyone) is ErrorCode.invalid_request, "not the leader"
    assert quorum.alter(1, {2: e[2]}) is ErrorCode.invalid_request, "without the leader"
    assert quorum.alter(1, {1: e[1], 4: 0}) is ErrorCode.invalid_request, "not a replica"
    assert quorum.alter(1, {1: e[1], 2: e[2]}) is ErrorCode.none
    assert quorum.partition().isr == (1, 2)
    assert quorum.alter(1, everyone, partition_epoch=current.partition_epoch) is ErrorCode.invalid_update_version
    assert quorum.alter(1, everyone) is ErrorCode.none


def test_an_old_leader_epoch_is_fenced(quorum: Quorum) -> None:
    quorum.heartbeat(2, SESSION)
    quorum.heartbeat(3, SESSION)
    quorum.fence_expired(SESSION)
    assert quorum.alter(2, {2: quorum.epochs[2]}, leader_epoch=0) is ErrorCode.fenced_leader_epoch


def test_a_replica_that_restarted_since_it_caught_up_is_ineligible(quorum: Quorum) -> None:
    """Description 6.5.1, case 3 (M28); and one that is fenced (M29)."""
    stale = quorum.epochs[3]
    quorum.heartbeat(1, SESSION)
    quorum.heartbeat(2, SESSION)
    quorum.fence_expired(SESSION)
    members = {1: quorum.epochs[1], 2: quorum.epochs[2]}
    assert quorum.alter(1, {**members, 3: stale}) is ErrorCode.ineligible_replica, "fenced"
    quorum.register(3, now=SESSION, incarnation=9)
    quorum.heartbeat(3, SESSION)
    assert quorum.alter(1, {**members, 3: stale}) is ErrorCode.ineligible_replica, "an earlier session"
    assert quorum.alter(1, {**members, 3: quorum.epochs[3]}) is ErrorCode.none


def test_controlled_shutdown_moves_leaderships_and_waits_for_the_others_to_see_it(quorum: Quorum) -> None:
    behind = quorum.image.end_offset - 1
    assert not quorum.heartbeat(1, 1.0, want_shut_down=True).should_shut_down
    assert quorum.partition().leader == 2 and 1 not in quorum.partition().isr
    quorum.heartbeat(2, 1.0)
    quorum.heartbeat(3, 1.0, offset=behind)
    assert not quorum.heartbeat(1, 1.0, want_shut_down=True).should_shut_down
    quorum.heartbeat(3, 1.0)
    assert quorum.heartbeat(1, 1.0, want_shut_down=True).should_shut_down
    assert quorum.image.brokers[1].fenced
    assert quorum.register(1, now=1.0, incarnation=9) is ErrorCode.none, "its session has ended"


def test_topics_are_refused_for_a_reason(quorum: Quorum) -> None:
    assert quorum.create() is ErrorCode.topic_already_exists
    fresh = Quorum()
    fresh.register(1)
    fresh.heartbeat(1, 0.0)
    assert fresh.create(replication=2) is ErrorCode.invalid_replication_factor
    assert fresh.create(partitions=0, replication=1) is ErrorCode.invalid_partitions
