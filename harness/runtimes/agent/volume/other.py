"""A directory on a node's volume for another broker that runs in the node's place for a while (nemesis
`membership:new-id`)."""

from __future__ import annotations

import errno
import os
import shutil
import stat
from contextlib import suppress
from pathlib import Path

#: No name of a log's directory.
OTHER = "other"


def make(volume: Path) -> str:
    """An empty directory, given to the user who owns the volume; what there was is thrown away. Its name."""
    discard(volume)
    owner = volume.stat()
    (volume / OTHER).mkdir(0o700)
    # By descriptor, and none of a link: the node may have put one there meanwhile, to a file of the host.
    made = os.open(volume / OTHER, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        os.fchown(made, owner.st_uid, owner.st_gid)
    finally:
        os.close(made)
    return OTHER


def discard(volume: Path) -> None:
    """Durably, or after a power cut its logs would be there again. Safe to repeat."""
    place = volume / OTHER
    if os.path.lexists(place) and (place.is_symlink() or not place.is_dir()):
        place.unlink()  # the node's own doing: rmtree refuses links, and nothing is to be followed
    with suppress(FileNotFoundError):
        _remove_folders(place)
    descriptor = os.open(volume, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove_folders(place: Path) -> None:
    """By descriptors, as rmtree does where it can. Raises OSError."""
    try:
        shutil.rmtree(place)
    except RecursionError:
        raise OSError(errno.ELOOP, "its folders are too deep to be removed", str(place)) from None


def leftovers(volume: Path) -> list[str]:
    """As a clause each. None of a disk that fails: that is a trace of its own (disk.leftovers)."""
    place = volume / OTHER
    try:
        there = stat.S_ISDIR(os.lstat(place).st_mode)  # what else is there is the node's own doing
    except OSError:
        return []
    return ["has the logs of another node on its disk"] if there else []
