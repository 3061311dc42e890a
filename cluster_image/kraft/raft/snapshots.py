"""Snapshots of the metadata: what a log of records has come to, so that the log's begin need not be kept (KIP-630).

A snapshot stands for every record below its end offset. Its file, `<end offset, 20 digits>-<epoch, 10
digits>.checkpoint` beside the log's segments, holds record batches: a control record SnapshotHeader, records that
rebuild the state, and a control record SnapshotFooter, without which it is not complete. Offsets inside count from 0.

Two are kept. The log starts at the end of the older one, so that a follower that is a little behind finds records, and
one that is fetching a snapshot finds it still there when the next one is written. Until there are two, the log stays.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from cluster_image.storage.disk import Disk
from cluster_image.storage.errors import StorageError
from cluster_image.storage.log import Log, LogConfig
from cluster_image.storage.records import (
    CorruptRecord,
    RecordError,
    build_batch,
    decode_values,
    iter_batches,
    validate_batch,
    with_offset_and_epoch,
)
from cluster_image.storage.segment import MAX_BASE_OFFSET

from . import rules
from .control_records import SNAPSHOT_FOOTER, SNAPSHOT_HEADER, control_type, snapshot_footer, snapshot_header

logger = logging.getLogger(__name__)

RETAINED: Final = 2
RECORDS_A_BATCH: Final = 500
_NAME: Final = re.compile(r"([0-9]{20})-([0-9]{10})\.checkpoint")


class SnapshotId(NamedTuple):
    """end_offset: exclusive, all below is in the snapshot. epoch: the leader epoch of the record just before it."""

    end_offset: int
    epoch: int


def snapshot_name(snapshot: SnapshotId) -> str:
    return f"{snapshot.end_offset:020d}-{snapshot.epoch:010d}.checkpoint"


def snapshot_of(name: str) -> SnapshotId | None:
    """The snapshot that a file's name tells of; None for any other file."""
    match = _NAME.fullmatch(name)
    if match is None or int(match[1]) > MAX_BASE_OFFSET or int(match[2]) >= 1 << 31:
        return None
    return SnapshotId(int(match[1]), int(match[2]))


def encode(records: Sequence[bytes], epoch: int, timestamp_ms: int) -> bytes:
    """A snapshot file's content. timestamp_ms: of the last record that it stands for."""
    content = bytearray()
    next_offset = 0

    def add(batch: bytes, count: int) -> None:
        nonlocal next_offset
        content.extend(with_offset_and_epoch(batch, next_offset, epoch))
        next_offset += count

    key, value = snapshot_header(timestamp_ms)
    add(build_batch([value], keys=[key], timestamp_ms=timestamp_ms, control=True), 1)
    for first in range(0, len(records), RECORDS_A_BATCH):
        values = records[first : first + RECORDS_A_BATCH]
        add(build_batch(values, timestamp_ms=timestamp_ms), len(values))
    key, value = snapshot_footer()
    add(build_batch([value], keys=[key], timestamp_ms=timestamp_ms, control=True), 1)
    return bytes(content)


def decode(content: bytes) -> list[bytes]:
    """The records of a complete snapshot. Raises RecordError for any other."""
    records: list[bytes] = []
    seen: list[int] = []  # control records
    next_offset = 0
    for start, end, header in iter_batches(content):
        validate_batch(content, start, header)
        if header.base_offset != next_offset or seen[-1:] == [SNAPSHOT_FOOTER]:
            raise CorruptRecord(f"a batch at offset {header.base_offset} of a snapshot, where it has {next_offset}")
        next_offset = header.next_offset
        if header.is_control:
            seen.append(control_type(content[start:end]))
        elif not seen:
            raise CorruptRecord("a snapshot without a header")
        else:
            records += [value for _, _, value in decode_values(content[start:end])]
    if seen != [SNAPSHOT_HEADER, SNAPSHOT_FOOTER]:
        raise CorruptRecord("a snapshot that is not complete")
    return records


class SnapshotStore:
    """The complete snapshots in the metadata log's directory, which must exist."""

    def __init__(self, disk: Disk, directory: str) -> None:
        """What is damaged or not complete is taken away. Raises OSError."""
        self._disk = disk
        self._directory = directory
        self._ids: list[SnapshotId] = []
        for snapshot in sorted(filter(None, map(snapshot_of, disk.list(directory)))):
            self._ids.append(snapshot)
            try:
                self.read(snapshot)
            except RecordError as error:
                logger.error("snapshot %s is not used: %s", snapshot_name(snapshot), error)
                self._remove([snapshot])

    def __len__(self) -> int:
        return len(self._ids)

    @property
    def earliest(self) -> SnapshotId | None:
        return self._ids[0] if self._ids else None

    @property
    def latest(self) -> SnapshotId | None:
        return self._ids[-1] if self._ids else None

    def write(self, snapshot: SnapshotId, content: bytes) -> None:
        """Durable and complete when it returns. Newer than all others. Raises OSError."""
        assert self.latest is None or snapshot > self.latest
        self._disk.write_atomically(self._path(snapshot), content)
        self._ids.append(snapshot)

    def read(self, snapshot: SnapshotId) -> list[bytes]:
        """Its records. Raises RecordError, OSError."""
        return decode(self._disk.read(self._path(snapshot)))

    def read_chunk(self, snapshot: SnapshotId, position: int, size: int) -> tuple[int, bytes] | None:
        """(size of the whole file, at most `size` bytes of it from `position`: none from outside of it), None if it is
        not there."""
        if snapshot not in self._ids:
            return None
        file = self._disk.open(self._path(snapshot))
        try:
            whole = file.size()
            wanted = min(size, whole - position) if position >= 0 else 0  # both numbers are a peer's
            return whole, file.read_at(position, wanted) if wanted > 0 else b""
        finally:
            file.close()

    def keep_latest(self, count: int) -> None:
        """Durably remove the others."""
        self._remove(self._ids[:-count])

    def _remove(self, snapshots: Sequence[SnapshotId]) -> None:
        if snapshots:
            for snapshot in snapshots:
                self._disk.remove(self._path(snapshot))
            self._disk.sync_directory(self._directory)
            self._ids = [kept for kept in self._ids if kept not in snapshots]

    def _path(self, snapshot: SnapshotId) -> str:
        return f"{self._directory}/{snapshot_name(snapshot)}"


def open_log(disk: Disk, directory: str, config: LogConfig) -> tuple[Log, SnapshotStore]:
    """The metadata log and its snapshots, as a crash at any moment may have left them, made to fit each other.

    Raises OSError; StorageError if the log begins where no snapshot ends: what was committed before is not known."""
    disk.make_directory(directory)
    snapshots = SnapshotStore(disk, directory)
    start = snapshots.earliest or SnapshotId(0, -1)
    log = Log.open(
        disk,
        directory,
        config,
        clean=rules.is_known_to_be_whole(),
        start_offset=start.end_offset,
        start_epoch=start.epoch,
    )
    if log.start_offset > start.end_offset:
        log.close()
        raise StorageError(f"{directory}: the log begins at offset {log.start_offset}, and no snapshot ends there")
    latest = snapshots.latest
    if latest is not None and not rules.continues_snapshot(log, *latest):
        start_anew(log, snapshots)
    return log, snapshots


def start_anew(log: Log, snapshots: SnapshotStore) -> None:
    """The latest snapshot replaces the log, which is empty at its end then. Older snapshots go first: the log must not
    begin past the end of the earliest one."""
    assert snapshots.latest is not None
    snapshots.keep_latest(1)
    log.truncate_fully_and_start_at(*snapshots.latest)


def trim(log: Log, snapshots: SnapshotStore, high_watermark: int) -> None:
    """Give up old snapshots, and the log up to the end of the earliest one that stays."""
    snapshots.keep_latest(RETAINED)
    if snapshots.earliest is not None and snapshots.earliest != snapshots.latest:
        log.advance_start_to(rules.trimmed_start(snapshots.earliest.end_offset, high_watermark))
