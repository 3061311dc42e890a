"""What a power cut took: a directory as its process saw it, compared with what the disk kept.

Before the cut a Survey reads every file, through the page cache, without syncing anything. The bulk of it is read
while the node still runs; `complete()` then reads, after SIGKILL, only what was appended meanwhile. Segments
(`*.log`, record batches v2) are remembered as one checksum and record count a batch, other files whole.
"""

from __future__ import annotations

import os
import struct
import zlib
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

METADATA_TOPIC = "__cluster_metadata"

_HEADER_SIZE = 61
_LENGTH_AND_RECORDS = struct.Struct(">8xi45xi")  # batchLength and recordsCount
_LENGTH_STARTS_AFTER = 12
_WINDOW = 16 << 20
_KEPT_WHOLE = 1 << 20  # checkpoints and the like are far smaller


@dataclass
class Segment:
    """A segment's batches: where each ends, its CRC-32 over all its bytes, and its number of records."""

    size: int = 0
    ends: array[int] = field(default_factory=lambda: array("q"))
    checksums: array[int] = field(default_factory=lambda: array("L"))
    records: array[int] = field(default_factory=lambda: array("l"))

    @property
    def end(self) -> int:
        return self.ends[-1] if self.ends else 0

    def extend(self, descriptor: int) -> None:
        """Read on from the last whole batch."""
        self.size = os.fstat(descriptor).st_size
        for end, batch, records in _batches(descriptor, self.end):
            self.ends.append(end)
            self.checksums.append(zlib.crc32(batch))
            self.records.append(records)

    def is_still_in(self, descriptor: int) -> bool:
        """Whether the last batch is where it was: if it was truncated meanwhile, all must be read again."""
        if not self.ends:
            return True
        start = self.ends[-2] if len(self.ends) > 1 else 0
        return zlib.crc32(os.pread(descriptor, self.end - start, start)) == self.checksums[-1]

    def kept_by(self, other: Segment) -> int:
        """How many leading batches `other` has too."""
        same = 0
        for mine, its in zip(
            zip(self.ends, self.checksums, strict=True), zip(other.ends, other.checksums, strict=True), strict=False
        ):
            if mine != its:
                break
            same += 1
        return same


def _batches(descriptor: int, position: int) -> Iterator[tuple[int, memoryview, int]]:
    """(end in the file, bytes, records) of each whole batch from `position` on, up to what is none."""
    end_of_file = os.fstat(descriptor).st_size
    wanted = _WINDOW
    while position + _HEADER_SIZE <= end_of_file:
        window = memoryview(os.pread(descriptor, wanted, position))
        at = 0
        while at + _HEADER_SIZE <= len(window):
            length, records = _LENGTH_AND_RECORDS.unpack_from(window, at)
            size = _LENGTH_STARTS_AFTER + length
            if size < _HEADER_SIZE or position + at + size > end_of_file:
                return
            if at + size > len(window):
                break
            at += size
            yield position + at, window[at - size : at], records
        position += at
        wanted = _WINDOW if at else size


class Survey:
    """Every file under `root` at one moment, as a process would read it."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._segments: dict[str, tuple[int, Segment]] = {}  # path: inode, batches
        self.files: dict[str, bytes] = {}
        self._read_segments()

    def complete(self) -> None:
        """Once nothing writes any more: bring everything up to this moment."""
        known, self._segments = self._segments, {}
        self._read_segments(known)
        self.files = {path: _content(self._root / path) for path in self._paths() if not path.endswith(".log")}

    @property
    def segments(self) -> dict[str, Segment]:
        return {path: segment for path, (_, segment) in self._segments.items()}

    def _read_segments(self, known: dict[str, tuple[int, Segment]] | None = None) -> None:
        for path in self._paths():
            if not path.endswith(".log"):
                continue
            try:
                descriptor = os.open(self._root / path, os.O_RDONLY | os.O_NOFOLLOW)
            except FileNotFoundError:
                continue  # renamed or deleted under us; complete() sees what is final
            try:
                inode = os.fstat(descriptor).st_ino
                known_inode, segment = (known or {}).get(path, (inode, Segment()))
                if known_inode != inode or not segment.is_still_in(descriptor):
                    segment = Segment()
                segment.extend(descriptor)
                self._segments[path] = (inode, segment)
            finally:
                os.close(descriptor)

    def _paths(self) -> list[str]:
        return sorted(
            os.path.relpath(os.path.join(folder, name), self._root)
            for folder, _, names in os.walk(self._root)
            for name in names
        )


def _content(path: Path) -> bytes:
    with open(path, "rb") as file:
        return file.read(_KEPT_WHOLE)


def lost(before: Survey, after: Survey) -> dict[str, Any]:
    """Evidence of a cut. `unsynced_records` and `lost_by_partition` are of topics; the metadata log, which is
    synced before it counts, is told apart. A byte is lost if it is not where it was."""
    lost_bytes = 0
    lost_files: list[str] = []
    by_partition: dict[str, int] = {}
    metadata_records = 0
    for path, segment in before.segments.items():
        survivor = after.segments.get(path, Segment())
        kept = segment.kept_by(survivor)
        kept_bytes = segment.ends[kept - 1] if kept else 0
        # Bytes after the last whole batch are a torn append; they count as kept if they are still there.
        if kept == len(segment.ends):
            kept_bytes = min(segment.size, max(kept_bytes, survivor.size))
        if path in after.segments and kept_bytes == segment.size:
            continue
        lost_files.append(path)
        lost_bytes += segment.size - kept_bytes
        records = sum(segment.records[kept:])
        partition = os.path.basename(os.path.dirname(path))
        if partition.rpartition("-")[0] == METADATA_TOPIC:
            metadata_records += records
        elif records:
            by_partition[partition] = by_partition.get(partition, 0) + records
    for path, content in before.files.items():
        survivor_content = after.files.get(path)
        if survivor_content != content:
            lost_files.append(path)
            lost_bytes += len(content) - _common_prefix(content, survivor_content or b"")
    return {
        "unsynced_bytes": lost_bytes,
        "unsynced_files": len(lost_files),
        "unsynced_records": sum(by_partition.values()),
        "lost_by_partition": dict(sorted(by_partition.items())),
        "unsynced_metadata_records": metadata_records,
    }


def final(root: Path) -> Survey:
    """A Survey of a directory that nothing writes to."""
    survey = Survey(root)
    survey.complete()
    return survey


def _common_prefix(one: bytes, other: bytes) -> int:
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
