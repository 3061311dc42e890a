"""What a check of a machine found, whichever machine it is: this one, or a host."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, Literal, NamedTuple

Status = Literal["ok", "missing", "not available here"]

OLDEST_PYTHON: Final = (3, 11)

#: What the agent's probe tries: its name there, what a person calls it, what to do. Without a remedy it is not
#: needed for any nemesis that there is.
CAPABILITIES: Final = (
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


def check(name: str, fulfilled: bool, detail: str, remedy: str) -> Check:
    return Check(name, "ok", detail, "") if fulfilled else Check(name, "missing", detail, remedy)


def of_capabilities(found: Mapping[str, str | None]) -> Iterator[Check]:
    """found: by the agent's probe."""
    for key, name, remedy in CAPABILITIES:
        problem = found[key]
        if problem is None:
            yield Check(name, "ok", _how_shaped(found["netem"]) if key == "shaping" else "tried, works", "")
        else:
            yield Check(name, "missing" if remedy else "not available here", problem, remedy)


def _how_shaped(no_netem: str | None) -> str:
    delays = "and netem" if no_netem is None else "(no netem: delay and reorder are not available here)"
    return f"token bucket, statistic rules {delays}"
