"""`chaos doctor`: what this machine can do, found out by trying, and what to do about what is missing."""

from __future__ import annotations

import json
import os
import platform
import shutil
import sys
from collections.abc import Iterator

import docker
from docker.errors import APIError

from harness.cluster import RuntimeUnavailable
from harness.runtimes.checks import CAPABILITIES, OLDEST_PYTHON, Check, check, of_capabilities
from harness.runtimes.docker import engine
from harness.runtimes.docker.agent_container import run_agent
from harness.runtimes.docker.images import images

_MEMORY = 4 << 30  # bytes: six nodes, Spark and the harness
_DISK = 5 << 30

def checks() -> list[Check]:
    """Every check, in the order in which things are needed. Never raises for what a machine lacks."""
    return [_python(), _memory(), _disk(), _java(), *_docker()]


def _python() -> Check:
    oldest = ".".join(map(str, OLDEST_PYTHON))
    return check(
        "Python", sys.version_info >= OLDEST_PYTHON, platform.python_version(), f"install Python {oldest} or newer"
    )


def _memory() -> Check:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    detail = f"{memory / (1 << 30):.1f} GiB on {os.cpu_count()} cores"
    return check("memory", memory >= _MEMORY, detail, f"{_MEMORY >> 30} GiB are needed")


def _disk() -> Check:
    folder = next(folder for folder in (engine.VOLUMES, *engine.VOLUMES.parents) if folder.exists())
    free = shutil.disk_usage(folder).free
    detail = f"{free / (1 << 30):.1f} GiB free for volumes in {engine.VOLUMES}"
    return check("disk", free >= _DISK, detail, f"{_DISK >> 30} GiB are needed")


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
        yield from (Check(name, "not available here", detail, "") for _, name, _ in CAPABILITIES)
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
    yield from of_capabilities(found)
