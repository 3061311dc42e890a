"""A replica's log of one partition, or a node's metadata log.

Appends go to the page cache; `flush`, a flush policy, or the roll to a new segment makes them durable. Two facts
hold on disk at any moment, and recovery relies on them: a segment's file is synced before its successor is created,
and the successor's directory entry is synced before anything is written to it. So after a power loss only the newest
segment can be torn, short or missing; whatever else is found damaged is handled the same way, by keeping the longest
valid prefix.

A log's begin goes in two steps. `raise_start_to` moves the log start offset, in memory alone: below it nothing can be
read. Once whoever keeps the start has it on disk, `remove_obsolete_segments` deletes the files, the oldest first and
each durably before the next. So what is left never has a gap, even if the kept start is lost; and at an opening the
start may be an older one, or the first offset that is there, but no record above the start is missing.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from . import rules
from .checkpoints import LEADER_EPOCH_FILE, LeaderEpochCheckpoint
from .disk import TEMPORARY_SUFFIX, Disk
from .epoch_cache import EpochCache
from .errors import NonContiguousAppend, OffsetOutOfRange
from .producer_state import ProducerState
from .records import BatchHeader, InvalidRecord, iter_batches, patch_offset_and_epoch, validate_batch
from .segment import MAX_SEGMENT_SPAN, base_offset_of, continues, segment_name
from .segments import Segments
from .write_guard import WriteGuard

MAX_OFFSET = (1 << 63) - 1
#: Of event loops, in seconds: a timer may fire so much too early.
_TIMER_PRECISION = 1e-6


@dataclass(frozen=True, slots=True)
class LogConfig:
    """Settings under Kafka's names; None: no limit, the operating system writes back when it likes."""

    segment_bytes: int = 1 << 30  # log.segment.bytes
    flush_interval_messages: int | None = None  # log.flush.interval.messages
    flush_interval_ms: int | None = None  # log.flush.interval.ms


class Recovery(NamedTuple):
    """What opening a log found and did."""

    validated_from: int  # offset from which each batch's CRC was checked
    truncated_bytes: int
    removed_segments: int
    end_offset: int
    epoch_before: int  # leader epoch of the record just before its start; -1 if not known


#: Of a log that was not opened, but created.
CREATED = Recovery(0, 0, 0, 0, -1)


class Stretch(NamedTuple):
    """The records of one segment, for whoever decides which are kept."""

    end_offset: int
    size: int  # bytes
    latest_timestamp: int | None  # of all records, ms since 1970; None: there are none


class Log:
    """Made by `Log.open` or `Log.create`. Offsets are exclusive at the end: the log holds start_offset ...
    end_offset - 1.

    After a failed write or sync the log refuses further changes with StorageError; reads go on.
    """

    def __init__(self, disk: Disk, directory: str, config: LogConfig) -> None:
        """Use `Log.open`, which loads what is on disk, or `Log.create`."""
        self.directory = directory
        self.config = config
        self.producers = ProducerState()
        self.recovery = CREATED
        self._disk = disk
        self._epochs = EpochCache()
        self._epoch_checkpoint = LeaderEpochCheckpoint(disk, f"{directory}/{LEADER_EPOCH_FILE}")
        self._segments = Segments(disk, directory)
        self._start_offset = 0
        self._flushed_offset = 0
        self._last_timed_flush = 0.0
        self._writing = WriteGuard(directory)
        #: Called before the log comes to start lower than it did: whoever keeps the start must forget it, durably, or
        #: the next opening would take what is written from then on for deleted. May raise OSError.
        self.before_start_falls: Callable[[], None] = lambda: None
        #: Called once the log has begun anew: its start is not noted yet.
        self.after_begun_anew: Callable[[], None] = lambda: None
        #: Between here and the start it lacks records that nobody is known to have deleted; None: none. Whoever keeps
        #: the start tells, at the opening.
        self.lacks_from: int | None = None

    @classmethod
    def open(
        cls,
        disk: Disk,
        directory: str,
        config: LogConfig | None = None,
        *,
        clean: bool = False,
        recovery_point: int | None = None,
        start_offset: int = 0,
        start_epoch: int = -1,
    ) -> Log:
        """Open or create the log in `directory` and repair what a crash left.

        What lies below `start_offset` is not needed any more, and segments wholly below it are removed. With a
        `start_epoch`, the leader epoch of the record just before it, the log is known to go on from there: what
        does not is removed, and the log is empty at `start_offset` then.

        Unless `clean` (the caller holds proof of a clean shutdown), batches from `recovery_point` on are checked in
        full, all of them if it is None or cannot be right. The first batch that is damaged or does not continue the
        log ends it; the rest is removed. On return everything the log holds is durable. Raises OSError.
        """
        log = cls(disk, directory, config or LogConfig())
        try:
            log._load(clean, recovery_point, start_offset, start_epoch)
        except OSError:
            log._segments.close()
            raise
        return log

    @classmethod
    def create(cls, disk: Disk, directory: str, config: LogConfig, prepare: Callable[[], None]) -> Log:
        """A new log, of which there are no files before something is written to it: until then there is nothing to
        lose. prepare: makes `directory`, durably, just before."""
        log = cls(disk, directory, config)
        log._segments.begin_without_file()
        log._writing = WriteGuard(directory, partial(log._begin, prepare))
        return log

    def _begin(self, prepare: Callable[[], None]) -> None:
        prepare()
        self._segments.create_first()

    @property
    def is_given_up(self) -> bool:
        """Does it take no more writes: closed, abandoned, or failed?"""
        return self._writing.refuses

    @property
    def is_untouched(self) -> bool:
        """Was it created, and never written to?"""
        return not self._writing.entered

    @property
    def start_offset(self) -> int:
        return self._start_offset

    @property
    def end_offset(self) -> int:
        """LEO: the offset that the next record gets."""
        return self._segments.newest.end_offset

    @property
    def flushed_offset(self) -> int:
        """Everything below is durable."""
        return self._flushed_offset

    def files_below(self, offset: int) -> list[tuple[str, int]]:
        """The files that hold records below `offset`, each with how many of its bytes these and those before take."""
        return [
            (segment.path, segment.size_below(offset)) for segment in self._segments if segment.base_offset < offset
        ]

    @property
    def last_epoch(self) -> int:
        """Leader epoch of the last record; of the one before its start, if known, when the log is empty; else -1."""
        return self._epochs.last_epoch_before(self.end_offset)

    def epoch_before(self, offset: int) -> int:
        """Leader epoch of the record just before `offset`, which is not below the log's start; -1 if not known."""
        return self._epochs.last_epoch_before(offset)

    @property
    def size(self) -> int:
        """Bytes in all segments."""
        return self._segments.size

    def append_as_leader(self, batches: bytes, leader_epoch: int) -> int:
        """Append batches at the end of the log, giving them offsets and `leader_epoch`; returns the first offset.

        Raises CorruptRecord, InvalidRecord, NonContiguousAppend if the log holds a higher epoch, or StorageError.
        Nothing is appended then, except that after StorageError any part may be on disk.
        """
        if leader_epoch < max(self.last_epoch, 0):
            raise NonContiguousAppend(f"leader epoch {leader_epoch} is older than the log's {self.last_epoch}")
        first_offset = next_offset = self.end_offset
        placed = bytearray(batches)
        headers: list[BatchHeader] = []
        for position, _, header in iter_batches(batches):
            validate_batch(batches, position, header)
            patch_offset_and_epoch(placed, position, next_offset, leader_epoch)
            headers.append(header.placed(next_offset, leader_epoch))
            next_offset += header.record_count
        self._append(bytes(placed), headers)
        return first_offset

    def append_as_follower(self, batches: bytes) -> None:
        """Append batches as their leader stored them.

        Raises NonContiguousAppend unless they continue this log, else as `append_as_leader`.
        """
        next_offset, last_epoch = self.end_offset, self.last_epoch
        headers: list[BatchHeader] = []
        for position, _, header in iter_batches(batches):
            validate_batch(batches, position, header)
            if not headers and self._begins_within(header):
                next_offset = header.base_offset  # records were deleted up to its middle, and batches are kept whole
            if not continues(header, next_offset, last_epoch):
                raise NonContiguousAppend(
                    f"{self.directory}: batch at offset {header.base_offset} of epoch {header.leader_epoch} "
                    f"after offset {next_offset - 1} of epoch {last_epoch}"
                )
            headers.append(header)
            next_offset, last_epoch = header.next_offset, header.leader_epoch
        rules.check_replicated(self.producers.known, headers)
        start = self._start_offset
        if headers and headers[0].base_offset < start:
            self.truncate_fully_and_start_at(headers[0].base_offset)
        self._append(batches, headers)
        self.raise_start_to(start)

    def _begins_within(self, header: BatchHeader) -> bool:
        """Is the log empty, at an offset inside of this batch?"""
        empty = self._start_offset == self.end_offset
        inside = 0 <= header.base_offset < self._start_offset < header.next_offset
        return empty and inside and header.leader_epoch >= 0

    def read(self, offset: int, max_bytes: int, max_offset: int | None = None, min_one: bool = True) -> bytes:
        """Whole batches of one segment from the one that holds `offset`, none reaching past `max_offset` (default:
        the end of the log), together at most `max_bytes`, unless `min_one` and the first alone is larger.

        Raises OffsetOutOfRange unless start_offset <= offset <= end_offset.
        """
        end_offset = self.end_offset
        if not self._start_offset <= offset <= end_offset:
            raise OffsetOutOfRange(f"offset {offset} is not in {self._start_offset}..{end_offset}")
        limit = end_offset if max_offset is None else min(max_offset, end_offset)
        if offset >= limit:
            return b""
        return self._segments.of(offset).read(offset, max_bytes, limit, min_one)

    def offset_since(self, timestamp: int) -> int | None:
        """The base offset of the first batch from the log's start on that has a record of this time (ms) or later, as
        far as its header tells; None: there is none."""
        for segment in self._segments.current_from(self._start_offset):
            offset = segment.offset_since(timestamp)
            if offset is not None:
                return max(offset, self._start_offset)  # in whose batch, or behind it, is the one that was meant
        return None

    def latest_timestamp(self, max_offset: int) -> int | None:
        """The largest time (ms) of the batches from the log's start on that end at or below `max_offset`; None: there
        are none."""
        of_each = (
            segment.latest_timestamp(max_offset, self._start_offset)
            for segment in self._segments.current_from(self._start_offset)
        )
        return max((timestamp for timestamp in of_each if timestamp is not None), default=None)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """(epoch, end offset) of the highest leader epoch <= `epoch` in this log: see EpochCache.end_offset_for."""
        return self._epochs.end_offset_for(epoch, self.end_offset)

    def assign_epoch_start_offset(self, epoch: int, offset: int) -> None:
        """Note that records of `epoch` will start at `offset`: a new leader's, at its LEO, before any append."""
        self._epochs.assign(epoch, offset)

    def truncate_to(self, offset: int) -> None:
        """Durably drop every batch whose last offset is `offset` or higher. Below the log's start this drops
        everything, and the log starts anew at `offset`. Raises StorageError."""
        if offset < self._start_offset:
            self.truncate_fully_and_start_at(offset)
            return
        with self._writing:
            if self.end_if_cut_at(offset) < self._start_offset:
                self.before_start_falls()
            if offset < self.end_offset:
                self._segments.truncate_to(offset)
            self._start_offset = min(self._start_offset, self.end_offset)
            self._flushed_offset = min(self._flushed_offset, self.end_offset)
            if self._epochs.truncate_from_end(self.end_offset):
                self._epoch_checkpoint.write(self._epochs.entries)
        if not self.producers.truncate(self.end_offset):
            self._rebuild_producers()

    def end_if_cut_at(self, offset: int) -> int:
        """Where the log would end after truncate_to(offset), which is not below the log's start: batches are kept
        whole."""
        return self.end_offset if offset >= self.end_offset else self._segments.of(offset).start_of_batch(offset)

    def truncate_fully_and_start_at(self, offset: int, epoch_before: int = -1) -> None:
        """Durably drop everything; the log is empty at `offset`, after a record of `epoch_before` if that is known.
        Raises StorageError."""
        with self._writing:
            if offset < self._start_offset:
                self.before_start_falls()
            self._segments.restart_at(offset)
            self._start_offset = self._flushed_offset = offset
            self.lacks_from = None
            self._epochs.clear()
            self._assign_epoch_before(offset, epoch_before)
            self._epoch_checkpoint.write(self._epochs.entries)
        self.producers.clear()
        self.after_begun_anew()

    def advance_start_to(self, offset: int) -> None:
        """Give up what lies below `offset`, which the caller has durably noted, with the leader epoch of the record
        before, so that gaps below it are none: as raise_start_to, and the segments are deleted at once. Raises
        OffsetOutOfRange as that does, or StorageError."""
        self.raise_start_to(offset)
        obsolete = len(self._segments.obsolete_below(offset))
        with self._writing:
            self._segments.remove_oldest(obsolete, gaps_allowed=True)

    def raise_start_to(self, offset: int) -> None:
        """What lies below `offset` can no longer be read. Of the leader epochs, that of the record just before it stays
        known. Producers' batches stay known, too. Nothing is written.

        Raises OffsetOutOfRange unless start_offset <= offset <= end_offset."""
        if not self._start_offset <= offset <= self.end_offset:
            raise OffsetOutOfRange(f"offset {offset} is not in {self._start_offset}..{self.end_offset}")
        if offset > self._start_offset:
            self.lacks_from = None  # that was up to here, where it does not begin any more
        self._start_offset = offset
        self._epochs.truncate_from_start(offset)

    @property
    def oldest_offset(self) -> int:
        """Where the oldest segment begins: not above the start, as it may hold what can no longer be read."""
        return next(iter(self._segments)).base_offset

    @property
    def has_obsolete_segments(self) -> bool:
        """Are there any wholly below the start? The newest counts as none, even if all of it is."""
        return bool(self._segments.obsolete_below(self._start_offset))

    def remove_obsolete_segments(self, at_most: int | None = None) -> int:
        """Durably delete segments wholly below the start, the oldest first: how many. Raises StorageError."""
        obsolete = len(self._segments.obsolete_below(self._start_offset)[:at_most])
        if obsolete:
            with self._writing:
                # First, for the epoch of the record before the start: no batch will tell it any more.
                self._epoch_checkpoint.write(self._epochs.entries)
                self._segments.remove_oldest(obsolete)
        return obsolete

    @property
    def stretches(self) -> list[Stretch]:
        """What there is from the start on, a segment each, the oldest first."""
        return [
            Stretch(segment.end_offset, segment.size, segment.latest_timestamp(segment.end_offset))
            for segment in self._segments.current_from(self._start_offset)
        ]

    def roll(self) -> None:
        """Begin a new segment, unless the newest is empty, so that all that there is can be removed. Raises
        StorageError."""
        if self._segments.newest.size:
            with self._writing:
                self._roll()

    def flush(self) -> None:
        """Make everything appended durable. A failure is final: StorageError now and on every later write."""
        if self._flushed_offset < self.end_offset:
            with self._writing:
                self._segments.newest.sync()
            self._flushed_offset = self.end_offset

    def maybe_flush(self, now: float) -> float | None:
        """Flush if log.flush.interval.ms requires it by `now`, the loop's time in seconds. When to call again; None:
        never. Raises StorageError."""
        if self.config.flush_interval_ms is None:
            return None
        interval = self.config.flush_interval_ms / 1000
        if now < self._last_timed_flush + interval - _TIMER_PRECISION:
            return self._last_timed_flush + interval
        self._last_timed_flush = now
        self.flush()
        return now + interval

    def abandon(self) -> None:
        """It is about to be deleted, or opened again: close its files as they are, and refuse what comes later with
        StorageError."""
        self._writing.refuse(OSError("it is given up"))
        self._segments.close()

    def close(self) -> None:
        """Flush and close. Raises StorageError if any write to this log ever failed; files are closed even so."""
        try:
            self.flush()
            if not self.is_untouched:
                with self._writing:
                    self._epoch_checkpoint.write(self._epochs.entries)
        finally:
            self._writing.refuse(OSError("it is closed"))
            self._segments.close()

    def _load(self, clean: bool, recovery_point: int | None, start_offset: int, start_epoch: int) -> None:
        self._disk.make_directory(self.directory)
        names = self._disk.list(self.directory)
        found = [base for name in names if (base := base_offset_of(name)) is not None]
        # Deletions from the front may have got anyhow far, with holes: what lies below the start does not count.
        obsolete = max(bisect_right(found, start_offset) - 1, 0)
        bases = found[obsolete:] or [start_offset]
        if bases[0] == start_offset:
            self._assign_epoch_before(start_offset, start_epoch)
        validate_from = _validate_from(clean, recovery_point, newest_segment=bases[-1])
        damaged = self._load_segments(bases, validate_from)
        if damaged if clean else self.end_offset < (recovery_point or 0):
            # The log contradicts what the caller knew of it, so nothing is taken on trust.
            validate_from = 0
            self._load_segments(bases, validate_from)
        unusable = bases[len(self._segments) :]
        removed = map(segment_name, (*found[:obsolete], *unusable))
        for name in [*(name for name in names if name.endswith(TEMPORARY_SUFFIX)), *removed]:
            self._disk.remove(f"{self.directory}/{name}")
        self._disk.sync_directory(self.directory)
        truncated_bytes = 0
        for segment in self._segments:
            truncated_bytes += segment.discard_tail()
            if not clean:
                segment.sync()  # a killed process leaves records in the page cache; they are about to be relied on
        self._flushed_offset = self.end_offset
        self._start_offset = max(start_offset, bases[0])
        validated_from = min(validate_from, self.end_offset)
        goes_on = start_epoch < 0 or bases[0] > start_offset or self.epoch_before(start_offset) == start_epoch
        if self.end_offset < self._start_offset or not goes_on:
            self.truncate_fully_and_start_at(self._start_offset, start_epoch)
        noted = self._epoch_checkpoint.read()
        if start_epoch < 0 and self._start_offset == bases[0]:
            self._epochs.restore_before(self._start_offset, noted)
        self._epochs.truncate_from_start(self._start_offset)
        if tuple(noted) != self._epochs.entries:
            self._epoch_checkpoint.write(self._epochs.entries)
        epoch_before = self.epoch_before(self._start_offset)
        self.recovery = Recovery(validated_from, truncated_bytes, len(unusable), self.end_offset, epoch_before)

    def _assign_epoch_before(self, offset: int, epoch: int) -> None:
        if offset > 0 and epoch >= 0:
            self._epochs.assign(epoch, offset - 1)

    def _load_segments(self, bases: Sequence[int], validate_from: int) -> bool:
        """Index the longest valid prefix, and rebuild from its batches the leader epochs and the producers; True if
        anything on disk is not part of it."""
        self._epochs.truncate_from_end(bases[0])
        self.producers.clear()
        damaged, last_epoch = False, self._epochs.last_epoch_before(bases[0])
        producers_from = rules.rebuilds_producers_from(bases[0], validate_from)
        for segment in self._segments.load(bases):
            for header in segment.load(validate_from, last_epoch):
                last_epoch = header.leader_epoch
                self._epochs.assign(last_epoch, header.base_offset)
                if header.base_offset >= producers_from:
                    self.producers.update(header)
            damaged = damaged or segment.has_tail()
        return damaged or len(self._segments) < len(bases)

    def _append(self, data: bytes, headers: list[BatchHeader]) -> None:
        if not headers:
            raise InvalidRecord("nothing to append")
        if headers[-1].last_offset - self.end_offset > MAX_SEGMENT_SPAN:
            raise InvalidRecord(f"offsets up to {headers[-1].last_offset} are more than a segment takes")
        with self._writing:
            if not self._segments.newest.has_room_for(len(data), headers[-1].last_offset, self.config.segment_bytes):
                self._roll()
            self._segments.newest.append(data, headers)
        for header in headers:
            self._epochs.assign(header.leader_epoch, header.base_offset)
            self.producers.update(header)
        interval = self.config.flush_interval_messages
        if interval is not None and self.end_offset - self._flushed_offset >= interval:
            self.flush()

    def _roll(self) -> None:
        """Start a new segment. The old one is synced first, the new one's directory entry before it is used: else
        a power loss could leave a hole in the log, or lose records that a later flush had made durable."""
        self.flush()
        self._segments.add(self.end_offset)

    def _rebuild_producers(self) -> None:
        self.producers.clear()
        for segment in self._segments:
            for header in segment.headers():
                self.producers.update(header)


def _validate_from(clean: bool, recovery_point: int | None, newest_segment: int) -> int:
    """The offset from which batches must prove themselves by CRC.

    A recovery point is not believed past the newest segment's base offset: truncation and new appends may have
    replaced what it spoke of, but rolling synced every older segment.
    """
    if clean:
        return MAX_OFFSET
    return min(recovery_point or 0, newest_segment)
