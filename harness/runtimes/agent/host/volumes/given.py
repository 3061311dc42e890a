"""The data of a service that was on this host before the run, where its owner lets it be destroyed (may_destroy_data).

What is to be undone is noted in the run's folder before it is done, so that whoever undoes a run finds it: put_right().
Of the data only the logs of the run's own topic are read, and damaged.
"""

from __future__ import annotations

import base64
import errno
import json
import re
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from ... import kernel
from ...machine import Volume
from ...volume import disk, mounts
from ...volume.damage import Damage, restore
from ...volume.mounts import Mount
from .. import folder as run_folder
from .. import holding
from . import alone

_LOST: Final = "lost.json"
_DAMAGED: Final = "damaged.json"
_UNUSED_S: Final = 10.0
_RELEASED_S: Final = 10.0
_MOUNTED_S: Final = 10.0
_POLL_S: Final = 0.005
_NO_ROOM: Final = (None, "ENOSPC", "EDQUOT")
#: What is done to a file system: its memory is lost, each operation on it fails, there is no room on it.
_UNMOUNTED: Final = ("lost", "failing")


class GivenVolume(Volume):
    """folder: of the run. topic: its own one."""

    def __init__(self, directory: Path, topic: str, folder: Path) -> None:
        super().__init__(folder / "none", directory, "")
        self._folder = folder
        self._log = re.compile(rf"{re.escape(topic)}-\d+")
        self._mount: Mount | None = None

    def top(self, name: str) -> bool:
        return self._log.fullmatch(name) is not None

    def begin(self, what: str, mine: Collection[int]) -> None:
        """what: "lost", "failing" or "full". mine: the service's processes. Raises OSError: this must not be done to
        it, or something was, and is not put right."""
        if (self._folder / _LOST).exists():
            raise OSError(errno.EBUSY, f"what was done to the file system of {self.directory} is not put right yet")
        try:
            self._mount = alone.file_system_of(str(self.directory), mine)
        except alone.NotAlone as error:
            raise OSError(f"the data directory of the service {error}") from error
        run_folder.note(self._folder / _LOST, {
            "what": what, "mount": asdict(self._mount), "directory": str(self.directory), "boot": holding.boot(),
        })  # fmt: skip

    def end(self) -> None:
        _remove(self._folder / _LOST)

    def shut_down(self) -> None:
        """Once nobody uses it. Raises OSError, and has done nothing then, if somebody does."""
        assert self._mount is not None
        _wait_until_unused(self._mount)
        super().shut_down()

    def unmount(self) -> None:
        assert self._mount is not None
        unmount(self._mount)

    def mount(self, *, read_only: bool = False) -> None:
        assert self._mount is not None and not read_only
        mount(self._mount)
        self.end()

    def note(self, done: Damage | None) -> None:
        if done is None:
            _remove(self._folder / _DAMAGED)
            return
        texts = {name: base64.b64encode(getattr(done, name)).decode() for name in ("before", "after")}
        run_folder.note(self._folder / _DAMAGED, {
            "damage": {**done._asdict(), **texts}, "directory": str(self.directory), "log": self._log.pattern,
        })  # fmt: skip


def amiss(folder: Path) -> list[str]:
    """What of a run is still done to the data of a service: a clause each."""
    found = []
    if (lost := _read(folder / _LOST)) is not None:
        point = lost["mount"]["point"]
        if lost["what"] not in _UNMOUNTED:
            found.append(f"{point} is full on purpose")
        elif not is_whole(_mount(lost)):
            found.append(f"{point} is {'of no use' if _is_mounted(_mount(lost)) else 'not mounted'}")
    if (damaged := _read(folder / _DAMAGED)) is not None:
        found.append(f"{damaged['directory']}/{damaged['damage']['path']} is damaged")
    return found


def put_right(folder: Path, end: Callable[[], object]) -> None:
    """Its file system is mounted as it was, with room, and nothing in it is damaged. end: kills the processes of the
    service. Safe to repeat, whoever died in the midst of what. Raises OSError, and is to be repeated then."""
    bring_back(folder, end)
    if (lost := _read(folder / _LOST)) is not None:
        disk.free(Path(lost["directory"]))
        _remove(folder / _LOST)
    if (damaged := _read(folder / _DAMAGED)) is not None:
        told = damaged["damage"]
        texts = {name: base64.b64decode(told[name]) for name in ("before", "after")}
        log = re.compile(damaged["log"])
        with suppress(FileNotFoundError):  # the service, or its owner, has removed it
            restore(Path(damaged["directory"]), Damage(**{**told, **texts}), lambda name: bool(log.fullmatch(name)))
        _remove(folder / _DAMAGED)


def bring_back(folder: Path, end: Callable[[], object]) -> None:
    """Its file system is mounted as it was. Raises OSError."""
    lost = _read(folder / _LOST)
    if lost is not None and lost["what"] in _UNMOUNTED:
        _bring_back(_mount(lost), lost["boot"] != holding.boot(), end)
        _remove(folder / _LOST)


def _bring_back(wanted: Mount, was_rebooted: bool, end: Callable[[], object]) -> None:
    if is_whole(wanted):
        return
    if was_rebooted:  # devices may have other names now, and mounting is what its owner has a table for
        if not _is_mounted(wanted, by_point=True):
            raise OSError(f"{wanted.point} is not mounted since this host was rebooted: mount it, and clean again")
        return
    end()
    if _is_mounted(wanted):
        unmount(wanted)
    mount(wanted)


def is_whole(wanted: Mount) -> bool:
    """Is it mounted, and does it take writes?"""
    return _is_mounted(wanted) and disk.write_error(Path(wanted.point)) in _NO_ROOM


def unmount(wanted: Mount) -> None:
    """Returns when the kernel has let go of the file system: mounting earlier would bring back the one that was shut
    down. Raises OSError; then it may still be mounted, and is of no use."""
    until = time.monotonic() + _UNUSED_S
    while True:
        try:
            kernel.unmount(Path(wanted.point))
            break
        except OSError as error:
            if error.errno != errno.EBUSY or time.monotonic() > until:
                raise OSError(f"{wanted.point} cannot be unmounted ({_why_in_use(wanted)})") from error
        time.sleep(_POLL_S)
    try:
        kernel.wait_until_released(Path(wanted.source), _RELEASED_S)
    except OSError:
        mount(wanted)  # of no use, it covers what lies below; put_right() may find gone who held it
        raise


def mount(wanted: Mount) -> None:
    """Raises OSError if it cannot be, or is another way than it was."""
    until = time.monotonic() + _MOUNTED_S
    while True:
        try:
            mounts.mount(wanted)
            break
        except OSError:  # a device that is looked at just then is busy
            if time.monotonic() > until:
                raise
        time.sleep(_POLL_S)
    now = mounts.above(wanted.point, mounts.own())
    if not now.is_like(wanted):
        raise OSError(
            f"{wanted.point} was mounted with {','.join((*wanted.options, *wanted.of_file_system))}, and now is with "
            f"{','.join((*now.options, *now.of_file_system))}"
        )


def _wait_until_unused(wanted: Mount) -> None:
    until = time.monotonic() + _UNUSED_S
    while kernel.is_in_use(wanted.point):
        if time.monotonic() > until:
            raise OSError(errno.EBUSY, f"its file system was left alone, for {_why_in_use(wanted)}")
        time.sleep(_POLL_S)


def _why_in_use(wanted: Mount) -> str:
    found = next(iter(alone.users(wanted, ())), None)
    return f"it is used by {found}" if found else "something uses it"


def _is_mounted(wanted: Mount, *, by_point: bool = False) -> bool:
    there = mounts.at(wanted.point, mounts.own())
    return any(by_point or each.device_number == wanted.device_number for each in there)


def _mount(noted: Mapping[str, Any]) -> Mount:
    told: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in noted["mount"].items()
    }
    return Mount(**told)


def _read(path: Path) -> Mapping[str, Any] | None:
    try:
        return dict(json.loads(path.read_text()))
    except (FileNotFoundError, ValueError):
        return None


def _remove(path: Path) -> None:
    path.unlink(missing_ok=True)
