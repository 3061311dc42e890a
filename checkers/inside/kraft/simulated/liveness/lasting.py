"""How long something lasts that a process must end, while that process acts: one that stands still cannot."""

from __future__ import annotations

from typing import Self


class Lasting:
    """acted: when the process last did something, by its own clock. since, advanced: virtual seconds, when this was
    first seen, and when the process had last done something since."""

    __slots__ = ("acted", "advanced", "since")

    def __init__(self, acted: float, now: float) -> None:
        self.acted = acted
        self.advanced = now
        self.since = now

    @classmethod
    def seen(cls, before: Self | None, acted: float, now: float, acts_every: float) -> Self:
        """It is so now. before: at the last look; None: it was not so. acts_every: seconds, within which the process
        has acted again, or it may have stood still meanwhile, and the time begins anew."""
        if before is None or (acted > before.acted and now - before.advanced > acts_every):
            return cls(acted, now)
        if acted > before.acted:
            before.acted, before.advanced = acted, now
        return before

    @property
    def seconds(self) -> float:
        return self.advanced - self.since
