"""Identifies the process that owns a run or a build, and tells whether that very process is still alive."""

from __future__ import annotations

import os
from pathlib import Path


def owner() -> str:
    """This process, so that a later one with the same pid is not taken for it."""
    return f"{os.getpid()}:{_start_time(os.getpid())}"


def is_alive(owner: str) -> bool:
    pid, _, started = owner.partition(":")
    return pid.isdigit() and _start_time(int(pid)) == started


def machine() -> str:
    """Where pids mean the same: this machine since it was booted, and this namespace of pids."""
    try:
        return f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()}/{os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""


def _start_time(pid: int) -> str | None:
    """In clock ticks since boot; None if there is no such process."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    return stat.rpartition(")")[2].split()[19]
