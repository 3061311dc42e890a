"""What a run is of: which chaos, from which commit, and the host that it was on."""

from __future__ import annotations

import os
import platform
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any, Final

_ROOT: Final = Path(__file__).resolve().parent.parent.parent


def chaos() -> dict[str, Any]:
    """version, and commit: of the checkout that runs; None: it is installed."""
    try:
        version = metadata.version("chaos")
    except metadata.PackageNotFoundError:  # run from a source tree that was never installed
        version = "0"
    return {"version": version, "commit": _commit(_ROOT / ".git")}


def host() -> dict[str, Any]:
    """system, cpus, memory_bytes (None: not known), python."""
    memory = None
    with suppress(OSError, ValueError, AttributeError):
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cpus": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_bytes": memory,
        "python": platform.python_version(),
    }


def _commit(git: Path) -> str | None:
    with suppress(OSError, ValueError):
        head = (git / "HEAD").read_text().strip()
        if not head.startswith("ref: "):
            return head or None
        name = head.removeprefix("ref: ")
        with suppress(FileNotFoundError):
            return (git / name).read_text().strip() or None
        for line in (git / "packed-refs").read_text().splitlines():
            commit, _, reference = line.partition(" ")
            if reference == name:
                return commit
    return None
