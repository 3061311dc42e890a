"""Faults of a volume under a live process: no room left, every operation failing, writes refused."""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from .. import kernel
from . import loss
from .tree import FILLER, is_ours

_SMALLEST = 1 << 12  # bytes: a block
_TRIES = 10


def fill(directory: Path) -> dict[str, Any]:
    """Takes all the room there is, without writing it. Raises OSError, also if the node puts something of its own where
    the filler belongs again and again."""
    taken = 0
    descriptor = _filler(directory)
    try:
        size = _free(directory)
        while size >= _SMALLEST:
            try:
                os.posix_fallocate(descriptor, taken, size)
                taken += size
                size = _free(directory)
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
                size //= 2
    finally:
        os.close(descriptor)
    return {"taken_bytes": taken, "free_bytes": _free(directory)}


def _filler(directory: Path) -> int:
    """A descriptor of our own one, a new file: what a node has under its name may be a link to a file of the host."""
    for _ in range(_TRIES):
        with suppress(FileNotFoundError, IsADirectoryError):
            (directory / FILLER).unlink()  # the name, whatever it leads to
        with suppress(FileExistsError):
            return os.open(directory / FILLER, os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_WRONLY, 0o600)
    raise OSError(errno.EEXIST, "the node keeps putting something of its own there", FILLER)


def free(directory: Path) -> int:
    """Gives the room back. Bytes that were left before. Safe to repeat."""
    left = _free(directory)
    # A node that put something of its own in its place has taken it away itself.
    with suppress(FileNotFoundError, IsADirectoryError):
        if is_ours(os.lstat(directory / FILLER)):
            (directory / FILLER).unlink()
    return left


def fail(directory: Path, before: loss.Survey) -> loss.Survey:
    """The file system is shut down where it stands: each operation on it fails with EIO from now on. What it held, a
    moment before, as its process saw it."""
    before.complete()
    kernel.shut_down_file_system(directory)
    return before


def write_error(directory: Path) -> str | None:
    """The name of the error that a write gets, by trying with a file that has no name; None: it works."""
    try:
        os.close(os.open(directory, os.O_TMPFILE | os.O_WRONLY, 0o600))
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, str(error))
    return None


def leftovers(directory: Path) -> list[str]:
    """What is still broken of this volume, as a clause each."""
    try:
        if not directory.is_mount():
            return ["has no volume mounted"]
        with os.scandir(directory) as entries:  # that it can be read at all; not how many names there are
            next(entries, None)
        filled = _is_filled(directory)
    except OSError as error:
        return [f"cannot read its disk ({error.strerror})"]
    full = ["has a disk that is full on purpose"] if filled else []
    refused = write_error(directory)
    if refused == "EROFS":
        return [*full, "has a read-only disk"]
    # A directory that is cached can be listed though its disk fails. No room may be nobody's doing.
    return [*full, *([f"has a disk that refuses writes ({refused})"] if refused not in (None, "ENOSPC") else [])]


def _is_filled(directory: Path) -> bool:
    """By us: a node may have a link of that name."""
    try:
        return is_ours(os.lstat(directory / FILLER))
    except FileNotFoundError:
        return False


def _free(directory: Path) -> int:
    found = os.statvfs(directory)
    return found.f_bavail * found.f_frsize
