"""Export a run of ours, whatever its workload, as a history of Jepsen's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from spark_history import jepsen
from spark_history.jepsen.export import log as export_log
from spark_history.jepsen.export import tables as export_tables
from spark_history.jepsen.export.export import render_plan, write_events
from spark_history.jepsen.export.notation import Notation
from spark_history.jepsen.export.transactions import render_transactions


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
    checkers.verdict.verdict.Evidence. Raises HistoryError and OSError."""
    reported = {name: plan[name] for name in jepsen.PLAN_FIELDS if plan.get(name) is not None}
    reported |= {"run": plan.get("run") or directory.name, "doubts": list(doubts), "violation": violation}
    if is_log(plan):
        reported["workload"] = "append"
        found = export_log.survey(directory)
        faults = export_log.read_faults(directory)
        ends = [time for fault in faults for time in (fault["start"], fault["end"]) if time is not None]
        operations = export_log.render_log(directory, notation, max([found.end, *ends]))
    else:
        found = export_tables.survey(directory)
        faults = []
        family = jepsen.FAMILY[plan["workload"]]
        if family == jepsen.REGISTERS:
            operations = export_tables.render_registers(directory, plan, notation, found.end)
        elif family == jepsen.TRANSACTIONS:
            operations = render_transactions(directory, plan, notation, found.end)
        else:
            operations = export_tables.render_calls(directory, plan, notation, found.end)
    first = render_plan(reported, faults, found.origin, notation)
    return write_events(path, chain([first], operations), notation, found.processes)


def is_log(plan: Mapping[str, Any]) -> bool:
    return jepsen.FAMILY.get(str(plan.get("workload"))) is None
