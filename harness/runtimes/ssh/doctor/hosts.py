"""`chaos doctor --on ssh --hosts FILE`: what the hosts can do, found out by trying, all of them at once.

Each host is reached, becomes root, and runs the agent's own probe in namespaces of its own; nothing stays there.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from harness.runtimes.checks import OLDEST_PYTHON, Check, Status, check, of_capabilities

from ..connection.sessions import HostError, HostRefused, Session, together
from ..hosts_file import Host, Hosts
from ..service import alone
from . import clocks, ports, scripts
from .scripts import packed_agent

_LOOK_S: Final = 40.0
_LEAST_DISK: Final = 2 << 30  # bytes, of one node's volume
_NODE_PORTS: Final = (9092, 9093)
_NOT_FOUND: Final = (126, 127)
#: A clock that is further off than this makes logs hard to compare; no verdict rests on it.
_CLOCK_OFF_S: Final = 1.0
#: In which that is told, so that hosts are told together.
_CLOCK_BOUNDS_MS: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
#: By what is looked for: how to get it.
_PACKAGES: Final = {
    "sudo": "install sudo (Debian and RHEL: sudo)",
    "python": 'install Python 3.11 or newer (Debian: python3; RHEL: python3.11, and python = "python3.11")',
    "ip": "install ip (Debian: iproute2; RHEL: iproute)",
    "tc": "install tc (Debian: iproute2; RHEL: iproute-tc)",
    "mkfs.ext4": "install mkfs.ext4 (Debian and RHEL: e2fsprogs)",
    "mkfs.xfs": "install mkfs.xfs (Debian and RHEL: xfsprogs), or stay with ext4",
    "libnftables": "install libnftables (Debian: nftables; RHEL: nftables)",
    "libfaketime": "install libfaketime (Debian: libfaketime; RHEL: libfaketime, of EPEL)",
}
#: Of those, what some nemesis alone needs.
_OPTIONAL: Final = ("mkfs.xfs", "libfaketime")


class Report(NamedTuple):
    """Of one host."""

    checks: tuple[Check, ...]
    facts: Mapping[str, Any]  # as scripts.LOOK has them; empty if it could not be looked at


def checks(hosts: Hosts) -> list[Check]:
    """Every check, those that are alike on several hosts once, with their names. Never raises for what a host lacks."""
    sessions = [Session(host) for host in hosts.hosts]
    try:
        reports = together(sessions, examine)
        found = [
            (name, each)
            for name, report in reports.items()
            for each in ((_unreached(report),) if isinstance(report, HostError) else report.checks)
        ]
        able = [each for each in sessions if _is_able(reports[each.name])]
        found += [(each.name, _of_service(hosts, each)) for each in able if hosts.service is not None]
        pairs = list(_pairs(hosts, able))
        return [*_grouped(found, len(sessions)), *_same_machines(reports), *pairs]
    finally:
        for session in sessions:
            session.close()


def probe(session: Session) -> dict[str, Any]:
    """What scripts.LOOK says of a host, as root. Raises HostError."""
    host = session.host
    command = [host.python, "-I", "-c", scripts.LOOK, host.data_directory]
    done = session.run(command, input=packed_agent(), sudo=True, timeout_s=_LOOK_S, what="a look at it")
    if done.status != 0:
        raise HostRefused(f"host {host.name}: it cannot be looked at ({done.why})")
    return dict(json.loads(done.out))


def examine(session: Session) -> Report:
    """Raises HostError if it cannot be reached."""
    host = session.host
    session.connect()
    trip_ms = session.round_trip_s() * 1000
    found = [Check("connection", "ok", "made, and the host's key is known", "")]
    if trip_ms > 100:
        found[0] = Check("connection", "ok", f"made, with a round trip of {trip_ms:.0f} ms", "")
    try:
        session.run(["true"], sudo=True)
    except HostRefused as error:
        problem, _, remedy = _clause(host, error).partition(": ")
        return Report((*found, Check("root", "missing", problem, remedy)), {})
    found.append(Check("root", "ok", "by sudo" if host.sudo and session.user != "root" else "the user itself", ""))
    tried = session.run([host.python, "-c", "pass"], sudo=True)
    if tried.status in _NOT_FOUND or "not found" in tried.err:
        return Report((*found, Check("Python", "missing", f"there is no {host.python}", _PACKAGES["python"])), {})
    try:
        facts = probe(session)
        found += _of_facts(host, facts)
        if tuple(facts["python"]) >= OLDEST_PYTHON:
            found.append(_of_clock(clocks.measure(session)))
        return Report(tuple(found), facts)
    except HostRefused as error:
        return Report((*found, Check("probe", "missing", _clause(host, error), "")), {})


def _of_facts(host: Host, facts: Mapping[str, Any]) -> Iterator[Check]:
    if facts["user"] != 0:
        yield Check(
            "root", "missing", "the user is not root, and sudo = false", "remove sudo = false, or log in as root"
        )
    version = tuple(facts["python"])
    said = ".".join(map(str, version))
    yield check("Python", version >= OLDEST_PYTHON, said, _PACKAGES["python"])
    free = facts["free_bytes"]
    enough = free >= _LEAST_DISK
    left = f"at least {_LEAST_DISK >> 30}" if enough else f"{free / (1 << 30):.1f}"
    yield check(
        "disk", enough, f"{left} GiB free for {host.data_directory}",
        f"{_LEAST_DISK >> 30} GiB are needed: make room, or give another data_directory",
    )  # fmt: skip
    there = {
        **{name: facts["tools"].get(name, False) for name in ("ip", "tc", "mkfs.ext4", "mkfs.xfs")},
        "libnftables": facts["libnftables"] is None, "libfaketime": facts["libfaketime"],
    }  # fmt: skip
    for name, is_there in there.items():
        if not is_there:
            status: Status = "not available here" if name in _OPTIONAL else "missing"
            yield Check(name, status, "is not there", _PACKAGES[name])
    if (tried := facts.get("tried")) is None:
        if version >= OLDEST_PYTHON:
            why = facts.get("not_tried", "only root can")
            yield Check("kernel", "missing", f"what it can do could not be tried ({why})", "")
        return
    # The library that it fakes clocks with is sent along; what it is made of is there or not, see above.
    without_clock = {**tried, "faketime": None}
    yield from (each for each in of_capabilities(without_clock) if "libfaketime" not in each.name)
    freezer = tried["freezer"]
    detail = "tried, works" if freezer is None else f"{freezer}: pauses are by SIGSTOP"
    yield Check("freezer of cgroups", "ok" if freezer is None else "not available here", detail, "")


def _of_service(hosts: Hosts, session: Session) -> Check:
    """Can what its data directory is on be shut down?"""
    name = "power cuts and disk faults of the service"
    if not session.host.may_destroy_data:
        return Check(name, "not available here", "may_destroy_data is not true", "")
    assert hosts.service is not None
    try:
        why = alone.why_not(session, hosts.service)
    except HostError as error:
        why = f"could not be looked at ({_clause(session.host, error)})"
    if why:
        return Check(name, "not available here", f"its data directory {why}; {alone.NEED['cut_power']}", "")
    return Check(name, "ok", "its data has a file system to itself", "")


def _of_clock(offsets: clocks.Offsets) -> Check:
    off, sure = offsets.wall.ns / 1e9, offsets.wall.uncertainty_ns / 1e9
    if abs(off) - sure < _CLOCK_OFF_S:
        bound = next((ms for ms in _CLOCK_BOUNDS_MS if abs(off) + sure <= ms / 1e3), 1e3 * (abs(off) + sure))
        return Check("clock", "ok", f"within {bound:g} ms of this machine's", "")
    detail = f"{abs(off):.3f} s (± {sure:.3f}) {'ahead of' if off > 0 else 'behind'} this machine's"
    return Check("clock", "not available here", f"{detail}; no verdict rests on it", "let NTP set it (chrony)")


def _unreached(error: HostError) -> Check:
    return Check("connection", "missing", str(error).partition(": ")[2] or str(error), "")


def _is_able(report: Report | HostError) -> bool:
    return isinstance(report, Report) and tuple(report.facts.get("python", ())) >= OLDEST_PYTHON


def _pairs(hosts: Hosts, sessions: Sequence[Session]) -> Iterator[Check]:
    service = hosts.service
    tried: Sequence[int] = _NODE_PORTS
    if service is not None:
        tried = (service.port, service.controller_port)
    names = ", ".join(map(str, tried))
    if len(sessions) < 2:
        return
    found = ports.between(sessions, tried)
    for name, taken in found.taken.items():
        if taken and service is None:
            listed = ", ".join(map(str, taken))
            yield Check(f"ports, on {name}", "missing", f"{listed} in use", "stop what listens there (ss -ltnp)")
    blocked = [f"{one} to {other}, port {port} ({why})" for one, other, port, why in found.failed]
    if blocked:
        more = f", and {len(blocked) - 5} more" if len(blocked) > 5 else ""
        remedy = "let firewalls between the hosts pass these ports, or give node_address if they have another network"
        yield Check("ports between hosts", "missing", f"no way from {'; '.join(blocked[:5])}{more}", remedy)
    elif not found.errors:
        yield Check("ports between hosts", "ok", f"{names}: open between all {len(sessions)} hosts", "")
    for name, error in found.errors.items():
        yield Check(f"ports, on {name}", "missing", f"could not be tried ({error})", "")


def _same_machines(reports: Mapping[str, Report | HostError]) -> Iterator[Check]:
    named: dict[tuple[str, str], list[str]] = defaultdict(list)
    for name, report in reports.items():
        if isinstance(report, Report) and report.facts.get("machine_id"):
            named[report.facts["machine_id"], report.facts["boot_id"]].append(name)
    for names in named.values():
        if len(names) > 1:
            detail = f"{' and '.join(names)} are one machine (by /etc/machine-id and when it was booted)"
            yield Check("machines", "missing", detail, "give each machine one name")


def _grouped(found: Iterable[tuple[str, Check]], count: int) -> Iterator[Check]:
    """In the order in which they were met first."""
    names: dict[Check, list[str]] = defaultdict(list)
    kinds: dict[str, None] = {}
    for name, each in found:
        names[each].append(name)
        kinds[each.name] = None
    for kind in kinds:
        for each, of in names.items():
            if each.name == kind:
                yield each if len(of) == count else each._replace(name=f"{each.name}, on {', '.join(of)}")


def _clause(host: Host, error: HostError) -> str:
    return str(error).removeprefix(f"host {host.name}: ")
