"""`chaos install`: puts on hosts what runs need, before the first, or takes it away. A run puts there what is missing
itself: this is for whoever wants to see it done, or hosts that a run's user may not write to."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from harness.cluster import RuntimeUnavailable
from harness.plan import registry
from harness.plan.plan import make_plan
from harness.targets.target import Package

from ..clean import status
from ..connection.sessions import HostRefused, NotOnAll, Session, on_all
from ..hosts_file import Host, Hosts
from ..runtime import NoImages
from . import install
from .wanted import wanted_pieces


def package_of(target: str, tell: Callable[[str], object]) -> Package:
    """What a run of it with default options needs. Blocks. Raises BadArguments, RuntimeUnavailable."""
    tested = registry.make_target(target)
    package = tested.package(make_plan(run="install", target=target, on="ssh"), NoImages(), tell)
    if not package.places:
        raise RuntimeUnavailable(f"target {target} is an image of a container, and no host can run it")
    return package


def install_on(hosts: Hosts, package: Package | None, tell: Callable[[str], object]) -> list[str]:
    """A line for each host. package: of the target; None: hosts of a service need the agent alone. Raises
    RuntimeUnavailable that names the hosts where it failed: NotOnAll, with the lines of the others."""
    sessions = {host.name: Session(host) for host in hosts.hosts}
    try:
        try:
            found = on_all(hosts.hosts, lambda host: install.look(sessions[host.name], host, thoroughly=True))
        except NotOnAll as error:
            raise NotOnAll(str(error), {}) from None  # on the others nothing was done yet
        wanted = wanted_pieces(package, list(found.values()))

        def work(host: Host) -> str:
            seen = found[host.name]
            sent = install.send(sessions[host.name], host, wanted.of(seen), seen, tell)
            return f"{host.name}: {', '.join(sent) if sent else 'nothing was missing'}"

        return list(on_all(hosts.hosts, work).values())
    finally:
        _close(sessions.values())


def remove_from(hosts: Hosts) -> list[str]:
    """A line for each host. Not where a run holds one. Raises NotOnAll, with the lines of the others."""
    sessions = {host.name: Session(host) for host in hosts.hosts}

    def work(host: Host) -> str:
        session = sessions[host.name]
        if install.look(session, host).anything:
            seen = status(session, host)
            if seen.in_words:
                raise HostRefused(
                    f"host {host.name}: run {', '.join(seen.runs) or '(unknown)'} has left something, or goes on; "
                    "chaos clean --on ssh comes first"
                )
        return f"{host.name}: {host.install_directory} {install.remove(session, host)}"

    try:
        return list(on_all(hosts.hosts, work).values())
    finally:
        _close(sessions.values())


def _close(sessions: Iterable[Session]) -> None:
    for session in sessions:
        session.close()
