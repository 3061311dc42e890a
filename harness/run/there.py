"""A run of a cluster that is already there ([service] of the hosts file): what of its plan follows from that file, and
which faults cannot be done to what is somebody's own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from harness.errors import BadArguments
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
}
#: What can be done to nodes that are not the harness' own, by the methods of harness.cluster.
_POSSIBLE: Final = frozenset({
    "kill", "terminate", "start", "pause", "resume", "block", "unblock", "shape", "unshape", "hold_requests",
    "release_requests",
})  # fmt: skip
#: What destroys data, or unmounts it.
_DESTROYING: Final = frozenset({
    "cut_power", "restore_power", "lose_page_cache", "fill_disk", "free_disk", "fail_disk", "repair_disk",
    "make_disk_read_only", "make_disk_writable", "damage_file", "restore_file",
})  # fmt: skip
_OTHERWISE: Final[Mapping[str, str]] = {
    "set_clock": "its processes were not started with a clock of their own",
    "slow_disk": "the cgroups of its processes are not the harness' to limit",
    "drop_clean_pages": "its files are not the harness' to read, all of them",
}
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
    done there: each fault is tried out on a stand-in that notes what is asked of it."""
    seen = Counter[str]()
    some: list[Fault] = []
    for fault in faults:
        seen[fault.nemesis] += 1
        some += [fault] * (seen[fault.nemesis] <= _TRIED)
    for planned in Rehearsal(plan, nemeses).of(tuple(some)):
        name = planned.fault.nemesis
        named = name if name in plan.nemesis else f"{','.join(plan.nemesis)} (its part {name})"
        for call in (*planned.done.inject, *planned.done.heal, *planned.done.if_ended):
            if call.kind == "admin":
                why = "it would change what is others' in the cluster: replicas, leaders, members"
            elif call.method in _POSSIBLE:
                continue
            elif call.method in _DESTROYING:
                why = f"it destroys or damages data that is somebody's ({call.method})"
            else:
                why = _OTHERWISE.get(call.method, f"{call.method} is for nodes that the harness has started")
            raise BadArguments(f"nemesis {named} is not possible with a cluster that is already there: {why}")
