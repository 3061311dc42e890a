"""A node's wall clock, as every process in its container sees it. See ../agent/clock.py for what that rests on."""

from __future__ import annotations

import time
from pathlib import Path

from harness.runtimes.agent.clock import make, read, write

LEAST_S = 0.01  # of an offset that is taken for one


class Clock:
    """It gains `drift` seconds a second, and has gained so since it was set."""

    def __init__(self) -> None:
        self.was_set_to_s = 0.0
        self.was_set_at = time.monotonic()
        self._drift = 0.0

    def set(self, offset_s: float, drift: float = 0.0) -> None:
        """Ahead of the true time by `offset_s` now."""
        self.was_set_to_s, self.was_set_at, self._drift = offset_s, time.monotonic(), drift

    @property
    def drift(self) -> float:
        return self._drift

    @property
    def offset_s(self) -> float:
        """By what it was set to."""
        return self.was_set_to_s + self._drift * (time.monotonic() - self.was_set_at)


class NodeClock(Clock):
    """`folder` is the node's own, on the harness' machine: it outlives its containers, and what is written there is
    what they are told."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder
        self._start = int(time.time())
        make(folder, self._start)

    def set(self, offset_s: float, drift: float = 0.0) -> None:
        super().set(offset_s, drift)
        write(self.folder, offset_s - drift * (time.time() - self._start), drift)

    @property
    def drift(self) -> float:
        return read(self.folder)[1]

    @property
    def offset_s(self) -> float:
        offset_s, drift = read(self.folder)
        return offset_s + drift * (time.time() - self._start)


def wrong_clock(clock: Clock, seen_s: float | None) -> str:
    """What is wrong with it, as a clause after the node's name. seen_s: its offset as it was measured, if it was."""
    offset_s = clock.offset_s if seen_s is None else seen_s
    if abs(offset_s) >= LEAST_S:
        return f"has a clock that is {abs(offset_s):.3g} s {'ahead' if offset_s > 0 else 'behind'}"
    return f"has a clock that gains {drift:g} s a second" if (drift := clock.drift) else ""
