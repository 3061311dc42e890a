"""Read a run directory for the report: every file may be missing, half written or damaged.

A report is most wanted when a run went wrong, so nothing here gives up: what cannot be read becomes a sentence in
`RunData.problems`, which the page shows. Only a directory that is no run at all raises BadArguments.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from checkers.anomalies import ANOMALIES, LOST
from harness.errors import BadArguments, HarnessFailure
from harness.history import load_journal
from harness.plan import Plan
from spark_history.files import first_line
from spark_history.schema import FAULTS, OPERATIONS, READS, REPLICA_LOGS

# Few distinct values over many rows: read as dictionaries, which keeps memory and group-bys small.
CATEGORIES = ("kind", "topic", "outcome", "error", "node", "property", "anomaly")

# What of each table the report needs.
COLUMNS = {
    "operations": [name for name in OPERATIONS.names if name != "run"],
    "faults": [name for name in FAULTS.names if name != "run"],
    "reads": ["topic", "partition"],
    "replica_logs": ["node", "topic", "partition", "offset"],
}
SCHEMAS = {"operations": OPERATIONS, "faults": FAULTS, "reads": READS, "replica_logs": REPLICA_LOGS}


@dataclass(frozen=True)
class RunData:
    """What a run left. Frames have the columns of COLUMNS, ANOMALIES or LOST; times are monotonic nanoseconds."""

    directory: Path
    name: str
    plan: Plan | None
    plan_fields: dict[str, Any]  # the plan as saved, also where this version cannot validate it
    run: dict[str, Any]
    verdict: dict[str, Any]
    source: str  # "history", "journal" (a run that was killed) or "" when there is neither
    operations: pd.DataFrame
    faults: pd.DataFrame
    records_read: pd.DataFrame  # topic, partition, records
    replicas: pd.DataFrame  # node, topic, partition, records, first, last
    anomalies: pd.DataFrame
    lost: pd.DataFrame
    problems: list[str] = field(default_factory=list)


def load(directory: Path) -> RunData:
    """Raises BadArguments if `directory` holds neither a plan, a verdict nor a history."""
    if not directory.is_dir():
        raise BadArguments(f"there is no run directory {directory}")
    problems: list[str] = []
    plan_fields = _read_json(directory / "plan.json", problems)
    verdict = _read_json(directory / "verdict.json", problems)
    source = _source(directory)
    if not (plan_fields or verdict or source):
        raise BadArguments(f"{directory} is not a run: it holds no plan.json, verdict.json, history or journal")

    tables = _history(directory, problems) if source == "history" else _journal(directory, problems)
    return RunData(
        directory=directory,
        name=str(plan_fields.get("run") or verdict.get("run") or directory.resolve().name),
        plan=_validated(plan_fields, problems),
        plan_fields=plan_fields,
        run=_read_json(directory / "run.json", problems),
        verdict=verdict,
        source=source,
        operations=_frame(tables["operations"]),
        faults=_frame(tables["faults"]),
        records_read=_records_read(tables["reads"]),
        replicas=_replicas(tables["replica_logs"]),
        anomalies=_read_result(directory / "anomalies.parquet", ANOMALIES, problems),
        lost=_read_result(directory / "lost.parquet", LOST, problems),
        problems=problems,
    )


def _read_json(path: Path, problems: list[str]) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        problems.append(f"{path.name} cannot be read: {first_line(error)}")
        return {}
    if not isinstance(content, dict):
        problems.append(f"{path.name} does not hold an object")
        return {}
    return content


def _validated(plan_fields: Mapping[str, Any], problems: list[str]) -> Plan | None:
    if not plan_fields:
        problems.append("plan.json is missing: the configuration and the command that repeats the run are not known")
        return None
    try:
        return Plan.model_validate(plan_fields)
    except ValueError:
        problems.append("plan.json was written by another version: it is shown as it stands")
        return None


def _source(directory: Path) -> str:
    if any((directory / "history" / "operations").rglob("*.parquet")):
        return "history"
    return "journal" if any((directory / "journal").glob("*.parquet")) else ""


def _history(directory: Path, problems: list[str]) -> dict[str, pa.Table]:
    """The tables of an ingested run; a damaged file is left out."""
    tables = {}
    for name, columns in COLUMNS.items():
        files = sorted((directory / "history" / name).rglob("*.parquet"))
        read = [_read_parquet(file, SCHEMAS[name], columns, problems) for file in files]
        tables[name] = _concatenate(read, SCHEMAS[name], columns)
    return tables


def _journal(directory: Path, problems: list[str]) -> dict[str, pa.Table]:
    """The same tables of a run that was not ingested, or empty ones where there is no journal."""
    try:
        recorded = load_journal(directory / "journal")
    except HarnessFailure as error:
        problems.append(f"the journal is left out: {error}")
        recorded = {}
    tables = {}
    for name, columns in COLUMNS.items():
        table = recorded.get(name, SCHEMAS[name].empty_table()).select(columns)
        tables[name] = table.cast(_schema(SCHEMAS[name], columns))
    return tables


def _read_parquet(path: Path, schema: pa.Schema, columns: list[str], problems: list[str]) -> pa.Table | None:
    """The named columns as in `schema`; a column absent from the file is taken from key=value folders, else null."""
    try:
        present = [name for name in columns if name in pq.read_schema(path).names]
        read = pq.ParquetFile(path, read_dictionary=[name for name in present if name in CATEGORIES]).read(present)
        keys = dict(part.split("=", 1) for part in path.parent.parts if "=" in part)
        for name in columns:
            if name not in present:
                key = keys.get(name)
                text = None if key is None else unquote(key)
                read = read.append_column(name, pa.array([text] * read.num_rows, pa.string()))
        return read.select(columns).cast(_schema(schema, columns))
    except (OSError, pa.ArrowException) as error:
        problems.append(f"{path.name} cannot be read and is left out: {first_line(error)}")
        return None


def _schema(schema: pa.Schema, columns: Iterable[str]) -> pa.Schema:
    dictionary = pa.dictionary(pa.int32(), pa.string())
    return pa.schema([(name, dictionary if name in CATEGORIES else schema.field(name).type) for name in columns])


def _concatenate(tables: Iterable[pa.Table | None], schema: pa.Schema, columns: Iterable[str]) -> pa.Table:
    empty = _schema(schema, columns).empty_table()
    return pa.concat_tables([empty, *(table for table in tables if table is not None)]).unify_dictionaries()


def _frame(table: pa.Table) -> pd.DataFrame:
    """Integers stay integers where some are null: an offset or a value must never pass through a float."""
    return table.to_pandas(types_mapper={pa.int64(): pd.Int64Dtype(), pa.int32(): pd.Int32Dtype()}.get)


def _records_read(reads: pa.Table) -> pd.DataFrame:
    grouped = reads.group_by(["topic", "partition"]).aggregate([([], "count_all")])
    return _frame(grouped.rename_columns(["topic", "partition", "records"]))


def _replicas(logs: pa.Table) -> pd.DataFrame:
    grouped = logs.group_by(["node", "topic", "partition"]).aggregate(
        [("offset", "count"), ("offset", "min"), ("offset", "max")]
    )
    return _frame(grouped.rename_columns(["node", "topic", "partition", "records", "first", "last"]))


def _read_result(path: Path, schema: pa.Schema, problems: list[str]) -> pd.DataFrame:
    """A checker's table, written as one file or, by Spark, as a folder of files."""
    files = sorted(path.rglob("*.parquet")) if path.is_dir() else [path] if path.exists() else []
    tables = [_read_parquet(file, schema, schema.names, problems) for file in files]
    return _frame(_concatenate(tables, schema, schema.names))
