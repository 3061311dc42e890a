"""What is mounted where, as the kernel tells (proc_pid_mountinfo(5)), and mounting a file system again as it was."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from .. import kernel

_OWN: Final = Path("/proc/self/mountinfo")
_OCTAL: Final = re.compile(r"\\([0-7]{3})")
#: Told of a file system, and no options with which one is mounted.
_ONLY_TOLD: Final = frozenset({"rw", "seclabel", "shutdown"})


@dataclass(frozen=True)
class Mount:
    """A line of mountinfo. number: of the mount, as fdinfo has it. device_number: "7:0". root: what of the file system
    is mounted. options: of this mount; of_file_system: of the file system, wherever it is mounted. peers: "shared:3",
    "master:3"."""

    number: int
    device_number: str
    root: str
    point: str
    options: tuple[str, ...]
    peers: tuple[str, ...]
    kind: str
    source: str
    of_file_system: tuple[str, ...]

    @property
    def is_read_only(self) -> bool:
        return "ro" in (*self.options, *self.of_file_system)

    def holds(self, path: str) -> bool:
        """By its name alone."""
        return path == self.point or path.startswith(f"{self.point.rstrip('/')}/")

    def is_like(self, other: Mount) -> bool:
        """Of the same file system at the same place, with the same options."""
        return self._known_by() == other._known_by()

    def _known_by(self) -> tuple[Any, ...]:
        lasting = set(self.of_file_system) - {"shutdown"}
        return (self.device_number, self.root, self.point, self.kind, set(self.options), lasting)


def parsed(text: str) -> list[Mount]:
    """Of a mountinfo, in its order: what was mounted over another comes later."""
    return [_line(line.split(" ")) for line in text.splitlines()]


def _line(fields: Sequence[str]) -> Mount:
    end = fields.index("-", 6)
    kind, source, of_file_system = map(_plain, fields[end + 1 : end + 4])
    return Mount(
        int(fields[0]), fields[2], _plain(fields[3]), _plain(fields[4]), tuple(_plain(fields[5]).split(",")),
        tuple(fields[6:end]), kind, source, tuple(of_file_system.split(",")),
    )  # fmt: skip


def _plain(field: str) -> str:
    return _OCTAL.sub(lambda found: chr(int(found[1], 8)), field)


def own() -> list[Mount]:
    """Of this process' namespace."""
    return parsed(_OWN.read_text(errors="surrogateescape"))


def above(path: str, mounts: Sequence[Mount]) -> Mount:
    """The one that has this path, which is resolved."""
    return max(
        ((len(each.point), order, each) for order, each in enumerate(mounts) if each.holds(path)),
        key=lambda found: found[:2],
    )[2]


def at(point: str, mounts: Sequence[Mount]) -> list[Mount]:
    """One over the other."""
    return [each for each in mounts if each.point == point]


def mount(wanted: Mount) -> None:
    """As it was when `wanted` was read. Raises OSError."""
    words = {*wanted.options, *wanted.of_file_system}
    flags = [kernel.MOUNT_FLAGS[word] for word in words if word in kernel.MOUNT_FLAGS]
    if not words & {"noatime", "relatime"}:
        flags.append(kernel.STRICT_ATIME)  # else the kernel would take relatime
    data = [each for each in wanted.of_file_system if each not in kernel.MOUNT_FLAGS and each not in _ONLY_TOLD]
    kernel.mount_with(wanted.source, wanted.point, wanted.kind, sum(flags), ",".join(data))


def device_number(path: str) -> str:
    """Of a block device, "7:0"; "": it is none."""
    if not Path(path).is_block_device():
        return ""
    number = os.stat(path).st_rdev
    return f"{os.major(number)}:{os.minor(number)}"
