"""A run of a cluster that is already there ([service] of the hosts file): what of its plan follows from that file, and
which faults cannot be done to what is somebody's own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from harness.errors import BadArguments
from harness.plan import registry
from harness.plan.plan import Plan, flag
from harness.plan.schedule import Fault, Schedule
from harness.run.dry.rehearsal import Rehearsal
from nemesis import Nemesis

#: Of a plan, what makes no sense there, and why.
_SENSELESS: Final[Mapping[str, str]] = {
    "settings": "--set is for nodes that the harness configures",
    "features": "--feature is for a cluster that the harness formats",
    "file_system": "--file-system is for volumes that the harness makes",
    "kafka_home": "--kafka-home is what the harness would start",
    "upgrade_to": "--upgrade-to is what the harness would start",
    "bug": "--bug is for nodes that the harness starts",
    "racks": "--racks is for nodes that the harness starts",
}
#: What can be done to nodes that are not the harness' own, by the methods of harness.cluster.
_POSSIBLE: Final = frozenset({
    "kill", "terminate", "start", "pause", "resume", "block", "unblock", "shape", "unshape", "hold_requests",
    "release_requests", "drop_clean_pages",
    # What undoes those that destroy.
    "restore_power", "free_disk", "repair_disk", "restore_file",
})  # fmt: skip
#: What destroys data; and of that, what needs a file system that the service has to itself.
_DESTROYING: Final = frozenset({"cut_power", "lose_page_cache", "fill_disk", "fail_disk", "damage_file"})
_OF_FILE_SYSTEMS: Final = _DESTROYING - {"damage_file"}
_READ_ONLY: Final = (
    "ext4 would keep the mark of an error for good, and XFS can only be mounted read-only while the service is down"
)
_OTHERWISE: Final[Mapping[str, str]] = {
    "set_clock": "its processes were not started with a clock of their own",
    "slow_disk": "the cgroups of its processes are not the harness' to limit",
    "make_disk_read_only": _READ_ONLY,
    "make_disk_writable": _READ_ONLY,
}
_NOT_THERE: Final = "is not possible with a cluster that is already there"
#: Of a nemesis, faults that are tried.
_TRIED: Final = 20


def agreed(fields: Mapping[str, Any], target: Any) -> dict[str, Any]:
    """Fields of a plan, with those that follow from its hosts file if that has a [service]. Raises BadArguments."""
    from harness.runtimes.ssh import hosts_file
    from harness.runtimes.ssh.service.layout import layout

    path = Path(fields["hosts"])
    hosts = hosts_file.read(path)
    if hosts.service is None and not fields.get("service"):
        return dict(fields)
    found = layout(hosts)
    there = f"the cluster of --hosts {path} is already there"
    if "service" not in target.options:
        raise BadArguments(f"{there}, and target {target.name} cannot be one: give --target kafka:VERSION")
    for name, why in _SENSELESS.items():
        if name in fields and fields[name] != Plan.model_fields[name].default:
            raise BadArguments(f"{why}, and {there}; leave it out")
    if fields.get("spare_brokers"):
        raise BadArguments(f"--spare-brokers are started by the harness, and {there}; leave it out")
    for name, value in found.fields.items():
        if name in fields and fields[name] != value:
            said = f"{value} {name}" if name != "combined" else f"{'' if value else 'no '}combined nodes"
            raise BadArguments(f"{flag(name)} contradicts --hosts {path}, whose cluster has {said}; leave it out")
    brokers = len(found.combined) + len(found.brokers)
    copies = min(Plan.model_fields["replication_factor"].default, brokers)
    of_its_size = {
        "replication_factor": copies,
        "min_insync_replicas": min(Plan.model_fields["min_insync_replicas"].default, copies),
        "timeouts": "kafka",
    }
    return {**of_its_size, **fields, **found.fields, "service": True}


def check_faults(plan: Plan, nemeses: Mapping[str, Nemesis], faults: Schedule) -> None:
    """nemeses: of the plan, and those of the faults. Raises BadArguments naming the first that would do what cannot be
    done there: each fault is tried out on a stand-in that notes what is asked of it. Where a fault needs a file system
    that a service has to itself, the hosts that it may strike are asked: raises RuntimeUnavailable if one cannot be."""
    seen = Counter[str]()
    some: list[Fault] = []
    for fault in faults:
        seen[fault.nemesis] += 1
        some += [fault] * (seen[fault.nemesis] <= _TRIED)
    destroying: list[_Destroying] = []
    for planned in Rehearsal(plan, nemeses).of(tuple(some)):
        name = planned.fault.nemesis
        named = name if name in plan.nemesis else f"{','.join(plan.nemesis)} (its part {name})"
        is_sure = not (planned.whom.depends_on or planned.overlaps or seen[name] > _TRIED)
        for call in (*planned.done.inject, *planned.done.heal, *planned.done.if_ended):
            if call.kind == "admin":
                why = "it would change what is others' in the cluster: replicas, leaders, members"
            elif call.method in _POSSIBLE:
                continue
            elif call.method in _DESTROYING:
                destroying.append(_Destroying(named, call.method, call.on if is_sure else ""))
                continue
            else:
                why = _OTHERWISE.get(call.method, f"{call.method} is for nodes that the harness has started")
            raise BadArguments(f"nemesis {named} {_NOT_THERE}: {why}")
    if destroying:
        _check_destroying(plan, destroying)


class _Destroying(NamedTuple):
    """nemesis: as it is told. node: whom it strikes; "": it may be any."""

    nemesis: str
    method: str
    node: str


def _check_destroying(plan: Plan, faults: Sequence[_Destroying]) -> None:
    from harness.runtimes.ssh import hosts_file
    from harness.runtimes.ssh.service import alone
    from harness.runtimes.ssh.service.layout import assign

    assert plan.hosts is not None
    hosts = hosts_file.read(Path(plan.hosts))
    of = assign(registry.make_target(plan.target).nodes(plan), hosts)
    for each in faults:
        for host in of.values() if not each.node else (of[each.node],):
            if not host.may_destroy_data:
                raise BadArguments(
                    f"nemesis {each.nemesis} {_NOT_THERE}: it destroys or damages data that is somebody's "
                    f"({each.method}); if that is meant, say may_destroy_data = true of host {host.name} in "
                    f"{plan.hosts}"
                )
    asked = [each for each in faults if each.method in _OF_FILE_SYSTEMS]
    struck = {of[node].name for each in asked for node in ([each.node] if each.node else of)}
    told = alone.why_not_on(hosts, struck) if struck else {}
    for each in asked:
        for node in [each.node] if each.node else of:
            if (name := of[node].name) in told:
                raise BadArguments(
                    f"nemesis {each.nemesis} {_NOT_THERE}: the data directory of the service on host {name} "
                    f"{told[name]}; {alone.NEED[each.method]}"
                )
