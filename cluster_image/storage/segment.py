"""One file of a log: `<base offset, 20 digits>.log`, record batches one after the other."""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from .disk import Disk, File
from .errors import StorageError
from .records import HEADER_SIZE, MAGIC, BatchHeader, CorruptRecord, InvalidRecord, parse_header, validate_batch

LOG_SUFFIX = ".log"
_NAME = re.compile(r"([0-9]{20})\.log")
_SCAN_CHUNK = 1 << 20

#: No log gets as far as this; a file name that says so was not given by one.
MAX_BASE_OFFSET = 1 << 62
#: The index holds offsets and positions as unsigned 32-bit distances.
MAX_SEGMENT_SPAN = (1 << 32) - 1


def segment_name(base_offset: int) -> str:
    return f"{base_offset:020d}{LOG_SUFFIX}"


def base_offset_of(name: str) -> int | None:
    """The base offset in a segment's file name; None for any other file."""
    match = _NAME.fullmatch(name)
    return int(match[1]) if match and int(match[1]) <= MAX_BASE_OFFSET else None


def continues(header: BatchHeader, next_offset: int, last_epoch: int) -> bool:
    """May this batch come next in a log that ends at `next_offset`, with a last record of `last_epoch` (-1: none)?
    Offsets have no gaps, leader epochs never fall. (Log Matching, section 6 of the description.)"""
    return header.base_offset == next_offset and header.leader_epoch >= max(last_epoch, 0)


def believe_the_disk(file: File) -> None:
    """Before a file is read whose last sync may have failed: Linux marks clean what it could not write. Read from the
    page cache, it would be taken for a record that is there, synced in vain, and counted as durable."""
    file.drop_clean_pages()


class Segment:
    """An open segment and its index of every batch, 16 bytes each, in memory only: whatever a crash leaves of the
    file, there is no index file to disagree with it."""

    def __init__(self, disk: Disk, directory: str, base_offset: int, exists: bool = True) -> None:
        """exists: False: it has no file before create(), and nothing can be done with it but to ask how long it is."""
        self.base_offset = base_offset
        self.end_offset = base_offset
        self.size = 0  # of the indexed batches, in bytes
        self.path = f"{directory}/{segment_name(base_offset)}"
        self._disk = disk
        self._file: File
        self._has_file = False
        self._offsets = array("I")  # of each batch, from base_offset
        self._positions = array("I")
        self._latest = array("q")  # the largest timestamp of each batch and of those before it, ms
        if exists:
            self.create()

    def create(self) -> None:
        self._file = self._disk.open(self.path)
        self._has_file = True

    def load(self, validate_from: int, last_epoch: int) -> Iterator[BatchHeader]:
        """Index the file's valid batches and yield their headers; stop at the first that is not.

        A batch is valid if it is complete, continues its predecessor's offsets, and does not fall behind its leader
        epoch; from offset `validate_from` on its CRC must match too. What lies behind is left to `discard_tail`.
        """
        if self.base_offset >= validate_from:  # older ones were synced before the next was begun
            believe_the_disk(self._file)
        file_size = self._file.size()
        chunk, chunk_at = b"", 0
        while self.size + HEADER_SIZE <= file_size:
            at = self.size - chunk_at
            if at + HEADER_SIZE > len(chunk):
                chunk, chunk_at, at = self._file.read_at(self.size, _SCAN_CHUNK), self.size, 0
            header = parse_header(chunk, at)
            complete = HEADER_SIZE <= header.size <= file_size - self.size
            well_formed = complete and header.counts_agree and header.magic == MAGIC
            if not well_formed or not continues(header, self.end_offset, last_epoch):
                return
            if header.last_offset >= validate_from:
                if at + header.size > len(chunk):
                    wanted = max(_SCAN_CHUNK, header.size)
                    chunk, chunk_at, at = self._file.read_at(self.size, wanted), self.size, 0
                try:
                    validate_batch(chunk, at, header)
                except (CorruptRecord, InvalidRecord):
                    return
            last_epoch = header.leader_epoch
            self._index(header, self.size)
            yield header

    def discard_tail(self) -> int:
        """Cut off what `load` did not accept, durably; returns how many bytes that was."""
        excess = self._file.size() - self.size
        if excess > 0:
            self._file.truncate(self.size)
            self._file.sync()
        return excess

    def has_tail(self) -> bool:
        """Does the file hold more than `load` accepted?"""
        return self._file.size() > self.size

    def append(self, data: bytes, headers: list[BatchHeader]) -> None:
        """Write batches whose offsets continue this segment's."""
        self._file.append(data)
        position = self.size
        for header in headers:
            self._index(header, position)
            position += header.size

    def has_room_for(self, size: int, last_offset: int, limit: int) -> bool:
        """A segment takes at least one batch, however large."""
        if not self.size:
            return True
        return self.size + size <= min(limit, MAX_SEGMENT_SPAN) and last_offset - self.base_offset <= MAX_SEGMENT_SPAN

    def read(self, offset: int, max_bytes: int, max_offset: int, min_one: bool) -> bytes:
        """Whole batches, first the one holding `offset`, all ending at or below `max_offset`, at most `max_bytes`
        (unless `min_one` and the first is larger). `offset` must lie in this segment."""
        first = bisect_right(self._offsets, offset - self.base_offset) - 1
        last = self._batches_below(max_offset)
        if last <= first:
            return b""
        start = self._positions[first]
        if self._position(last) - start > max_bytes:
            fitting = bisect_right(self._positions, start + max_bytes) - 1
            last = max(fitting, first + 1 if min_one else first)
        return self._read_exactly(start, self._position(last) - start)

    def truncate_to(self, offset: int) -> None:
        """Durably drop every batch that reaches `offset` or past it."""
        keep = self._batches_below(offset)
        if keep < len(self._offsets):
            self.end_offset = self.base_offset + self._offsets[keep]
            self.size = self._positions[keep]
            del self._offsets[keep:], self._positions[keep:], self._latest[keep:]
            self.discard_tail()

    def headers(self) -> Iterator[BatchHeader]:
        """The header of every batch."""
        position = 0
        while position < self.size:
            chunk = self._read_exactly(position, min(_SCAN_CHUNK, self.size - position))
            at = 0
            while at + HEADER_SIZE <= len(chunk):
                header = parse_header(chunk, at)
                yield header
                at += header.size
            position += at

    def latest_timestamp(self, max_offset: int, min_offset: int = 0) -> int | None:
        """The largest of the batches that end at or below `max_offset` and above `min_offset`, ms; None: there are
        none."""
        first, batches = self._batches_below(min_offset), self._batches_below(max_offset)
        if batches <= first:
            return None
        latest = self._latest[batches - 1]
        if not first or latest > self._latest[first - 1]:
            return latest
        return max(h.max_timestamp for h in self.headers() if min_offset < h.next_offset <= max_offset)

    def start_of_batch(self, offset: int) -> int:
        """The base offset of the batch that holds `offset`, which is in this segment."""
        return self.base_offset + self._offsets[self._batches_below(offset)]

    def size_below(self, offset: int) -> int:
        """Bytes of the batches that end at or below `offset`."""
        return self._position(self._batches_below(offset))

    def offset_since(self, timestamp: int) -> int | None:
        """The base offset of the first batch that has this time (ms) or a later one, by its header."""
        batch = bisect_left(self._latest, timestamp)
        return self.base_offset + self._offsets[batch] if batch < len(self._latest) else None

    def sync(self) -> None:
        self._file.sync()

    def close(self) -> None:
        if self._has_file:
            self._file.close()

    def remove(self) -> None:
        """Close and delete the file; durable once the log's directory is synced."""
        self._file.close()
        self._disk.remove(self.path)

    def _index(self, header: BatchHeader, position: int) -> None:
        self._offsets.append(header.base_offset - self.base_offset)
        self._positions.append(position)
        self._latest.append(max(header.max_timestamp, self._latest[-1]) if self._latest else header.max_timestamp)
        self.end_offset = header.next_offset
        self.size = position + header.size

    def _batches_below(self, offset: int) -> int:
        """How many batches end at or below `offset`."""
        if offset >= self.end_offset:
            return len(self._offsets)
        return max(bisect_right(self._offsets, offset - self.base_offset) - 1, 0)

    def _position(self, batch: int) -> int:
        return self._positions[batch] if batch < len(self._positions) else self.size

    def _read_exactly(self, position: int, size: int) -> bytes:
        try:
            data = self._file.read_at(position, size)
        except OSError as error:  # as a failed write: the broker cannot go on with this disk
            raise StorageError(f"reading {self.path} failed: {error}") from error
        if len(data) != size:
            raise StorageError(f"{self.path}: {len(data)} bytes at {position} where {size} were written")
        return data
