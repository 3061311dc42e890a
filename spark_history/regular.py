"""Files of a run's directory, which may have been put there by anybody: only regular files are opened;
and what is written takes its place whole.

Opening a named pipe waits for somebody to write into it, and reading a device may never end.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO


class NotRegular(OSError):
    """A directory, a pipe, a socket or a device where a file is due. The message is a clause."""


def require_regular(path: Path | str) -> None:
    """For what opens it by its name. Raises OSError."""
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise NotRegular("it is no regular file")


def open_regular(path: Path) -> BinaryIO:
    """For reading. Raises OSError."""
    require_regular(path)
    return path.open("rb")


def read_object(path: Path) -> dict[str, Any]:
    """The object in a JSON file. Raises OSError, or ValueError with what is there instead, as a clause."""
    with open_regular(path) as file:
        content = file.read()
    if not content.strip():
        raise ValueError("it is empty")
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        raise ValueError("it does not hold JSON") from None
    if not isinstance(value, dict):
        raise ValueError("it does not hold a JSON object")
    return value


@contextmanager
def replacing(path: Path, *, sync: bool = False) -> Iterator[Path]:
    """Where to write what is to become `path`: it takes its place, whole, at the end of the block; if that fails,
    nothing is left of it, and `path` is as it was. sync: and is on disk. The directory must exist. Raises OSError."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        if sync:
            _sync(temporary)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    if sync:
        _sync(path.parent)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
