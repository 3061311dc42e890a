"""Which operations there are to strike, and the runs that strike in them.

A first run counts them: its fault waits as the others do, and strikes nothing. All runs are the same up to their
strike, so the n-th operation of a node is the same one in each.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

from harness.errors import HarnessFailure
from harness.explore.simulate import Simulated, simulate
from harness.explore.workers import Job
from harness.plan.plan import Plan
from harness.plan.schedule import CALM_AT_END_S, Fault
from harness.targets.target import Target

Every = Literal["kill", "power", "eio", "short-write", "fsync", "reset", "late"]
Of = Literal["produce", "load"]

#: The nemesis, and what it is told besides.
STRIKES: Final[Mapping[str, tuple[str, Mapping[str, Any]]]] = {
    "kill": ("kill:at-operation", {"what": "kill"}),
    "power": ("power:at-operation", {"what": "power"}),
    "eio": ("disk:error-once", {"what": "error", "error": "EIO", "pages": "kept"}),
    "short-write": ("disk:error-once", {"what": "short-write", "error": "EIO", "pages": "kept"}),
    "fsync": ("disk:error-once", {"what": "fsync", "error": "EIO", "pages": "dropped"}),
    "reset": ("network:at-message", {"what": "reset"}),
    "late": ("network:at-message", {"what": "late"}),
}
#: Seconds: from the strike, or the last of two, to the end of the fault.
DOWN_S: Final = 0.5
#: When a node is started to load what it has by then.
LOAD_AT_S: Final = 2.0
#: For the start, and for what is in flight.
_AT_STRIKE_S: Final = 0.1


class Point(NamedTuple):
    """An operation or a message, by its number among those of its node that may be struck. again: of the start after
    that, an operation that is struck, too; None: no start is waited for; 0: its operations are counted."""

    node: str
    operation: int
    again: int | None = None

    def __str__(self) -> str:
        return f"{self.node} {self.operation}" + (f" and {self.again}" if self.again else "")


class Sweep(NamedTuple):
    """plan: of a run; its nemeses are not asked. depth: 2: strike again while the node loads its logs after it."""

    plan: Plan
    every: Every
    of: Of
    depth: Literal[1, 2] = 1

    @property
    def nemesis(self) -> str:
        return STRIKES[self.every][0]

    def nodes(self, target: Target) -> list[str]:
        return [node.name for node in target.nodes(self.plan) if not node.spare]

    def job(self, point: Point) -> Job:
        run = f"{point.node}-{point.operation}" + (f"-{point.again}" if point.again else "")
        return self._job(run, [point.node], point.operation, point.again)

    def counted(self, target: Target) -> dict[str, int]:
        """By node, how many operations there are. Raises HarnessFailure if a run that strikes nothing fails."""
        nodes = self.nodes(target)
        # What runs is counted all at once; but a node is stopped to be started, and only one at a time.
        together = [nodes] if self.of == "produce" else [[node] for node in nodes]
        counted: dict[str, int] = {}
        for names in together:
            job = self._job("counted", names, 0, None)
            for name, evidence in counting(simulate(job.plan, job.schedule)).items():
                counted[name] = int(evidence["counted_operations"])
        return counted

    def _job(self, run: str, nodes: Sequence[str], operation: int, again: int | None) -> Job:
        when = "running" if self.of == "produce" else "loading"
        at = 0.0 if self.of == "produce" else LOAD_AT_S
        within = round(self.plan.time_limit - CALM_AT_END_S - DOWN_S - at - _AT_STRIKE_S, 3)
        choice: dict[str, Any] = {
            "targets": list(nodes), **STRIKES[self.every][1], "when": when, "operation": operation, "within_s": within,
        }  # fmt: skip
        if again is not None:
            choice["again"] = again
        fault = Fault(fault=0, nemesis=self.nemesis, at=at, duration=DOWN_S, choice=choice)
        return Job(self.plan.model_copy(update={"run": run, "nemesis": (self.nemesis,)}), (fault,))


def evidence_of(simulated: Simulated) -> dict[str, Mapping[str, Any]]:
    """Of its only fault, by node; nothing if the run has ended before there was any."""
    rows = simulated.tables["faults"].to_pylist()
    found: dict[str, Mapping[str, Any]] = json.loads(rows[-1]["evidence"]).get("nodes", {}) if rows else {}
    return found


def counting(simulated: Simulated) -> dict[str, Mapping[str, Any]]:
    """evidence_of() a run that only counts. Raises HarnessFailure if there is none."""
    found = evidence_of(simulated)
    if simulated.crash or not found:
        violated = "" if simulated.violation is None else simulated.violation.message
        raise HarnessFailure(f"no operation can be counted: {simulated.crash or violated or 'no fault was injected'}")
    return found


def points_of(counted: Mapping[str, int], again: int | None) -> list[Point]:
    """All of them, in order."""
    return [Point(node, number, again) for node, count in counted.items() for number in range(1, count + 1)]


def deeper(first: Iterable[tuple[Point, int]]) -> list[Point]:
    """Each point with each of the operations that were counted after its strike."""
    return [point._replace(again=number) for point, count in first for number in range(1, count + 1)]


def thinned(points: Sequence[Point], step: int, most: int | None) -> list[Point]:
    """Every step-th, and of these at most so many, at even distances."""
    kept = list(points[::step])
    if most is None or len(kept) <= most:
        return kept
    return [kept[number * len(kept) // most] for number in range(most)]
