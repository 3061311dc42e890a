"""Which run holds this host: a lock on a file, held by the agent's processes for as long as they live."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

#: Gone with a reboot, as everything that it stands for.
FOLDER: Final = Path("/run/chaos")
LOCK: Final = FOLDER / "lock"
SOCKET: Final = FOLDER / "agent.sock"
#: When the harness was last heard: the time of this file.
HEARD: Final = FOLDER / "heard"


class Held(Exception):
    """By another run. holder: as it was written by hold()."""

    def __init__(self, holder: Mapping[str, Any]) -> None:
        super().__init__()
        self.holder = holder


def hold(holder: Mapping[str, Any]) -> int:
    """Take this host. The descriptor that holds it, until all processes that have it are gone. Raises Held."""
    while True:
        FOLDER.mkdir(mode=0o700, exist_ok=True)
        descriptor = os.open(LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise Held(holder_of() or {}) from None
        if _is(descriptor, LOCK):
            note(descriptor, holder)
            return descriptor
        os.close(descriptor)  # whoever held it has removed the file meanwhile


def remove_files() -> None:
    """By whoever holds this host, at the very end; or whoever sees that nobody does."""
    for file in (SOCKET, HEARD, LOCK):
        file.unlink(missing_ok=True)
    with suppress(OSError):
        FOLDER.rmdir()


def note(descriptor: int, holder: Mapping[str, Any]) -> None:
    """More is known of who holds it: the pids of its processes."""
    text = json.dumps(holder).encode()
    os.pwrite(descriptor, text, 0)
    os.ftruncate(descriptor, len(text))


def _is(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def is_held() -> bool:
    try:
        descriptor = os.open(LOCK, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def holder_of() -> dict[str, Any] | None:
    """Who holds this host, or held it last, if that was not undone."""
    try:
        return dict(json.loads(LOCK.read_text()))
    except (OSError, ValueError):
        return None
