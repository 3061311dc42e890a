"""A seed that failed: what it is reported as, and its run directory."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, Self

import pyarrow as pa

from checkers.properties import VIOLATION
from checkers.verdict import keeping
from harness.explore import coverage
from harness.explore.workers import Outcome
from harness.plan import registry, schedule_file
from harness.plan import schedule as schedules
from harness.record.history import PENDING
from harness.record.results import RunRecord
from spark_history import damage
from spark_history.files import write_parquet
from spark_history.schema import OPERATIONS, TABLES


@dataclass(frozen=True)
class Failure:
    """result: `fail`, or as Outcome.result where the harness could not do its part.

    property, anomaly: the invariant that stopped the run (of anomaly `violation`), or what the history breaks; empty
    unless the result is `fail`. message: a sentence. where, nodes, time_s (virtual seconds since the first operation),
    step: of an invariant. faults, operations: how many were injected, and done; None: it is not known.
    directory: the run's own, with trace_hash in its run.json. replay: the command that repeats the run.
    """

    seed: int
    result: Literal["fail", "crashed", "hang"]
    property: str
    anomaly: str
    message: str
    where: str
    nodes: tuple[str, ...]
    time_s: float | None
    step: int | None
    faults: int | None
    operations: int | None
    trace_hash: str
    directory: Path | None
    replay: str

    @classmethod
    def of(cls, outcome: Outcome, directory: Path | None) -> Self:
        """Of an outcome that failed."""
        property_, anomaly, message = "", "", outcome.reason
        origin = (outcome.verdict or {}).get("origin_ns", 0)
        if outcome.result == "judged" and outcome.verdict is not None:
            property_, anomaly, message = _broken(outcome.verdict)
        simulated = outcome.simulated
        violation = simulated.violation if simulated is not None else None
        faults, operations = coverage.size(outcome.verdict)
        if violation is not None and outcome.result == "judged":
            property_, anomaly, message = violation.property, VIOLATION, violation.message
        return cls(
            seed=outcome.plan.seed,
            result="fail" if outcome.result == "judged" else outcome.result,
            property=property_,
            anomaly=anomaly,
            message=message,
            where="" if violation is None else violation.where,
            nodes=() if violation is None else violation.nodes,
            time_s=None if violation is None else (violation.time_ns - origin) / 1e9,
            step=None if violation is None else violation.step,
            faults=faults,
            operations=operations,
            trace_hash="" if simulated is None else simulated.trace_hash,
            directory=directory,
            replay=outcome.plan.command() if directory is None else shlex.join(["chaos", "replay", str(directory)]),
        )

    def as_dict(self) -> dict[str, Any]:
        directory = None if self.directory is None else str(self.directory)
        return asdict(self) | {"nodes": list(self.nodes), "directory": directory}


def _broken(verdict: Mapping[str, Any]) -> tuple[str, str, str]:
    """The first property that a history breaks, by which anomaly, and the sentence of its first example."""
    for property_, found in verdict["anomalies"].items():
        if found["count"] and not found["weak"]:
            return property_, ", ".join(found["anomalies"]), found["example"] or verdict["reason"]
    return "", "", verdict["reason"]


def save(outcome: Outcome, directory: Path) -> None:
    """A run directory such as `chaos run` leaves, less what is made of the history; of a run whose worker died only
    plan and schedule. Raises OSError."""
    plan, simulated = outcome.plan, outcome.simulated
    directory.mkdir(parents=True)
    plan.save(directory)
    facts: dict[str, Any] = {"command": plan.command()}
    if simulated is None:
        nemeses = registry.make_nemeses(plan.nemesis, plan.acks, plan.timing)
        schedule_file.save(schedules.build(nemeses, plan.seed, plan.time_limit, plan.pace), directory)
        RunRecord(directory, problems=[outcome.reason], facts=facts).finish("failed")
        return
    schedule_file.save(simulated.schedule, directory)
    _save_journal(simulated.tables, directory / "journal")
    if simulated.violation is not None:
        simulated.violation.save(directory)
    facts |= simulated.facts
    record = RunRecord(directory, problems=list(simulated.problems), facts=facts)
    record.facts["doubts"] = list(doubts(outcome))
    record.finish("done" if outcome.result == "judged" else "failed")
    damage.write_checks(directory, 0)
    if outcome.verdict is not None:
        keeping.keep(directory, outcome.verdict)


def doubts(outcome: Outcome) -> tuple[str, ...]:
    """Why the harness would not call the run passed."""
    simulated = outcome.simulated
    if simulated is None:
        return (outcome.reason,)
    new = simulated.crash and simulated.crash not in simulated.doubts
    return (*simulated.doubts, simulated.crash) if new else simulated.doubts


def _save_journal(tables: Mapping[str, pa.Table], directory: Path) -> None:
    """As history.Recorder leaves it: the pending file, which comes last, commits the others."""
    for name, table in tables.items():
        write_parquet(directory / f"{name}-000000.parquet", table.cast(TABLES[name]))
    pending = OPERATIONS.empty_table().replace_schema_metadata(damage.MARK)
    write_parquet(directory / f"{PENDING}-000000.parquet", pending)
