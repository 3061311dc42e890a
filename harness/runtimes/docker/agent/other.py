"""Room on a node's volume for another node that runs in its place for a while."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path

#: No name of a log's directory.
OTHER = "other"


def make(volume: Path) -> str:
    """An empty directory, given to the user who owns the volume; what there was is thrown away. Its name."""
    discard(volume)
    owner = volume.stat()
    (volume / OTHER).mkdir()
    os.chown(volume / OTHER, owner.st_uid, owner.st_gid)
    return OTHER


def discard(volume: Path) -> None:
    """Durably, or after a power cut its logs would be there again. Safe to repeat."""
    with suppress(FileNotFoundError):
        shutil.rmtree(volume / OTHER)
    descriptor = os.open(volume, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def leftovers(volume: Path) -> list[str]:
    """As a clause each. None of a disk that fails: that is a trace of its own (disk.leftovers)."""
    return ["has the logs of another node on its disk"] if os.path.exists(volume / OTHER) else []
