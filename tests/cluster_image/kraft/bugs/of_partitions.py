"""What leads to the bugs of replicas, one function each, and what comes of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kio.schema.errors import ErrorCode

from cluster_image.kraft.broker.partition import Refused
from tests.cluster_image.kraft.broker.test_partition import LAG, Replica, append, batch, follow


def follower_of_no_epoch(directory: Path) -> Any:
    """The leader has five records, the follower none, and begins at the third of them."""
    leader = Replica(directory)
    for _ in range(5):
        leader.partition.log.append_as_leader(batch(), 0)
    leader.lead(leader_epoch=1)
    try:
        return leader.partition.record_fetch(2, 10, 1, 2, -1, 0.0, lambda replica, epoch: True, 2)
    except Refused as refused:
        return refused.error


def follower_whose_broker_shuts_down(directory: Path) -> Any:
    """Outside the ISR, and it has everything but the last record."""
    replica = Replica(directory)
    partition = replica.lead(isr=(1, 2))
    replica.fetched(3, 0, eligible=lambda follower, epoch: False)
    append(partition)
    replica.fetched(2, 1)
    return partition.high_watermark


def follower_that_lags_below_min_isr(directory: Path) -> Any:
    """Nothing is committed by a leader alone; one record of two, and long after the second was written. Proposed then,
    and once it has caught up."""
    replica = Replica(directory)
    partition = replica.lead(isr=(1,))
    for _ in range(2):
        partition.log.append_as_leader(batch(), 0)
    proposed = []
    for offset in (1, 2):
        replica.fetched(2, offset, now=10 * LAG)
        assert partition.leadership is not None
        proposal = partition.leadership.proposal
        proposed.append(None if proposal is None else [broker for broker, _ in proposal.isr])
    return tuple(proposed)


def read_after_a_roll(directory: Path) -> Any:
    """A segment is full when all of it is committed, and the next begins with a record that is not."""
    replica = Replica(directory)
    partition = replica.lead(isr=(1, 2))
    append(partition)
    replica.fetched(2, 1)
    partition.log.roll()
    append(partition)
    return partition.high_watermark, bool(partition.read_as_consumer(-1, 1, 1 << 20))


def log_that_begins_anew(directory: Path) -> Any:
    """Its leader's log starts at 7."""
    replica = Replica(directory)
    follow(replica, 1, 0)
    replica.partition.leader_starts_at(1, 0, 7, 0)
    return replica.partition.log.start_offset, replica.partition.high_watermark


def fetch_from_who_does_not_lead(directory: Path) -> Any:
    replica = Replica(directory)
    follow(replica, 1, 0)
    try:
        replica.fetched(3, 0, epoch=1)
    except Refused as refused:
        return refused.error
    return ErrorCode.none
