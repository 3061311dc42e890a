"""Runs a cluster on hosts that are reached over SSH."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import uvloop

from harness.cluster import RuntimeUnavailable
from harness.plan.plan import Plan
from harness.run.threads import in_thread
from harness.targets.target import NodeSpec, Package, Target

from . import hosts_file
from .cluster import SshCluster
from .connection.sessions import Session, on_all, together
from .hosts_file import Host, Hosts
from .installation import install
from .installation.install import Found
from .installation.wanted import wanted_pieces
from .service import cluster as service
from .service import layout

T = TypeVar("T")
R = TypeVar("R")

#: A host that does not answer at once may be busy: so long it is tried again.
PATIENCE_S: Final = 10.0


class SshRuntime:
    """Implements harness.cluster.Runtime."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self.tested = ""

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        return uvloop.run(main)

    async def lacks(self, needs: Collection[str]) -> Mapping[str, str]:
        """Is asked of the hosts once their agents are there: Cluster.lacks."""
        return {}

    async def start(
        self, plan: Plan, run_directory: Path, progress: Callable[[str], None], *, needs: Collection[str] = ()
    ) -> SshCluster:
        """Returns when every node's process runs. Raises RuntimeUnavailable, with nothing left behind but what is
        installed."""
        assert plan.hosts is not None
        hosts = hosts_file.read(Path(plan.hosts))
        service.check(plan, hosts)
        package = None if plan.service else await self._package(plan, progress)
        self.tested = f"a cluster that was there, of {hosts.path}" if package is None else package.tested
        chosen = (assign if package else layout.assign)(self._target.nodes(plan), hosts)
        if package is not None:
            check_devices(chosen.values())
        progress("connecting to the hosts")
        sessions = {host.name: Session(host, patience_s=PATIENCE_S) for host in chosen.values()}
        found: Mapping[str, Found] = {}
        try:
            found = await _everywhere(chosen.values(), lambda host: install.look(sessions[host.name], host))
            progress("looking what the hosts have")
            wanted = await in_thread(wanted_pieces, package, list(found.values()))
            await _everywhere(
                chosen.values(),
                lambda host: install.send(
                    sessions[host.name], host, wanted.of(found[host.name]), found[host.name], progress
                ),
            )
            kind = SshCluster if package else service.ServiceCluster
            cluster = kind(plan, self._target, hosts, chosen, sessions, found, wanted, progress)
        except BaseException:
            if package is None:

                def take_back(host: Host) -> None:
                    service.take_back(sessions[host.name], host, found[host.name])

                await in_thread(together, [host for host in chosen.values() if host.name in found], take_back)
            for session in sessions.values():
                session.close()
            raise
        try:
            await cluster.start(package, run_directory, needs)
        except BaseException:
            await asyncio.shield(cluster.stop())
            raise
        return cluster

    async def _package(self, plan: Plan, progress: Callable[[str], None]) -> Package:
        package = await in_thread(self._target.package, plan, NoImages(), progress)
        if not package.places:
            raise RuntimeUnavailable(f"target {self._target.name} is an image of a container, and no host can run it")
        return package


def assign(specs: Sequence[NodeSpec], hosts: Hosts) -> dict[str, Host]:
    """A host for each node, by its name, in the order of the file: those that may be only what is asked for come first.
    Raises RuntimeUnavailable."""
    free = list(hosts.hosts)
    chosen: dict[str, Host] = {}
    for spec in specs:
        asked = {spec.role, *(["controller"] if spec.controller_port is not None else [])}
        able = sorted((host for host in free if asked <= host.roles), key=lambda host: len(host.roles))
        if not able:
            raise RuntimeUnavailable(
                f"{hosts.path} has {_count(len(hosts.hosts), 'host')}, and the cluster's {_count(len(specs), 'node')} "
                f"need one each: there is none left for {spec.name}. Add hosts, or give fewer --brokers or "
                "--controllers, or --combined"
            )
        chosen[spec.name] = able[0]
        free.remove(able[0])
    return chosen


def check_devices(hosts: Iterable[Host]) -> None:
    """Raises RuntimeUnavailable."""
    for host in hosts:
        if host.device and not host.may_destroy_data:
            raise RuntimeUnavailable(
                f"host {host.name}: all that is on its device {host.device} would be lost; if that is meant, say "
                "may_destroy_data = true in the hosts file"
            )


async def _everywhere(hosts: Collection[Host], work: Callable[[Host], R]) -> dict[str, R]:
    """On all of them at a time. By the host's name. Raises RuntimeUnavailable with a sentence for each that failed."""
    return await in_thread(lambda: on_all(hosts, work))


class NoImages:
    """Implements harness.targets.target.ImageStore: a host has none."""

    def has(self, tag: str) -> bool:
        return False

    def pull(self, repository: str, version: str) -> bool:
        return False


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"

