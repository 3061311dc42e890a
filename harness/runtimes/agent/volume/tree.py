"""Walks a node's volume without trusting it: processes on the node may create any files there and change them at any
time, and the agent that reads them is root on the host.

So every name is resolved from a descriptor of the volume's root, one component after the other, and none is followed
(O_NOFOLLOW); only regular files of the volume itself are opened, without waiting for anybody (O_NONBLOCK: a FIFO or a
lease would keep the agent); and names, depth and sizes are bounded. What is passed over is counted in a Strange.
"""

from __future__ import annotations

import errno
import itertools
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

#: What fills the disk on purpose (disk.py): no node put it there, and it is nobody's evidence.
FILLER: Final = ".chaos-filler"

#: Of one volume. 8 GiB of segments of 1 MiB, each with its indexes, have about 30,000.
MOST_NAMES: Final = 100_000
#: Folders within folders: logs are one below the root, those of a node that runs in another's place two.
MOST_DEPTH: Final = 16
#: Bytes of a file: log.segment.bytes is an int32.
MOST_BYTES: Final = 1 << 31
#: Bytes of a file that are nowhere on the disk. A cut of power may leave some.
MOST_HOLES: Final = 16 << 20

_EXAMPLES: Final = 3  # of a kind, by name
_SHOWN: Final = 60  # characters of a name
_OPEN: Final = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | _OPEN
_KINDS: Final = {
    stat.S_IFLNK: "symbolic link", stat.S_IFIFO: "FIFO", stat.S_IFSOCK: "socket", stat.S_IFBLK: "block device",
    stat.S_IFCHR: "character device",
}  # fmt: skip


def everything(_: str) -> bool:
    return True


class Strange:
    """What was passed over, by kind."""

    def __init__(self) -> None:
        self._count: dict[str, int] = {}
        self._examples: dict[str, list[str]] = {}

    def add(self, kind: str, path: str) -> None:
        """kind: a noun with what goes with it, in the singular."""
        self._count[kind] = self._count.get(kind, 0) + 1
        examples = self._examples.setdefault(kind, [])
        if len(examples) < _EXAMPLES:
            examples.append(ascii(path)[1:-1][:_SHOWN])

    def __str__(self) -> str:
        """`2 × symbolic link (a, b); 1 × FIFO (c)`, printable ASCII but for the sign; empty if there was nothing."""
        return "; ".join(
            f"{self._count[kind]:,} × {kind} ({', '.join(examples)}{', …' * (self._count[kind] > len(examples))})"
            for kind, examples in self._examples.items()
        )

    def evidence(self) -> dict[str, str]:
        """`not_surveyed`, a clause, if there was something."""
        return {"not_surveyed": str(self)} if self._count else {}


class Found(NamedTuple):
    """A regular file or a folder. `folder` is a descriptor of the one that it is in, open until the next is asked for;
    path: from the volume's root."""

    path: str
    folder: int
    name: str
    status: os.stat_result

    @property
    def is_folder(self) -> bool:
        return stat.S_ISDIR(self.status.st_mode)

    def open(self, flags: int) -> int:
        """Raises OSError; FileNotFoundError if it went meanwhile."""
        return open_regular(self.folder, self.name, flags)


def walk(root: Path, strange: Strange, top: Callable[[str], bool] = everything) -> Iterator[Found]:
    """Everything on the volume that a node may have there, folders before what is in them, each folder sorted. What
    goes meanwhile is not strange. top: which names in the root are looked at. Raises OSError if the root itself cannot
    be read."""
    descriptor = os.open(root, _FOLDER)
    try:
        device = os.fstat(descriptor).st_dev
        yield from _below(descriptor, "", device, [MOST_NAMES], strange, top)
    finally:
        os.close(descriptor)


def regular_files(
    root: Path, strange: Strange | None = None, top: Callable[[str], bool] = everything
) -> Iterator[Found]:
    """As walk(), without the folders."""
    return (found for found in walk(root, strange or Strange(), top) if not found.is_folder)


def opened(
    root: Path, strange: Strange, wanted: Callable[[Found], bool] = lambda _: True,
    top: Callable[[str], bool] = everything,
) -> Iterator[tuple[Found, int]]:  # fmt: skip
    """The regular files that are wanted, each with a descriptor to read it by, closed once the next is asked for."""
    for found in regular_files(root, strange, top):
        if not wanted(found):
            continue
        try:
            descriptor = found.open(os.O_RDONLY)
        except FileNotFoundError:
            continue  # renamed or deleted under us
        except OSError as error:
            strange.add(f"file that cannot be opened ({error.strerror})", found.path)
            continue
        try:
            yield found, descriptor
        finally:
            os.close(descriptor)


def open_regular(folder: int, name: str, flags: int) -> int:
    """A descriptor of the regular file `name` in a folder, without following or waiting. Raises OSError."""
    descriptor = os.open(name, flags | _OPEN, dir_fd=folder)
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) or status.st_dev != os.fstat(folder).st_dev:
        os.close(descriptor)
        raise OSError(errno.EINVAL, "is no regular file of the volume", name)
    return descriptor


def open_beneath(root: Path, path: str, flags: int) -> int:
    """The same by a path from the volume's root, none of whose folders is followed either."""
    *folders, name = path.split("/")
    if any(part in ("", ".", "..") for part in (*folders, name)):
        raise OSError(errno.EINVAL, "is no path below the volume's root", path)
    at = os.open(root, _FOLDER)
    try:
        device = os.fstat(at).st_dev
        for folder in folders:
            below = os.open(folder, _FOLDER, dir_fd=at)
            os.close(at)
            at = below
        if os.fstat(at).st_dev != device:
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), path)
        return open_regular(at, name, flags)
    finally:
        os.close(at)


def _below(
    folder: int, path: str, device: int, left: list[int], strange: Strange, wanted: Callable[[str], bool] = everything
) -> Iterator[Found]:
    """left: its only item is how many names may still be looked at. wanted: names in this folder."""
    try:
        with os.scandir(folder) as entries:
            listed = (entry.name for entry in entries if wanted(entry.name))
            # As they come, of too many: nobody sorts a million names.
            names = sorted(itertools.islice(listed, left[0]))
            more = next(listed, None) is not None
    except OSError as error:
        strange.add(f"folder that cannot be read ({_name_of(error)})", path or "/")
        return
    left[0] -= len(names)
    if more:
        strange.add(f"folder with names beyond the {MOST_NAMES:,} of a volume that are looked at", path or "/")
    for name in names:
        whole = f"{path}/{name}" if path else name
        try:
            status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            continue
        except OSError as error:
            strange.add(f"name that cannot be looked up ({_name_of(error)})", whole)
            continue
        if (why := _why_not(whole, name, status, device)) is not None:
            if why:
                strange.add(why, whole)
            continue
        yield Found(whole, folder, name, status)
        if not stat.S_ISDIR(status.st_mode):
            continue
        if whole.count("/") + 1 >= MOST_DEPTH:
            strange.add(f"folder {MOST_DEPTH} deep, not looked into", whole)
            continue
        try:
            below = os.open(name, _FOLDER, dir_fd=folder)
        except FileNotFoundError:
            continue
        except OSError as error:  # it was a folder a moment ago
            strange.add(f"folder that cannot be opened ({_name_of(error)})", whole)
            continue
        try:
            yield from _below(below, whole, device, left, strange)
        finally:
            os.close(below)


def _why_not(path: str, name: str, status: os.stat_result, device: int) -> str | None:
    """Why it is passed over, as Strange.add() wants it; empty: for a reason that is ours."""
    if path == FILLER and is_ours(status):
        return ""
    if (kind := _KINDS.get(stat.S_IFMT(status.st_mode))) is not None:
        return kind
    if status.st_dev != device:
        return "mount of another file system"
    if not _is_plain(name):
        return "name that is not plain text"
    if stat.S_ISDIR(status.st_mode):
        return None
    if status.st_mode & (stat.S_ISUID | stat.S_ISGID):
        return "set-uid or set-gid file"
    if status.st_size > MOST_BYTES:
        return f"file of more than {MOST_BYTES:,} bytes"
    if status.st_size - status.st_blocks * 512 > MOST_HOLES:
        return f"sparse file with more than {MOST_HOLES:,} bytes of holes"
    return None


def is_ours(status: os.stat_result) -> bool:
    """Is it a file that the agent made? A node can make none that is not its own."""
    return stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid()


def _is_plain(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:  # bytes that are no UTF-8
        return False
    return name.isprintable()


def _name_of(error: OSError) -> str:
    return errno.errorcode.get(error.errno or 0, str(error))
