"""Judges a saved run by what lies in its directory now: the nodes' disks and traces are read again, as they were after
the run, instead of what was read of them then. Nothing is saved."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.errors import BadArguments, HarnessFailure
from harness.plan import registry
from harness.plan.plan import Plan
from harness.record.collected import record_collected
from harness.record.history import MemoryRecorder, load_journal
from harness.targets.target import Target
from spark_history.regular import read_object

_OF_NODES = ("replica_logs", "trace", "metadata_log", "disk_state", "collected")


def inspect(directory: Path) -> tuple[Mapping[str, Any], list[Mapping[str, Any]]]:
    """The verdict, and the anomalies (rows of checkers.anomalies.ANOMALIES). Raises BadArguments, HarnessFailure."""
    from checkers.dataset import check_tables
    from checkers.groups import healed_of
    from spark_history.errors import HistoryError

    plan = Plan.load(directory)
    if not (directory / "disks").is_dir():
        raise BadArguments(f"{directory} has no disks/: nothing was collected of its nodes")
    target = registry.make_target(plan.target)
    tables = {**load_journal(directory / "journal"), **_read_again(directory, plan, target)}
    rows: list[dict[str, Any]] = []
    try:
        record = _record(directory)
        doubts, healed = _doubts(record), healed_of(record)
        verdict = check_tables(json.loads(plan.model_dump_json()), tables, doubts, rows=rows, healed=healed)
    except HistoryError as error:
        raise HarnessFailure(str(error)) from error
    return verdict, list(rows)


def _read_again(directory: Path, plan: Plan, target: Target) -> Mapping[str, Any]:
    recorder = MemoryRecorder(plan.run)
    pieces = target.collect(directory / "disks", plan, recorder, target.read_traces(directory / "trace"))
    pieces += target.missing([node for node in target.nodes(plan) if not node.spare], pieces)
    record_collected(pieces, recorder)
    tables = recorder.tables()
    return {name: tables[name] for name in _OF_NODES}


def _record(directory: Path) -> Mapping[str, Any]:
    try:
        return read_object(directory / "run.json")
    except (OSError, ValueError) as error:
        raise HarnessFailure(f"{directory / 'run.json'} cannot be read: {error}") from error


def _doubts(record: Mapping[str, Any]) -> list[str]:
    doubts = record.get("doubts", [])
    return [str(each) for each in doubts] if isinstance(doubts, list) else []
