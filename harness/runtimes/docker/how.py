"""How each fault is done to a node in a container, for `chaos run --dry-run`: by the methods of harness.cluster, the
commands and system calls, in their order. Who does them is the agent (../agent), in the node's namespaces, or Docker.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from harness.cluster import TERMINATE_PATIENCE_S
from harness.runtimes.agent.clock import FOLDER
from harness.runtimes.agent.volume.other import OTHER
from harness.runtimes.agent.volume.tree import FILLER

_REMOUNT: Final = ("umount and mount of the volume",)
LOSE: Final = (
    "SIGKILL to the node's process, by pidfd", "ioctl FS_IOC_SHUTDOWN, NOLOGFLUSH, on the volume", *_REMOUNT,
)  # fmt: skip
_NO_LIMIT: Final = ("io.max of its cgroup, or blkio.throttle.* of cgroup v1: as before",)

HOW: Final[Mapping[str, tuple[str, ...]]] = {
    "kill": ("SIGKILL to the node's process, by pidfd",),
    "terminate": (f"SIGTERM to the node's process; SIGKILL if it runs {TERMINATE_PATIENCE_S:g} s later",),
    "start": ("docker start of the node's container",),
    "pause": ("docker pause, the freezer of its cgroup; with how=sigstop: SIGSTOP to its process",),
    "resume": ("docker unpause; with how=sigstop: SIGCONT",),
    "cut_power": (
        "ioctl SIOCSIFFLAGS: its network interfaces down", *LOSE,
        "SIGKILL to the container that holds its network namespace",
    ),
    "restore_power": (
        "docker start of the container of its network, and what was blocked or shaped put back",
        "docker start of the node's container",
    ),
    "lose_page_cache": LOSE,
    "replace": (f"mkdir {OTHER} on its volume", "another node.id in its configuration"),
    "put_back": ("its own node.id in its configuration", f"rm -r {OTHER} on its volume"),
    "switch_release": ("the other release in its configuration",),
    "set_clock": (f"libfaketime: offset and rate in {FOLDER}/offset of the node; the host's clock stays",),
    "fill_disk": (f"fallocate of {FILLER} on its volume, until ENOSPC",),
    "free_disk": (f"rm {FILLER}",),
    "fail_disk": ("ioctl FS_IOC_SHUTDOWN, NOLOGFLUSH, on the volume, under the running process",),
    "repair_disk": ("SIGKILL to its process if it has not ended by itself", *_REMOUNT),
    "drop_clean_pages": ("posix_fadvise POSIX_FADV_DONTNEED of the clean pages of its files",),
    "slow_disk": ("io.max of its cgroup, or blkio.throttle.* of cgroup v1: bytes and operations a second",),
    "hasten_disk": _NO_LIMIT,
    "make_disk_read_only": (
        "ext4: SIGSTOP, syncfs, mount -o remount,abort, SIGCONT; xfs: SIGKILL, umount, mount -o ro, docker start",
    ),
    "make_disk_writable": ("SIGKILL to its process if it has not ended by itself", *_REMOUNT),
    "damage_file": ("SIGKILL to its process, by pidfd", "pwrite or ftruncate of one file of its volume"),
    "restore_file": ("pwrite of what was there, if the file is as it was left",),
    "block": (
        "nft table inet chaos, chain block-KEY-in where a link ends: `ip saddr ADDRESS counter drop`",
        "and block-KEY-out where it begins: `ip daddr ADDRESS counter drop`",
    ),
    "unblock": ("nft delete chain inet chaos block-KEY-in, block-KEY-out",),
    "shape": (
        "loss: nft table inet chaos, `ip saddr ADDRESS numgen random mod 1000000 < SHARE counter drop`",
        "duplicate: nft table ip chaos, `dup to`",
        "delay, reorder, rate: tc qdisc htb, netem and tbf of its interface, a filter for each address",
    ),
    "unshape": ("nft delete chain … shape-KEY-in, shape-KEY-out; tc qdisc del",),
    "hold_requests": ("a rule of the proxy between clients and brokers",),
    "release_requests": ("the rule is removed; what is held back arrives in its time",),
}  # fmt: skip


def addresses(plan: Any) -> Mapping[str, str]:
    """By node, where it will be reached. Docker's network is made when the run starts."""
    return {}
