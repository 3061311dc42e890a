"""What /proc tells of processes, whoever's."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

_LISTENS: Final = "0A"  # the state, in /proc/net/tcp


def started(pid: int) -> str:
    """When, in ticks since this host was booted; "": there is no such process."""
    return _field(pid, 19)


def ancestors(pid: int) -> list[int]:
    """Its parent, whose parent, and so on, but for the first process of all."""
    found = []
    while (parent := int(_field(pid, 1) or 0)) > 1:
        found.append(parent)
        pid = parent
    return found


def descendants(pid: int) -> list[int]:
    """Its children, theirs, and so on."""
    children: dict[int, list[int]] = {}
    for each in (int(name) for name in os.listdir("/proc") if name.isdigit()):
        children.setdefault(int(_field(each, 1) or 0), []).append(each)
    found: list[int] = []
    more = [pid]
    while more:
        more = [child for each in more for child in children.get(each, ())]
        found += more
    return found


def session(pid: int) -> int:
    """The pid of its leader; 0: there is no such process."""
    return int(_field(pid, 3) or 0)


def state(pid: int) -> str:
    return _field(pid, 0)


def _field(pid: int, number: int) -> str:
    """Of /proc/PID/stat, counted from the state on."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[number]
    except (OSError, IndexError):
        return ""


def listener(port: int) -> int:
    """The process that listens at this TCP port; 0: none does. Of several, which have it from each other, the first."""
    sockets = {f"socket:[{inode}]" for inode in _listening(port)}
    return first(lambda pid: not sockets.isdisjoint(files_of(pid))) if sockets else 0


def holder(file: Path) -> int:
    """The process that has it open; 0: none has."""
    path = os.path.realpath(file)
    return first(lambda pid: path in files_of(pid))


def command_line(pid: int) -> str:
    """"": there is no such process."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="surrogateescape")
    except OSError:
        return ""


def is_alive(pid: int) -> bool:
    return pid > 0 and state(pid) not in ("", "Z", "X")


def _listening(port: int) -> list[str]:
    inodes = []
    for family in ("tcp", "tcp6"):
        with suppress(OSError):
            for line in Path(f"/proc/net/{family}").read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == _LISTENS and int(fields[1].rpartition(":")[2], 16) == port:
                    inodes.append(fields[9])
    return inodes


def first(has_it: Callable[[int], bool]) -> int:
    """The pid of the one that was started first; 0: there is none."""
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit() and has_it(int(name))]
    return min(pids, key=lambda pid: (int(started(pid) or 1 << 62), pid), default=0)


def files_of(pid: int) -> set[str]:
    """What it has open."""
    found = set()
    with suppress(OSError):
        for descriptor in os.scandir(f"/proc/{pid}/fd"):
            with suppress(OSError):
                found.add(os.readlink(descriptor.path))
    return found


def name_of(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return "gone"
