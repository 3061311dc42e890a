"""Which run holds this host: a lock on a file, held by the agent's processes for as long as they live."""

from __future__ import annotations

import fcntl
import json
import os
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

#: Gone with a reboot, as everything that it stands for.
FOLDER: Final = Path("/run/chaos")
LOCK: Final = FOLDER / "lock"
SOCKET: Final = FOLDER / "agent.sock"
#: When the harness was last heard: the time of this file, by CLOCK_MONOTONIC, for the other may be set.
HEARD: Final = FOLDER / "heard"
#: For so long at most somebody who only looks has the lock.
_LOOK_S: Final = 0.3
_AGAIN_S: Final = 1.0


class Held(Exception):
    """By another run. holder: as it was written by hold()."""

    def __init__(self, holder: Mapping[str, Any]) -> None:
        super().__init__()
        self.holder = holder


def hold(holder: Mapping[str, Any]) -> int:
    """Take this host. The descriptor that holds it, until all processes that have it are gone. Raises Held."""
    until = time.monotonic() + _LOOK_S
    while True:
        with suppress(FileExistsError):  # exist_ok would look again, and it may be gone by then
            FOLDER.mkdir(mode=0o700)
        try:
            descriptor = os.open(LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except FileNotFoundError:
            continue  # whoever held it has removed the folder meanwhile
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            if time.monotonic() > until:
                raise Held(holder_of() or {}) from None
            time.sleep(0.01)  # it may be one who only looks: is_held()
            continue
        if _is(descriptor, LOCK):
            note(descriptor, holder)
            hear(time.monotonic())
            return descriptor
        os.close(descriptor)  # whoever held it has removed the file meanwhile


def hear(at: float) -> None:
    """The harness was heard then, by CLOCK_MONOTONIC."""
    os.close(os.open(HEARD, os.O_WRONLY | os.O_CREAT, 0o600))
    os.utime(HEARD, (at, at))


@contextmanager
def beginning() -> Iterator[None]:
    """Whatever takes its time in this, before the harness can be heard: it waits for that, and is alive."""
    over = threading.Event()

    def hear_again() -> None:
        while not over.wait(_AGAIN_S):
            hear(time.monotonic())

    hearing = threading.Thread(target=hear_again, daemon=True)
    hearing.start()
    try:
        yield
    finally:
        over.set()
        hearing.join()


def remove_files() -> None:
    """By whoever holds this host, at the very end: whoever else did it might remove those of another run."""
    for file in (SOCKET, HEARD, LOCK):
        file.unlink(missing_ok=True)
    with suppress(OSError):
        FOLDER.rmdir()


def note(descriptor: int, holder: Mapping[str, Any]) -> None:
    """More is known of who holds it: the pids of its processes."""
    text = json.dumps(holder).encode()
    os.pwrite(descriptor, text, 0)
    os.ftruncate(descriptor, len(text))


def boot() -> str:
    """Another one after this host was booted. (Of a host that is a container, that is when its first process began.)"""
    kernel = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    first = Path("/proc/1/stat").read_text().rpartition(")")[2].split()[19]
    return f"{kernel} {first}"


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
