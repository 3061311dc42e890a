"""Files and directories of a simulated disk: what a process sees of them, what of it is on the disk, and what is
left of it by a power cut.

Only the end of a file changes, by appending and truncating. So a file needs no second copy: all below the smallest
size since its last sync is durable, and a sync costs the same however long the file is.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random


class Inode:
    __slots__ = ("content", "dropped", "lowest", "old_tail")

    def __init__(self, content: bytearray) -> None:
        self.content = content  # as a process reads it
        self.lowest = len(content)  # the smallest size since the last sync: below it, the disk has the content ...
        self.old_tail = b""  # ... and from there on this
        self.dropped: list[tuple[int, bytes]] = []  # ... but here still these bytes, after a sync that failed

    def truncate(self, size: int) -> None:
        if size < self.lowest:
            self.old_tail = bytes(self.on_disk()[size : self.lowest]) + self.old_tail
            self.lowest = size
            self.dropped = [(start, old[: size - start]) for start, old in self.dropped if start < size]
        if size <= len(self.content):
            del self.content[size:]
        else:
            self.content += bytes(size - len(self.content))

    def sync(self) -> None:
        self.lowest = len(self.content)
        self.old_tail = b""

    def drop(self) -> None:
        """Take dirty pages for clean and do not write them. The new size is written: that is the journal's."""
        size = len(self.content) - self.lowest
        if size:
            self.dropped.append((self.lowest, self.old_tail[:size].ljust(size, b"\0")))
        self.sync()

    def evict(self) -> None:
        """From now on a process reads what the disk has where pages were dropped."""
        self.content = self.on_disk()
        self.dropped.clear()

    def unsynced(self) -> int:
        """Bytes that would not be found after a power cut, at worst."""
        return len(self.content) - self.lowest + sum(len(old) for _, old in self.dropped)

    def on_disk(self) -> bytearray:
        """The content, but for what a failed sync dropped."""
        content = self.content
        if self.dropped:
            content = bytearray(content)
            for start, old in self.dropped:
                content[start : start + len(old)] = old
        return content

    def after_power_loss(self, random: Random, written_back: float, sector: int) -> bytearray:
        new, lowest = self.on_disk(), self.lowest
        if lowest == len(new) and not self.old_tail:
            return new
        old = new[:lowest] + self.old_tail
        if random.random() >= written_back:
            return old
        kind = random.choice(("all", "prefix", "any sectors", "any sectors"))
        if kind == "all":
            return new
        if kind == "prefix":
            torn_at = lowest + random.randint(0, len(new) - lowest)
            return new[: max(lowest, torn_at - torn_at % sector)]
        size = random.choice((len(old), len(new)))
        size = random.choice((size, random.randint(lowest, max(size, lowest))))
        survivor = new[:lowest].ljust(size, b"\0")
        start = lowest
        while start < size:
            end = min(start + sector - start % sector, size)
            source = random.choice((old, new, b""))
            survivor[start:end] = source[start:end].ljust(end - start, b"\0")
            start = end
        return survivor


class Directory:
    __slots__ = ("durable", "entries", "pending")

    def __init__(self, entries: Entries) -> None:
        self.entries = entries
        self.durable = dict(entries)
        self.pending: list[Entries] = []  # changes since the last sync

    def change(self, change: Entries) -> None:
        _apply(change, self.entries)
        self.pending.append(change)

    def sync(self) -> None:
        if self.pending:
            self.durable = dict(self.entries)
            self.pending.clear()

    def after_power_loss(self, random: Random, written_back: float, sector: int) -> Directory:
        survivors = dict(self.durable)
        lost: set[str] = set()
        for change in self.pending:
            # Changes of one name reach the disk in order.
            if lost.isdisjoint(change) and random.random() < written_back:
                _apply(change, survivors)
            else:
                lost.update(change)
        entries: Entries = {}
        for name, entry in sorted(survivors.items()):
            if isinstance(entry, Directory):
                entries[name] = entry.after_power_loss(random, written_back, sector)
            elif entry is not None:
                # A copy: files still open hold on to the old inode.
                entries[name] = Inode(bytearray(entry.after_power_loss(random, written_back, sector)))
        return Directory(entries)

    def copy(self) -> Directory:
        """Of all that can be read there, durable as a whole."""
        return Directory({
            name: entry.copy() if isinstance(entry, Directory) else entry and Inode(bytearray(entry.content))
            for name, entry in sorted(self.entries.items())
        })  # fmt: skip

    def inodes(self, prefix: str = "") -> Iterator[tuple[str, Inode]]:
        """Every file below, with its path, in order of names."""
        for name, entry in sorted(self.entries.items()):
            if isinstance(entry, Directory):
                yield from entry.inodes(f"{prefix}{name}/")
            elif entry is not None:
                yield prefix + name, entry


Entries = dict[str, "Inode | Directory | None"]  # None in a change: no such name any more


def _apply(change: Entries, entries: Entries) -> None:
    for name, entry in change.items():
        if entry is None:
            entries.pop(name, None)
        else:
            entries[name] = entry
