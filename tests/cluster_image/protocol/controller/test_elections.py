"""Leader elections, and what the controller does to an ISR (000, 2.8 and 2.9.1; description 6.5)."""

from __future__ import annotations

from typing import Any

import pytest
from kio.schema.create_topics.v7.request import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest
from kio.schema.errors import ErrorCode

from cluster_image.kraft.metadata.records import BrokerRegistrationChangeRecord, PartitionChangeRecord
from cluster_image.wire.messages import milliseconds
from tests.cluster_image.kraft.controller.test_controller import SESSION, Quorum, three_brokers


@pytest.fixture
def quorum() -> Quorum:
    return three_brokers()


def test_fencing_the_leader(quorum: Quorum) -> None:
    """Out of leadership and ISR, a member of the ISR elected, both epochs one higher, and all of it one record."""
    before = quorum.partition()
    step = expire(quorum, 1)
    changes = [r for r in step.records if isinstance(r, PartitionChangeRecord)]
    assert len(changes) == 1
    quorum.do(step)
    after = quorum.partition()
    assert (after.leader, after.isr) == (2, (2, 3))
    assert after.leader_epoch == before.leader_epoch + 1
    assert after.partition_epoch == before.partition_epoch + 1


def test_fencing_a_follower(quorum: Quorum) -> None:
    """It leaves the ISR; nobody is elected. A broker that is fenced and in no ISR changes no partition at all."""
    before = quorum.partition()
    quorum.do(expire(quorum, 3))
    after = quorum.partition()
    assert (after.leader, after.isr, after.leader_epoch) == (1, (1, 2), before.leader_epoch)
    assert after.partition_epoch == before.partition_epoch + 1

    quorum.heartbeat(3, SESSION)
    assert quorum.partition() == after, "nor does the controller bring it back into the ISR"
    quorum.do(expire(quorum, 3, now=2 * SESSION))
    assert quorum.partition() == after


def expire(quorum: Quorum, broker: int, now: float = SESSION) -> Any:
    """The step that fences this broker, not yet taken."""
    for other in (1, 2, 3):
        if other != broker:
            quorum.heartbeat(other, now)
    return quorum.controller.fence_one_expired(now)


def test_no_replica_of_a_fenced_broker_is_elected(quorum: Quorum) -> None:
    quorum.fence(1, SESSION)
    quorum.fence(2, 2 * SESSION)
    assert quorum.state()[0] == 3
    quorum.fence(3, 3 * SESSION)
    assert quorum.state()[0] == -1, "2 is eligible, and fenced"


@pytest.mark.parametrize(("isr", "elected"), [((1, 2), 2), ((1, 3), 3), ((1, 2, 3), 2)])
def test_any_member_of_the_isr_may_be_elected_and_nobody_else(
    quorum: Quorum, isr: tuple[int, ...], elected: int
) -> None:
    if isr != (1, 2, 3):
        assert quorum.alter(1, {r: quorum.epochs[r] for r in isr}) is ErrorCode.none
    quorum.fence(1, SESSION)
    assert quorum.state()[0] == elected
    quorum.fence(elected, 2 * SESSION)
    last = [r for r in isr if r not in (1, elected)]
    assert quorum.state()[0] == (last[0] if last else -1), (
        "who is in sync with nobody does not lead, though it is there"
    )


def test_a_replica_that_is_shutting_down_is_passed_over(quorum: Quorum) -> None:
    """Replica 2 leads another partition, and so is still there, shutting down, when 1 is fenced: out of every ISR, and
    the only one that is eligible and not fenced."""
    create(quorum, "u", (2, 1, 3))
    quorum.fence(3, SESSION)
    quorum.heartbeat(2, SESSION, want_shut_down=True)
    broker = quorum.image.brokers[2]
    assert broker.in_controlled_shutdown and not broker.fenced
    assert quorum.state() == (1, (1,), (2,), ())
    quorum.fence(1, 2 * SESSION)
    assert quorum.state() == (-1, (), (1, 2), ()), "rather nobody"
    quorum.heartbeat(1, 2 * SESSION)
    assert quorum.state()[0] == 1


def create(quorum: Quorum, name: str, *replicas: tuple[int, ...]) -> None:
    assignments = tuple(
        CreatableReplicaAssignment(partition_index=index, broker_ids=ids) for index, ids in enumerate(replicas)
    )
    topic = CreatableTopic(name=name, num_partitions=-1, replication_factor=-1, assignments=assignments, configs=())
    answer = quorum.do(
        quorum.controller.create_topics(CreateTopicsRequest(topics=(topic,), timeout=milliseconds(1000)))
    )
    assert answer.topics[0].error_code is ErrorCode.none, answer


def test_a_fencing_and_all_its_elections_are_one_batch(quorum: Quorum) -> None:
    create(quorum, "u", (1, 2, 3), (1, 3, 2), (2, 1, 3))
    step = expire(quorum, 1)
    fenced = [r for r in step.records if isinstance(r, BrokerRegistrationChangeRecord)]
    changed = [r for r in step.records if isinstance(r, PartitionChangeRecord)]
    assert [(f.broker_id, f.fenced) for f in fenced] == [(1, 1)] and len(changed) == 4
    quorum.do(step)
    assert [p.leader for p in quorum.image.topics["u"].partitions.values()] == [2, 3, 2]
    assert not any(1 in p.isr for p in quorum.image.partitions())


def test_a_candidate_of_a_leaderless_partition_leads_when_it_is_unfenced(quorum: Quorum) -> None:
    for broker in (1, 2, 3):
        quorum.fence(broker, broker * SESSION)
    assert quorum.state() == (-1, (), (2, 3), ())
    before = quorum.partition().leader_epoch
    quorum.heartbeat(1, 3 * SESSION)
    assert quorum.state()[0] == -1, "no candidate"
    quorum.heartbeat(3, 3 * SESSION)
    assert quorum.state() == (3, (3,), (2,), ())
    assert quorum.partition().leader_epoch == before + 1


def test_a_leader_cannot_propose_another_leader(quorum: Quorum) -> None:
    """AlterPartition has no field for it, and its sender must be in the ISR it proposes: a leader goes on leading
    until the controller elects another."""
    before = quorum.partition()
    assert quorum.alter(1, {r: quorum.epochs[r] for r in (2, 3)}) is ErrorCode.invalid_request
    assert quorum.alter(2, dict(quorum.epochs)) is ErrorCode.invalid_request
    assert quorum.partition() == before
    assert quorum.alter(1, {r: quorum.epochs[r] for r in (1, 3)}) is ErrorCode.none
    assert (quorum.partition().leader, quorum.partition().leader_epoch) == (1, before.leader_epoch)


def test_the_controller_alone_never_adds_a_replica_that_was_no_candidate(quorum: Quorum) -> None:
    """Through fencing, return and election in every order: the ISR only ever gains a member of the ELR."""
    now = SESSION
    for broker in (3, 2, 1):
        before = quorum.partition()
        quorum.fence(broker, now)
        check_gain(quorum, before)
        now += SESSION
    for broker in (3, 1, 2):
        before = quorum.partition()
        quorum.comes_back(broker, now, clean=True)
        check_gain(quorum, before)
    assert quorum.partition().isr == (1,) and quorum.partition().elr == (2,), "3 left an ISR that had enough others"


def check_gain(quorum: Quorum, before: Any) -> None:
    gained = set(quorum.partition().isr) - set(before.isr)
    assert gained <= set(before.elr) and len(gained) <= 1
