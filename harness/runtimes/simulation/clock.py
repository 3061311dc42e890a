"""The wall clock of a simulated machine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from harness.cluster import Evidence

#: What a clock that is right shows when the simulation begins: 2026-01-01T00:00:00Z.
WALL_CLOCK_ORIGIN: Final = 1_767_225_600.0


class WallClock:
    """Seconds since 1970. time: virtual seconds."""

    def __init__(self, time: Callable[[], float]) -> None:
        self._time = time
        self._offset_s = 0.0  # when it was set
        self._drift = 0.0  # seconds gained a second since then
        self._set_at = 0.0

    def __call__(self) -> float:
        now = self._time()
        return WALL_CLOCK_ORIGIN + now + self._offset_s + self._drift * (now - self._set_at)

    def set(self, offset_s: float, drift: float) -> Evidence:
        """See harness.cluster.Node.set_clock."""
        evidence: Evidence = {}
        if self._drift:
            evidence["clock_drifted_ms"] = round((self._ahead_s() - self._offset_s) * 1000)
            evidence["clock_drifting_ms"] = round((self._time() - self._set_at) * 1000)
        self._offset_s, self._drift, self._set_at = offset_s, drift, self._time()
        return evidence | {"clock_offset_ms": round(self._ahead_s() * 1000)}

    def leftovers(self) -> list[str]:
        if not self._offset_s and not self._drift:
            return []
        return [f"has a clock that is {self._ahead_s():.3g} s ahead and gains {self._drift:g} s a second"]

    def _ahead_s(self) -> float:
        """As the node sees it."""
        return self() - (WALL_CLOCK_ORIGIN + self._time())
