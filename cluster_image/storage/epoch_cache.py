"""The leader-epoch cache: at which offset each leader epoch starts in a log."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import NamedTuple


class EpochEntry(NamedTuple):
    epoch: int
    start_offset: int


class EpochCache:
    """Entries strictly increasing in epoch and in start offset."""

    def __init__(self) -> None:
        self._entries: list[EpochEntry] = []

    @property
    def entries(self) -> Sequence[EpochEntry]:
        return tuple(self._entries)

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Note that records of `epoch` start at `start_offset`; True if that is news.

        Later knowledge wins: entries at or past `start_offset`, or of a higher epoch, go. So an epoch in which nothing
        was written leaves no trace once the next one starts at the same offset, or once this log goes on, as a
        follower's, with records of an earlier epoch, which keeps its start.
        """
        entries = self._entries
        if entries and entries[-1].epoch == epoch and entries[-1].start_offset <= start_offset:
            return False
        while entries and (entries[-1].epoch > epoch or entries[-1].start_offset >= start_offset):
            entries.pop()
        if not entries or entries[-1].epoch < epoch:
            entries.append(EpochEntry(epoch, start_offset))
        return True

    def last_epoch_before(self, offset: int) -> int:
        """The epoch of the record just before `offset`, -1 if none is known."""
        for entry in reversed(self._entries):  # nearly always the first
            if entry.start_offset < offset:
                return entry.epoch
        return -1

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """Where `epoch` ends in this log, for finding where two logs part.

        Returns the highest known epoch <= `epoch` and its exclusive end offset; if there is none, `epoch` itself
        and the start offset of the lowest known epoch, since all that this log holds is then younger.
        (Log divergence, section 3.2; KIP-101, KIP-279.)
        """
        entries = self._entries
        next_index = bisect_right(entries, epoch, key=lambda entry: entry.epoch)
        end = entries[next_index].start_offset if next_index < len(entries) else log_end_offset
        return (entries[next_index - 1].epoch if next_index else epoch), end

    def truncate_from_end(self, end_offset: int) -> bool:
        """Forget epochs that start at or past `end_offset`; True if there were any."""
        known = len(self._entries)
        while self._entries and self._entries[-1].start_offset >= end_offset:
            self._entries.pop()
        return len(self._entries) != known

    def truncate_from_start(self, start_offset: int) -> bool:
        """Forget epochs that end below `start_offset`, but for that of the record just before it; True if there were
        any."""
        covering = bisect_left(self._entries, start_offset, key=lambda entry: entry.start_offset) - 1
        if covering <= 0:
            return False
        del self._entries[:covering]
        return True

    def restore_before(self, start_offset: int, noted: Sequence[EpochEntry]) -> None:
        """Take the epoch of the record just before `start_offset` from what was noted when there were records below
        it, unless the records from there on contradict it."""
        below = [entry for entry in noted if entry.start_offset < start_offset]
        if not below:
            return
        first = self._entries[0] if self._entries else None
        if first is None or first.epoch > below[-1].epoch:
            self._entries.insert(0, below[-1])
        elif first.epoch == below[-1].epoch:
            self._entries[0] = below[-1]

    def clear(self) -> None:
        self._entries.clear()
