"""Brings what a host's monotonic clock says onto the harness' own, with how far that may be wrong.

A request is answered between the moment at which it was sent and that at which its answer came: the host's clock at
some moment in between is known, so that the difference of the two clocks is known but for half of that time (Cristian's
algorithm). Of the samples around a moment the narrowest counts. Between two of them the clocks drift apart by no more
than NTP lets them, unless the samples themselves say that they did: one that is being corrected may run a tenth faster.
"""

from __future__ import annotations

import itertools
import threading
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

#: Two clocks drift apart by no more than so much (NTP's bound, RFC 5905, 500 parts in a million).
DRIFT: Final = 500e-6
#: Of one that is made to: a kernel's `tick` is 9,000 to 11,000 us of 10,000 (adjtimex(2)); chrony goes to a twelfth.
MOST_DRIFT: Final = 0.1 + DRIFT
#: Of an agent's answers, what is a time.
_TIME: Final = "_at"
_NEIGHBOURS: Final = 8
_AROUND_NS: Final = 5_000_000_000
#: A clock is measured every few seconds; a host that was just booted, a little later than it begins to tell.
_NEAR_NS: Final = 60_000_000_000


class Sample(NamedTuple):
    """ns. at: of the host's clock. offset: how far that is ahead of ours. uncertainty: either way. drift: by which the
    two may have drifted apart since the sample before."""

    at: int
    offset: int
    uncertainty: int
    drift: float = DRIFT

    def after(self, before: Sample) -> Sample:
        most = self.uncertainty + before.uncertainty + (self.at - before.at) * DRIFT
        return self._replace(drift=MOST_DRIFT) if abs(self.offset - before.offset) > most else self


class HostClock:
    """Of one host. Safe for several threads. A host that was booted anew begins to count anew: what was measured before
    is of its earlier life."""

    def __init__(self) -> None:
        self._lives: list[list[Sample]] = [[]]  # from boot to boot, each in the order of time
        self._lock = threading.Lock()

    def add(self, sent: int, theirs: int, received: int) -> None:
        """sent, received: by our clock, when it was asked and answered. theirs: what it answered."""
        sample = Sample(theirs, theirs - (sent + received) // 2, (received - sent) // 2)
        with self._lock:
            if self._lives[-1] and theirs < self._lives[-1][-1].at:
                self._lives.append([])
            life = self._lives[-1]
            life.append(sample.after(life[-1]) if life else sample)

    @property
    def samples(self) -> list[Sample]:
        with self._lock:
            return [sample for life in self._lives for sample in life]

    @property
    def uncertainty(self) -> int:
        """Of any moment between those at which it was measured, and a little before and after."""
        with self._lock:
            lives = [list(life) for life in self._lives if life]
        wrong = [0]
        for life in lives:
            middles = [(one.at + other.at) // 2 for one, other in itertools.pairwise(life)]
            ends = [life[0].at - _AROUND_NS, life[-1].at + _AROUND_NS]
            wrong += [self.to_ours(at)[1] for at in (*middles, *ends)]
        return max(wrong)

    def sample_for(self, at: int) -> Sample | None:
        """By which a moment of its clock is best brought onto ours. None: it was never measured."""
        near = self._near(at)
        return _best(near, at, _drift(near)) if near else None

    def _near(self, at: int) -> Sequence[Sample]:
        """The samples around this moment, in order."""
        with self._lock:
            lives = [life for life in self._lives if life]
            if not lives:
                return []
            # The last one in which it was measured at about that time; else the one that comes next to it.
            life = next((life for life in reversed(lives) if _distance(life, at) <= _NEAR_NS), None)
            life = life or min(lives, key=lambda each: _distance(each, at))
            place = bisect_left(life, at, key=_at)
            return life[max(0, place - _NEIGHBOURS) : place + _NEIGHBOURS]

    def to_ours(self, at: int) -> tuple[int, int]:
        """(a moment of its clock on ours, how far that may be wrong either way), ns."""
        near = self._near(at)
        if not near:
            return at, 1 << 62
        drift = _drift(near)
        sample = _best(near, at, drift)
        return at - sample.offset, sample.uncertainty + round(abs(at - sample.at) * drift)

    def in_answer(self, answer: Any) -> Any:
        """An agent's answer, its times on our clock; with clock_uncertainty_ns, if there are any."""
        if not isinstance(answer, Mapping):
            return answer
        times = {name: at for name, at in answer.items() if name.endswith(_TIME) and isinstance(at, int) and at}
        if not times:
            return answer
        ours = {name: self.to_ours(at) for name, at in times.items()}
        moved = {name: at for name, (at, _) in ours.items()}
        return {**answer, **moved, "clock_uncertainty_ns": max(wrong for _, wrong in ours.values())}


def _drift(near: Sequence[Sample]) -> float:
    """By which the two clocks may have drifted apart around these."""
    return max(each.drift for each in near)


def _best(near: Sequence[Sample], at: int, drift: float) -> Sample:
    return min(near, key=lambda each: each.uncertainty + abs(each.at - at) * drift)


def _distance(life: Sequence[Sample], at: int) -> int:
    """From the nearest sample."""
    place = bisect_left(life, at, key=_at)
    return min(abs(each.at - at) for each in life[max(0, place - 1) : place + 1])


def _at(sample: Sample) -> int:
    return sample.at
