"""The host's own clock, where its owner lets it be set (may_set_clock): every process on the host sees it.

Only CLOCK_REALTIME is set, time and again for one that gains: adjtimex would make CLOCK_MONOTONIC faster as well
(clock_gettime(2)), by which nodes wait and traces are ordered. Before it is set for the first time the agent notes what
it was, against CLOCK_MONOTONIC, which nobody sets; by that it is set right again, whoever does so. Never in a
container, whose clock is that of others.
"""

from __future__ import annotations

import json
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from ...clock import wall_minus_monotonic
from .. import folder as run_folder
from .. import holding
from .reboot import in_container

_NOTED: Final = "clock-before.json"
#: From one time that a clock which gains is set to the next.
STEP_S: Final = 0.01
_CAP_SYS_TIME: Final = 25


class _Clock(Protocol):
    """Seconds since 1970."""

    def wall(self) -> float: ...
    def set(self, seconds: float) -> None: ...


class _Kernels:
    def wall(self) -> float:
        return time.time()

    def set(self, seconds: float) -> None:
        time.clock_settime(time.CLOCK_REALTIME, seconds)


@dataclass(frozen=True)
class _StandIn:
    """file: by how much it is ahead of the host's, which stays as it is."""

    file: str

    def wall(self) -> float:
        path = Path(self.file)
        return time.time() + (float(path.read_text()) if path.exists() else 0.0)

    def set(self, seconds: float) -> None:
        new = Path(f"{self.file}.new")
        new.write_text(repr(seconds - time.time()))
        new.rename(self.file)


def lacking(stand_in: str) -> str:
    """Why it cannot be set, as a clause; "": it can. stand_in: see set_to()."""
    if stand_in:
        return ""
    if in_container():
        return "this host is a container: its clock is that of others, and is not set"
    return "" if _may_set() else "only root may set a clock"


def set_to(folder: Path, offset_s: float, drift: float, stand_in: str = "") -> None:
    """Ahead of the true time, which is as it was before it was set first, by so much now; and so much more each second.
    folder: of the run. stand_in: a file that is set in place of the kernel's clock. Raises OSError."""
    if not offset_s and not drift:
        put_right(folder)  # also where nothing was ever set, nor may be
        return
    if reason := lacking(stand_in):
        raise OSError(reason)
    if _before(folder) is None:
        _note(folder / _NOTED, stand_in)
    _Setting.anew(folder, offset_s, drift)


def offset_s(folder: Path) -> float:
    """How far it is ahead now; 0 unless it was set."""
    before = _before(folder)
    return 0.0 if before is None else wall_minus_monotonic(_clock(folder).wall) - before


def amiss(folder: Path) -> list[str]:
    """Is it still to be set right?"""
    return ["the host's clock was set"] if (folder / _NOTED).exists() else []


def put_right(folder: Path) -> None:
    """Safe to repeat. Raises OSError."""
    if not (folder / _NOTED).exists():
        return
    if _before(folder) is not None:
        _Setting.anew(folder, 0.0, 0.0)
    (folder / _NOTED).unlink()


class _Setting(threading.Thread):
    """Of a clock that gains: sets it until another is made for the same folder in this process."""

    _now: _Setting | None = None
    _lock: Final = threading.Lock()

    def __init__(self, folder: Path, offset_s: float, drift: float) -> None:
        super().__init__(daemon=True, name="clock that gains")
        before = _before(folder)
        assert before is not None
        self._clock, self._right, self._offset_s, self._drift = _clock(folder), before, offset_s, drift
        self._began = time.monotonic()
        self._over = threading.Event()

    @classmethod
    def anew(cls, folder: Path, offset_s: float, drift: float) -> None:
        """Raises OSError."""
        with cls._lock:
            if cls._now is not None:
                cls._now._over.set()
                cls._now.join()
                cls._now = None
            setting = cls(folder, offset_s, drift)
            setting._set()
            if drift:
                cls._now = setting
                setting.start()

    def run(self) -> None:
        while not self._over.wait(STEP_S):
            self._set()

    def _set(self) -> None:
        now = time.monotonic()
        self._clock.set(now + self._right + self._offset_s + self._drift * (now - self._began))


def _note(noted: Path, stand_in: str) -> None:
    clock: _Clock = _StandIn(stand_in) if stand_in else _Kernels()
    run_folder.note(noted, {
        "boot": holding.boot(), "stand_in": stand_in, "wall_minus_monotonic": wall_minus_monotonic(clock.wall),
    })  # fmt: skip


def _before(folder: Path) -> float | None:
    """None: it was not set since this host was booted; with a reboot the monotonic clock has begun anew."""
    try:
        noted = json.loads((folder / _NOTED).read_text())
    except FileNotFoundError:
        return None
    return float(noted["wall_minus_monotonic"]) if noted["boot"] == holding.boot() else None


def _clock(folder: Path) -> _Clock:
    stand_in = json.loads((folder / _NOTED).read_text())["stand_in"]
    return _StandIn(stand_in) if stand_in else _Kernels()


def _may_set() -> bool:
    lines = Path("/proc/self/status").read_text().splitlines()
    mine = next(int(line.split()[1], 16) for line in lines if line.startswith("CapEff:"))
    return bool(mine >> _CAP_SYS_TIME & 1)
