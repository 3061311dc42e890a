"""Collects the anomalies of one run, by partition or for the cluster as a whole, from checkers that see the whole
run."""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from checkers.anomalies import Anomalies
from checkers.inside.metadata.replay import Place


class Findings:
    def __init__(self, run: str) -> None:
        self._run = run
        self._by_place: dict[Place | None, Anomalies] = {}
        self._known: set[Hashable] = set()

    def add(
        self,
        property_: str,
        anomaly: str,
        message: str,
        *,
        place: Place | None = None,
        offset: int | None = None,
        count: int = 1,
        once: Hashable = None,
    ) -> None:
        """once: nothing is added the second time that it is given: the same state may be looked at often."""
        if once is not None:
            if once in self._known:
                return
            self._known.add(once)
        if place not in self._by_place:
            self._by_place[place] = Anomalies(self._run, *(place or (None, None)))
        self._by_place[place].add(property_, anomaly, message, offset=offset, count=count)

    def anomalies(self) -> Iterable[Anomalies]:
        return list(self._by_place.values())
