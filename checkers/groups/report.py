"""Collects what is found of one run's groups, by partition, with the events that contradict each other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from checkers.anomalies import Anomalies, seconds
from checkers.groups.events import KINDS, OUTCOMES, Share
from checkers.witness import Step, explain
from spark_history.log import NEVER, NOWHERE


class Report:
    def __init__(self, run: str, origin: int, faults: Sequence[Mapping[str, Any]]) -> None:
        self._run, self._origin, self._faults = run, origin, faults
        self._by_log: dict[tuple[str, int], Anomalies] = {}

    def add(
        self,
        share: Share,
        property_: str,
        anomaly: str,
        message: str,
        rows: Iterable[int],
        *,
        offset: int | None = None,
        count: int = 1,
    ) -> None:
        """message: what comes after the group's name. rows: of `share`, those that contradict each other."""
        found = self._of((share.topic, share.partition))
        if not found.wanted(property_, anomaly):
            found.add_unlisted(property_, anomaly, 1, records=count)
            return
        rows = [row for row in dict.fromkeys(rows) if row != NOWHERE]
        steps = {step.op: step for step in (self._step(share, row) for row in rows)}
        sentence = f"group {share.group}, {share.log}: {message}"
        found.add(property_, anomaly, sentence, offset=offset, ops=list(steps), count=count)
        explain(found.rows[-1], steps, self._faults)
        found.rows[-1]["ops"] = []  # these are numbers of events, which operations have too: the witness has them

    def add_missing(self, topic: str, partition: int, property_: str, anomaly: str, message: str, **more: Any) -> None:
        """Of a partition that no event of the group contradicts."""
        self._of((topic, partition)).add(property_, anomaly, message, **more)

    def _of(self, log: tuple[str, int]) -> Anomalies:
        if log not in self._by_log:
            self._by_log[log] = Anomalies(self._run, *log)
        return self._by_log[log]

    def anomalies(self) -> list[Anomalies]:
        return list(self._by_log.values())

    def at(self, time: int) -> str:
        return "an unknown time" if time == NEVER else seconds(time, self._origin)

    def name(self, share: Share, row: int) -> str:
        """E.g. `member 3's commit of 90 (event 17, at 2.500 s)`."""
        rows = share.rows
        when = self.at(int(rows.invoke[row]))
        return f"member {rows.process[row]}'s {_noun(share, row)} (event {rows.op[row]}, at {when})"

    def _step(self, share: Share, row: int) -> Step:
        rows = share.rows
        complete, generation = int(rows.complete[row]), int(rows.generation[row])
        of = f", generation {generation}" if generation > 0 else ""
        return Step(
            int(rows.op[row]), int(rows.process[row]), f"{_noun(share, row)} of {share.log}, group {share.group}{of}",
            int(rows.invoke[row]), None if complete == NEVER else complete, OUTCOMES[rows.outcome[row]],
        )  # fmt: skip


_RANGES: Final = ("poll", "process")


def _noun(share: Share, row: int) -> str:
    kind, start, end = KINDS[share.rows.kind[row]], int(share.rows.start[row]), int(share.rows.end[row])
    if kind in _RANGES:
        return f"{kind} of {start} to {end - 1}" if end > start else f"{kind} of nothing"
    if kind == "assign":
        return "assignment" if start == NOWHERE else f"assignment at {start}"
    if kind == "committed":
        return "question, answered " + ("that nothing is committed" if end == NOWHERE else f"{end}")
    if kind == "commit":
        return f"commit of {end}"
    if kind == "reset":
        return f"reset to {end}"
    return {"revoke": "revocation", "lose": "loss"}.get(kind, kind)
