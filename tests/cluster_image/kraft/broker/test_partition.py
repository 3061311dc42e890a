"""A partition's replica: transitions, ISR, high watermark, truncation (000, 2.6 to 2.10; description 3 and 6)."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from kio.schema.errors import ErrorCode

from cluster_image.config import Config, parse
from cluster_image.kraft.broker.partition import Partition, Refused
from cluster_image.kraft.metadata.image import PartitionRegistration
from cluster_image.storage.disk import LocalDisk
from cluster_image.storage.log import Log
from cluster_image.storage.records import build_batch
from tests.cluster_image.replication.fetches import fetch_as_consumer, fetch_as_follower

TOPIC = uuid.UUID(int=7)
LAG = 4.0


def config(**settings: str) -> Config:
    lines = {
        "node.id": "1",
        "process.roles": "broker",
        "cluster.id": "test",
        "controller.quorum.voters": "101@localhost:9093",
        "listeners": "localhost:9092",
        "log.dirs": "/data",
        "min.insync.replicas": "2",
        "replica.lag.time.max.ms": str(int(LAG * 1000)),
        **{name.replace("_", "."): value for name, value in settings.items()},
    }
    return parse("\n".join(f"{k}={v}" for k, v in lines.items()))


def registration(
    leader: int, isr: tuple[int, ...] = (1, 2, 3), leader_epoch: int = 0, partition_epoch: int = 0
) -> PartitionRegistration:
    return PartitionRegistration(TOPIC, "t", 0, (1, 2, 3), isr, leader, leader_epoch, partition_epoch)


def batch(*values: bytes) -> bytes:
    return build_batch(values or (b"v",), timestamp_ms=0)


def future() -> asyncio.Future[ErrorCode]:
    return asyncio.Future(loop=_LOOP)


_LOOP = asyncio.new_event_loop()
EVERYONE = lambda replica, epoch: True  # noqa: E731


class Replica:
    """Broker `me`'s replica, driven by hand."""

    def __init__(self, directory: Path, me: int = 1, **settings: str) -> None:
        disk = LocalDisk(directory)
        disk.make_directory("t-0")
        self.partition = Partition(registration(-1), Log.open(disk, "t-0"), config(**settings), me)

    def lead(self, isr: tuple[int, ...] = (1, 2, 3), leader_epoch: int = 0, partition_epoch: int = 0) -> Partition:
        self.partition.apply(registration(1, isr, leader_epoch, partition_epoch), now=0.0)
        return self.partition

    def fetched(
        self,
        replica: int,
        offset: int,
        *,
        epoch: int = 0,
        last: int = -1,
        now: float = 0.0,
        broker_epoch: int = 10,
        eligible: Callable[[int, int], bool] = EVERYONE,
    ) -> None:
        fetch_as_follower(self.partition, replica, broker_epoch, epoch, offset, last, 1 << 20, now, eligible)


@pytest.fixture
def replica(tmp_path: Path) -> Replica:
    return Replica(tmp_path)


def append(partition: Partition, acks: int = -1, *values: bytes) -> asyncio.Future[ErrorCode]:
    done = partition.append(batch(*values), acks, future).done
    assert done is not None
    return done


def test_acks_all_is_answered_when_the_whole_isr_has_the_record(replica: Replica) -> None:
    partition = replica.lead()
    done = append(partition)
    replica.fetched(2, 1)
    assert not done.done() and partition.high_watermark == 0
    replica.fetched(3, 1)
    assert done.result() is ErrorCode.none and partition.high_watermark == 1


def test_acks_all_is_refused_below_min_isr_and_acks_1_is_not(replica: Replica) -> None:
    partition = replica.lead(isr=(1,))
    with pytest.raises(Refused) as refused:
        append(partition)
    assert refused.value.error is ErrorCode.not_enough_replicas
    assert partition.append(batch(), 1, future).base_offset == 0


def test_what_waits_fails_at_once_when_the_isr_falls_below_min_isr(replica: Replica) -> None:
    partition = replica.lead()
    done = append(partition)
    partition.apply(registration(1, (1,), 0, 1), now=1.0)
    assert done.result() is ErrorCode.not_enough_replicas_after_append


def test_what_waits_fails_when_leadership_is_lost(replica: Replica) -> None:
    partition = replica.lead()
    done = append(partition)
    partition.apply(registration(2, (2, 3), 1, 1), now=1.0)
    assert done.result() is ErrorCode.not_leader_or_follower
    with pytest.raises(Refused):
        append(partition)


def test_a_proposed_member_counts_before_the_controller_has_agreed(replica: Replica) -> None:
    """The maximal ISR (description 6.5.2; M16)."""
    partition = replica.lead(isr=(1, 2))
    replica.fetched(3, 0)
    assert partition.leadership is not None and partition.leadership.proposal is not None
    done = append(partition)
    replica.fetched(2, 1)
    assert not done.done(), "the controller may hold 3 in sync already"
    replica.fetched(3, 1)
    assert done.done()


def test_a_leaving_member_counts_until_the_controller_has_agreed(replica: Replica) -> None:
    partition = replica.lead()
    done = append(partition)
    replica.fetched(2, 1, now=LAG)
    partition.consider_shrinking(LAG + 1, EVERYONE)
    proposal = partition.leadership.proposal if partition.leadership else None
    assert proposal is not None and [r for r, _ in proposal.isr] == [1, 2]
    assert not done.done()
    partition.proposal_accepted(proposal, (1, 2), 0, 1)
    assert done.result() is ErrorCode.none


def test_an_outdated_answer_does_not_roll_the_maximal_isr_back(replica: Replica) -> None:
    """A proposal whose acceptance was lost on the way is answered INVALID_UPDATE_VERSION when sent again."""
    partition = replica.lead(isr=(1, 2))
    replica.fetched(3, 0)
    assert partition.leadership is not None and partition.leadership.proposal is not None
    partition.proposal_refused(partition.leadership.proposal, ErrorCode.invalid_update_version)
    done = append(partition)
    replica.fetched(2, 1)
    assert not done.done()
    partition.proposal_refused(partition.leadership.proposal, ErrorCode.ineligible_replica)
    assert done.done()


@pytest.mark.parametrize(
    ("offset", "broker_epoch_is_current", "joins"),
    [(2, True, True), (1, True, False), (2, False, False)],
    ids=["caught up", "below the epoch start", "of an earlier session"],
)
def test_who_may_join_the_isr(replica: Replica, offset: int, broker_epoch_is_current: bool, joins: bool) -> None:
    """M24, M28: the leader epoch start offset is 2 and the high watermark, unknown to this leader, still 0."""
    partition = replica.lead(isr=(1,))
    partition.append(batch(b"a", b"b"), 1, future)
    partition.apply(registration(2, (2,), 1, 1), now=0.0)
    partition.restore_high_watermark(0)
    partition.apply(registration(1, (1, 2), 2, 2), now=0.0)
    replica.fetched(3, offset, epoch=2, last=0, eligible=lambda replica, epoch: broker_epoch_is_current)
    assert partition.leadership is not None
    assert (partition.leadership.proposal is not None) == joins


@pytest.mark.parametrize(("isr", "elr", "awaited"), [((1,), "1", True), ((1, 2), "1", False), ((1,), "0", False)])
def test_below_min_isr_a_leader_awaits_whoever_follows(
    tmp_path: Path, isr: tuple[int, ...], elr: str, awaited: bool
) -> None:
    """So no quota of its own (KIP-73) keeps a follower from catching up, without which nothing is committed."""
    partition = Replica(tmp_path, eligible_leader_replicas_version=elr).lead(isr=isr)
    assert partition.awaits(3) == awaited


def test_a_fetch_of_an_earlier_leader_epoch_proves_nothing(replica: Replica) -> None:
    """M04."""
    replica.lead(leader_epoch=3)
    for epoch, error in ((2, ErrorCode.fenced_leader_epoch), (4, ErrorCode.unknown_leader_epoch)):
        with pytest.raises(Refused) as refused:
            replica.fetched(2, 0, epoch=epoch)
        assert refused.value.error is error


def test_a_fetch_of_an_earlier_broker_session_is_refused(replica: Replica) -> None:
    replica.lead()
    replica.fetched(2, 0, broker_epoch=11)
    with pytest.raises(Refused):
        replica.fetched(2, 0, broker_epoch=10)


def test_consumers_see_committed_records_only(replica: Replica) -> None:
    partition = replica.lead()
    append(partition)
    append(partition)
    assert fetch_as_consumer(partition, 0, -1, 1 << 20).records == b""
    replica.fetched(2, 1)
    replica.fetched(3, 1)
    read = fetch_as_consumer(partition, 0, -1, 1 << 20)
    assert read.high_watermark == 1 and read.records == partition.log.read(0, 1 << 20, 1)


def test_the_end_of_the_log_is_told_only_when_it_is_known(replica: Replica) -> None:
    """M19, and a leader whose session may have run out."""
    partition = replica.lead(isr=(1,))
    partition.append(batch(), 1, future)
    partition.apply(registration(2, (2,), 1, 1), now=0.0)
    partition.restore_high_watermark(0)
    partition.apply(registration(1, (1, 2), 2, 2), now=0.0)
    with pytest.raises(Refused) as refused:
        partition.end_of_committed_log(-1, lease_held=True)
    assert refused.value.error is ErrorCode.offset_not_available
    replica.fetched(2, 1, epoch=2, last=0)
    assert partition.end_of_committed_log(-1, lease_held=True) == 1
    with pytest.raises(Refused):
        partition.end_of_committed_log(-1, lease_held=False)


@pytest.mark.parametrize(("elr", "committed"), [("0", 1), ("1", 0)], ids=["without ELR", "with ELR"])
def test_below_min_isr_nothing_is_committed_where_there_is_an_elr(tmp_path: Path, elr: str, committed: int) -> None:
    """M15: an ELR member is complete because nothing was committed without it."""
    partition = Replica(tmp_path, eligible_leader_replicas_version=elr).lead(isr=(1,))
    partition.append(batch(), 1, future)
    assert partition.high_watermark == committed


def test_metadata_older_than_what_alter_partition_told_is_ignored(replica: Replica) -> None:
    partition = replica.lead(isr=(1, 2))
    replica.fetched(3, 0)
    assert partition.leadership is not None and partition.leadership.proposal is not None
    partition.proposal_accepted(partition.leadership.proposal, (1, 2, 3), 0, 5)
    partition.apply(registration(1, (1, 2), 0, 4), now=0.0)
    assert partition.isr == {1, 2, 3}


def follow(replica: Replica, leader_epoch: int, partition_epoch: int) -> None:
    replica.partition.apply(registration(2, (1, 2, 3), leader_epoch, partition_epoch), now=0.0)


def leaders_batch(offset: int, epoch: int, *values: bytes) -> bytes:
    from cluster_image.storage.records import with_offset_and_epoch

    return with_offset_and_epoch(batch(*values), offset, epoch)


def test_a_response_of_a_deposed_leader_is_dropped(replica: Replica) -> None:
    """M13."""
    follow(replica, 1, 0)
    follow(replica, 2, 1)
    assert not replica.partition.apply_fetch(1, 0, leaders_batch(0, 1), 1, None)
    assert replica.partition.log.end_offset == 0
    assert replica.partition.apply_fetch(2, 0, leaders_batch(0, 2), 1, None)
    assert replica.partition.log.end_offset == 1


def test_a_follower_takes_the_leaders_watermark_within_its_own_log(replica: Replica) -> None:
    follow(replica, 1, 0)
    replica.partition.apply_fetch(1, 0, leaders_batch(0, 1, b"a", b"b"), 9, None)
    assert replica.partition.high_watermark == 2
    replica.partition.apply_fetch(1, 2, b"", 1, None)
    assert replica.partition.high_watermark == 1, "a leader's knowledge may be older: it is taken all the same"


# Description 3.3, cases A to G: (leader's log, follower's log, where the follower's is cut), logs as {epoch: records}.
DIVERGENCE = {
    "A: behind in the same epoch": ({1: 3}, {1: 2}, None),
    "B: behind, leader has a later epoch": ({1: 2, 2: 2}, {1: 2}, None),
    "C: ahead in the same epoch": ({1: 2}, {1: 4}, 2),
    "D: ahead with a later epoch": ({1: 2}, {1: 2, 2: 2}, 2),
    "E: fork, each with an epoch of its own": ({1: 2, 3: 2}, {1: 2, 2: 2}, 2),
    "F: fork, leader has more of the earlier epoch": ({1: 2, 3: 1}, {1: 1, 2: 2}, 1),
    "G: no epoch in common": ({1: 1, 3: 2}, {2: 2}, 0),
}


@pytest.mark.parametrize("case", DIVERGENCE, ids=str)
def test_truncation_on_fetch(tmp_path: Path, case: str) -> None:
    leaders_log, followers_log, cut = DIVERGENCE[case]
    leader, follower = Replica(tmp_path / "leader", me=1), Replica(tmp_path / "follower", me=1)
    for replica, log in ((leader, leaders_log), (follower, followers_log)):
        for epoch, records in log.items():
            for i in range(records):
                replica.partition.log.append_as_leader(batch(b"%d.%d" % (epoch, i)), epoch)
    leader.lead(leader_epoch=4)
    follow(follower, 4, 0)
    log = follower.partition.log
    read = fetch_as_follower(leader.partition, 2, 1, 4, log.end_offset, log.last_epoch, 1 << 20, 0.0, EVERYONE)
    assert (read.diverging is None) == (cut is None)
    follower.partition.apply_fetch(4, log.end_offset, read.records, read.high_watermark, read.diverging)
    if cut is not None:
        assert log.end_offset == cut
    while log.end_offset < leader.partition.log.end_offset:
        read = fetch_as_follower(leader.partition, 2, 1, 4, log.end_offset, log.last_epoch, 1 << 20, 0.0, EVERYONE)
        follower.partition.apply_fetch(4, log.end_offset, read.records, read.high_watermark, read.diverging)
    assert log.read(0, 1 << 20) == leader.partition.log.read(0, 1 << 20)
