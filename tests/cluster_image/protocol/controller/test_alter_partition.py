"""What a leader asks of the controller, on what conditions it is granted, and what the leader makes of the answer
(000, 2.9.2; description 6.3 and 6.5.2)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from kio.schema.alter_partition.v3.request import AlterPartitionRequest, BrokerState, PartitionData, TopicData
from kio.schema.errors import ErrorCode

from cluster_image.kraft.broker.isr_manager import IsrManager
from tests.cluster_image.kraft.broker.test_partition import TOPIC
from tests.cluster_image.kraft.controller.test_controller import SESSION, Quorum, three_brokers
from tests.cluster_image.protocol.replication.group import Group


def expanding(directory: Path) -> Group:
    """The leader has proposed to add 3 to the ISR [1, 2]."""
    group = Group(directory)
    group.tell(1, (1, 2), leader_epoch=4)
    group.fetch(1, 2, 3)
    assert group.proposed(1) == [1, 2, 3]
    return group


def test_what_the_request_carries(tmp_path: Path) -> None:
    group = expanding(tmp_path)
    asked: list[Any] = []

    class Channel:
        async def request(self, request: Any) -> Any:
            asked.append(request)
            await asyncio.Event().wait()

        def close(self) -> None: ...

    async def send() -> None:
        channel: Any = Channel()
        manager = IsrManager(channel, 1, lambda: 11, lambda: [group.partitions[1]], lambda error: None)
        manager.start()
        manager.proposals_changed()
        while not asked:
            await asyncio.sleep(0)
        await manager.close()

    asyncio.run(asyncio.wait_for(send(), 5))
    (request,) = asked
    assert isinstance(request, AlterPartitionRequest)
    assert (request.broker_id, request.broker_epoch) == (1, 11)
    (topic,) = request.topics
    (data,) = topic.partitions
    assert topic.topic_id == TOPIC
    assert (data.partition_index, data.leader_epoch, data.partition_epoch) == (0, 4, group.partition_epoch)
    assert {s.broker_id: s.broker_epoch for s in data.new_isr_with_epochs} == {1: 11, 2: 12, 3: 13}


def test_every_epoch_of_a_request_is_checked() -> None:
    quorum = three_brokers()
    quorum.alter(1, {r: quorum.epochs[r] for r in (1, 2)})
    before = quorum.partition()
    everyone = dict(quorum.epochs)

    assert quorum.alter(1, everyone, partition_epoch=before.partition_epoch - 1) is ErrorCode.invalid_update_version
    for wrong in (everyone[3] - 1, everyone[3] + 1):
        assert quorum.alter(1, {**everyone, 3: wrong}) is ErrorCode.ineligible_replica
    for wrong in (everyone[1] - 1, everyone[1] + 1):
        refused: Any = quorum.do(quorum.controller.alter_partition(request_of(quorum, wrong)))
        assert refused.error_code is ErrorCode.stale_broker_epoch
    assert quorum.partition() == before
    assert quorum.alter(1, everyone) is ErrorCode.none


def request_of(quorum: Quorum, sender_epoch: int) -> AlterPartitionRequest:
    """Broker 1, of this epoch, proposes an ISR of all."""
    current = quorum.partition()
    proposal = PartitionData(
        partition_index=0, leader_epoch=current.leader_epoch, partition_epoch=current.partition_epoch,
        new_isr_with_epochs=tuple(BrokerState(broker_id=r, broker_epoch=e) for r, e in quorum.epochs.items()),
    )  # fmt: skip
    topic = TopicData(topic_id=current.topic_id, partitions=(proposal,))
    return AlterPartitionRequest(broker_id=1, broker_epoch=sender_epoch, topics=(topic,))


def test_of_two_proposals_from_one_state_one_is_refused() -> None:
    """And so is a leader's that has not seen what the controller did meanwhile."""
    quorum = three_brokers()
    seen = quorum.partition().partition_epoch
    e = quorum.epochs
    assert quorum.alter(1, {1: e[1], 2: e[2]}, partition_epoch=seen) is ErrorCode.none
    assert quorum.alter(1, {1: e[1], 3: e[3]}, partition_epoch=seen) is ErrorCode.invalid_update_version
    assert quorum.partition().isr == (1, 2)

    seen = quorum.partition().partition_epoch
    quorum.fence(2, SESSION)
    assert quorum.partition().isr == (1,)
    assert quorum.alter(1, dict(e), partition_epoch=seen) is ErrorCode.invalid_update_version
    assert quorum.partition().isr == (1,)


def test_an_accepted_proposal_is_committed(tmp_path: Path) -> None:
    """With the controller: ISR and one partition epoch more. With the leader: ISR, maximal ISR and that epoch."""
    quorum = three_brokers()
    e = quorum.epochs
    before = quorum.partition()
    assert quorum.alter(1, {1: e[1], 2: e[2]}) is ErrorCode.none
    after = quorum.partition()
    assert (after.isr, after.partition_epoch) == ((1, 2), before.partition_epoch + 1)
    assert (after.leader, after.leader_epoch) == (before.leader, before.leader_epoch)

    group = expanding(tmp_path)
    epoch = group.partition_epoch
    group.accept(1)
    assert sorted(group.partitions[1].isr) == sorted(group.leadership(1).maximal_isr) == [1, 2, 3]
    assert group.partitions[1].partition_epoch == epoch + 1 and group.proposed(1) is None


@pytest.mark.parametrize("error", [ErrorCode.ineligible_replica, ErrorCode.operation_not_attempted])
def test_a_refused_proposal_is_rolled_back(tmp_path: Path, error: ErrorCode) -> None:
    group = expanding(tmp_path)
    group.refuse(1, error)
    assert sorted(group.partitions[1].isr) == sorted(group.leadership(1).maximal_isr) == [1, 2]
    assert group.partitions[1].partition_epoch == group.partition_epoch and group.proposed(1) is None


@pytest.mark.parametrize("accepted", [True, False])
def test_the_watermark_may_advance_after_either_answer(tmp_path: Path, accepted: bool) -> None:
    group = expanding(tmp_path) if not accepted else Group(tmp_path)
    if accepted:
        group.tell(1, (1, 2, 3), leader_epoch=4)
        group.write(1, "a")
        for now in (0.5, 5.0):
            group.fetch(1, 2, now=now)
        group.partitions[1].consider_shrinking(6.0, group.eligible)
        assert group.proposed(1) == [1, 2] and group.ends(1) == (1, 0)
        group.accept(1)
    else:
        group.write(1, "a")
        group.fetch(1, 2)
        group.ask(1, 2)
        assert group.ends(1) == (1, 0)
        group.refuse(1, ErrorCode.ineligible_replica)
    assert group.ends(1) == (1, 1)


def test_an_answer_older_than_the_metadata_is_ignored(tmp_path: Path) -> None:
    """The metadata log told of the accepted change, and of a later one, before the answer came."""
    group = expanding(tmp_path)
    proposal = group.leadership(1).proposal
    assert proposal is not None
    accepted = group.partition_epoch + 1
    group.tell(1, (1, 2, 3))
    group.tell(1, (1, 3))
    group.partitions[1].proposal_accepted(proposal, (1, 2, 3), group.leader_epoch, accepted)
    assert sorted(group.partitions[1].isr) == sorted(group.leadership(1).maximal_isr) == [1, 3]
    assert group.partitions[1].partition_epoch == group.partition_epoch
