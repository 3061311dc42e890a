"""How each fault is done to a node on a host, for `chaos run --dry-run`: what differs from containers (../docker/how).
Who does it is the agent on the host, as root."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from harness.cluster import TERMINATE_PATIENCE_S
from harness.runtimes.agent.volume.tree import FILLER
from harness.runtimes.docker.how import HOW as IN_CONTAINERS
from harness.runtimes.docker.how import LOSE

_ESCAPE: Final = "first rule in every chain: `tcp dport (out: sport) SSH_PORT accept`"
_CLIENTS: Final = "of clients: `ip saddr != { all nodes } tcp dport { the node's ports }`"

HOW: Final[Mapping[str, tuple[str, ...]]] = {
    **IN_CONTAINERS,
    "terminate": (f"SIGTERM to the node's process; SIGKILL if it runs {TERMINATE_PATIENCE_S:g} s later",),
    "start": ("the node's process is started by the agent, in a mount namespace and a cgroup of its own",),
    "pause": ("freezer of its cgroup; with how=sigstop, or where the host has no freezer to write: SIGSTOP",),
    "resume": ("its cgroup is thawed; with SIGSTOP: SIGCONT",),
    "cut_power": (
        f"nft table inet chaos, chains unplugged-in and unplugged-out; {_ESCAPE}; nodes and the node's own ports: "
        "drop, and reject with tcp reset for what still wants to leave",
        *LOSE,
    ),
    "restore_power": (
        "nft delete chain inet chaos unplugged-in, unplugged-out, and what was blocked or shaped put back",
        "the node's process is started by the agent",
    ),
    "set_clock": (
        "libfaketime: offset and rate in the clock's file of the node's process; the host's clock stays",
        "where the hosts file says may_set_clock: clock_settime CLOCK_REALTIME, for one that gains 100 times a second",
    ),
    "make_disk_read_only": (
        "ext4: SIGSTOP, syncfs, mount -o remount,abort, SIGCONT; xfs: SIGKILL, umount, mount -o ro, start",
    ),
    "block": (
        f"nft table inet chaos, chain block-KEY-in where a link ends; {_ESCAPE}; `ip saddr ADDRESS counter drop`; "
        f"{_CLIENTS} counter drop",
        "and block-KEY-out where it begins, if it leads to clients",
    ),
    "shape": (
        f"loss: nft table inet chaos, {_ESCAPE}; `ip saddr ADDRESS numgen random mod 1000000 < SHARE counter drop`",
        "duplicate: nft table ip chaos, `dup to`",
        "delay, reorder, rate: tc qdisc htb, handle c405:, netem and tbf of the interface that leads to the nodes; the "
        "first filter lets SSH pass",
    ),
}  # fmt: skip

_STOP: Final = "SIGSTOP to the service's processes; of a unit: systemctl stop --no-block UNIT; SIGKILL to all of them"
_CHECK: Final = "the service has its file system to itself (/proc/*/fdinfo, maps, mountinfo); else nothing is done"
_AGAIN: Final = "umount, mount of the same device at the same place with the same options, which replays its journal"
_LOSE: Final = (
    _STOP, "umount2 MNT_EXPIRE: nobody uses it any more; ioctl FS_IOC_SHUTDOWN, NOLOGFLUSH, on its file system", _AGAIN,
)  # fmt: skip
#: What is otherwise of a cluster that is already there.
OF_SERVICES: Final[Mapping[str, tuple[str, ...]]] = {
    "kill": ("SIGKILL to the service's process, by pidfd",),
    "terminate": (
        f"systemctl stop UNIT, or the command `stop` of hosts.toml; SIGKILL after {TERMINATE_PATIENCE_S:g} s",
    ),
    "start": ("unless it runs: systemctl start UNIT, or the command `start` of hosts.toml",),
    "pause": ("SIGSTOP to the service's process",),
    "resume": ("SIGCONT",),
    "cut_power": (_CHECK, HOW["cut_power"][0], *_LOSE),
    "restore_power": (HOW["restore_power"][0], "systemctl start UNIT, or the command `start` of hosts.toml"),
    "lose_page_cache": (_CHECK, *_LOSE),
    "fill_disk": (_CHECK, f"fallocate of {FILLER} in its data directory, until ENOSPC"),
    "fail_disk": (_CHECK, "ioctl FS_IOC_SHUTDOWN, NOLOGFLUSH, on its file system, under the running process"),
    "repair_disk": (_STOP, _AGAIN),
    "drop_clean_pages": ("posix_fadvise POSIX_FADV_DONTNEED of the clean pages of the run's own topic",),
    "damage_file": (_STOP, "pwrite or ftruncate of one file of the run's own topic"),
}  # fmt: skip


def addresses(plan: Any) -> Mapping[str, str]:
    """As the hosts file has them. Raises BadArguments, RuntimeUnavailable."""
    from harness.plan.registry import make_target

    from .hosts_file import read
    from .runtime import assign
    from .service import layout

    specs, hosts = make_target(plan.target).nodes(plan), read(Path(plan.hosts))
    if plan.service:
        there = layout.assign(specs, hosts)
        return {spec.name: f"{there[spec.name].node_address}:{layout.port_of(spec, hosts)}" for spec in specs}
    chosen = assign(specs, hosts)
    return {spec.name: f"{chosen[spec.name].node_address}:{spec.port}" for spec in specs}
