"""The replicas of one partition, driven by hand: metadata is told, records are written, followers fetch.

Nothing happens by itself, so that a test can follow a text step by step. Times are seconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

from kio.schema.errors import ErrorCode

from cluster_image.config.throttling import LEADER
from cluster_image.kraft.broker.partition import Leadership, Partition
from cluster_image.kraft.metadata.image import MetadataImage, PartitionRegistration
from cluster_image.replication.fetch import FetchHandler
from cluster_image.replication.quotas import ReplicationQuota
from cluster_image.storage.disk import LocalDisk
from cluster_image.storage.log import Log
from cluster_image.storage.records import decode_values
from tests.cluster_image.kraft.broker.test_partition import TOPIC, batch, config, future
from tests.cluster_image.replication.fetches import FetchRead, fetch_as_follower

ANYBODY: Callable[[int, int], bool] = lambda replica, epoch: True  # noqa: E731


class Group:
    """Replicas 1, 2, 3, … whose brokers have the epochs 11, 12, 13, … until a test changes that."""

    def __init__(self, directory: Path, replicas: Sequence[int] = (1, 2, 3), min_isr: int = 2, **settings: str) -> None:
        self._directory = directory
        self._config = config(min_insync_replicas=str(min_isr), **settings)
        self.replicas = tuple(replicas)
        self.broker_epochs = {r: 10 + r for r in replicas}
        self.eligible = ANYBODY
        self.partitions: dict[int, Partition] = {}
        self.partition_epoch = 0
        self.leader_epoch = 0
        self.image = MetadataImage()  # knows of no topic unless a test tells it
        for replica in replicas:
            self.open(replica)

    def open(self, replica: int) -> Partition:
        """(Again) from what is on the disk, knowing no metadata and no high watermark."""
        disk = LocalDisk(self._directory / str(replica))
        disk.make_directory("t-0")
        self.partitions[replica] = Partition(self.registration(-1, ()), Log.open(disk, "t-0"), self._config, replica)
        return self.partitions[replica]

    def registration(self, leader: int, isr: Sequence[int]) -> PartitionRegistration:
        return PartitionRegistration(
            topic_id=TOPIC, topic="t", index=0, replicas=self.replicas, isr=tuple(isr), leader=leader,
            leader_epoch=self.leader_epoch, partition_epoch=self.partition_epoch,
        )  # fmt: skip

    def tell(
        self,
        leader: int,
        isr: Sequence[int],
        *,
        leader_epoch: int | None = None,
        to: Sequence[int] = (),
        now: float = 0,
    ) -> PartitionRegistration:
        """What the controller has decided, to these replicas or to all. leader_epoch: another one begins."""
        self.partition_epoch += 1
        if leader_epoch is not None:
            self.leader_epoch = leader_epoch
        registration = self.registration(leader, isr)
        for replica in to or self.partitions:
            self.partitions[replica].apply(registration, now)
        return registration

    def put(self, replica: int, *epochs: int) -> None:
        """Records in its log from earlier times, one of each of these leader epochs: `put(1, 1, 1, 2)`."""
        for epoch in epochs:
            self.partitions[replica].log.append_as_leader(batch(b"%d" % epoch), epoch)

    def write(self, leader: int, *values: str, acks: int = -1) -> asyncio.Future[ErrorCode] | None:
        """A producer's batch. The future of acks=all is done once the leader would answer."""
        records = batch(*(value.encode() for value in values))
        return self.partitions[leader].append(records, acks, future).done

    def ask(self, leader: int, follower: int, *, now: float = 0.0) -> FetchRead:
        """The follower's fetch reaches the leader; the answer is returned and not yet there."""
        offset, start, last_epoch = self.partitions[follower].position
        return fetch_as_follower(
            self.partitions[leader], follower, self.broker_epochs[follower], self.partitions[follower].leader_epoch,
            offset, last_epoch, 1 << 20, now, self.eligible, start,
        )  # fmt: skip

    def fetch(self, leader: int, *followers: int, now: float = 0.0) -> None:
        """One fetch of each of these followers, there and back."""
        for follower in followers:
            partition = self.partitions[follower]
            epoch, offset = partition.leader_epoch, partition.position.offset
            read = self.ask(leader, follower, now=now)
            assert partition.apply_fetch(
                epoch, offset, read.records, read.high_watermark, read.diverging, read.log_start_offset
            )

    def leadership(self, replica: int) -> Leadership:
        leadership = self.partitions[replica].leadership
        assert leadership is not None
        return leadership

    def proposed(self, leader: int) -> list[int] | None:
        """The ISR that the leader has proposed and the controller not decided on."""
        proposal = self.leadership(leader).proposal
        return None if proposal is None else sorted(r for r, _ in proposal.isr)

    def accept(self, leader: int) -> None:
        """The controller's yes to the leader's proposal, which also grows the partition epoch."""
        proposal = self.leadership(leader).proposal
        assert proposal is not None
        self.partition_epoch += 1
        self.partitions[leader].proposal_accepted(
            proposal, [r for r, _ in proposal.isr], self.leader_epoch, self.partition_epoch
        )

    def refuse(self, leader: int, error: ErrorCode) -> None:
        proposal = self.leadership(leader).proposal
        assert proposal is not None
        self.partitions[leader].proposal_refused(proposal, error)

    def log(self, replica: int) -> list[tuple[int, str]]:
        """(leader epoch, value) of each record."""
        log = self.partitions[replica].log
        return [(epoch, value.decode()) for _, epoch, value in decode_values(log.read(log.start_offset, 1 << 20))]

    def starts(self) -> list[int]:
        """Log start offsets, in the order of the replicas."""
        return [self.partitions[replica].log.start_offset for replica in self.replicas]

    def begin_anew(self, leader: int, follower: int) -> None:
        """The leader has refused the follower's fetch with OFFSET_OUT_OF_RANGE, and told where its log starts."""
        of_leader, of_follower = self.partitions[leader], self.partitions[follower]
        epoch_before, start = of_leader.begin_of_log
        of_follower.leader_starts_at(of_leader.leader_epoch, of_follower.position.offset, start, epoch_before)

    def handler(self, leader: int) -> FetchHandler:
        """What serves fetches on the wire."""
        image = self.image
        return FetchHandler(
            self._config, image, lambda topic, index: self.partitions[leader], self.eligible, lambda: None,
            ReplicationQuota(image, leader, LEADER), Random(1),
        )  # fmt: skip

    def ends(self, replica: int) -> tuple[int, int]:
        """Log end offset and high watermark."""
        partition = self.partitions[replica]
        return partition.log.end_offset, partition.high_watermark
