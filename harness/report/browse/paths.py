"""Opens what lies below a directory, and nothing else: no path and no link leads out of it, and nothing that is opened
is anything but a regular file.

A path is first resolved, and must still be below the directory; then it is opened step by step, following no link, so
that nobody can put one in its way in between.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_LONGEST: Final = 4096


class NotServed(Exception):
    """There is no such file, or it is none that may be shown. The message is a sentence."""


def parts_of(path: str) -> list[str]:
    """Of a path as an address has it, with slashes. Raises NotServed for one that could lead anywhere else."""
    parts = [part for part in path.split("/") if part]
    odd = len(path) > _LONGEST or path.startswith("/") or "\0" in path or "\\" in path
    if odd or any(part in (".", "..") for part in parts):
        raise NotServed("That is no path below the results directory.")
    return parts


def locate(root: Path, path: str) -> tuple[Path, list[str]]:
    """root, resolved, and the way from there once links are followed. Raises NotServed if it leads out, or nowhere."""
    base = root.resolve()
    try:
        resolved = base.joinpath(*parts_of(path)).resolve(strict=True)
        way = resolved.relative_to(base).parts
    except (OSError, RuntimeError, ValueError):
        raise NotServed("There is no such file below the results directory.") from None
    if any(part.startswith(".") for part in way):
        raise NotServed("There is no such file below the results directory.")
    return base, list(way)


def open_below(root: Path, path: str) -> int:
    """A descriptor of a regular file, or of a directory. Raises NotServed."""
    base, way = locate(root, path)
    try:
        found = os.open(base, _FLAGS | os.O_DIRECTORY)
        for part in way:
            within = found
            try:
                found = os.open(part, _FLAGS, dir_fd=within)
            finally:
                os.close(within)
        kind = os.fstat(found).st_mode
    except PermissionError:
        raise NotServed("This file may not be read by the user that the server runs as.") from None
    except OSError:
        raise NotServed("There is no such file below the results directory.") from None
    if not (stat.S_ISREG(kind) or stat.S_ISDIR(kind)):
        os.close(found)
        raise NotServed("That is no regular file.")
    return found


def directory_below(root: Path, path: str) -> Path:
    """The same as a path, of a directory. Raises NotServed."""
    base, way = locate(root, path)
    directory = base.joinpath(*way)
    if not directory.is_dir():
        raise NotServed("There is no such directory below the results directory.")
    return directory


def listing(directory: Path, most: int) -> tuple[list[tuple[str, bool, int]], int]:
    """(name, whether it is a directory, bytes) by name, of what may be served, and how many more there are."""
    found = []
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                if entry.name.startswith(".") or not _is_text(entry.name):
                    continue
                try:
                    kind = entry.stat(follow_symlinks=False)
                except OSError:
                    continue
                if stat.S_ISDIR(kind.st_mode) or stat.S_ISREG(kind.st_mode):
                    found.append((entry.name, stat.S_ISDIR(kind.st_mode), kind.st_size))
    except OSError:
        return [], 0
    found.sort()
    return found[:most], max(len(found) - most, 0)


def _is_text(name: str) -> bool:
    try:
        return bool(name.encode())
    except UnicodeEncodeError:
        return False
