"""The metadata quorum, seen from outside: who led which epoch, what is committed, and the state that follows from it.

`image` is the oracle's own replay of the committed log. It moves when a node says that it has replayed something,
so it is never behind any node that acts on the metadata.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from typing import Final

from checkers.inside.violation import Violated
from checkers.properties import RECORDS_DELETED
from cluster_image.kraft.metadata.image import MetadataImage, PartitionRegistration, Topic
from cluster_image.kraft.metadata.records import (
    TOPIC_RESOURCE,
    ConfigRecord,
    PartitionChangeRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    decode,
)
from cluster_image.kraft.metadata.snapshot import image_of
from cluster_image.kraft.node import Node
from cluster_image.kraft.raft.quorum import Quorum, Role
from cluster_image.kraft.raft.snapshots import RETAINED, SnapshotId, SnapshotStore
from cluster_image.replication.replica import PartitionKey
from cluster_image.storage.log import Log
from cluster_image.storage.records import decode_values, iter_batches

from .logs import Chain, Registry, Replica


class QuorumReplica(Replica):
    """high_watermark: the highest seen in this life of the node's process. elected: the epoch that it leads, or led
    last, and the high watermark that it had at its election. started: the log was read in this life.
    start: the log's, when it was looked at. snapshot: the newest that was looked into in this life."""

    __slots__ = ("elected", "high_watermark", "snapshot", "start", "started")

    def __init__(self, node: str) -> None:
        super().__init__(node)
        self.high_watermark = 0
        self.elected = (-1, 0)
        self.started = False
        self.start = 0
        self.snapshot: SnapshotId | None = None


#: A partition's committed state before (None: it is new) and after a record (None: it is removed).
Change = tuple[PartitionRegistration | None, PartitionRegistration | None]
_OF_TOPICS: Final = (PartitionChangeRecord, RemoveTopicRecord)


class QuorumOracle:
    """batch_replayed: called after each committed batch, with the partitions' changes in it, in order."""

    def __init__(self, batch_replayed: Callable[[list[Change]], None]) -> None:
        self.image = MetadataImage()
        self._batch_replayed = batch_replayed
        self.committed = Chain()
        self.replicas: dict[str, QuorumReplica] = {}
        self._registry = Registry("MetadataLogMatching", "")
        self._leaders: dict[int, str] = {}  # by epoch
        self._voters: dict[str, None] = {}
        self._values: list[tuple[int, bytes]] = []  # all committed records: offset, value
        self._committed_in: list[int] = []  # of each batch: the quorum's epoch, or a later one

    def node_started(self, name: str, node: Node, *, damaged: bool) -> None:
        replica = self.replicas.setdefault(name, QuorumReplica(name))
        replica.damaged = damaged
        replica.started = False
        replica.high_watermark = 0
        if node.raft.node_id in node.raft.voters:
            self._voters[name] = None

    def node_gone(self, name: str, lossy: bool) -> None:
        self.replicas[name].known = self.replicas[name].known and not lossy

    def look(self, name: str, node: Node, verify: bool = False) -> None:
        """See what has become of a node. verify: do not trust what was seen before. Raises Violated."""
        quorum, replica = node.raft.quorum, self.replicas[name]
        if quorum is None:
            return
        if not replica.started:
            replica.forget()
            replica.started = True
            replica.start = 0
            replica.snapshot = None
        log = quorum.replica.log
        if not self._stands_for_its_begin(replica, log):
            replica.known = False
        elif verify:
            self._registry.verify(replica, log)
        else:
            self._registry.absorb(replica, log)
        if quorum.role is Role.LEADER:
            self._check_leader(replica, quorum)
        self._check_committed(replica, quorum)
        self._check_snapshot(replica, quorum)

    def _stands_for_its_begin(self, replica: QuorumReplica, log: Log) -> bool:
        """Where a snapshot has taken the place of a log's begin, let that be what is committed. False: the committed
        log as it is known here does not reach so far. That can be after a crash, in the step in which it was written.
        """
        start = log.start_offset
        if start == replica.start:
            return True
        if start > self.committed.end:
            return False
        common, count = replica.common(self.committed), self.committed.count_below(start)
        if common < count:
            replica.truncate(common)
            for batch in self.committed.batches[common:count]:
                replica.append(batch)
        replica.start = start
        return True

    def _check_snapshot(self, replica: QuorumReplica, quorum: Quorum) -> None:
        """It is of what is committed below its end, and with what comes after it gives the state."""
        log, snapshots, name = quorum.replica.log, quorum.replica.snapshots, replica.node
        earliest, latest = snapshots.earliest, snapshots.latest
        if log.start_offset not in (0, earliest.end_offset if earliest else 0):
            raise Violated(
                "CommittedPrefix",
                f"the metadata log of {name} starts at {log.start_offset}, and its earliest snapshot is {earliest}",
                nodes=[name],
            )
        if latest is None or latest == replica.snapshot or not replica.known:
            return
        if replica.snapshot is not None:  # it was written in this life: a crash may have come before the trimming
            _check_trimmed(name, log, snapshots)
        count = self.committed.count_below(latest.end_offset)
        last = self.committed.batches[count - 1] if count else None
        if last is None or (last.end, last.epoch) != latest:
            raise Violated(
                "CommittedPrefix",
                f"{name} has {latest} of the metadata, where {last or 'nothing'} is the last that was committed",
                nodes=[name],
            )
        image = image_of(snapshots.read(latest), latest.end_offset)
        for offset, value in self._values[bisect_left(self._values, (latest.end_offset, b"")) :]:
            image.replay(offset, decode(value))
        image.end_offset = self.image.end_offset
        if image != self.image:
            raise Violated(
                "CommittedPrefix",
                f"{latest} of {name}, and what was committed after it, give another state than the metadata log",
                nodes=[name],
            )
        replica.snapshot = latest

    def check_majority(self) -> None:
        """What is committed is on the disks of a majority of the voters, those that run and those that do not."""
        held = [v for v in self._voters if not self.replicas[v].known or self.replicas[v].holds(self.committed)]
        if self.committed.end and len(held) <= len(self._voters) // 2:
            ends = ", ".join(f"{v} ends at {self.replicas[v].end}" for v in self._voters)
            raise Violated(
                "CommittedPrefix",
                f"metadata is committed up to offset {self.committed.end}, and {len(held)} of {len(self._voters)} "
                f"voters hold it: {ends}",
                nodes=[v for v in self._voters if v not in held],
            )

    def _check_leader(self, replica: QuorumReplica, quorum: Quorum) -> None:
        other = self._leaders.get(quorum.epoch)
        if other is None:
            self._leaders[quorum.epoch] = replica.node
            # Votes may be late: what was committed in a later epoch, before its election came about, it need not have.
            earlier = [index for index, epoch in enumerate(self._committed_in) if epoch < quorum.epoch]
            common = replica.common(self.committed)
            if replica.known and earlier and common <= earlier[-1]:
                raise Violated(
                    "CommittedPrefix",
                    f"{replica.node} was elected for epoch {quorum.epoch} without what is committed: its log has "
                    f"{replica.describe(common)} where {self.committed.describe(common)} was committed",
                    nodes=[replica.node],
                )
        elif other != replica.node:
            raise Violated(
                "ElectionSafety", f"{other} and {replica.node} both lead epoch {quorum.epoch} of the metadata quorum",
                nodes=[other, replica.node],
            )  # fmt: skip

    def _check_committed(self, replica: QuorumReplica, quorum: Quorum) -> None:
        high_watermark, name = quorum.replica.high_watermark, replica.node
        if high_watermark < replica.high_watermark or (replica.known and high_watermark > replica.end):
            raise Violated(
                "HighWatermarkMonotonicity",
                f"the metadata high watermark of {name} is {high_watermark}: it was {replica.high_watermark} before in "
                f"this life of its process, and its log ends at {replica.end}",
                nodes=[name],
            )
        if quorum.leadership is not None:
            self._check_own_epoch(replica, quorum, quorum.leadership.epoch_start_offset)
        replica.high_watermark = high_watermark
        if not replica.known:
            return
        count = replica.count_below(high_watermark)
        both = min(count, len(self.committed.batches))
        if both and replica.batches[both - 1] is not self.committed.batches[both - 1]:
            first = replica.common(self.committed)
            raise Violated(
                "CommittedPrefix",
                f"{name} takes {replica.describe(first)} for committed, and {self.committed.describe(first)} was "
                "committed before",
                nodes=[name],
            )
        start = self.committed.end
        for batch in replica.batches[both:count]:
            self.committed.append(batch)
            self._committed_in.append(quorum.epoch)
        if start < self.committed.end:
            self._replay(name, quorum.replica.log, start)

    def _check_own_epoch(self, replica: QuorumReplica, quorum: Quorum, start: int) -> None:
        """Records of earlier epochs alone could still be overwritten, wherever they are (Raft, figure 8)."""
        watermark = quorum.replica.high_watermark
        if replica.elected[0] != quorum.epoch:
            replica.elected = quorum.epoch, min(watermark, start)
        elif replica.elected[1] < watermark <= start:
            raise Violated(
                "CommittedPrefix",
                f"{replica.node} leads epoch {quorum.epoch} of the metadata quorum from offset {start} on, and has "
                f"moved its high watermark from {replica.elected[1]} to {watermark}: nothing of its own epoch is "
                "committed",
                nodes=[replica.node],
            )

    def _replay(self, name: str, log: Log, start: int) -> None:
        while start < self.committed.end:
            data = log.read(start, 1 << 20, self.committed.end)
            for position, stop, header in iter_batches(data):
                start = header.next_offset
                if header.is_control:
                    continue
                changes: list[Change] = []
                for offset, _, value in decode_values(data[position:stop]):
                    self._replay_one(name, offset, value, changes)
                self._batch_replayed(changes)

    def _replay_one(self, name: str, offset: int, value: bytes, changes: list[Change]) -> None:
        record = decode(value)
        self._values.append((offset, value))
        before: dict[PartitionKey, PartitionRegistration] = {}
        topic: Topic | None = None
        if isinstance(record, RegisterBrokerRecord):
            self._check_new(name, offset, record)
        if isinstance(record, _OF_TOPICS) and record.topic_id is not None:
            topic = self.image.topics_by_id.get(record.topic_id)
        elif isinstance(record, ConfigRecord) and record.resource_type == TOPIC_RESOURCE:
            topic = self.image.topics.get(record.resource_name)
        if topic is not None:
            before = {(topic.id, index): partition for index, partition in topic.partitions.items()}
        try:
            keys = self.image.replay(offset, record)
        except KeyError as error:
            raise Violated(
                "ValidControllerState",
                f"the metadata record {record} at offset {offset} contradicts the state before it: {error}",
                nodes=[name],
            ) from None
        for key in keys:
            changes.append((before.get(key), self.image.partition(*key)))

    def _check_new(self, name: str, offset: int, record: RegisterBrokerRecord) -> None:
        """One life of a broker's process has one epoch: registering again in it changes nothing (KAFKA-16952)."""
        known = self.image.brokers.get(record.broker_id)
        if known is not None and known.incarnation_id == record.incarnation_id:
            raise Violated(
                "ValidControllerState",
                f"broker {record.broker_id} registers at offset {offset} in the same life of its process in which it "
                f"has the epoch {known.epoch}",
                nodes=[name],
            )


def _check_trimmed(name: str, log: Log, snapshots: SnapshotStore) -> None:
    """A snapshot was written: of those before, one stays for who is about to fetch it, and the log begins at its end
    (KIP-630)."""
    earliest, latest = snapshots.earliest, snapshots.latest
    assert earliest is not None
    if len(snapshots) > RETAINED or (earliest != latest and log.start_offset < earliest.end_offset):
        raise Violated(
            RECORDS_DELETED,
            f"{name} has written {latest} of the metadata, and keeps {len(snapshots)} snapshots, and of the log what "
            f"comes from offset {log.start_offset} on: its earliest is {earliest}",
            nodes=[name],
        )
