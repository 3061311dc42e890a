"""Undoes all that there is of runs on this host, and says what there is: looked up where it would show, so that it
works as well for what a killed agent left."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

from .. import kernel, proc
from ..volume import mounts
from . import cgroups
from . import folder as run_folder
from .itself import wall_clock
from .machine import loop_devices_of, unmount_all
from .network import HostEnds, HostNetwork, HostQueues
from .process import processes_of
from .service import undo as service
from .volumes import given

_NOBODY: Final = HostEnds((), (), ())
_GONE_S: Final = 5.0
#: Of the kernel's own: a loop device frees itself, a moment after the last who had it.
_LOOPS_S: Final = 5.0


def found(data_directory: Path) -> dict[str, Any]:
    """By kind, what there is of ours on this host: a list each, empty if there is nothing."""
    folders = run_folder.all_of_ours(data_directory)
    return {
        "rules": _rules(),
        "queues": _queues(),
        "mounts": [str(mount) for folder in folders for mount in _mounts_under(folder)],
        "loop devices": [name for folder in folders for name in loop_devices_of(folder)],
        "processes": [f"pid {pid}" for folder in folders for pid in processes_of(folder)],
        "clock": [clause for folder in folders for clause in wall_clock.amiss(folder)],
        "services": [clause for folder in folders for clause in service.amiss(folder)],
        "data of services": [clause for folder in folders for clause in given.amiss(folder)],
        "cgroups": cgroups.all_of_ours(),
        "folders": [str(folder) for folder in folders],
    }


def undo(data_directory: Path, *, agent_too: bool = True) -> list[str]:
    """Of every run: this host is held by one at a time, and by none once its agent has ended. What was removed, a line
    each. agent_too: where a run has brought the agent to a host that had none. Raises OSError if something stays."""
    there = found(data_directory)
    done = [f"{kind}: {', '.join(map(str, each))}" for kind, each in there.items() if each]
    # In this order: nothing is unmounted under a process, and no process is cut off for longer than it must be.
    for folder in map(Path, there["folders"]):
        for pid in processes_of(folder):
            kill(pid)
        service.go_on(folder)
    for run in there["cgroups"]:
        cgroups.Cgroup(run).remove()
    for folder in map(Path, there["folders"]):
        cgroups.put_back(folder)
    network = HostNetwork(_NOBODY)
    try:
        if there["queues"]:
            HostQueues(network.namespace, _NOBODY, "").clear()
        if there["rules"]:
            network.clear()
    finally:
        network.close()
    failed: list[str] = []
    for folder in map(Path, there["folders"]):
        wrong = []
        for put_right in (wall_clock.put_right, _put_service_right):
            try:
                put_right(folder)
            except OSError as error:  # all else is undone; what is to be done is still noted
                wrong.append(str(error))
        if wrong:
            failed += wrong
            continue
        unmount_all(folder)
        until = time.monotonic() + _LOOPS_S
        while (devices := loop_devices_of(folder)) and time.monotonic() < until:  # they are told by files in it
            time.sleep(0.02)
        if devices:
            failed.append(f"{', '.join(devices)} is still in use")
            continue
        if agent_too:
            service.remove_what_was_brought(folder)
        run_folder.remove(folder)
    if failed:
        raise OSError("; ".join(failed))
    return done


def _put_service_right(folder: Path) -> None:
    """It is started when its file system is back, and on nothing else."""
    given.put_right(folder, partial(service.kill_for_good, folder))
    service.put_right(folder)


def kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
        with suppress(OSError):
            kernel.thaw(pid)
        until = time.monotonic() + _GONE_S
        while time.monotonic() < until and proc.state(pid) not in ("", "Z"):
            time.sleep(0.005)


def _rules() -> list[str]:
    with suppress(OSError):
        network = HostNetwork(_NOBODY)
        try:
            return network.tables_there_are()
        finally:
            network.close()
    return []


def _queues() -> list[str]:
    with suppress(OSError):
        network = HostNetwork(_NOBODY)
        try:
            return ["that shape the network"] * HostQueues(network.namespace, _NOBODY, "").there_are()
        finally:
            network.close()
    return []


def _mounts_under(folder: Path) -> list[Path]:
    return [mount for each in mounts.own() if (mount := Path(each.point)).is_relative_to(folder) and mount != folder]
