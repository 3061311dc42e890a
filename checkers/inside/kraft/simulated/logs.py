"""What every replica's log holds, batch by batch, and the property that makes comparing logs cheap: Log Matching.

The `Registry` of a partition knows every batch that any replica ever held, by leader epoch and base offset, with the
epoch of its predecessor. An epoch has one leader, who only appends; so a batch with the same epoch and offset must be
the same one after the same predecessor, on every replica, for ever. By induction two logs that share a batch share
everything before it. Equal batches are one object, so "does this log hold that prefix" is one comparison by identity.

A partition's log may start above offset 0, where retention or DeleteRecords are at work, and a metadata log at the end
of a snapshot; what lies below is, for this purpose, still on it.
"""

from __future__ import annotations

import zlib
from bisect import bisect_left, bisect_right
from typing import NamedTuple

from checkers.inside.violation import Violated
from cluster_image.storage.disk import ProcessDied
from cluster_image.storage.log import Log
from cluster_image.storage.producer_state import Produced
from cluster_image.storage.records import (
    BatchHeader,
    CorruptRecord,
    InvalidRecord,
    end_of_batches,
    iter_batches,
    validate_batch,
)

from .log_files import check_epochs

_CHUNK = 1 << 20


class Batch(NamedTuple):
    """A batch at its place: offsets base ... end - 1. The CRC covers its records. produced: if its producer is
    idempotent."""

    base: int
    end: int
    epoch: int
    crc: int
    produced: Produced | None = None

    def __str__(self) -> str:
        return f"offsets {self.base} to {self.end - 1} of leader epoch {self.epoch} (CRC {self.crc:08x})"


class Chain:
    """Batches one after the other from offset 0."""

    __slots__ = ("batches", "ends")

    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self.ends: list[int] = []

    @property
    def end(self) -> int:
        return self.ends[-1] if self.ends else 0

    @property
    def last_epoch(self) -> int:
        return self.batches[-1].epoch if self.batches else -1

    def append(self, batch: Batch) -> None:
        self.batches.append(batch)
        self.ends.append(batch.end)

    def count_below(self, offset: int) -> int:
        """How many batches end at or below `offset`."""
        return bisect_right(self.ends, offset)

    def truncate(self, count: int) -> None:
        del self.batches[count:], self.ends[count:]

    def holds(self, other: Chain) -> bool:
        """Is `other` a prefix of this chain?"""
        count = len(other.batches)
        return not count or (len(self.batches) >= count and self.batches[count - 1] is other.batches[count - 1])

    def common(self, other: Chain) -> int:
        """How many batches both begin with."""
        shorter = range(min(len(self.batches), len(other.batches)))
        return bisect_left(shorter, True, key=lambda i: self.batches[i] is not other.batches[i])

    def describe(self, index: int) -> str:
        """What is at this index, for a message."""
        return str(self.batches[index]) if index < len(self.batches) else f"nothing (its log ends at offset {self.end})"


class Replica(Chain):
    """The log of one node's replica as its disk has it, whether or not its process runs.

    known: False from a loss of power on, until the node runs again and its log has been read anew. damaged: its process
    began on a disk with bits that are others, which it need not have found yet. of_producer: by idempotent producer,
    its batches in their order; whoever has none is not there.
    """

    __slots__ = ("cut", "damaged", "digest", "known", "node", "of_producer", "verified", "verified_from")

    def __init__(self, node: str) -> None:
        super().__init__()
        self.node = node
        self.known = True
        self.damaged = False
        self.of_producer: dict[int, list[Batch]] = {}
        self.cut: int | None = None  # the lowest offset it was truncated to since the last check
        self.verified = 0  # batches that `verify` has compared with the disk
        self.verified_from = 0  # the log's start then
        self.digest = 0  # CRC-32 of their bytes from there

    def append(self, batch: Batch) -> None:
        super().append(batch)
        if batch.produced is not None:
            self.of_producer.setdefault(batch.produced.producer_id, []).append(batch)

    def truncate(self, count: int) -> None:
        if count < len(self.batches):
            for batch in self.batches[count:]:
                if batch.produced is not None:
                    self.of_producer[batch.produced.producer_id].pop()
            self.of_producer = {producer: batches for producer, batches in self.of_producer.items() if batches}
            super().truncate(count)
            self.cut = self.end if self.cut is None else min(self.cut, self.end)
            if self.verified > count:
                self.verified = self.digest = 0

    def forget(self) -> None:
        self.truncate(0)
        self.cut = None


class Registry:
    """Every batch that any replica of one log ever held. property_: what a contradiction violates."""

    def __init__(self, property_: str, where: str) -> None:
        self._property = property_
        self._where = where
        self._known: dict[tuple[int, int], tuple[Batch, int, str]] = {}  # (batch, predecessor's epoch, first seen on)
        self._first: dict[int, tuple[Batch, str]] = {}  # by epoch: its first batch

    def absorb(self, replica: Replica, log: Log, deleted: Chain | None = None) -> int:
        """Take over what the log's end has become; returns how many batches are new. deleted: of the committed log,
        what stands for records below the log's start that were not seen here; None: nothing has to. Raises Violated."""
        end = log.end_offset
        if end < replica.end:
            replica.truncate(replica.count_below(end))
        before = len(replica.batches)
        try:
            replica.known = deleted is None or _stand_for(deleted, replica, log)
            start = max(replica.end, log.start_offset)
            while start < end and replica.known:
                self._take(replica, _read(log, start, end))
                start = replica.end
        except (OSError, ProcessDied):  # what the log holds cannot be told now
            replica.known = False
        except CorruptRecord as error:
            self._unreadable(replica, error)
        return len(replica.batches) - before

    def verify(self, replica: Replica, log: Log, deleted: Chain | None = None) -> None:
        """`absorb` without trust in what the trace told: compare everything with what the log really holds."""
        try:
            first = log.start_offset
            if replica.verified_from != first:
                replica.verified = replica.digest = 0
                replica.verified_from = first
            # Of a log that is not known as yet, what is known may end below its start.
            verified_end = max(first, replica.ends[replica.verified - 1]) if replica.verified else first
            unchanged = log.end_offset >= verified_end and replica.digest == _digest(log, first, verified_end, 0)
            start = verified_end if unchanged else first
            replica.truncate(replica.count_below(start))
            self.absorb(replica, log, deleted)
            replica.digest = _digest(log, start, replica.end, replica.digest if start > first else 0)
            replica.verified = len(replica.batches)
            replica.cut = None
            if replica.known and not replica.damaged:
                here = replica.batches[replica.count_below(first) :]
                check_epochs(replica.node, self._where, log, ((batch.epoch, batch.end) for batch in here))
        except (OSError, ProcessDied):
            replica.known = False
        except CorruptRecord as error:
            self._unreadable(replica, error)

    def _unreadable(self, replica: Replica, error: CorruptRecord) -> None:
        """Where it takes a batch to be, there is none."""
        replica.known = False
        if not replica.damaged:
            raise Violated(
                self._property, f"{replica.node} cannot read its own log from offset {replica.end} on: {error}",
                self._where, (replica.node,),
            )  # fmt: skip

    def _take(self, replica: Replica, data: bytes) -> None:
        known, epoch = self._known, replica.last_epoch
        for position, _, header in iter_batches(data):
            produced = Produced.of(header)
            batch = Batch(header.base_offset, header.next_offset, header.leader_epoch, header.crc, produced)
            key = (batch.epoch, batch.base)
            found = known.get(key)
            if found is None:
                self._add(key, batch, epoch, replica.node)
            elif found[1] == epoch and (
                found[0] == batch or (replica.damaged and _is_damaged(found[0], data, position, header))
            ):
                batch = found[0]
            else:
                raise self._contradiction(replica.node, batch, epoch, *found)
            replica.append(batch)
            epoch = batch.epoch

    def _add(self, key: tuple[int, int], batch: Batch, previous: int, node: str) -> None:
        if previous != batch.epoch:
            first, on = self._first.setdefault(batch.epoch, (batch, node))
            if first is not batch:
                raise Violated(
                    self._property,
                    f"leader epoch {batch.epoch} begins on {on} with {first}, but on {node} with {batch}, right after "
                    f"epoch {previous}",
                    self._where,
                    (on, node),
                )
        self._known[key] = (batch, previous, node)

    def _contradiction(self, node: str, batch: Batch, previous: int, other: Batch, others: int, on: str) -> Violated:
        return Violated(
            self._property,
            f"{node} holds {batch} after a batch of epoch {previous}, but {on} held {other} after a batch of epoch "
            f"{others}: same offset and leader epoch, not the same log",
            self._where,
            (on, node),
        )


def _stand_for(deleted: Chain, replica: Replica, log: Log) -> bool:
    """Where the log starts above the end of what is known of it, let the committed log be what lies below. False: that
    does not reach so far. Raises OSError."""
    start = log.start_offset
    if replica.end >= start:
        return True
    first = next((header.base_offset for _, _, header in iter_batches(log.read(start, 1))), start)
    common, count = replica.common(deleted), deleted.count_below(start)
    if common < count:
        replica.truncate(common)
        for batch in deleted.batches[common:count]:
            replica.append(batch)
    return replica.end == first or (first == start == log.end_offset and deleted.end >= start)


def _is_damaged(known: Batch, data: bytes, position: int, header: BatchHeader) -> bool:
    """Is it this batch, with bits flipped on the disk that its CRC tells of? Whoever reads it finds that."""
    if header.crc != known.crc or header.next_offset != known.end:
        return False
    try:
        validate_batch(data, position, header)
    except (CorruptRecord, InvalidRecord):
        return True
    return False


def headers(log: Log) -> list[BatchHeader]:
    """Of all that it holds, the batch that its start lies in included. Raises OSError."""
    found: list[BatchHeader] = []
    start, end = log.start_offset, log.end_offset
    while start < end:
        found += (header for _, _, header in iter_batches(_read(log, start, end)))
        start = found[-1].next_offset
    return found


def _digest(log: Log, start: int, end: int, digest: int) -> int:
    left = _size_below(log, end) - _size_below(log, start)
    while left > 0:
        data = _read(log, start, end)
        digest = zlib.crc32(data, digest)
        left -= len(data)
        if left > 0:  # where the next chunk begins takes a look at each batch of this one
            start = end_of_batches(data)
    return digest


def _read(log: Log, start: int, end: int) -> bytes:
    """The log's bytes from `start` on, as many as fit into a chunk. Raises OSError."""
    data = log.read(start, _CHUNK, end)
    if not data:
        raise OSError(f"{log.directory}: {end} lies within a batch")
    return data


def _size_below(log: Log, offset: int) -> int:
    """Bytes of the batches below it."""
    return sum(size for _, size in log.files_below(offset))
