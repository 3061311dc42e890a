"""Bounds of time and memory, kept by everything that grows faster than its history: search, preparation and witness.

What does such work calls Budget.spend(), a unit a step of about a microsecond, so that bounds are looked at every few
milliseconds, whatever the steps are; what holds much says how much with hold(). Memory counts twice, and either may
hit the bound: as those who hold it reckon it, and as what the process has more of than when the budget was made. The
first is exact to some tenths, the second misses what earlier work left to be used again.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from spark_history.errors import HistoryError

_Key = TypeVar("_Key")


class Exceeded(Exception):
    """A bound was hit: str() says which. Nothing is decided by then."""


@dataclass(frozen=True)
class Bounds:
    """Of one object or key."""

    seconds: float = 60.0
    memory_mb: float = 1024.0

    @staticmethod
    def of(plan: Mapping[str, Any]) -> Bounds:
        """From `bounds` of a plan: seconds and memory_mb, of each key. Raises HistoryError."""
        given = plan.get("bounds") or {}
        if not isinstance(given, Mapping):
            raise HistoryError(f"the plan's bounds must be seconds and memory_mb, not {given!r}")
        bounds = Bounds(given.get("seconds", Bounds.seconds), given.get("memory_mb", Bounds.memory_mb))
        for name, bound in vars(bounds).items():
            if type(bound) not in (int, float) or not bound >= 0:
                raise HistoryError(f"the plan's bound of {name} must be a number from 0, not {bound!r}")
        return bounds


#: How long each of several objects is tried before any is for as long as it may.
FIRST_S: Final = 0.5


def judge_each(
    objects: Sequence[_Key], bounds: Bounds, judge: Callable[[_Key, Bounds], str | None], failed: Callable[[], bool]
) -> list[str]:
    """Those that are easy first, so that of many the few that are hard cost nothing where the verdict is certain.

    judge: from an object and its bounds to why it is undecided, or None; failed: whether any was found wrong. Returns
    why objects are undecided.
    """
    undecided: list[str] = []
    first = Bounds(min(bounds.seconds, FIRST_S), bounds.memory_mb)
    left = []
    for each in objects:
        doubt = judge(each, first if len(objects) > 1 else bounds)
        if doubt is not None:
            left.append((each, doubt))
    for each, doubt in left:
        # If one failed, the verdict is certain, whatever comes of this one.
        if len(objects) == 1 or first == bounds or failed():
            undecided.append(doubt)
        elif (still := judge(each, bounds)) is not None:
            undecided.append(still)
    return undecided


LOOK_EVERY: Final = 2048  # units of work between two looks at the bounds
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")


class Budget:
    """What is left of bounds, from now on. before: what the process had when the work began that this is a part of,
    bytes; None: now."""

    def __init__(self, bounds: Bounds, before: int | None = None) -> None:
        self.bounds = bounds
        self.started = time.monotonic()
        self.work, self.next_look = 0, LOOK_EVERY
        self.held = 0  # bytes, apart from those given to look()
        self.before = resident_bytes() if before is None else before

    @property
    def spent(self) -> float:
        """Seconds."""
        return time.monotonic() - self.started

    def spend(self, work: int = 1) -> None:
        """Raises Exceeded."""
        self.work += work
        if self.work >= self.next_look:
            self.look()

    def hold(self, size: int) -> None:
        """size: bytes more that are held until the end. Raises Exceeded."""
        self.held += size
        self.spend(size >> 8)

    def look(self, held: int = 0) -> None:
        """held: bytes, apart from those that hold() was told. Raises Exceeded."""
        self.next_look = self.work + LOOK_EVERY
        if self.spent > self.bounds.seconds:
            raise Exceeded(f"{self.bounds.seconds:g} s (--time-limit of chaos check)")
        most = self.bounds.memory_mb * 1e6
        if self.held + held > most or resident_bytes() - self.before > most:
            raise Exceeded(f"{self.bounds.memory_mb:g} MB of memory (--memory-limit of chaos check)")


def resident_bytes() -> int:
    """Of this process; 0 where /proc does not tell."""
    try:
        with open("/proc/self/statm", "rb", buffering=0) as file:
            return int(file.read(64).split()[1]) * _PAGE
    except (OSError, ValueError, IndexError):
        return 0
