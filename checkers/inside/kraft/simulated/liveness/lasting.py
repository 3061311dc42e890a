"""How long something lasts that a process must end, while that process acts: one that stands still cannot."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, Self, TypeVar

_Key = TypeVar("_Key", bound=Hashable)


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


class Overdue(Generic[_Key]):
    """What lasts as of the last look, by key. look_every, acts_every: seconds, see Lasting.seen."""

    def __init__(self, look_every: float, acts_every: float) -> None:
        self._look_every = look_every
        self._acts_every = acts_every
        self._next = 0.0
        self._before: dict[_Key, Lasting] = {}
        self._now: dict[_Key, Lasting] = {}

    def is_time(self, now: float) -> bool:
        """To look again? Then what is not seen in this look is over."""
        if now < self._next:
            return False
        self._next = now + self._look_every
        self._before, self._now = self._now, {}
        return True

    def seconds(self, key: _Key, acted: float, now: float) -> float:
        """For how long this has lasted, which is so now."""
        known = self._now[key] = Lasting.seen(self._before.get(key), acted, now, self._acts_every)
        return known.seconds
