"""The cgroup of a node's process on a host: what freezes it, and limits what it reads and writes.

A hierarchy that is not mounted, or may not be written, is no mistake: then there is no freezer (processes are stopped
by a signal), or no limit of a disk.
"""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from . import folder as run_folder
from . import holding

_ROOT: Final = Path("/sys/fs/cgroup")
_PREFIX: Final = "chaos-"
_V1: Final = ("freezer", "blkio")
_PATIENCE_S: Final = 2.0
#: In the folder of a run: of v2, the root did not hand its io controller down before.
_IO: Final = "io-enabled.json"


class Cgroup:
    """Of one run. folder: where it notes what else it has changed; None: it is only removed."""

    def __init__(self, run: str, folder: Path | None = None) -> None:
        self._folder = folder
        self._folders = [folder / f"{_PREFIX}{run}" for folder in _hierarchies()]

    def make(self) -> list[str]:
        """The files into which the pid of a process is written that is to be in it."""
        made = []
        for folder in self._folders:
            with suppress(OSError):
                folder.mkdir(exist_ok=True)
                if folder.parent == _ROOT:
                    with suppress(OSError):  # io limits need it; the freezer does not
                        self._enable_io()
                made.append(str(folder / "cgroup.procs"))
        return made

    def _enable_io(self) -> None:
        control = _ROOT / "cgroup.subtree_control"
        if self._folder is not None and "io" not in control.read_text().split():
            run_folder.note(self._folder / _IO, {"boot": holding.boot()})
            control.write_text("+io")

    def wait_for(self, pid: int) -> None:
        """Until a process that was told to be in it is: what is done to its cgroup must not strike ours."""
        until = time.monotonic() + _PATIENCE_S
        for folder in self._folders:
            while (folder / "cgroup.procs").exists() and Path(f"/proc/{pid}").exists() and time.monotonic() < until:
                if str(pid) in (folder / "cgroup.procs").read_text().split():
                    break
                time.sleep(0.001)

    @property
    def _freezer(self) -> tuple[Path, str, str] | None:
        """The file, and what is written to freeze and to thaw."""
        for folder in self._folders:
            if (folder / "freezer.state").exists():
                return folder / "freezer.state", "FROZEN", "THAWED"
            if (folder / "cgroup.freeze").exists():
                return folder / "cgroup.freeze", "1", "0"
        return None

    @property
    def freezes(self) -> bool:
        return self._freezer is not None

    @property
    def limits(self) -> bool:
        """Can what is in it read and write of a disk be limited?"""
        files = ("blkio.throttle.write_bps_device", "io.max")
        return any((folder / file).exists() for folder in self._folders for file in files)

    def freeze(self) -> None:
        """Returns once all of it stands still. Raises OSError."""
        if self._freezer is None:
            raise OSError("no cgroup freezer")
        file, frozen, _ = self._freezer
        file.write_text(frozen)
        until = time.monotonic() + _PATIENCE_S
        while not self.is_frozen and time.monotonic() < until:
            time.sleep(0.001)

    def thaw(self) -> None:
        if self._freezer is not None:
            file, _, thawed = self._freezer
            file.write_text(thawed)

    @property
    def is_frozen(self) -> bool:
        if self._freezer is None:
            return False
        file = self._freezer[0]
        if file.name == "freezer.state":
            return file.read_text().strip() == "FROZEN"
        return "frozen 1" in (file.parent / "cgroup.events").read_text()

    def remove(self) -> list[int]:
        """Kills what is in it first. The pids that were."""
        killed = []
        for folder in self._folders:
            with suppress(OSError):
                self.thaw()
                for pid in map(int, (folder / "cgroup.procs").read_text().split()):
                    with suppress(ProcessLookupError):
                        os.kill(pid, 9)
                        killed.append(pid)
            _remove(folder)
        return killed


def put_back(folder: Path) -> None:
    """What a run, whose folder this is, has changed for cgroups that are not its own. Once its own is removed."""
    try:
        noted = json.loads((folder / _IO).read_text())
    except (OSError, ValueError):
        return
    if noted["boot"] == holding.boot():
        with suppress(OSError):  # somebody else needs it by now
            (_ROOT / "cgroup.subtree_control").write_text("-io")
    (folder / _IO).unlink()


def all_of_ours() -> list[str]:
    """Names of runs that have one."""
    found = {path.name.removeprefix(_PREFIX) for folder in _hierarchies() for path in folder.glob(f"{_PREFIX}*")}
    return sorted(found)


def _remove(folder: Path) -> None:
    until = time.monotonic() + _PATIENCE_S
    while folder.exists():
        with suppress(OSError):  # busy for as long as a killed process is not yet gone
            folder.rmdir()
            return
        if time.monotonic() > until:
            return
        time.sleep(0.01)


def _hierarchies() -> list[Path]:
    """Where ours are made. Of v2 it is the root: it alone may have both processes and cgroups with controllers. Of v1
    it is our own cgroup: what is above may be another machine's, where hosts are containers."""
    if (_ROOT / "cgroup.controllers").exists():
        return [_ROOT]
    own = [line.split(":", 2)[1:] for line in Path("/proc/self/cgroup").read_text().splitlines()]
    found = [_ROOT / name / path.lstrip("/") for name in _V1 for controllers, path in own
             if name in controllers.split(",")]  # fmt: skip
    return [folder for folder in found if (folder / "cgroup.procs").exists()]
