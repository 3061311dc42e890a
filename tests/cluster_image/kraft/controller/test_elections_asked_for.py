"""Elections that somebody asks for: of preferred leaders, by an administrator or by the clock."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from kio.schema.elect_leaders.v0 import request as v0
from kio.schema.elect_leaders.v2.request import ElectLeadersRequest, TopicPartitions
from kio.schema.errors import ErrorCode

from cluster_image.kraft.controller import partitions
from cluster_image.kraft.controller.rules import LogInfo
from cluster_image.wire.messages import milliseconds
from tests.cluster_image.kraft.controller_quorum import SESSION, Quorum, three_brokers, unfenced
from tests.cluster_image.protocol.controller.test_metadata_log import Office, a_moment, reported

PREFERRED, UNCLEAN = 0, 1


def elect(quorum: Quorum, *indexes: int, topic: str = "t", kind: int = PREFERRED) -> list[ErrorCode]:
    """Of these partitions, of all of them if none is named."""
    asked = (TopicPartitions(topic=topic, partitions=indexes),) if indexes else None
    request = ElectLeadersRequest(election_type=kind, topic_partitions=asked)
    answer = quorum.do(quorum.controller.elect_leaders(request))
    assert answer.error_code is ErrorCode.none
    return [p.error_code for topic in answer.replica_election_results for p in topic.partition_result]


@pytest.fixture
def quorum() -> Quorum:
    """The preferred leader 1 is back, and 2 leads the ISR [2, 3]."""
    quorum = three_brokers()
    quorum.fence(1, SESSION)
    quorum.heartbeat(1, SESSION)
    assert quorum.state()[:2] == (2, (2, 3))
    return quorum


def test_the_preferred_leader_leads_once_it_is_in_sync(quorum: Quorum) -> None:
    assert elect(quorum, 0) == [ErrorCode.preferred_leader_not_available], "not in the ISR"
    quorum.join(1)
    before = quorum.partition()
    assert elect(quorum, 0) == [ErrorCode.none]
    after = quorum.partition()
    assert (after.leader, after.isr, after.leader_epoch) == (1, (2, 3, 1), before.leader_epoch + 1)
    assert elect(quorum, 0) == [ErrorCode.election_not_needed]
    assert quorum.partition() == after


def test_a_preferred_leader_that_is_not_there_is_not_elected(quorum: Quorum) -> None:
    quorum.join(1)
    quorum.heartbeat(1, SESSION, want_shut_down=True)
    assert elect(quorum, 0) == [ErrorCode.preferred_leader_not_available]


def test_a_preferred_leader_that_is_only_eligible_takes_over_from_nobody() -> None:
    """It may lag behind the leader by what is not committed yet, and is not in sync."""
    quorum = three_brokers()
    quorum.fence(1, SESSION)
    quorum.join()
    quorum.alter(2, {2: quorum.epochs[2], 3: quorum.epochs[3]})
    quorum.heartbeat(1, SESSION)
    quorum.join(1)
    quorum.alter(2, {2: quorum.epochs[2]})
    assert quorum.state()[:3] == (2, (2,), (1, 3))
    assert elect(quorum, 0) == [ErrorCode.preferred_leader_not_available]


def test_all_partitions_are_answered_for_only_if_they_need_it() -> None:
    quorum = unfenced(1, 2, 3)
    quorum.create_on((1, 2, 3), (2, 3, 1), (1, 3, 2))
    quorum.fence(1, SESSION)
    quorum.heartbeat(1, SESSION)
    assert elect(quorum) == [ErrorCode.preferred_leader_not_available] * 2, "partition 1 is led by 2"


def test_what_is_not_there_and_what_is_named_twice(quorum: Quorum) -> None:
    quorum.join(1)
    assert elect(quorum, 0, topic="u") == [ErrorCode.unknown_topic_or_partition]
    assert elect(quorum, 3) == [ErrorCode.unknown_topic_or_partition]
    assert elect(quorum, 0, 0) == [ErrorCode.invalid_request] * 2
    request = ElectLeadersRequest(election_type=7, topic_partitions=None)
    assert quorum.do(quorum.controller.elect_leaders(request)).error_code is ErrorCode.invalid_request
    assert quorum.partition().leader == 2


def test_the_first_version_knows_preferred_elections_only(quorum: Quorum) -> None:
    quorum.join(1)
    request: Any = v0.ElectLeadersRequest(topic_partitions=None)
    quorum.do(quorum.controller.elect_leaders(request))
    assert quorum.partition().leader == 1


def test_an_unclean_election_is_not_needed_while_somebody_leads(quorum: Quorum) -> None:
    assert elect(quorum, 0, kind=UNCLEAN) == [ErrorCode.election_not_needed]


def test_an_unclean_election_that_is_lost_with_its_controller_is_not_answered_as_done() -> None:
    """It was written and never committed. The same node leads again before the operator's request looks."""
    quorum = three_brokers()
    for broker in (1, 2, 3):
        quorum.fence(broker, broker * SESSION)
    quorum.comes_back(1, 4 * SESSION)
    key = quorum.partition().topic_id, 0

    async def story(office: Office) -> None:
        server, raft = office.server, office.raft
        server._committed = quorum.image
        raft.log = [b""] * quorum.image.end_offset
        raft.committed_end = len(raft.log)
        server.on_leader(1)
        request = ElectLeadersRequest(
            election_type=UNCLEAN,
            topic_partitions=(TopicPartitions(topic="t", partitions=(0,)),),
            timeout=milliseconds(5000),
        )
        answer = office.ask(request)
        await a_moment()
        assert server.active is not None
        recovery = server.active.unclean_recovery
        recovery.look()
        (question,) = recovery.questions(0.0).values()
        recovery.hear(1, question, {key: LogInfo(quorum.epochs[1], quorum.partition().leader_epoch, 0, 5)})
        later = asyncio.get_running_loop().time() + 60
        election = asyncio.create_task(server._perform(lambda controller, now: server._recover(controller, later)))
        await a_moment()
        written = server.active.image.partition(*key)
        assert written is not None and written.leader == 1
        raft.lose()
        raft.lost = False
        server.on_leader(2)
        (partition,) = (await answer).replica_election_results[0].partition_result
        assert partition.error_code is ErrorCode.eligible_leaders_not_available
        election.cancel()

    reported(story)


# -- auto.leader.rebalance.enable -------------------------------------------------------------------------------


def tick(quorum: Quorum, now: float) -> None:
    """Everybody is heard of, and what is due is done."""
    for broker, registration in quorum.image.brokers.items():
        if not registration.fenced:
            quorum.heartbeat(broker, now)
    while (step := quorum.controller.tick(now)).records:
        quorum.do(step)


def test_leaderships_go_back_at_each_interval() -> None:
    quorum = three_brokers(leader_imbalance_check_interval_seconds="20")
    quorum.fence(1, SESSION)
    quorum.heartbeat(1, SESSION)
    tick(quorum, 20.0)
    assert quorum.partition().leader == 2, "the preferred leader is not in sync"
    quorum.join(1)
    tick(quorum, 39.9)
    assert quorum.partition().leader == 2, "the next time is at 40"
    tick(quorum, 40.0)
    assert quorum.partition().leader == 1


def test_leaderships_stay_if_so_configured() -> None:
    quorum = three_brokers(leader_imbalance_check_interval_seconds="20", auto_leader_rebalance_enable="false")
    quorum.fence(1, SESSION)
    quorum.heartbeat(1, SESSION)
    quorum.join(1)
    tick(quorum, 100.0)
    assert quorum.partition().leader == 2


def test_a_partition_without_a_leader_is_not_the_balancers(quorum: Quorum) -> None:
    for broker in (1, 2, 3):
        quorum.fence(broker, SESSION * (2 + broker))
    before = quorum.partition()
    assert before.leader == -1
    tick(quorum, 1000.0)
    assert quorum.partition() == before


def test_one_batch_moves_so_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partitions, "MAX_PREFERRED_ELECTIONS", 2)
    quorum = unfenced(1, 2, 3, leader_imbalance_check_interval_seconds="20")
    quorum.create_on(*[(1, 2, 3)] * 5)
    quorum.fence(1, SESSION)
    quorum.heartbeat(1, SESSION)
    for index in range(5):
        partition = quorum.image.topics["t"].partitions[index]
        quorum.image.topics["t"].partitions[index] = _in_sync(partition)
    for broker in (1, 2, 3):
        quorum.heartbeat(broker, 20.0)
    sizes = []
    while (step := quorum.controller.tick(20.0)).records:
        sizes.append(len(step.records))
        quorum.do(step)
    assert sizes == [2, 2, 1], "and at once again while there is more"


def _in_sync(partition: Any) -> Any:
    return replace(partition, isr=partition.replicas)
