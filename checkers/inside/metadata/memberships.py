"""Who held each partition when, and who was in its ISR: the committed metadata, put on the time line.

A record of the metadata log has no time of its own. It was committed, at the latest, when the first node told in its
trace (`metadata`) that it had replayed everything below a higher offset: that is its time here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, field
from typing import Any

import numpy as np

from checkers.inside.metadata.history import MetadataHistory
from checkers.inside.metadata.replay import Ids, Place
from checkers.inside.trace_rows import TraceRows
from spark_history.files import Ints


@dataclass(frozen=True)
class Step:
    """A partition from `time` (monotonic ns) on. offset: of the record that made it so."""

    time: int
    offset: int
    replicas: Ids
    isr: Ids
    leader: int
    min_isr: int
    leader_epoch: int = -1  # -1: not known


@dataclass(frozen=True)
class Registration:
    """Of a broker's process."""

    time: int
    offset: int
    broker: int


@dataclass(frozen=True)
class Memberships:
    """steps: by partition, in order. ids: of nodes by name. strategies: unclean.recovery.strategy of topics that had
    one of their own, if only for a while. trimmed: were there changes before the first steps?"""

    steps: Mapping[Place, Sequence[Step]]
    registrations: Sequence[Registration] = ()
    ids: Mapping[str, int] = field(default_factory=dict)
    strategies: Mapping[str, str] = field(default_factory=dict)
    trimmed: bool = False

    def as_json(self) -> dict[str, Any]:
        return {
            "steps": [[*place, [astuple(step) for step in steps]] for place, steps in self.steps.items()],
            "registrations": [[r.time, r.offset, r.broker] for r in self.registrations],
            "ids": dict(self.ids), "strategies": dict(self.strategies), "trimmed": self.trimmed,
        }  # fmt: skip

    @staticmethod
    def of_json(fields: Mapping[str, Any]) -> Memberships:
        return Memberships(
            {
                (topic, partition): [
                    Step(time, offset, tuple(replicas), tuple(isr), leader, min_isr, leader_epoch)
                    for time, offset, replicas, isr, leader, min_isr, leader_epoch in steps
                ]
                for topic, partition, steps in fields["steps"]
            },
            [Registration(*entry) for entry in fields["registrations"]],
            fields["ids"], fields["strategies"], fields["trimmed"],
        )  # fmt: skip


class CommitTimes:
    """When what lies at an offset of the metadata log was first known to be committed."""

    def __init__(self, trace: TraceRows) -> None:
        rows = np.flatnonzero(trace.is_event("metadata"))
        order = rows[np.argsort(trace.time[rows], kind="stable")]
        self._time: Ints = trace.time[order]
        self._until: Ints = np.maximum.accumulate(trace.number("offset")[order])

    def of(self, offset: int) -> int | None:
        at = int(np.searchsorted(self._until, offset, "right"))
        return int(self._time[at]) if at < len(self._time) else None


def memberships(trace: TraceRows, ids: Mapping[str, int], history: MetadataHistory) -> Memberships | None:
    """None where the metadata log cannot be replayed. Topics whose names came again are left out: what a log of that
    name holds may be of either."""
    if not history.steps:
        return None
    times = CommitTimes(trace)
    steps: dict[Place, list[Step]] = defaultdict(list)
    for place, offset, state, min_isr in history.steps:
        time = times.of(offset)
        if time is not None and place[0] not in history.again:
            steps[place].append(
                Step(time, offset, state.replicas, state.isr, state.leader, min_isr, state.leader_epoch)
            )
    registrations = [
        Registration(time, offset, broker)
        for offset, broker, _ in history.registrations
        if (time := times.of(offset)) is not None
    ]
    strategies = {topic: how for topic, how in history.strategies.items() if topic not in history.again}
    return Memberships(dict(steps), registrations, dict(ids), strategies, history.trimmed)
