"""What runs could leave on a machine, so that tests can compare before and after."""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from harness.runtimes.docker import engine

_SOON_S = 10.0
_COUNTER = re.compile(r"counter packets \d+ bytes \d+")


def machine_state() -> Mapping[str, frozenset[str]]:
    """By kind of thing: all that there is of it now."""
    api = engine.connect()
    found = {
        "containers": (container["Id"] for container in api.containers(all=True)),
        "networks": (network["Id"] for network in api.networks()),
        "docker volumes": (volume["Name"] for volume in api.volumes()["Volumes"] or ()),
        "mounts": (line.split(" ", 4)[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()),
        "loop devices": (str(path.parent.parent) for path in Path("/sys/block").glob("loop*/loop/backing_file")),
        "volumes": map(str, engine.VOLUMES.glob("*")),
        "interfaces": (path.name for path in Path("/sys/class/net").glob("*")),
        "control groups": (str(path) for path in Path("/sys/fs/cgroup").glob("*/docker/*") if path.is_dir()),
        "processes in containers": _contained(),
        "packet filters": (_COUNTER.sub("counter", line) for line in _output("nft", "list", "ruleset")),
        "queues": _output("tc", "qdisc"),
    }
    return {kind: frozenset(things) for kind, things in found.items()}


def differences_soon(before: Mapping[str, frozenset[str]]) -> list[str]:
    """What there is now and was not then, or the other way round. The kernel and the engine let go of some things a
    moment after they were told: they have some seconds."""
    deadline = time.monotonic() + _SOON_S
    while (found := differences(before)) and time.monotonic() < deadline:
        time.sleep(0.1)
    return found


def differences(before: Mapping[str, frozenset[str]]) -> list[str]:
    """As differences_soon(), at once."""
    now = machine_state()
    return [
        f"{sign} {kind}: {thing}"
        for kind in before
        for sign, things in (("new", now[kind] - before[kind]), ("gone", before[kind] - now[kind]))
        for thing in sorted(things)
    ]


def _contained() -> list[str]:
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if "/docker" in (process / "cgroup").read_text():
                found.append(process.name)
    return found


def _output(*command: str) -> list[str]:
    """Its lines; none where there is no such tool."""
    if shutil.which(command[0]) is None:
        return []
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
