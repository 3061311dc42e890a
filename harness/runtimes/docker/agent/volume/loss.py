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

from .tree import Found, Strange, opened

METADATA_TOPIC = "__cluster_metadata"

_HEADER_SIZE = 61
_LENGTH_AND_RECORDS = struct.Struct(">8xi45xi")  # batchLength and recordsCount
_LENGTH_STARTS_AFTER = 12
_WINDOW = 16 << 20
_KEPT_WHOLE = 1 << 20  # checkpoints and the like are far smaller
_KEPT_IN_ALL = 64 << 20
_LARGEST_BATCH = 128 << 20  # bytes: none that a node takes is as large, and one is read at a time
_MOST_BATCHES = 16 << 20  # of a volume: 8 GiB in batches of 512 bytes


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

    def extend(self, descriptor: int, most: int = _MOST_BATCHES) -> bool:
        """Read on from the last whole batch. False: there are more batches than `most`, and the rest was not read."""
        self.size = os.fstat(descriptor).st_size
        for end, batch, records in _batches(descriptor, self.end):
            if len(self.ends) >= most:
                return False
            self.ends.append(end)
            self.checksums.append(zlib.crc32(batch))
            self.records.append(records)
        return True

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
            if not _HEADER_SIZE <= size <= _LARGEST_BATCH or position + at + size > end_of_file:
                return
            if at + size > len(window):
                break
            at += size
            yield position + at, window[at - size : at], records
        if not at and len(window) < wanted:
            return  # it was cut short meanwhile
        position += at
        wanted = _WINDOW if at else size


def _is_segment(found: Found) -> bool:
    return found.path.endswith(".log")


class Survey:
    """Every file under `root` at one moment, as a process would read it. `strange`: what was not read."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._segments: dict[str, tuple[int, Segment]] = {}  # path: inode, batches
        self.files: dict[str, bytes] = {}
        self.strange = Strange()
        self._read({})

    def complete(self) -> None:
        """Once nothing writes any more: bring everything up to this moment."""
        known, self._segments, self.files = self._segments, {}, {}
        self.strange = Strange()
        self._read(known, others=True)

    @property
    def segments(self) -> dict[str, Segment]:
        return {path: segment for path, (_, segment) in self._segments.items()}

    def _read(self, known: dict[str, tuple[int, Segment]], *, others: bool = False) -> None:
        """others: what is no segment, too."""
        batches, kept = _MOST_BATCHES, _KEPT_IN_ALL
        # What is renamed or deleted under us complete() sees in the end.
        for found, descriptor in opened(self._root, self.strange, lambda found: others or _is_segment(found)):
            if _is_segment(found):
                batches -= len(self._read_segment(found, descriptor, known, batches).ends)
            elif kept > 0:
                self.files[found.path] = content = _content(descriptor)
                kept -= len(content)
            else:
                self.strange.add(f"file beyond the {_KEPT_IN_ALL:,} bytes that are compared", found.path)

    def _read_segment(
        self, found: Found, descriptor: int, known: dict[str, tuple[int, Segment]], most: int
    ) -> Segment:
        inode = os.fstat(descriptor).st_ino
        known_inode, segment = known.get(found.path, (inode, Segment()))
        if known_inode != inode or not segment.is_still_in(descriptor):
            segment = Segment()
        if not segment.extend(descriptor, most):
            self.strange.add(f"segment with batches beyond the {_MOST_BATCHES:,} that are compared", found.path)
        self._segments[found.path] = (inode, segment)
        return segment


def _content(descriptor: int) -> bytes:
    """The first of it."""
    content = b""
    while len(content) < _KEPT_WHOLE and (more := os.pread(descriptor, _KEPT_WHOLE - len(content), len(content))):
        content += more
    return content


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


def compared(before: Survey, after: Survey) -> dict[str, Any]:
    """lost(), and `not_surveyed`, a clause, if there was something on the volume that was not looked at."""
    return lost(before, after) | (before.strange.evidence() or after.strange.evidence())


def final(root: Path) -> Survey:
    """A Survey of a directory that nothing writes to."""
    survey = Survey(root)
    survey.complete()
    return survey


def _common_prefix(one: bytes, other: bytes) -> int:
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
