"""The interface to one node's files, with an implementation on the local file system here and one in the simulation.

Semantics are POSIX's, on purpose no better: what `File.append` wrote is in the page cache until `File.sync`, and a
file created, renamed or removed is so for good only after `sync_directory` on its directory. Losing power drops the
rest. `LocalDisk` is the real form; a simulated one keeps to the same words.

Paths are relative to the disk's root, "/"-separated; "" is the root itself. Every method may raise OSError.
"""

from __future__ import annotations

import os
from abc import abstractmethod
from typing import Protocol

TEMPORARY_SUFFIX = ".tmp"


class ProcessDied(BaseException):
    """Unwinds a callback in whose middle its process was ended, as only a simulated one can be. Not an Exception: no
    code of a node may handle it."""


class File(Protocol):
    """An open file that grows at its end."""

    def append(self, data: bytes) -> None:
        """Write all of `data` at the end of the file. After an error any part of it may have been written."""

    def read_at(self, offset: int, size: int) -> bytes:
        """Up to `size` bytes from byte `offset`; fewer only at the end of the file."""

    def size(self) -> int: ...

    def truncate(self, size: int) -> None:
        """Drop every byte from `size` on."""

    def sync(self) -> None:
        """Make content and size durable. After an error the unsynced part may be lost though a second call
        succeeds (Rebello et al., "Can Applications Recover from fsync Failures?", ATC 2020): never retry."""

    def drop_clean_pages(self) -> None:
        """Read from the disk from now on what the page cache takes for written: after a sync that failed, in this
        process or one before, it may show what the disk has not, and the next sync would not write it."""

    def close(self) -> None: ...


class Disk(Protocol):
    """A node's file system."""

    @abstractmethod
    def open(self, path: str) -> File:
        """Open for reading and appending; a missing file is created (durable once its directory is synced)."""

    @abstractmethod
    def exists(self, path: str) -> bool: ...

    @abstractmethod
    def list(self, directory: str) -> list[str]:
        """Names in `directory`, sorted. Raises FileNotFoundError."""

    @abstractmethod
    def make_directory(self, path: str) -> None:
        """Create `path` and its parents where missing. On return all of them are durable, also those that an
        earlier process created and never synced."""

    @abstractmethod
    def add_directory(self, path: str) -> None:
        """Create `path` (durable once its parent is synced). Raises FileExistsError."""

    @abstractmethod
    def remove(self, path: str) -> None:
        """Remove a file. Raises FileNotFoundError."""

    @abstractmethod
    def remove_directory(self, path: str) -> None:
        """Remove an empty directory. Raises FileNotFoundError, or another OSError if it is not empty."""

    @abstractmethod
    def rename(self, source: str, target: str) -> None:
        """Replace `target` atomically. Of a directory: `target` must not exist."""

    @abstractmethod
    def sync_directory(self, path: str) -> None:
        """Make creations, renames and removals in `path` durable."""

    def read(self, path: str) -> bytes:
        """The whole file. Raises FileNotFoundError."""
        if not self.exists(path):
            raise FileNotFoundError(f"no such file: {path}")
        file = self.open(path)
        try:
            return file.read_at(0, file.size())
        finally:
            file.close()

    def write_atomically(self, path: str, data: bytes) -> None:
        """Replace a small file so that after a power loss it holds its old content or all of `data`, and on return
        the latter for good."""
        temporary = path + TEMPORARY_SUFFIX
        file = self.open(temporary)
        try:
            file.truncate(0)
            file.append(data)
            make_content_durable(file)
        finally:
            file.close()
        self.rename(temporary, path)
        self.sync_directory(parent(path))


def make_content_durable(file: File) -> None:
    """Before a file takes the place of another: a file system may make the rename durable before what was written, and
    a power loss in between would leave neither the old content nor the new (KAFKA-12520: what is renamed must not rely
    on the order in which a file system writes)."""
    file.sync()


def parent(path: str) -> str:
    """The directory that holds `path`."""
    return path.rpartition("/")[0]


class LocalFile(File):
    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def append(self, data: bytes) -> None:
        written = os.write(self._descriptor, data)
        while written < len(data):
            written += os.write(self._descriptor, memoryview(data)[written:])

    def read_at(self, offset: int, size: int) -> bytes:
        data = os.pread(self._descriptor, size, offset)
        if len(data) == size or not data:
            return data
        # The kernel caps one read at 2 GiB and may return less than asked.
        chunks = [data]
        while data and (size := size - len(data)):
            offset += len(data)
            data = os.pread(self._descriptor, size, offset)
            chunks.append(data)
        return b"".join(chunks)

    def size(self) -> int:
        return os.fstat(self._descriptor).st_size

    def truncate(self, size: int) -> None:
        os.ftruncate(self._descriptor, size)

    def sync(self) -> None:
        # Unlike fsync, leaves out what reading does not need (times), which spares a journal commit.
        os.fdatasync(self._descriptor)

    def drop_clean_pages(self) -> None:
        os.posix_fadvise(self._descriptor, 0, 0, os.POSIX_FADV_DONTNEED)

    def close(self) -> None:
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            os.close(descriptor)


class LocalDisk(Disk):
    """Files below the directory `root`, which must exist."""

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self._root = os.fspath(root)

    def open(self, path: str) -> File:
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        return LocalFile(os.open(self._absolute(path), flags, 0o644))

    def exists(self, path: str) -> bool:
        return os.path.exists(self._absolute(path))

    def list(self, directory: str) -> list[str]:
        return sorted(os.listdir(self._absolute(directory)))

    def make_directory(self, path: str) -> None:
        os.makedirs(self._absolute(path), exist_ok=True)
        while path:
            path = parent(path)
            self.sync_directory(path)

    def add_directory(self, path: str) -> None:
        os.mkdir(self._absolute(path))

    def remove(self, path: str) -> None:
        os.unlink(self._absolute(path))

    def remove_directory(self, path: str) -> None:
        os.rmdir(self._absolute(path))

    def rename(self, source: str, target: str) -> None:
        os.replace(self._absolute(source), self._absolute(target))

    def sync_directory(self, path: str) -> None:
        descriptor = os.open(self._absolute(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _absolute(self, path: str) -> str:
        return os.path.join(self._root, path)
