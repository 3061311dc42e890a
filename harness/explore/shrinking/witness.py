"""What a run broke, and whether a smaller one breaks the same."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow.compute as pc

from checkers.properties import LOST_APPEND, VIOLATION
from harness.explore.shrinking.candidates import Candidate
from harness.explore.simulate import Simulated, simulate

#: Seconds after the workload's time in which what it was doing may still break something.
_LATE_S: Final = 1.0
#: Seconds by the wall clock that a smaller run may take: many times as long as one does that comes to an end.
LIMIT_S: Final = 300.0


@dataclass(frozen=True)
class Broken:
    """What a run broke. property, anomaly: an invariant of anomaly `violation`, or what the history breaks. within: did
    the faults stay within the contract."""

    property: str
    anomaly: str
    within: bool

    def __str__(self) -> str:
        return self.property if self.anomaly == VIOLATION else f"{self.property} ({self.anomaly})"


@dataclass(frozen=True)
class Strike:
    """What became of a fault. deferred_s: how much later than planned it struck."""

    targets: tuple[str, ...]
    deferred_s: float
    skipped: bool


@dataclass(frozen=True)
class Witness:
    """A run that broke something. violated_s: when an invariant stopped it, in seconds of the workload; None: it was
    not stopped."""

    broken: Broken
    violated_s: float | None
    strikes: Mapping[int, Strike]


def witness_of(simulated: Simulated) -> Witness | None:
    """None: nothing is broken, or the harness itself could not do its part."""
    if simulated.crash:
        return None
    verdict = simulated.judge()
    if verdict.get("safety", verdict["verdict"]) != "fail":  # a threshold that was not met breaks no property
        return None
    within, violation = bool(verdict["contract"]["within"]), simulated.violation
    strikes = {fault["fault"]: _strike(fault) for fault in simulated.tables["faults"].to_pylist()}
    if violation is not None:
        origin = pc.min(simulated.tables["operations"]["invoke"]).as_py()
        violated_s = 0.0 if origin is None else max(violation.time_ns - origin, 0) / 1e9
        return Witness(Broken(violation.property, VIOLATION, within), violated_s, strikes)
    property_, anomaly = _worst(verdict["anomalies"])
    return Witness(Broken(property_, anomaly, within), None, strikes)


def _worst(anomalies: Mapping[str, Mapping[str, Any]]) -> tuple[str, str]:
    """(property, anomaly) of what a history breaks: what was lost before all else."""
    broken = [(p, a) for p, found in anomalies.items() if not found["weak"] for a in found["anomalies"]]
    return min(broken, key=lambda entry: (entry[1] != LOST_APPEND, entry))


def _strike(row: Mapping[str, Any]) -> Strike:
    evidence = json.loads(row["evidence"])
    return Strike(tuple(row["targets"]), float(evidence.get("deferred_s", 0.0)), "skipped" in evidence)


def attempt(
    candidate: Candidate, sought: Broken, needs_bug: bool = False, at_work: bool = False, limit_s: float = LIMIT_S
) -> Witness | None:  # fmt: skip
    """What the candidate broke, if that is what is sought: else None, as for one that never ends. In the main thread of
    its process. A promise that is broken within the contract is
    not exchanged for one that was never given. needs_bug: the same run without its bug must not break it, too. at_work:
    it must be while the workload runs: what comes after, healing and final reads, is not simulated where it is not."""
    try:
        with _at_most(limit_s):
            witness = _same(candidate, sought, candidate.plan.time_limit + _LATE_S if at_work else None)
            if witness is not None and needs_bug:
                sound = candidate.plan.model_copy(update={"bug": None, "mutant": None})
                if _same(replace(candidate, plan=sound), replace(sought, within=False)) is not None:
                    return None
            return witness
    except _TooLong:
        return None


class _TooLong(KeyboardInterrupt):
    """Of its kind, as an event loop lets nothing else out of a task."""


@contextmanager
def _at_most(seconds: float) -> Iterator[None]:
    """Raises _TooLong, and again each second where something has kept it."""

    def over(*_: object) -> None:
        raise _TooLong

    before = signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, seconds, 1.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


def _same(candidate: Candidate, sought: Broken, until_s: float | None = None) -> Witness | None:
    simulated = simulate(candidate.plan, candidate.schedule, until_s=until_s)
    violated = None if simulated.violation is None else simulated.violation.property
    if violated != (sought.property if sought.anomaly == VIOLATION else None):
        return None  # whatever its history says: most candidates break nothing, and judging them takes time
    witness = witness_of(simulated)
    if witness is None or witness.broken.within < sought.within:
        return None
    same = (witness.broken.property, witness.broken.anomaly) == (sought.property, sought.anomaly)
    return witness if same else None
