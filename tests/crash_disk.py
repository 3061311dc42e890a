"""A disk in memory with a page cache, which loses at a power cut what POSIX allows to be lost, and no less.

Unsynced bytes survive or not sector by sector, a file may keep its new size but hold zeros, and each unsynced change
of a directory is kept or lost by itself (a rename as a whole).
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from cluster_image.disk import Disk, File, parent

SECTOR = 64  # smaller than a real one, so that small tests tear batches in the middle


class PowerLoss(BaseException):
    """Raised in the middle of an operation. Not an Exception: no code may handle it."""


class _Inode:
    def __init__(self) -> None:
        self.content = bytearray()
        self.durable = b""
        self.lowest_size = 0  # since the last sync: below it, content is durable

    def after_power_loss(self, random: Random) -> bytes:
        kind = random.choice(("old", "new", "mixed", "mixed"))
        if kind == "old":
            return self.durable
        if kind == "new":
            return bytes(self.content)
        size = random.choice((len(self.durable), len(self.content)))
        size = random.choice((size, random.randint(self.lowest_size, max(size, self.lowest_size))))
        survivor = bytearray(self.durable[: self.lowest_size].ljust(size, b"\0"))
        for start in range(self.lowest_size, size, SECTOR):
            end = min(start + SECTOR, size)
            source = random.choice((self.durable, bytes(self.content), b""))
            survivor[start:end] = source[start:end].ljust(end - start, b"\0")
        return bytes(survivor)


class _Directory:
    def __init__(self) -> None:
        self.entries: Entries = {}
        self.durable: Entries = {}
        self.pending: list[Change] = []

    def change(self, apply: Change) -> None:
        apply(self.entries)
        self.pending.append(apply)

    def sync(self) -> None:
        self.durable = dict(self.entries)
        self.pending.clear()


Entries = dict[str, _Inode | _Directory]
Change = Callable[[Entries], None]


def _entry(name: str, target: _Inode | _Directory) -> Change:
    def apply(entries: Entries) -> None:
        entries[name] = target

    return apply


class CrashDisk(Disk):
    def __init__(self) -> None:
        self._root = _Directory()
        #: Called with a word before each change or sync; raise from it to fail or to cut the power there.
        self.before: Callable[[str], None] = lambda action: None

    def lose_power(self, random: Random) -> None:
        """What is left is all that a node finds when it starts again. Files still open are dead."""
        self._lose_power(self._root, random)

    def _lose_power(self, directory: _Directory, random: Random) -> None:
        entries = dict(directory.durable)
        keep = random.choice((0.0, 0.5, 1.0))
        for apply in directory.pending:
            if random.random() < keep:
                apply(entries)
        directory.entries = entries
        directory.sync()
        for entry in entries.values():
            if isinstance(entry, _Directory):
                self._lose_power(entry, random)
            else:
                entry.content = bytearray(entry.after_power_loss(random))
                entry.durable = bytes(entry.content)
                entry.lowest_size = len(entry.content)

    def content(self, path: str) -> bytearray:
        """A file's bytes, to be damaged in place."""
        directory, name = self._locate(path)
        inode = directory.entries[name]
        assert isinstance(inode, _Inode)
        return inode.content

    def open(self, path: str) -> File:
        directory, name = self._locate(path)
        if name not in directory.entries:
            self.before("create")
            inode = _Inode()
            directory.change(_entry(name, inode))
        entry = directory.entries[name]
        if isinstance(entry, _Directory):
            raise IsADirectoryError(path)
        return _CrashFile(self, entry)

    def exists(self, path: str) -> bool:
        try:
            directory, name = self._locate(path)
        except FileNotFoundError:
            return False
        return not name or name in directory.entries

    def list(self, directory: str) -> list[str]:
        return sorted(self._directory(directory).entries)

    def make_directory(self, path: str) -> None:
        directory = self._root
        for name in filter(None, path.split("/")):
            if name not in directory.entries:
                self.before("make_directory")
                made = _Directory()
                directory.change(_entry(name, made))
            self.before("sync_directory")
            directory.sync()
            entry = directory.entries[name]
            if not isinstance(entry, _Directory):
                raise NotADirectoryError(path)
            directory = entry

    def remove(self, path: str) -> None:
        directory, name = self._locate(path)
        if name not in directory.entries:
            raise FileNotFoundError(path)
        self.before("remove")

        def apply(entries: Entries) -> None:
            entries.pop(name, None)

        directory.change(apply)

    def rename(self, source: str, target: str) -> None:
        directory, old = self._locate(source)
        other, new = self._locate(target)
        assert directory is other, "renames across directories are not modelled"
        if old not in directory.entries:
            raise FileNotFoundError(source)
        self.before("rename")
        inode = directory.entries[old]

        def apply(entries: Entries) -> None:
            entries.pop(old, None)
            entries[new] = inode

        directory.change(apply)

    def sync_directory(self, path: str) -> None:
        self.before("sync_directory")
        self._directory(path).sync()

    def _directory(self, path: str) -> _Directory:
        directory = self._root
        for name in filter(None, path.split("/")):
            entry = directory.entries.get(name)
            if not isinstance(entry, _Directory):
                raise FileNotFoundError(path)
            directory = entry
        return directory

    def _locate(self, path: str) -> tuple[_Directory, str]:
        return self._directory(parent(path)), path.rpartition("/")[2]


class _CrashFile(File):
    def __init__(self, disk: CrashDisk, inode: _Inode) -> None:
        self._disk = disk
        self._inode = inode

    def append(self, data: bytes) -> None:
        # In two halves, since a write can fail or the power can go in the middle of one.
        half = len(data) // 2
        for part in (data[:half], data[half:]):
            self._disk.before("append")
            self._inode.content += part

    def read_at(self, offset: int, size: int) -> bytes:
        return bytes(self._inode.content[offset : offset + size])

    def size(self) -> int:
        return len(self._inode.content)

    def truncate(self, size: int) -> None:
        self._disk.before("truncate")
        del self._inode.content[size:]
        self._inode.lowest_size = min(self._inode.lowest_size, size)

    def sync(self) -> None:
        self._disk.before("sync")
        self._inode.durable = bytes(self._inode.content)
        self._inode.lowest_size = len(self._inode.content)

    def close(self) -> None:
        pass
