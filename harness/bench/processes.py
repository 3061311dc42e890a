"""What processes of a bench hold in memory, by /proc."""

from __future__ import annotations

import os
from pathlib import Path


def own_processes(root: int | None = None) -> list[int]:
    """A process, this one if none is named, and its descendants."""
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError):
            continue
        children.setdefault(parent, []).append(int(path.name))
    mine, found = [os.getpid() if root is None else root], []
    while mine:
        pid = mine.pop()
        found.append(pid)
        mine += children.get(pid, [])
    return found


def status_kb(pid: int, name: str) -> int:
    """A line of /proc/PID/status; 0 where there is none."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith(f"{name}:")), 0)
