"""When the next fault may strike a cluster that takes long to recover: not before its clients are served again, and
have been for most of the time so far.

Of a cluster that is broken anew whenever it has just come up nothing is learned: a run of four nemeses at once, at a
pace made for processes that start in half a second, let clients of a JVM write for six seconds of ninety.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, Protocol

from harness.targets.timing import Timing
from nemesis import Nemesis

#: Of the time so far, for each partition.
LEAST_SHARE: Final = 0.6
#: Acknowledged nothing for so long: not served.
SILENT_S: Final = 2.0
#: Who was told to wait asks again sooner than that, or has given up.
ASKS_AGAIN_S: Final = 5.0


class Served(NamedTuple):
    """Of one partition: seconds since its last acknowledgement, and for which share of the time so far there were
    any."""

    silent_s: float
    share: float


class Serving(Protocol):
    """A workload that can tell."""

    def served(self) -> Mapping[str, tuple[float, float]]:
        """By partition, as Served has them."""
        ...


class Calm:
    """served: as of Serving. Whoever cannot tell is not waited for."""

    def __init__(self, timing: Timing, served: Callable[[], Mapping[str, tuple[float, float]]] | None) -> None:
        self._served = served if timing.start else None
        self._apart_s = timing.session
        self._last = -math.inf  # loop time: a fault was told that it may strike
        self._struck: Counter[str] = Counter()  # by nemesis, how often it was told so
        self._waiting: dict[str, float] = {}  # by nemesis, loop time at which it was last told to wait

    def obstacle(self, nemesis: Nemesis) -> str:
        """Why a fault of this nemesis should not strike now, as a clause; "": it may, and the next one only when it
        shows what this one does."""
        if self._served is None or getattr(nemesis, "into_outages", False):  # a user's own may be older
            return ""
        now, name = asyncio.get_running_loop().time(), nemesis.name
        why = self._why_not(self._served) or self._turn_of_another(name, now)
        if why:
            self._waiting[name] = now
            return why
        self._waiting.pop(name, None)
        self._struck[name] += 1
        self._last = now
        return ""

    def _turn_of_another(self, name: str, now: float) -> str:
        """Calm moments are few, and whoever asks most would have them all."""
        waiting = [each for each, asked in self._waiting.items() if each != name and now - asked < ASKS_AGAIN_S]
        rarest = min(waiting, key=lambda each: self._struck[each], default=name)
        return f"it is the turn of {rarest}" if self._struck[rarest] < self._struck[name] else ""

    def _why_not(self, told: Callable[[], Mapping[str, tuple[float, float]]]) -> str:
        if asyncio.get_running_loop().time() - self._last < self._apart_s:
            return "another fault has struck just now"
        served = {name: Served(*known) for name, known in told().items()}
        silent = max(served, key=lambda name: served[name].silent_s, default="")
        if silent and served[silent].silent_s > SILENT_S:
            return f"{silent} has acknowledged nothing for {served[silent].silent_s:.1f} s"
        rare = min(served, key=lambda name: served[name].share, default="")
        if rare and served[rare].share < LEAST_SHARE:
            share, least = served[rare].share, LEAST_SHARE
            return f"{rare} has acknowledged for only {share:.0%} of the time so far, and is to for {least:.0%}"
        return ""
