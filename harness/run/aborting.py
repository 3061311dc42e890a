"""Looks, while a run goes on, whether one of the conditions holds on which it is to be ended (harness/plan/abort.py).

Nothing is asked of a cluster that no condition needs: a simulated run without --abort-if stays what it was.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from harness.plan.abort import ERRORS, UNAVAILABLE, UNDER_REPLICATED, WINDOW_S, Condition, parse
from harness.report.console import Counts
from harness.targets.view import ClusterView, Observer

#: From one look at the ISRs to the next.
LOOK_S: Final = 1.0

Served = Callable[[], Mapping[str, tuple[float, float]]]


class Reason(NamedTuple):
    """Why a run is ended. value: seconds, or of errors percent. told: a clause."""

    condition: str
    value: float
    told: str

    def as_facts(self, at_s: float) -> dict[str, Any]:
        """Of run.json. at_s: seconds since clients began."""
        return {"condition": self.condition, "value": round(self.value, 3), "told": self.told, "at_s": round(at_s, 3)}


class Aborting:
    """conditions: as --abort-if has them. topic: the run's. served: as of harness.run.calm.Serving; None: the workload
    cannot tell partitions apart, and what counts is when it last had anything acknowledged."""

    def __init__(self, conditions: Sequence[str], topic: str, served: Served | None) -> None:
        self._conditions = [parse(text) for text in conditions]
        self._topic = topic
        self._served = served
        self._acknowledged = (0.0, -1)  # loop time at which that many had been for the first time
        self._window: deque[tuple[float, int, int]] = deque()  # loop time, appends that ended, those of them in vain
        self._since: dict[int, float] = {}  # by partition, loop time from which on it has been under-replicated

    @property
    def wants_views(self) -> bool:
        return any(each.metric == UNDER_REPLICATED for each in self._conditions)

    async def look(self, observer: Observer) -> None:
        """Again and again, until cancelled."""
        while True:
            self.saw(await observer.view())
            await asyncio.sleep(LOOK_S)

    def saw(self, view: ClusterView) -> None:
        """Of a partition of which nobody tells anything it is what was told last."""
        now = asyncio.get_running_loop().time()
        for partition, state in view.newest.items():
            if state.replicas <= state.isr:
                self._since.pop(partition, None)
            else:
                self._since.setdefault(partition, now)

    def reason(self, counts: Counts) -> Reason | None:
        """The first condition that holds now. counts: of the workload so far."""
        if not self._conditions:
            return None
        now = asyncio.get_running_loop().time()
        self._count(now, counts)
        for condition in self._conditions:
            value, whose = self._measured(condition, now)
            if value is not None and condition.holds(value):
                return Reason(condition.text, value, _told(condition, value, whose))
        return None

    def _measured(self, condition: Condition, now: float) -> tuple[float | None, str]:
        """None: not yet. And whose value it is."""
        match condition.metric:
            case "unavailable" if self._served is not None:
                silent = {name: known[0] for name, known in self._served().items()}
                name = max(silent, key=lambda each: silent[each], default="")
                return silent.get(name), name
            case "unavailable":
                return now - self._acknowledged[0], "the cluster"
            case "under-replicated":
                partition = min(self._since, key=lambda each: self._since[each], default=None)
                return (None, "") if partition is None else (now - self._since[partition], f"{self._topic}-{partition}")
        begin, end = self._window[0], self._window[-1]
        ended = end[1] - begin[1]
        whole = end[0] - begin[0] >= WINDOW_S
        return (100 * (end[2] - begin[2]) / ended if whole and ended else None), ""

    def _count(self, now: float, counts: Counts) -> None:
        if counts.acknowledged > self._acknowledged[1]:
            self._acknowledged = now, counts.acknowledged
        in_vain = counts.failed + counts.indeterminate
        self._window.append((now, counts.acknowledged + in_vain, in_vain))
        while len(self._window) > 1 and now - self._window[1][0] >= WINDOW_S:
            self._window.popleft()


def _told(condition: Condition, value: float, whose: str) -> str:
    option = f"(--abort-if '{condition.text}')"
    if condition.metric == ERRORS:
        return f"{value:.1f}% of the appends of {WINDOW_S:g} s in vain {option}"
    what = "unavailable" if condition.metric == UNAVAILABLE else "under-replicated"
    return f"{whose} {what} for {value:.0f} s {option}" if value >= 10 else f"{whose} {what} for {value:.1f} s {option}"
