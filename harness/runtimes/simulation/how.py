"""How each fault is done to a simulated node, for `chaos run --dry-run`: by the methods of harness.cluster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from harness.cluster import TERMINATE_PATIENCE_S
from harness.plan import registry

HOW: Final[Mapping[str, tuple[str, ...]]] = {
    "kill": ("the simulated process ends where it stands: none of its callbacks runs again",),
    "terminate": (f"the process is asked to stop, and killed if it runs {TERMINATE_PATIENCE_S:g} s later",),
    "start": ("a new process on what the simulated disk holds",),
    "pause": ("none of the process's callbacks runs, and they wait",),
    "resume": ("they run, in their order",),
    "cut_power": (
        "the process ends, at once or in the middle of a write; no packet comes or goes",
        "the simulated disk forgets what was not synced",
    ),
    "restore_power": ("packets pass, and a new process starts on what the simulated disk holds",),
    "lose_page_cache": ("the process ends, and the simulated disk forgets what was not synced",),
    "replace": ("another simulated disk, and another node.id in its configuration",),
    "put_back": ("its own disk, and its own node.id",),
    "set_clock": ("the wall clock that the process is told: offset and rate",),
    "fill_disk": ("the simulated disk refuses writes with ENOSPC",),
    "free_disk": ("it takes them again",),
    "fail_disk": ("the simulated disk fails every operation with EIO",),
    "repair_disk": ("it works again; what a failed sync was to save is lost",),
    "slow_disk": ("syncs of the simulated disk take their time, by bytes and operations a second",),
    "hasten_disk": ("they take none",),
    "make_disk_read_only": ("the simulated disk refuses writes with EROFS",),
    "make_disk_writable": ("it takes them again",),
    "damage_file": ("the process ends, and bytes of one file of the simulated disk are others, or gone",),
    "restore_file": ("they are put back, if the file is as it was left",),
    "strike_operation": (
        "in that operation on the simulated disk the process or the power goes, or it fails with an error",
    ),
    "lose_files": ("the simulated disk is empty, or lacks a directory",),
    "snapshot_disk": ("a copy of what the simulated disk holds, or of what a power cut would leave",),
    "restore_disk": ("the simulated disk holds what the copy does",),
    "block": ("the simulated network drops what is sent on these links",),
    "unblock": ("it delivers again",),
    "shape": ("the simulated network is late, loses, doubles or reorders on these links, or keeps to a rate",),
    "unshape": ("it is as it was",),
    "hold_requests": ("the simulated network is late with requests of this kind, or delivers them once more",),
    "release_requests": ("it passes them on again",),
}  # fmt: skip


def addresses(plan: Any) -> Mapping[str, str]:
    """By node, where it will be reached."""
    return {node.name: f"{node.name}:{node.port}" for node in registry.make_target(plan.target).nodes(plan)}
