"""Export a run of ours, whatever its workload, as a history of Jepsen's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from spark_history import jepsen
from spark_history.jepsen import export_log, export_tables
from spark_history.jepsen.export import Notation, render_plan, write_events


def write_run(
    directory: Path,
    plan: Mapping[str, Any],
    path: Path,
    notation: Notation,
    *,
    doubts: Sequence[str] = (),
    violation: Mapping[str, Any] | None = None,
) -> int:
    """Write the run in `directory` as a history to `path`; how many events. plan: of plan.json; doubts, violation: see
    checkers.verdict.Evidence. Raises HistoryError and OSError."""
    told = {name: plan[name] for name in jepsen.PLAN_FIELDS if plan.get(name) is not None}
    told |= {"run": plan.get("run") or directory.name, "doubts": list(doubts), "violation": violation}
    if is_log(plan):
        told["workload"] = "append"
        processes, origin = export_log.survey(directory)
        faults = export_log.read_faults(directory)
        operations = export_log.render_log(directory, notation)
    else:
        processes, origin = export_tables.survey(directory)
        faults = []
        family = jepsen.FAMILY[plan["workload"]]
        if family == jepsen.REGISTERS:
            operations = export_tables.render_registers(directory, plan, notation)
        elif family == jepsen.TRANSACTIONS:
            operations = export_tables.render_transactions(directory, plan, notation)
        else:
            operations = export_tables.render_calls(directory, plan, notation)
    return write_events(path, chain([render_plan(told, faults, origin, notation)], operations), notation, processes)


def is_log(plan: Mapping[str, Any]) -> bool:
    return jepsen.FAMILY.get(str(plan.get("workload"))) is None
