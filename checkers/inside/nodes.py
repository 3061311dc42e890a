"""Judges the inside of a run's nodes by the checks of its target: checkers/inside/<folder>/nodes.py."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from importlib import import_module
from typing import Any, Final

import pyarrow as pa

from checkers.inside.of_nodes import TABLES, OfNodes
from checkers.inside.of_nodes import Options as Options
from spark_history.files import read_parquet
from spark_history.ingest import History
from spark_history.spark.tasks import Engine, Unit, run_tasks

_OF_FAULTS: Final = ("fault", "nemesis", "targets", "start", "evidence")
#: Folders of checks that there are.
INSIDES: Final = frozenset({"kraft", "kafka", "v2"})


def check(history: History, options: Options, engine: Engine) -> OfNodes:
    """Raises HistoryError."""
    unit = {
        "run": history.run,
        **{name: None if (path := history.table(name)) is None else str(path) for name in TABLES},
        "faults": [{name: fault[name] for name in _OF_FAULTS} for fault in history.faults()],
        **asdict(options),
    }
    (result,) = run_tasks(engine, judge_files, [unit])
    found = json.loads(result["found"][0].as_py())
    return OfNodes(**found | {"tally": [tuple(entry) for entry in found["tally"]]})


def judge_files(unit: Unit) -> pa.Table:
    """One run, whose tables lie in files; OfNodes as JSON."""
    tables = {
        name: schema.empty_table() if unit[name] is None else read_parquet(unit[name], schema)
        for name, schema in TABLES.items()
    }
    options = Options(**{each.name: unit[each.name] for each in fields(Options)})
    return pa.table({"found": [json.dumps(asdict(judge(unit["run"], tables, options, unit["faults"])))]})


def judge(
    run: str, tables: Mapping[str, pa.Table], options: Options, faults: Sequence[Mapping[str, Any]] = ()
) -> OfNodes:
    """One run in memory. tables: those of TABLES, each of which may be empty or left out. faults: rows of FAULTS,
    evidence parsed."""
    given = {name: tables[name] if name in tables else schema.empty_table() for name, schema in TABLES.items()}
    if options.inside not in INSIDES:
        pieces = given["collected"].to_pylist()
        return OfNodes([], [], 0, 0, [], ["of this target nothing inside the cluster is checked"], [], collected=pieces)
    found: OfNodes = import_module(f"checkers.inside.{options.inside}.nodes").judge(run, given, options, faults)
    return found
