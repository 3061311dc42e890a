"""Whether a service has a file system to itself: only then may that be shut down, unmounted and mounted again.

Everything is read from /proc and /sys, and nothing is tried: who looks changes nothing.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from ...volume import mounts
from ...volume.mounts import Mount

#: Those that can be shut down.
KINDS: Final = ("ext4", "xfs")
#: That of a file system's own, and of nobody's data.
_OF_ITS_OWN: Final = frozenset({"lost+found"})
#: Quotas that somebody switches on after mounting.
_BY_HAND: Final = ("usrjquota=", "grpjquota=")
_SHOWN: Final = 3


class NotAlone(OSError):
    """The message is a clause that goes on after "the data directory of the service"."""


class User(NamedTuple):
    """A process that has this of the file system: open, mapped, as its root, or as where it is."""

    pid: int
    name: str
    path: str

    def __str__(self) -> str:
        return f"process {self.pid} ({self.name}: {self.path})"


def file_system_of(
    directory: str, mine: Collection[int], proc: Path = Path("/proc"), sys: Path = Path("/sys")
) -> Mount:
    """The file system that the service with its data in this directory has to itself. mine: pids of its processes.
    Raises NotAlone."""
    listed = mounts.parsed((proc / "self/mountinfo").read_text(errors="surrogateescape"))
    if _link(proc / "self/ns/mnt") != _link(proc / "1/ns/mnt"):
        raise NotAlone("cannot be looked at, for the agent does not see the mounts of this host's first process")
    mount = of_its_own(os.path.realpath(directory), listed)
    _check_device(mount, sys)
    _check_names(mount, os.path.realpath(directory))
    if apart := sees_apart(mount, mine, proc):
        raise NotAlone(f"is on {mount.source}, which {apart} has mounted apart from this host")
    if found := list(users(mount, mine, proc)):
        more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
        raise NotAlone(f"is on {mount.point}, which others use too: {', '.join(map(str, found[:_SHOWN]))}{more}")
    if held := next(_held_by_kernel(mount, proc, sys), None):
        raise NotAlone(f"is on {mount.point}, where {held}")
    return mount


def of_its_own(directory: str, listed: Sequence[Mount]) -> Mount:
    """Where it is mounted, by what is mounted where. Raises NotAlone."""
    mount = mounts.above(directory, listed)
    if mount.point == "/":
        raise NotAlone("is on the root file system")
    if mount.kind not in KINDS:
        raise NotAlone(f"is on {mount.point}, of {mount.kind}, which cannot be shut down as {' and '.join(KINDS)} can")
    if mount.root != "/":
        raise NotAlone(f"is on {mount.point}, where only {mount.root} of {mount.source} is mounted")
    if len(mounts.at(mount.point, listed)) > 1:
        raise NotAlone(f"is on {mount.point}, where one file system is mounted over another")
    for each in listed:
        if each is mount:
            continue
        if mount.holds(each.point):
            raise NotAlone(f"is on {mount.point}, and {each.point} is mounted below that")
        if each.device_number == mount.device_number:
            raise NotAlone(f"is on {mount.point}, and {each.point} is the same file system")
    if mount.is_read_only:
        raise NotAlone(f"is on {mount.point}, which is read-only")
    if any(each.startswith(_BY_HAND) for each in mount.of_file_system):
        raise NotAlone(f"is on {mount.point}, whose quotas no mount switches on again")
    return mount


def _check_device(mount: Mount, sys: Path) -> None:
    if mounts.device_number(mount.source) != mount.device_number:
        raise NotAlone(f"is on {mount.source}, which is no block device that could be mounted again")
    with suppress(OSError):
        if (sys / "dev/block" / mount.device_number / "loop/autoclear").read_text().strip() == "1":
            raise NotAlone(f"is on {mount.source}, a loop device that is gone once it is unmounted")


def _check_names(mount: Mount, directory: str) -> None:
    """Nothing is there but the service's: above its directory there is nothing beside it."""
    at = Path(mount.point)
    for name in Path(directory).relative_to(at).parts:
        others = sorted({each.name for each in at.iterdir()} - {name} - _OF_ITS_OWN)
        if others:
            more = ", …" if len(others) > _SHOWN else ""
            raise NotAlone(f"is on {mount.point}, which holds others' too: {', '.join(others[:_SHOWN])}{more}")
        at /= name


def sees_apart(mount: Mount, mine: Collection[int], proc: Path = Path("/proc")) -> str:
    """Who has a mount of it that an unmount here would not reach (mount_namespaces(7)); "": nobody. What the service's
    own processes have goes with them."""
    groups = {each.partition(":")[2] for each in mount.peers if each.startswith("shared:")}
    reached = {f"{kind}:{group}" for kind in ("shared", "master") for group in groups}
    here = _link(proc / "self/ns/mnt")
    for pid, namespace in _others(mine, proc):
        if namespace == here:
            continue
        if any(reached.isdisjoint(each.peers) for each in _mounts_of(mount, pid, proc)):
            return f"process {pid} ({_name(pid, proc)})"
    return ""


def users(mount: Mount, mine: Collection[int], proc: Path = Path("/proc")) -> Iterator[User]:
    """Processes besides those that use it, in whichever namespace; the first thing that each uses. A process that ends
    meanwhile uses nothing."""
    known: dict[str, tuple[Mount, ...]] = {}
    for pid, namespace in _others(mine, proc):
        if namespace not in known:
            known[namespace] = tuple(_mounts_of(mount, pid, proc))
    numbers = {each.number for seen in known.values() for each in seen} | {mount.number}
    for pid, namespace in _others(mine, proc):
        places = known.get(namespace, ())
        if path := _used(proc / str(pid), mount, places, numbers):
            yield User(pid, _name(pid, proc), path)


def _used(of: Path, mount: Mount, places: Sequence[Mount], numbers: Collection[int]) -> str:
    """What a process has of it; "": nothing. Paths are as its namespace has them."""
    for link in ("cwd", "root", "exe"):
        if any(each.holds(_link(of / link)) for each in places):
            return _link(of / link)
    with suppress(OSError):
        for descriptor in os.listdir(of / "fdinfo"):
            path = _link(of / "fd" / descriptor)
            if any(each.holds(path) for each in places) or _mount_number(of / "fdinfo" / descriptor) in numbers:
                return path
    major, minor = map(int, mount.device_number.split(":"))
    device = f"{major:02x}:{minor:02x}"
    with suppress(OSError):
        for line in (of / "maps").read_text(errors="surrogateescape").splitlines():
            fields = line.split(maxsplit=5)
            if fields[3] == device:
                return fields[5]
    return ""


def _mount_number(information: Path) -> int:
    """proc_pid_fdinfo(5)."""
    with suppress(OSError, ValueError, StopIteration):
        lines = information.read_text().splitlines()
        return int(next(line for line in lines if line.startswith("mnt_id:")).split()[1])
    return -1


def _held_by_kernel(mount: Mount, proc: Path, sys: Path) -> Iterator[str]:
    """What no process has open, as a clause."""
    with suppress(OSError):
        for line in (proc / "swaps").read_text().splitlines()[1:]:
            if mount.holds(path := line.split()[0]):
                yield f"{path} is swapped to"
    for file in sorted((sys / "block").glob("loop*/loop/backing_file")):
        with suppress(OSError):
            if mount.holds(path := file.read_text().strip()):
                yield f"{path} is the file of {file.parts[-3]}"
    with suppress(OSError):
        for line in (proc / "fs/nfsd/exports").read_text().splitlines():
            if not line.startswith("#") and mount.holds(path := line.split()[0]):
                yield f"{path} is exported by NFS"


def _others(mine: Collection[int], proc: Path) -> Iterator[tuple[int, str]]:
    """Processes, each with the namespace of its mounts. Threads of the kernel have none, and no files."""
    for pid in sorted(int(name) for name in os.listdir(proc) if name.isdigit()):
        if pid not in mine and (namespace := _link(proc / str(pid) / "ns/mnt")):
            yield pid, namespace


def _mounts_of(mount: Mount, pid: int, proc: Path) -> list[Mount]:
    """Of this file system, as that process sees them."""
    try:
        listed = mounts.parsed((proc / str(pid) / "mountinfo").read_text(errors="surrogateescape"))
    except OSError:
        return []
    return [each for each in listed if each.device_number == mount.device_number]


def _link(path: Path) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""


def _name(pid: int, proc: Path) -> str:
    try:
        return (proc / str(pid) / "comm").read_text().strip()
    except OSError:
        return "gone"
