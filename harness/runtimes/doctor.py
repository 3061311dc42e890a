"""`chaos doctor`: what this machine can do, found out by trying, and what to do about what is missing."""

from __future__ import annotations

import json
import os
import platform
import shutil
import sys
from collections.abc import Iterator
from typing import Literal, NamedTuple

import docker
from docker.errors import APIError

from harness.cluster import RuntimeUnavailable
from harness.runtimes.docker import engine
from harness.runtimes.docker.agent_container import run_agent
from harness.runtimes.docker.images import images

Status = Literal["ok", "missing", "not available here"]

_OLDEST_PYTHON = (3, 11)
_MEMORY = 4 << 30  # bytes: six nodes, Spark and the harness
_DISK = 5 << 30

#: What the agent's probe tries: its name there, what a person calls it, what to do. Without a remedy it is not
#: needed for any nemesis that there is.
_CAPABILITIES = (
    ("loop devices", "loop devices", "load the kernel module with `sudo modprobe loop`"),
    ("ext4", "power cut on ext4", "use a kernel with ext4 and FS_IOC_SHUTDOWN (Linux 4.13 or newer)"),
    ("xfs", "power cut on XFS", "load the kernel module with `sudo modprobe xfs`, or stay with ext4"),
    ("nftables", "network partitions (nftables)", "load the kernel module with `sudo modprobe nf_tables`"),
    ("faketime", "clock faults (libfaketime)", ""),
    ("shaping", "slow and lossy networks", "load kernel modules: `sudo modprobe -a sch_htb sch_tbf cls_u32 ifb`"),
    ("netem", "network delays (netem)", ""),
    ("io-limit", "slow disks (I/O limits of cgroups)", ""),
)


class Check(NamedTuple):
    name: str
    status: Status
    detail: str
    remedy: str  # empty if there is nothing to do

    @property
    def ok(self) -> bool:
        """Nothing that is needed is missing."""
        return self.status != "missing"


def checks() -> list[Check]:
    """Every check, in the order in which things are needed. Never raises for what a machine lacks."""
    return [_python(), _memory(), _disk(), _java(), *_docker()]


def _check(name: str, fulfilled: bool, detail: str, remedy: str) -> Check:
    return Check(name, "ok", detail, "") if fulfilled else Check(name, "missing", detail, remedy)


def _python() -> Check:
    oldest = ".".join(map(str, _OLDEST_PYTHON))
    return _check(
        "Python", sys.version_info >= _OLDEST_PYTHON, platform.python_version(), f"install Python {oldest} or newer"
    )


def _memory() -> Check:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    detail = f"{memory / (1 << 30):.1f} GiB on {os.cpu_count()} cores"
    return _check("memory", memory >= _MEMORY, detail, f"{_MEMORY >> 30} GiB are needed")


def _disk() -> Check:
    folder = next(folder for folder in (engine.VOLUMES, *engine.VOLUMES.parents) if folder.exists())
    free = shutil.disk_usage(folder).free
    detail = f"{free / (1 << 30):.1f} GiB free for volumes in {engine.VOLUMES}"
    return _check("disk", free >= _DISK, detail, f"{_DISK >> 30} GiB are needed")


def _java() -> Check:
    from spark_history.spark.session import SparkUnavailable, find_java, java_version

    try:
        java = find_java()
    except SparkUnavailable as error:
        return Check("Java for Spark", "missing", str(error), "install Java 17 or 21, or set JAVA_HOME")
    return Check("Java for Spark", "ok", f"Java {java_version(java)} at {java}", "")


def _docker() -> Iterator[Check]:
    try:
        api = engine.connect()
    except RuntimeUnavailable as error:
        yield Check("Docker Engine", "missing", str(error), "on Debian: sudo make docker")
        return
    yield Check("Docker Engine", "ok", f"{api.version()['Version']}, and you may use it", "")
    if not images.has_image(api, images.base_tag()):
        yield Check("base image", "ok", "not built yet; the first run does it, in a minute or two", "")
        detail = "can be tried when the base image is built"
        yield from (Check(name, "not available here", detail, "") for _, name, _ in _CAPABILITIES)
        return
    yield Check("base image", "ok", images.base_tag(), "")
    yield from _capabilities(api)


def _capabilities(api: docker.APIClient) -> Iterator[Check]:
    try:
        agent = images.ensure_agent(api, lambda _: None)
        found = json.loads(run_agent(api, agent, f"doctor-{os.getpid()}", "probe"))
    except (APIError, OSError, RuntimeUnavailable) as error:
        remedy = "let Docker grant CAP_SYS_ADMIN and the host's PIDs"
        yield Check("privileged agent", "missing", engine.reason_of(error), remedy)
        return
    for key, name, remedy in _CAPABILITIES:
        problem = found[key]
        if problem is None:
            yield Check(name, "ok", _how_shaped(found["netem"]) if key == "shaping" else "tried, works", "")
        else:
            yield Check(name, "missing" if remedy else "not available here", problem, remedy)


def _how_shaped(no_netem: str | None) -> str:
    delays = "and netem" if no_netem is None else "(no netem: delay and reorder are not available here)"
    return f"token bucket, statistic rules {delays}"
