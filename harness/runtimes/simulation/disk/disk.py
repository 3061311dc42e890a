"""One machine's file system in memory, with a page cache that outlives its processes but not its power.

A power cut loses what POSIX allows to be lost and ext4 or XFS do lose: of what was never synced, early write-back may
have saved any part, sector by sector; a file may keep its new size and hold zeros; a new, renamed or removed name
may be there or not, a rename as a whole. A failed sync does what Linux does (Rebello et al., "Can Applications
Recover from fsync Failures?", ATC 2020): it may drop what it was to write and show it to readers all the same.

Why not a library: pyfakefs and PyFilesystem's memory file systems have no page cache to lose, and CrashMonkey and
LazyFS work below a real kernel.
"""

from __future__ import annotations

import errno
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random

from cluster_image.storage.disk import Disk, File, ProcessDied, parent
from harness.runtimes.simulation.disk.loss import Loss
from harness.runtimes.simulation.disk.page_cache import Directory, Inode
from harness.runtimes.simulation.disk.strike import HALF, READ

#: What a disk writes as a whole, in bytes.
SECTOR = 512

#: How long a sync takes, in seconds: on a good day, and when something else keeps the device busy.
SYNC_TIME = (0.0003, 0.002)
SLOW_SYNC_TIME = (0.020, 0.060)
SLOW_SYNCS = 0.02  # share of all
#: For a limit a sync takes no longer than this: who waits in one cannot hear that the limit was lifted.
LONGEST_DELAY = 2.0

#: Chances that a thing not synced was written back before a power cut; one is drawn for each cut. Mostly nothing was:
#: a kernel leaves a dirty page alone for many seconds.
WRITTEN_BACK = (0.0, 0.0, 0.3, 0.9)


class Mount(Disk):
    """The disk as one process sees it.

    alive: asked first of all in every operation. Once it says no, the operation raises ProcessDied, so that what is
        left of the process' code changes nothing any more.
    before: called with a word (create, append, truncate, sync, make_directory, remove, remove_directory, rename,
        sync_directory; read) and a path before each change, sync and read, and once more (append half) in the middle of
        an append. What it raises ends the operation there: so it can be refused, the process killed, or the power cut.
    spent: told how long, in seconds, a sync kept the process.
    """

    def __init__(
        self,
        disk: SimulatedDisk,
        alive: Callable[[], bool],
        before: Callable[[str, str], None],
        spent: Callable[[float], None],
    ) -> None:
        self.before = before
        self.opened: Counter[str] = Counter()  # files that it has open, how often each
        self._disk = disk
        self._alive = alive
        self._spent = spent

    def open(self, path: str) -> File:
        directory, name = self._locate(path)
        entry = directory.entries.get(name)
        if entry is None:
            self._change("create", path)
            self._disk.needs_room(path)
            entry = Inode(bytearray())
            directory.change({name: entry})
        elif isinstance(entry, Directory):
            raise _error(errno.EISDIR, path)
        self.opened[path] += 1
        return _SimulatedFile(self, path, entry)

    def exists(self, path: str) -> bool:
        try:
            directory, name = self._locate(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return not name or name in directory.entries

    def list(self, directory: str) -> list[str]:
        self._check()
        return sorted(self._directory(directory).entries)

    def make_directory(self, path: str) -> None:
        self._check()
        directory = self._disk.root
        for name in filter(None, path.split("/")):
            if name not in directory.entries:
                self._change("make_directory", path)
                self._disk.needs_room(path)
                directory.change({name: Directory({})})
            self._sync(directory, "sync_directory", path)
            entry = directory.entries[name]
            if not isinstance(entry, Directory):
                raise _error(errno.ENOTDIR, path)
            directory = entry

    def add_directory(self, path: str) -> None:
        directory, name = self._locate(path)
        if name in directory.entries:
            raise _error(errno.EEXIST, path)
        self._change("make_directory", path)
        self._disk.needs_room(path)
        directory.change({name: Directory({})})

    def remove(self, path: str) -> None:
        directory, name = self._locate(path)
        if isinstance(_entry(directory, name, path), Directory):
            raise _error(errno.EISDIR, path)
        self._change("remove", path)
        directory.change({name: None})

    def remove_directory(self, path: str) -> None:
        directory, name = self._locate(path)
        entry = _entry(directory, name, path)
        if not isinstance(entry, Directory):
            raise _error(errno.ENOTDIR, path)
        if entry.entries:
            raise _error(errno.ENOTEMPTY, path)
        self._change("remove_directory", path)
        directory.change({name: None})

    def rename(self, source: str, target: str) -> None:
        directory, old = self._locate(source)
        other, new = self._locate(target)
        assert directory is other, "renames across directories are not modelled"
        entry = _entry(directory, old, source)
        if isinstance(directory.entries.get(new), Directory):
            raise _error(errno.EISDIR, target)
        self._change("rename", target)
        if new not in directory.entries:
            self._disk.needs_room(target)
        directory.change({old: None, new: entry})

    def sync_directory(self, path: str) -> None:
        self._check()
        self._sync(self._directory(path), "sync_directory", path)

    def _directory(self, path: str) -> Directory:
        directory = self._disk.root
        for name in filter(None, path.split("/")):
            entry = _entry(directory, name, path)
            if not isinstance(entry, Directory):
                raise _error(errno.ENOTDIR, path)
            directory = entry
        return directory

    def _locate(self, path: str) -> tuple[Directory, str]:
        self._check()
        return self._directory(parent(path)), path.rpartition("/")[2]

    def _check(self) -> None:
        if not self._alive():
            raise ProcessDied

    def _change(self, operation: str, path: str) -> None:
        """Is about to happen, unless it may not."""
        self.before(operation, path)
        self._disk.must_be_writable(path)

    def _sync(self, what: Inode | Directory, operation: str, path: str) -> None:
        self._change(operation, path)
        self._spent(self._disk.sync_time() + self._disk.delay(what))
        self._disk.sync(what, path)


class _SimulatedFile(File):
    __slots__ = ("_inode", "_mount", "_path")

    def __init__(self, mount: Mount, path: str, inode: Inode) -> None:
        self._mount = mount
        self._path = path
        self._inode: Inode | None = inode

    def append(self, data: bytes) -> None:
        inode, mount = self._use(), self._mount
        mount._change("append", self._path)
        mount._disk.may_write(inode, data, self._path)
        # In two halves, since a process or the power can go in the middle of a write.
        half = len(data) // 2
        inode.content += data[:half]
        mount.before(HALF, self._path)
        inode.content += data[half:]

    def read_at(self, offset: int, size: int) -> bytes:
        inode = self._use()
        self._mount.before(READ, self._path)
        self._mount._disk.must_work(self._path)
        return bytes(memoryview(inode.content)[offset : offset + size])

    def size(self) -> int:
        return len(self._use().content)

    def truncate(self, size: int) -> None:
        inode = self._use()
        self._mount._change("truncate", self._path)
        inode.truncate(size)

    def sync(self) -> None:
        self._mount._sync(self._use(), "sync", self._path)

    def drop_clean_pages(self) -> None:
        self._use().evict()

    def close(self) -> None:
        self._mount._check()
        if self._inode is not None:
            self._mount.opened[self._path] -= 1
        self._inode = None

    def _use(self) -> Inode:
        self._mount._check()
        if self._inode is None:
            raise _error(errno.EBADF, self._path)
        return self._inode


class SimulatedDisk(Mount):
    """The machine's disk; also a Mount of its own, of no process.

    random: what everything here is drawn from.
    sector: in bytes; small ones let small tests tear a write in the middle.
    full: nothing can be written that needs room (ENOSPC); `refused` counts the attempts.
    failing: the device answers reads, writes and syncs with errors (EIO); `failed` counts them.
    read_only: nothing can be changed or synced (EROFS); `refused` counts the attempts.
    deceptive: what is wrong with it no process can know at its start: it is an older copy, or a bit is another.
    damaged: a bit of some record is another.
    altered: a fault has changed files, whichever, since the last process began.
    limit: bytes and operations a second, at most; `slowed` has how many seconds each sync took longer for it.
    """

    def __init__(self, random: Random, *, sector: int = SECTOR) -> None:
        super().__init__(self, lambda: True, lambda operation, path: None, lambda seconds: None)
        self.full = False
        self.failing = False
        self.read_only = False
        self.deceptive = False
        self.damaged = False
        self.altered = False
        self.limit: tuple[int, int] | None = None
        self.refused = 0
        self.failed = 0
        self.slowed: list[float] = []
        self.root = Directory({})
        self._mounted: Mount | None = None
        self._sector = sector
        self._random = Random(random.getrandbits(64))
        self._power_cuts = Random(random.getrandbits(64))

    def mount(
        self, alive: Callable[[], bool], before: Callable[[str, str], None], spent: Callable[[float], None]
    ) -> Mount:
        """For a process to use. See Mount."""
        self._mounted = Mount(self, alive, before, spent)
        return self._mounted

    def open_files(self) -> list[str]:
        """By the process that it was mounted for last; one that is open twice is there twice."""
        return [] if self._mounted is None else list(self._mounted.opened.elements())

    @property
    def misleading(self) -> bool:
        """Are there files of which a reader sees what a failed sync has not written?"""
        return any(inode.dropped for _, inode in self.root.inodes())

    def lose_power(self, random: Random | None = None) -> Loss:
        """What is left is all that a process will find. What files still open write from now on goes nowhere.

        random: to draw from what survives; by default the disk's own, of which every power cut has a stream to itself,
        so that what one cut draws does not shift the next.
        """
        seed = self._power_cuts.getrandbits(64)
        random = random or Random(seed)
        before = self.files()
        self.root = self.root.after_power_loss(random, random.choice(WRITTEN_BACK), self._sector)
        return Loss.between(before, self.files())

    def copy(self, *, running: bool) -> Directory:
        """For put(). running: what a power cut at this moment leaves, of what a process goes on to write."""
        if not running:
            return self.root.copy()
        random = Random(self._power_cuts.getrandbits(64))
        return self.root.after_power_loss(random, random.choice(WRITTEN_BACK), self._sector)

    def put(self, root: Directory) -> Loss:
        """This is what it holds from now on."""
        before, self.root = self.files(), root
        return Loss.between(before, self.files())

    def evict(self) -> Loss:
        """Let readers see what the disk holds where a failed sync dropped data, as when memory runs short."""
        before = self.files()
        for _, inode in self.root.inodes():
            inode.evict()
        return Loss.between(before, self.files())

    def dropped(self) -> Loss:
        """What that would take."""
        return Loss.between(self.files(), {path: inode.on_disk() for path, inode in self.root.inodes()})

    def drop(self, path: str) -> None:
        """As a failed sync of that file may do: see Inode.drop()."""
        inode = dict(self.root.inodes()).get(path)
        if inode is not None:
            inode.drop()

    def files(self) -> dict[str, bytearray]:
        """What a process would read, by path. The very bytes: change them to damage a file."""
        return {path: inode.content for path, inode in self.root.inodes()}

    def directories(self) -> list[str]:
        """Names of those at its root."""
        return [name for name, entry in self.root.entries.items() if isinstance(entry, Directory)]

    def save(self, directory: Path) -> None:
        """Write all directories at its root, and all files(), below a real directory."""
        for name in self.directories():
            (directory / name).mkdir(parents=True, exist_ok=True)
        for path, content in self.files().items():
            target = directory / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)

    @property
    def troubled(self) -> bool:
        return self.full or self.failing or self.read_only or self.limit is not None

    def leftovers(self) -> list[str]:
        """What is still broken of it, a clause each after the node's name."""
        there = {
            "has a disk that is full on purpose": self.full,
            "has a disk that fails": self.failing,
            "has a read-only disk": self.read_only,
            "has a slow disk": self.limit is not None,
        }
        return [what for what, is_so in there.items() if is_so]

    def unsynced(self) -> dict[str, int]:
        """By path, how many bytes are not on the disk; only files that have any."""
        return {path: unsynced for path, inode in self.root.inodes() if (unsynced := inode.unsynced())}

    def synced_size(self, path: str) -> int:
        """Up to which byte a power cut at this moment leaves the file as it is read; -1: it may leave none."""
        inode = self._durable(path)
        if inode is None:
            return -1
        return min(inode.lowest, *(start for start, _ in inode.dropped)) if inode.dropped else inode.lowest

    def synced(self, path: str) -> bytes | None:
        """What it leaves of a file that is not being changed; None: there may be none."""
        inode = self._durable(path)
        return None if inode is None else bytes(inode.content[: self.synced_size(path)])

    def _durable(self, path: str) -> Inode | None:
        """The file of that name, if the name is sure to lead to it after a power cut."""
        directory = self.root
        *above, name = path.split("/")
        for each in above:
            entry = directory.durable.get(each)
            if not isinstance(entry, Directory) or entry is not directory.entries.get(each):
                return None
            directory = entry
        entry = directory.durable.get(name)
        if not isinstance(entry, Inode) or entry is not directory.entries.get(name):
            return None
        return entry

    # -- parts of operations ------------------------------------------------------------------------------------

    def needs_room(self, path: str) -> None:
        if self.full:
            self.refused += 1
            raise _error(errno.ENOSPC, path)

    def must_be_writable(self, path: str) -> None:
        if self.read_only:
            self.refused += 1
            raise _error(errno.EROFS, path)

    def delay(self, what: Inode | Directory) -> float:
        """How much longer a sync of it takes, in seconds, for the limit."""
        if self.limit is None:
            return 0.0
        bytes_per_s, operations_per_s = self.limit
        size = what.unsynced() if isinstance(what, Inode) else SECTOR
        delay = min(max(size / bytes_per_s, 1 / operations_per_s), LONGEST_DELAY)
        self.slowed.append(delay)
        return delay

    def must_work(self, path: str) -> None:
        """The device itself."""
        if self.failing:
            self.failed += 1
            raise _error(errno.EIO, path)

    def may_write(self, inode: Inode, data: bytes, path: str) -> None:
        """If not, a part of it is written all the same."""
        if self.full or self.failing:
            inode.content += data[: self._random.randrange(max(len(data), 1))]
            self.must_work(path)
            self.needs_room(path)

    def sync_time(self) -> float:
        random = self._random
        return random.uniform(*(SLOW_SYNC_TIME if random.random() < SLOW_SYNCS else SYNC_TIME))

    def sync(self, what: Inode | Directory, path: str) -> None:
        if self.failing and isinstance(what, Inode) and self._random.random() < 0.5:
            what.drop()
        self.must_work(path)
        what.sync()


def _entry(directory: Directory, name: str, path: str) -> Inode | Directory:
    entry = directory.entries.get(name)
    if entry is None:
        raise _error(errno.ENOENT, path)
    return entry


def _error(number: int, path: str) -> OSError:
    return OSError(number, os.strerror(number), path)
