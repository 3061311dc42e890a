"""Copies a node's volume to where the harness wants it, so that no more of the host is read or taken than that.

See tree.py for what is passed over. A copy has the holes of its file, no permissions of it (0600), and is given to the
harness' user; no more bytes are copied in all than the volume has, however often its files name the same ones.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from .tree import Found, Strange, walk

_CHUNK: Final = 1 << 20
_LEFT_FREE: Final = 1 << 20  # bytes of the file system that is copied to: who copies must not be who fills it
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class Owner(NamedTuple):
    user: int
    group: int


def copy(root: Path, target: Path, owner: Owner, most_bytes: int) -> dict[str, Any]:
    """Every regular file and folder of the volume at `root` into the folder `target`, which is there.

    most_bytes: of all files together. Returns files and bytes copied, and left_out: what was not, as a clause, empty if
    all was. Raises OSError only if the volume or the target cannot be used at all."""
    strange = Strange()
    files = copied = 0
    top = os.open(target, _FOLDER)
    try:
        for found in walk(root, strange):
            if found.is_folder:
                _make_folder(top, found.path, owner)
                continue
            taken = found.status.st_blocks * 512
            if copied + found.status.st_size > most_bytes:
                strange.add(f"file beyond the {most_bytes:,} bytes that the volume has", found.path)
                continue
            if taken > _room(top):
                strange.add("file that there is no room for", found.path)
                continue
            try:
                copied += _copy_file(found, top, owner)
                files += 1
            except FileNotFoundError:  # a temporary file of a running node
                continue
            except OSError as error:
                strange.add(f"file that was not copied ({errno.errorcode.get(error.errno or 0, error)})", found.path)
    finally:
        os.close(top)
    return {"files": files, "bytes": copied, "left_out": str(strange)}


def _make_folder(top: int, path: str, owner: Owner) -> None:
    with _parent(top, path) as (parent, name):
        with suppress(FileExistsError):
            os.mkdir(name, 0o700, dir_fd=parent)
        made = os.open(name, _FOLDER, dir_fd=parent)
        try:
            os.fchown(made, *owner)
        finally:
            os.close(made)


def _copy_file(found: Found, top: int, owner: Owner) -> int:
    """Its size. The file may be written meanwhile: what is copied is as much as there was when it was opened."""
    source = found.open(os.O_RDONLY)
    try:
        size = min(os.fstat(source).st_size, found.status.st_size)
        with _parent(top, found.path) as (parent, name):
            with suppress(FileNotFoundError):
                os.unlink(name, dir_fd=parent)  # of an earlier copy
            copy = os.open(name, _NEW, 0o600, dir_fd=parent)
            try:
                os.fchown(copy, *owner)
                for start, end in _data(source, size):
                    _copy_range(source, copy, start, end)
                os.ftruncate(copy, size)
            finally:
                os.close(copy)
    finally:
        os.close(source)
    return size


def _data(descriptor: int, size: int) -> Iterator[tuple[int, int]]:
    """(start, end) of what of a file is not a hole."""
    end = 0
    while end < size:
        try:
            start = os.lseek(descriptor, end, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:  # nothing but a hole up to the end
                return
            raise
        end = min(os.lseek(descriptor, start, os.SEEK_HOLE), size)
        if start < size:
            yield start, end


def _copy_range(source: int, copy: int, start: int, end: int) -> None:
    while start < end:
        data = os.pread(source, min(_CHUNK, end - start), start)
        if not data:  # cut off just now
            return
        done = 0
        while done < len(data):
            done += os.pwrite(copy, data[done:], start + done)
        start += len(data)


class _parent:
    """The folder of a path below `top`, made by _make_folder(): its descriptor, and the last name of the path."""

    def __init__(self, top: int, path: str) -> None:
        *self._folders, self._name = path.split("/")
        self._at = os.dup(top)

    def __enter__(self) -> tuple[int, str]:
        try:
            for folder in self._folders:
                below = os.open(folder, _FOLDER, dir_fd=self._at)
                os.close(self._at)
                self._at = below
        except BaseException:
            os.close(self._at)
            raise
        return self._at, self._name

    def __exit__(self, *_: object) -> None:
        os.close(self._at)


def _room(descriptor: int) -> int:
    found = os.fstatvfs(descriptor)
    return found.f_bavail * found.f_frsize - _LEFT_FREE
