"""python3 -m agent.host.launch LAUNCH: becomes a node's process, which sees the files that it would see in a container.

LAUNCH is a JSON file: see Launch. In a mount namespace of its own the process has a root of its own: the host's
folders, and over them the node's volume, its configuration and the package that is installed for it. Nothing of that is
seen outside, and nothing is left of it once the process has ended. It runs without privileges, as another user.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

_CLONE_NEWNS: Final = 0x00020000
_MS_REC: Final = 1 << 14
_MS_PRIVATE: Final = 1 << 18
_MS_BIND: Final = 1 << 12
_PR_SET_NO_NEW_PRIVS: Final = 38
#: Folders of the host that a node does not see: its own are there instead, or it has no business there.
_OWN: Final = ("tmp", "lost+found", "root", "home", "mnt", "media", "boot")

_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Launch:
    """root: an empty folder, over which the new root is mounted. mounts: by the path that the process sees, the file or
    folder of the host. tmp_bytes: of its /tmp. cgroups: files into which its pid is written first. largest_file:
    bytes."""

    command: list[str]
    environment: dict[str, str]
    root: str
    mounts: Mapping[str, str]
    user: int
    tmp_bytes: int
    largest_file: int
    cgroups: list[str] = field(default_factory=list)


def become(launch: Launch) -> None:
    """Does not return. Raises OSError."""
    for file in launch.cgroups:
        Path(file).write_text(str(os.getpid()))
    os.setsid()
    os.umask(0o022)  # the node, who is another user, comes through all of it
    root = Path(launch.root)
    _call("unshare", _CLONE_NEWNS)
    _mount(None, "/", None, _MS_REC | _MS_PRIVATE)
    _mount("tmpfs", root, "tmpfs", 0, "size=1m,mode=755")
    _bring_host(root)
    (root / "tmp").mkdir()
    _mount("tmpfs", root / "tmp", "tmpfs", 0, f"size={launch.tmp_bytes},mode=1777")
    for target, source in sorted(launch.mounts.items()):  # a folder comes before what lies in it
        _bind(Path(source), root / target.lstrip("/"))
    os.chroot(root)
    os.chdir("/")
    resource.setrlimit(resource.RLIMIT_FSIZE, (launch.largest_file, launch.largest_file))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.setgroups([])
    os.setgid(launch.user)
    os.setuid(launch.user)
    _call("prctl", _PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    os.execvpe(launch.command[0], launch.command, launch.environment)


def _bring_host(root: Path) -> None:
    """Each entry of the host's root: links as they are, folders bound with all that is mounted in them. What is in
    /opt is bound one by one, for there is more of ours."""
    (root / "opt").mkdir()
    for entry in [*os.scandir("/"), *(os.scandir("/opt") if os.path.isdir("/opt") else ())]:
        if entry.path == "/opt" or entry.path.lstrip("/") in _OWN:
            continue
        if entry.is_symlink():
            os.symlink(os.readlink(entry.path), root / entry.path.lstrip("/"))
        elif entry.is_dir():
            _bind(Path(entry.path), root / entry.path.lstrip("/"))


def _bind(source: Path, target: Path) -> None:
    if source.is_dir():
        target.mkdir(parents=True, exist_ok=True)
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.touch()
    _mount(str(source), target, None, _MS_BIND | _MS_REC)


def _mount(source: str | None, target: str | Path, kind: str | None, flags: int, options: str = "") -> None:
    named = [None if text is None else os.fsencode(text) for text in (source, target, kind)]
    _call("mount", named[0], named[1], named[2], ctypes.c_ulong(flags), options.encode() or None)


def _call(name: str, *arguments: object) -> None:
    if getattr(_libc, name)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


def main() -> int:
    try:
        become(Launch(**json.loads(Path(sys.argv[1]).read_text())))
    except OSError as error:
        print(f"chaos: the node's process could not be started: {error}", file=sys.stderr)
    return 70


if __name__ == "__main__":
    sys.exit(main())
