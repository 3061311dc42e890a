"""Read a run directory for the report: every file may be missing, half written or damaged.

A report is most wanted when a run went wrong, so nothing here gives up: what cannot be read becomes a sentence in
`RunData.problems`, which the page shows. Only a directory that is no run at all raises BadArguments.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from checkers.anomalies import ANOMALIES, ATTRIBUTED
from harness.errors import BadArguments, HarnessFailure
from harness.plan.plan import Plan
from harness.record.history import load_journal
from harness.report.html import operations
from harness.report.html.operations import Operations
from spark_history.errors import first_line
from spark_history.regular import read_object, require_regular
from spark_history.schema import FAULTS, OPERATIONS, READS, REPLICA_LOGS

# Few distinct values over many rows: read as dictionaries, which keeps memory and group-bys small.
CATEGORIES = ("kind", "topic", "outcome", "error", "node", "property", "anomaly")

# What of each table the report needs.
COLUMNS = {
    "operations": list(operations.COLUMNS),
    "faults": [name for name in FAULTS.names if name != "run"],
    "reads": ["topic", "partition"],
    "replica_logs": ["node", "topic", "partition", "offset"],
}
# Of the few operations that are shown.
SHOWN = [name for name in OPERATIONS.names if name != "run"]
SCHEMAS = {"operations": OPERATIONS, "faults": FAULTS, "reads": READS, "replica_logs": REPLICA_LOGS}


@dataclass(frozen=True)
class RunData:
    """What a run left. Frames have the columns of COLUMNS, ANOMALIES or ATTRIBUTED; times are monotonic nanoseconds."""

    directory: Path
    name: str
    plan: Plan | None
    plan_fields: dict[str, Any]  # the plan as saved, also where this version cannot validate it
    run: dict[str, Any]
    verdict: dict[str, Any]
    source: str  # "history", "journal" (a run that was killed) or "" when there is neither
    operations: Operations
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

    read = _history if source == "history" else _journal
    recorded, faults, records_read, replicas = read(directory, problems)
    return RunData(
        directory=directory,
        name=str(plan_fields.get("run") or verdict.get("run") or directory.resolve().name),
        plan=_validated(plan_fields, problems),
        plan_fields=plan_fields,
        run=_read_json(directory / "run.json", problems),
        verdict=verdict,
        source=source,
        operations=recorded,
        faults=_frame(faults),
        records_read=_frame(_summed(records_read, ("records", "sum"))),
        replicas=_frame(_summed(replicas, ("records", "sum"), ("first", "min"), ("last", "max"))),
        anomalies=_read_result(directory / "anomalies.parquet", ANOMALIES, problems),
        lost=_read_result(directory / "lost.parquet", ATTRIBUTED, problems),
        problems=problems,
    )


def _read_json(path: Path, problems: list[str]) -> dict[str, Any]:
    try:
        return read_object(path)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        problems.append(f"{path.name} cannot be read: {first_line(error)}")
        return {}


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


_Tables = tuple[Operations, pa.Table, pa.Table, pa.Table]  # operations, faults, records read, replicas: see RunData


def _history(directory: Path, problems: list[str]) -> _Tables:
    """Of an ingested run, a file at a time; a damaged file is left out."""
    root = directory / "history"
    with ThreadPoolExecutor() as threads:

        def each(name: str, work: Any) -> list[Any]:
            files = sorted((root / name).rglob("*.parquet"))
            read = partial(_read_parquet, schema=SCHEMAS[name], columns=COLUMNS[name], problems=problems)
            of = threads.map(lambda file: None if (table := read(file)) is None else work(table), files)
            return [found for found in of if found is not None]

        recorded = Operations.merged(each("operations", Operations.of))
        faults = _concatenate(each("faults", lambda table: table), FAULTS, COLUMNS["faults"])
        records_read, replicas = each("reads", _records_read), each("replica_logs", _replicas)
    files = sorted((root / "operations").rglob("*.parquet"))
    recorded.find = lambda wanted: _found(
        (_read_parquet(file, OPERATIONS, SHOWN, [], wanted) for file in files) if wanted else ()
    )
    none = {name: SCHEMAS[name].empty_table().select(COLUMNS[name]) for name in ("reads", "replica_logs")}
    return (
        recorded, faults, pa.concat_tables([_records_read(_plain(none["reads"])), *records_read]),
        pa.concat_tables([_replicas(_plain(none["replica_logs"])), *replicas]),
    )  # fmt: skip


def _plain(table: pa.Table) -> pa.Table:
    return table.cast(_schema(table.schema, table.column_names))


def _journal(directory: Path, problems: list[str]) -> _Tables:
    """The same of a run that was not ingested, or nothing where there is no journal."""
    try:
        recorded = load_journal(directory / "journal")
    except HarnessFailure as error:
        problems.append(f"the journal is left out: {error}")
        recorded = {}
    whole = {name: recorded.get(name, SCHEMAS[name].empty_table()) for name in COLUMNS}
    tables = {name: _plain(whole[name].select(columns)) for name, columns in COLUMNS.items()}
    operations = Operations.of(tables["operations"])
    operations.find = lambda wanted: _found([_with_ids(_plain(whole["operations"].select(SHOWN)), wanted)])
    return operations, tables["faults"], _records_read(tables["reads"]), _replicas(tables["replica_logs"])


def _found(tables: Iterable[pa.Table | None]) -> pd.DataFrame:
    return _frame(_concatenate(tables, OPERATIONS, SHOWN))


def _with_ids(table: pa.Table, wanted: Iterable[int]) -> pa.Table:
    return table.filter(pc.is_in(table["op"], value_set=pa.array(sorted(wanted), pa.int64())))


def _read_parquet(
    path: Path, schema: pa.Schema, columns: list[str], problems: list[str], wanted: set[int] | None = None
) -> pa.Table | None:
    """The named columns as in `schema`; a column absent from the file is taken from key=value folders, else null.
    wanted: only the operations of these ids."""
    try:
        require_regular(path)
        footer = pq.read_metadata(path)
        present = [name for name in columns if name in footer.schema.to_arrow_schema().names]
        categories = [name for name in present if name in CATEGORIES]
        with pq.ParquetFile(path, metadata=footer, read_dictionary=categories) as file:
            read = file.read(present, use_threads=False)
        if wanted is not None:
            read = _with_ids(read, wanted)
        keys = dict(part.split("=", 1) for part in path.parent.parts if "=" in part)
        for name in columns:
            if name not in present:
                key = keys.get(name)
                if key is None:
                    read = read.append_column(name, pa.nulls(read.num_rows, _schema(schema, [name]).field(0).type))
                    continue
                text = pa.array([unquote(key)], pa.string())
                rows = pa.array(np.zeros(read.num_rows, np.int32))
                of_all = pa.DictionaryArray.from_arrays(rows, text) if name in CATEGORIES else text.take(rows)
                read = read.append_column(name, of_all)
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


def _records_read(reads: pa.Table) -> pa.Table:
    grouped = reads.group_by(["topic", "partition"], use_threads=False).aggregate([([], "count_all")])
    return _plain_texts(grouped.rename_columns(["topic", "partition", "records"]))


def _replicas(logs: pa.Table) -> pa.Table:
    grouped = logs.group_by(["node", "topic", "partition"], use_threads=False).aggregate(
        [("offset", "count"), ("offset", "min"), ("offset", "max")]
    )
    return _plain_texts(grouped.rename_columns(["node", "topic", "partition", "records", "first", "last"]))


def _plain_texts(table: pa.Table) -> pa.Table:
    """Without dictionaries: a few rows of many files are put together."""
    texts = pa.dictionary(pa.int32(), pa.string())
    plain = [field.with_type(pa.string()) if field.type == texts else field for field in table.schema]
    return table.cast(pa.schema(plain))


def _summed(table: pa.Table, *how: tuple[str, str]) -> pa.Table:
    """Of the parts of one partition, or of one replica: one row."""
    keys = [name for name in table.column_names if name not in dict(how)]
    summed = table.group_by(keys, use_threads=False).aggregate(list(how))
    return summed.select([*keys, *(f"{name}_{function}" for name, function in how)]).rename_columns(
        [*keys, *(name for name, _ in how)]
    )


def _read_result(path: Path, schema: pa.Schema, problems: list[str]) -> pd.DataFrame:
    """A checker's table, written as one file or, by Spark, as a folder of files."""
    files = sorted(path.rglob("*.parquet")) if path.is_dir() else [path] if path.exists() else []
    tables = [_read_parquet(file, schema, schema.names, problems) for file in files]
    return _frame(_concatenate(tables, schema, schema.names))
