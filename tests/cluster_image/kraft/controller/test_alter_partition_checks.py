"""AlterPartition's checks, one by one and in the order of the bug catalogue (KAFKA-14154: the order is the point)."""

from __future__ import annotations

import itertools
import uuid
from typing import Any

import pytest
from kio.schema.alter_partition.v3.request import AlterPartitionRequest, BrokerState, PartitionData, TopicData
from kio.schema.errors import ErrorCode

from tests.cluster_image.kraft.controller_quorum import SESSION, Quorum, three_brokers

#: What is wrong with a request, in the order in which it is found, and the answer.
WRONG: dict[str, ErrorCode] = {
    "newer leader epoch": ErrorCode.not_controller,
    "newer partition epoch": ErrorCode.not_controller,
    "older leader epoch": ErrorCode.fenced_leader_epoch,
    "sender does not lead": ErrorCode.invalid_request,
    "older partition epoch": ErrorCode.invalid_update_version,
    "ISR not within replicas": ErrorCode.invalid_request,
    "leader not in ISR": ErrorCode.invalid_request,
    "recovering with others": ErrorCode.invalid_request,
    "ineligible replica": ErrorCode.ineligible_replica,
}
EXCLUSIVE = ({"newer leader epoch", "older leader epoch"}, {"newer partition epoch", "older partition epoch"})


@pytest.fixture
def quorum() -> Quorum:
    """Leader 2 in leader epoch 1, ISR [2], 3 restarted since; 1 fenced."""
    quorum = three_brokers()
    quorum.fence(1, SESSION)
    quorum.alter(2, {2: quorum.epochs[2]})
    assert (quorum.partition().leader, quorum.partition().isr, quorum.partition().leader_epoch) == (2, (2,), 1)
    return quorum


def ask(quorum: Quorum, *wrong: str) -> ErrorCode:
    """The answer to a proposal of the ISR [2, 3] with these faults."""
    partition = quorum.partition()
    leader_epoch = partition.leader_epoch + ("newer leader epoch" in wrong) - ("older leader epoch" in wrong)
    partition_epoch = (
        partition.partition_epoch + ("newer partition epoch" in wrong) - ("older partition epoch" in wrong)
    )
    isr = {2: quorum.epochs[2], 3: quorum.epochs[3] - ("ineligible replica" in wrong)}
    if "leader not in ISR" in wrong:
        del isr[2]
    if "ISR not within replicas" in wrong:
        isr[9] = 1
    return quorum.alter(
        3 if "sender does not lead" in wrong else 2,
        isr,
        leader_epoch=leader_epoch,
        partition_epoch=partition_epoch,
        leader_recovery_state=int("recovering with others" in wrong),
    )


def test_a_proposal_without_fault_is_accepted(quorum: Quorum) -> None:
    assert ask(quorum) is ErrorCode.none
    assert quorum.partition().isr == (2, 3)


@pytest.mark.parametrize("fault", WRONG)
def test_each_fault_is_found(quorum: Quorum, fault: str) -> None:
    before = quorum.partition()
    assert ask(quorum, fault) is WRONG[fault]
    assert quorum.partition() == before


def test_of_two_faults_the_first_in_order_is_answered(quorum: Quorum) -> None:
    before = quorum.partition()
    for first, second in itertools.combinations(WRONG, 2):
        if {first, second} not in EXCLUSIVE:
            assert ask(quorum, first, second) is WRONG[first], (first, second)
    assert quorum.partition() == before


def test_a_sender_of_an_earlier_session_is_not_even_asked_about_partitions(quorum: Quorum) -> None:
    answer = send(quorum, quorum.partition().topic_id, (0,), broker_epoch=quorum.epochs[2] - 1)
    assert answer.error_code is ErrorCode.stale_broker_epoch and not answer.topics


def test_what_is_not_there(quorum: Quorum) -> None:
    (topic,) = send(quorum, uuid.UUID(int=99), (0,)).topics
    assert topic.partitions[0].error_code is ErrorCode.unknown_topic_id
    (topic,) = send(quorum, quorum.partition().topic_id, (7,)).topics
    assert topic.partitions[0].error_code is ErrorCode.unknown_topic_or_partition


def test_a_partition_named_twice_is_refused_twice(quorum: Quorum) -> None:
    """The second would be decided on the state before the first, which the first may have changed."""
    before = quorum.partition()
    (topic,) = send(quorum, before.topic_id, (0, 0)).topics
    assert [p.error_code for p in topic.partitions] == [ErrorCode.invalid_request] * 2
    answer = send(quorum, before.topic_id, (0,), (0,))
    assert [t.partitions[0].error_code for t in answer.topics] == [ErrorCode.invalid_request] * 2
    assert quorum.partition() == before


def test_an_answer_tells_what_has_become_of_the_partition(quorum: Quorum) -> None:
    before = quorum.partition()
    (topic,) = send(quorum, before.topic_id, (0,)).topics
    (data,) = topic.partitions
    assert (data.leader_id, data.isr, data.leader_epoch) == (2, (2, 3), before.leader_epoch)
    assert data.partition_epoch == before.partition_epoch + 1 == quorum.partition().partition_epoch


def test_a_retry_of_what_was_applied_is_outdated_and_changes_nothing(quorum: Quorum) -> None:
    """M31: the answer to the first was lost. The leader learns from the metadata log."""
    before = quorum.partition()
    ask(quorum)
    after = quorum.partition()
    retry = quorum.alter(2, {2: quorum.epochs[2], 3: quorum.epochs[3]}, partition_epoch=before.partition_epoch)
    assert retry is ErrorCode.invalid_update_version
    assert quorum.partition() == after


def send(quorum: Quorum, topic_id: uuid.UUID, *indexes: tuple[int, ...], broker_epoch: int | None = None) -> Any:
    """Leader 2 proposes the ISR [2, 3] for these partitions of the topic, an entry of the request for each tuple."""
    current = quorum.partition()
    isr = tuple(BrokerState(broker_id=b, broker_epoch=quorum.epochs[b]) for b in (2, 3))

    def proposal(index: int) -> PartitionData:
        return PartitionData(
            partition_index=index,
            leader_epoch=current.leader_epoch,
            partition_epoch=current.partition_epoch,
            new_isr_with_epochs=isr,
        )

    return quorum.do(
        quorum.controller.alter_partition(
            AlterPartitionRequest(
                broker_id=2,
                broker_epoch=quorum.epochs[2] if broker_epoch is None else broker_epoch,
                topics=tuple(TopicData(topic_id=topic_id, partitions=tuple(map(proposal, i))) for i in indexes),
            )
        )
    )
