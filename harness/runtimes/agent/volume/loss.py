"""What a power cut took: a directory as its process saw it, compared with what the disk kept.

Before the cut a Survey reads every file, through the page cache, without syncing anything. The bulk of it is read
while the node still runs; `complete()` then reads, after SIGKILL, only what was appended meanwhile. Segments
(`*.log`, record batches v2) are remembered as one checksum, record count, range of offsets and leader epoch a batch,
other files whole.
"""

from __future__ import annotations

import os
import struct
import zlib
from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .tree import Found, Strange, everything, opened

METADATA_TOPIC = "__cluster_metadata"

_HEADER_SIZE = 61
#: baseOffset, batchLength, partitionLeaderEpoch, lastOffsetDelta and recordsCount
_HEADER = struct.Struct(">qii7xi30xi")
_LENGTH_STARTS_AFTER = 12
_WINDOW = 16 << 20
_KEPT_WHOLE = 1 << 20  # checkpoints and the like are far smaller
_KEPT_IN_ALL = 64 << 20
_LARGEST_BATCH = 128 << 20  # bytes: none that a node takes is as large, and one is read at a time
_MOST_BATCHES = 16 << 20  # of a volume: 8 GiB in batches of 512 bytes
#: Of offsets of one partition, that are told: neighbours of one leader epoch are one range.
_MOST_RANGES = 1000

#: First offset, end (exclusive) and leader epoch.
Offsets = tuple[int, int, int]


@dataclass
class Segment:
    """A segment's batches: where each ends, its CRC-32 over all its bytes, its number of records, and its offsets."""

    size: int = 0
    ends: array[int] = field(default_factory=lambda: array("q"))
    checksums: array[int] = field(default_factory=lambda: array("L"))
    records: array[int] = field(default_factory=lambda: array("l"))
    firsts: array[int] = field(default_factory=lambda: array("q"))  # offsets
    nexts: array[int] = field(default_factory=lambda: array("q"))
    epochs: array[int] = field(default_factory=lambda: array("l"))

    @property
    def end(self) -> int:
        return self.ends[-1] if self.ends else 0

    def extend(self, descriptor: int, most: int = _MOST_BATCHES) -> bool:
        """Read on from the last whole batch. False: there are more batches than `most`, and the rest was not read."""
        self.size = os.fstat(descriptor).st_size
        for end, batch in _batches(descriptor, self.end):
            if len(self.ends) >= most:
                return False
            self.add(end, batch)
        return True

    def add(self, end: int, batch: memoryview | bytes | bytearray) -> None:
        """The next batch, which ends at `end` of the file."""
        first, _, epoch, last, records = _HEADER.unpack_from(batch)
        self.ends.append(end)
        self.checksums.append(zlib.crc32(batch))
        self.records.append(records)
        self.firsts.append(first)
        self.nexts.append(first + last + 1)
        self.epochs.append(epoch)

    def offsets(self, after: int) -> Iterator[Offsets]:
        """Of each batch but the first `after`."""
        return zip(self.firsts[after:], self.nexts[after:], self.epochs[after:], strict=True)

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


def _batches(descriptor: int, position: int) -> Iterator[tuple[int, memoryview]]:
    """(end in the file, bytes) of each whole batch from `position` on, up to what is none."""
    end_of_file = os.fstat(descriptor).st_size
    wanted = _WINDOW
    while position + _HEADER_SIZE <= end_of_file:
        window = memoryview(os.pread(descriptor, wanted, position))
        at = 0
        while at + _HEADER_SIZE <= len(window):
            length = _HEADER.unpack_from(window, at)[1]
            size = _LENGTH_STARTS_AFTER + length
            if not _HEADER_SIZE <= size <= _LARGEST_BATCH or position + at + size > end_of_file:
                return
            if at + size > len(window):
                break
            at += size
            yield position + at, window[at - size : at]
        if not at and len(window) < wanted:
            return  # it was cut short meanwhile
        position += at
        wanted = _WINDOW if at else size


def batches_in(content: bytes) -> Iterator[tuple[int, int]]:
    """(end in the file, first offset) of each whole batch of a segment, up to what is none."""
    at = 0
    while at + _HEADER_SIZE <= len(content):
        first, length, *_ = _HEADER.unpack_from(content, at)
        at += _LENGTH_STARTS_AFTER + length
        if length < _HEADER_SIZE - _LENGTH_STARTS_AFTER or at > len(content):
            return
        yield at, first


def _is_segment(found: Found) -> bool:
    return found.path.endswith(".log")


class Survey:
    """Every file under `root` at one moment, as a process would read it. `strange`: what was not read. top: see
    tree.walk()."""

    def __init__(self, root: Path, top: Callable[[str], bool] = everything) -> None:
        self._root = root
        self._top = top
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
        wanted = opened(self._root, self.strange, lambda found: others or _is_segment(found), self._top)
        for found, descriptor in wanted:
            if _is_segment(found):
                batches -= len(self._read_segment(found, descriptor, known, batches).ends)
            elif kept > 0:
                self.files[found.path] = content = _content(descriptor)
                kept -= len(content)
            else:
                self.strange.add(f"file beyond the {_KEPT_IN_ALL:,} bytes that are compared", found.path)

    def _read_segment(self, found: Found, descriptor: int, known: dict[str, tuple[int, Segment]], most: int) -> Segment:
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
    """Evidence of a cut. `unsynced_records`, `lost_by_partition` and `lost_offsets` are of topics; the metadata log,
    which is synced before it counts, is told apart. A byte is lost if it is not where it was."""
    lost_bytes = 0
    lost_files: list[str] = []
    by_partition: dict[str, int] = {}
    offsets: dict[str, list[Offsets]] = {}
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
            offsets.setdefault(partition, []).extend(segment.offsets(kept))
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
        "lost_offsets": {partition: joined(ranges) for partition, ranges in sorted(offsets.items())},
        "unsynced_metadata_records": metadata_records,
    }


def joined(ranges: Iterable[Offsets]) -> list[Offsets]:
    """In order, neighbours of one leader epoch as one; the first of those that are too many."""
    found: list[Offsets] = []
    for first, end, epoch in sorted(ranges):
        if found and found[-1][1] == first and found[-1][2] == epoch:
            found[-1] = (found[-1][0], end, epoch)
        else:
            found.append((first, end, epoch))
    return found[:_MOST_RANGES]


def compared(before: Survey, after: Survey) -> dict[str, Any]:
    """lost(), and `not_surveyed`, a clause, if there was something on the volume that was not looked at."""
    return lost(before, after) | (before.strange.evidence() or after.strange.evidence())


def final(root: Path, top: Callable[[str], bool] = everything) -> Survey:
    """A Survey of a directory that nothing writes to."""
    survey = Survey(root, top)
    survey.complete()
    return survey


def _common_prefix(one: bytes, other: bytes) -> int:
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
