"""What reassignment does to a replica that leads: followers come and go, also between two looks (000, 2.3.2; 2.10)."""

from __future__ import annotations

from pathlib import Path

import pytest
from kio.schema.errors import ErrorCode

from cluster_image.kraft.broker.partition import Partition, Refused
from cluster_image.kraft.metadata.image import PartitionRegistration
from tests.cluster_image.kraft.broker.test_partition import EVERYONE, LAG, TOPIC, Replica, append, batch, future


@pytest.fixture
def replica(tmp_path: Path) -> Replica:
    return Replica(tmp_path)


def reported(
    partition: Partition, replicas: tuple[int, ...], isr: tuple[int, ...], leader_epoch: int, partition_epoch: int,
    leader: int = 1, now: float = 1.0,
) -> None:  # fmt: skip
    state = PartitionRegistration(TOPIC, "t", 0, replicas, isr, leader, leader_epoch, partition_epoch)
    partition.apply(state, now)


def proposed(partition: Partition) -> list[int] | None:
    assert partition.leadership is not None
    proposal = partition.leadership.proposal
    return None if proposal is None else [r for r, _ in proposal.isr]


def test_an_added_replica_is_followed_in_the_same_leader_epoch(replica: Replica) -> None:
    partition = replica.lead()
    for follower in (2, 3):
        replica.fetched(follower, 0)
    done = append(partition)
    reported(partition, (1, 2, 3, 4), (1, 2, 3), 0, 1)
    replica.fetched(2, 1)
    replica.fetched(3, 1)
    assert done.result() is ErrorCode.none, "who is not in the ISR holds nothing up, and what was known is still known"
    replica.fetched(4, 0)
    assert proposed(partition) is None
    replica.fetched(4, 1)
    assert proposed(partition) == [1, 2, 3, 4]


def test_a_removed_replica_is_refused_and_forgotten(replica: Replica) -> None:
    partition = replica.lead()
    reported(partition, (1, 2), (1, 2), 0, 1)
    with pytest.raises(Refused) as refused:
        replica.fetched(3, 0)
    assert refused.value.error is ErrorCode.unknown_leader_epoch, "it may know more than this leader"
    done = append(partition)
    replica.fetched(2, 1)
    assert done.result() is ErrorCode.none


def test_producers_wait_on_while_the_leader_leads_on(replica: Replica) -> None:
    partition = replica.lead()
    done = append(partition)
    reported(partition, (1, 2, 3), (1, 2, 3), 1, 1)
    assert not done.done()
    replica.fetched(2, 1, epoch=1)
    replica.fetched(3, 1, epoch=1)
    assert done.result() is ErrorCode.none


def test_removed_and_added_again_between_two_looks(replica: Replica) -> None:
    """Its log is empty now, though all that the metadata shows is a new leader epoch and an ISR without it: what it
    once fetched must not admit it, nor a fetch of that time that arrives late (description 6.5.4)."""
    partition = replica.lead()
    append(partition)
    replica.fetched(2, 1)
    replica.fetched(3, 1)
    assert partition.high_watermark == 1
    reported(partition, (1, 2, 3), (1, 2), 1, 2)
    replica.fetched(2, 1, epoch=1)
    assert proposed(partition) is None
    with pytest.raises(Refused):
        replica.fetched(3, 1, epoch=0)
    replica.fetched(3, 0, epoch=1)
    assert proposed(partition) is None
    replica.fetched(3, 1, epoch=1)
    assert proposed(partition) == [1, 2, 3]


def test_who_has_left_the_isr_comes_back_by_a_fetch_of_its_own(replica: Replica) -> None:
    """Nobody else's, and not by what was known of it before."""
    partition = replica.lead()
    for follower in (2, 3):
        replica.fetched(follower, 0, now=LAG)
    reported(partition, (1, 2, 3), (1, 2), 0, 1)
    replica.fetched(2, 0, now=LAG)
    partition.consider_shrinking(LAG, EVERYONE)
    assert proposed(partition) is None
    replica.fetched(3, 0, now=LAG)
    assert proposed(partition) == [1, 2, 3]


def test_the_log_tells_the_replicas_though_alter_partition_told_the_isr(replica: Replica) -> None:
    """Both have the same partition epoch."""
    partition = replica.lead(isr=(1, 2))
    replica.fetched(3, 0)
    assert partition.leadership is not None and partition.leadership.proposal is not None
    partition.proposal_accepted(partition.leadership.proposal, (1, 2, 3), 0, 1)
    reported(partition, (1, 2, 3, 4), (1, 2, 3), 0, 1)
    assert 4 in partition.leadership.followers and partition.isr == {1, 2, 3}


def test_an_isr_that_completes_a_reassignment_counts_until_the_log_tells_of_it(replica: Replica) -> None:
    """The controller has begun another leader epoch with it. Its answer tells only a part of that."""
    partition = replica.lead(isr=(1, 2))
    reported(partition, (1, 2, 4), (1, 2), 0, 1)
    replica.fetched(2, 0)
    replica.fetched(4, 0)
    assert partition.leadership is not None and partition.leadership.proposal is not None
    partition.proposal_accepted(partition.leadership.proposal, (1, 4), 1, 2)
    done = append(partition)
    replica.fetched(2, 1)
    assert not done.done(), "the controller may elect 4"
    reported(partition, (1, 4), (1, 4), 1, 2)
    replica.fetched(4, 1, epoch=1)
    assert done.result() is ErrorCode.none


@pytest.mark.parametrize("error", [ErrorCode.not_leader_or_follower, ErrorCode.unknown_topic_or_partition])
def test_a_removed_partition_serves_nobody(replica: Replica, error: ErrorCode) -> None:
    partition = replica.lead()
    done = append(partition)
    partition.remove(error)
    assert done.result() is error
    with pytest.raises(Refused):
        partition.append(batch(), 1, future)
    with pytest.raises(Refused):
        replica.fetched(2, 1)
    assert not partition.apply_fetch(0, 1, batch(), 1, None), "an answer that comes late"
