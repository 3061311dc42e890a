"""The files of one log in their order: what of them is there, and in which order they come and go."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator

from .disk import Disk
from .segment import Segment


class Segments:
    """Segments by base offset, the oldest first; at least one, once `begin_without_file` or `load` was called.

    Each method that changes what is there says what it makes durable. They raise OSError.
    """

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._directory = directory
        self._segments: list[Segment] = []

    def __len__(self) -> int:
        return len(self._segments)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    @property
    def newest(self) -> Segment:
        return self._segments[-1]

    @property
    def size(self) -> int:
        """Bytes of all of them."""
        return sum(segment.size for segment in self._segments)

    def of(self, offset: int) -> Segment:
        """The one that holds this offset."""
        newest = self._segments[-1]
        if offset >= newest.base_offset:
            return newest
        return self._segments[self._up_to(offset) - 1]

    def obsolete_below(self, start: int) -> list[Segment]:
        """Those wholly below `start`, the oldest first. The newest counts as none, even if all of it is."""
        return self._segments[: max(self._up_to(start) - 1, 0)]

    def current_from(self, start: int) -> list[Segment]:
        """All others."""
        return self._segments[len(self.obsolete_below(start)) :]

    def begin_without_file(self) -> None:
        """With one at offset 0 that has no file before `create_first`."""
        self._segments = [Segment(self._disk, self._directory, 0, exists=False)]

    def create_first(self) -> None:
        """Durably."""
        self._segments[0].create()
        make_entry_durable(self._disk, self._directory)

    def load(self, bases: Iterable[int]) -> Iterator[Segment]:
        """Open those at `bases`, one after the other and each to be loaded before the next, as long as they follow one
        upon the other."""
        self.close()
        self._segments = []
        for base in bases:
            if self._segments and base != self.newest.end_offset:
                return
            segment = Segment(self._disk, self._directory, base)
            self._segments.append(segment)
            yield segment

    def add(self, base_offset: int) -> None:
        """A new one at the end; its directory entry is durable."""
        self._segments.append(Segment(self._disk, self._directory, base_offset))
        make_entry_durable(self._disk, self._directory)

    def truncate_to(self, offset: int) -> None:
        """Durably drop every batch that reaches `offset` or past it; `offset` is not below the oldest segment."""
        self._remove_after(self._up_to(offset))
        self.newest.truncate_to(offset)

    def restart_at(self, offset: int) -> None:
        """Durably drop everything; there is one empty segment then, at `offset`."""
        self._remove_after(1)
        first = self._segments[0]
        first.truncate_to(first.base_offset)
        if offset != first.base_offset:
            self.add(offset)
            self._remove_oldest()
            self._sync()

    def remove_oldest(self, count: int, *, gaps_allowed: bool = False) -> None:
        """Durably; gaps_allowed: False: each before the next, so that what a power loss leaves has no gap."""
        for number in range(count):
            self._remove_oldest()
            if not gaps_allowed or number == count - 1:
                self._sync()

    def close(self) -> None:
        for segment in self._segments:
            segment.close()

    def _up_to(self, offset: int) -> int:
        """How many begin at or below it."""
        return bisect_right(self._segments, offset, key=_base_offset)

    def _remove_after(self, kept: int) -> None:
        if kept < len(self._segments):
            while len(self._segments) > kept:
                self._segments.pop().remove()
            self._sync()

    def _remove_oldest(self) -> None:
        self._segments.pop(0).remove()

    def _sync(self) -> None:
        self._disk.sync_directory(self._directory)


def make_entry_durable(disk: Disk, directory: str) -> None:
    """A new segment's, before anything is written to it: else a power cut takes the file as a whole, with what was
    synced in it (KAFKA-3968)."""
    disk.sync_directory(directory)


def _base_offset(segment: Segment) -> int:
    return segment.base_offset
