"""Exports runs of registers and of other objects as Jepsen histories, and reads the tables of these and of
transactions (transactions.py)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from spark_history.errors import HistoryError
from spark_history.files import Ints, compact, equals, integers, read_parquet
from spark_history.jepsen.events.plain import unspell
from spark_history.jepsen.export.export import OPERATIONS_AT_ONCE, Survey, errors, fields, operations_of, survey_files
from spark_history.jepsen.export.notation import Notation, join, named, pick, transformed
from spark_history.jepsen.operations import NULL
from spark_history.regular import read_object
from spark_history.schema import ASSIGNMENTS, CALLS, MICRO_OPERATIONS, REGISTERS, TRANSACTIONS

SCHEMAS: Final = {
    "registers": REGISTERS, "calls": CALLS, "transactions": TRANSACTIONS, "micro_operations": MICRO_OPERATIONS,
    "assignments": ASSIGNMENTS,
}  # fmt: skip


def files(directory: Path, table: str) -> list[Path]:
    """Of a table of the run in `directory`, as its manifest names them. Raises HistoryError."""
    path = directory / "history" / "manifest.json"
    try:
        named = read_object(path)["tables"].get(table, [])
        return [directory / "history" / str(name) for name in named]
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise HistoryError(f"{path} cannot be read, so there is no history to be had: {error}") from None


def survey(directory: Path) -> Survey:
    """Raises HistoryError."""
    tables = ("registers", "calls", "transactions", "assignments")
    return survey_files(path for table in tables for path in files(directory, table))


def load(directory: Path) -> dict[str, pa.Table]:
    """All tables of the run in `directory`. Raises HistoryError."""
    tables = {}
    for name, schema in SCHEMAS.items():
        if parts := files(directory, name):
            tables[name] = pa.concat_tables([read_part(part, schema) for part in parts])
    return tables


def read_part(part: Path, schema: pa.Schema) -> pa.Table:
    """The columns of `schema`, nulls for those that say nothing of one run and that a layout may leave out. Raises
    HistoryError."""
    try:
        absent = _MAY_LACK.difference(pq.read_schema(part).names).intersection(schema.names)
    except (OSError, pa.ArrowException):
        absent = frozenset()  # read_parquet() says what is wrong
    table = read_parquet(part, pa.schema([field for field in schema if field.name not in absent]))
    for name in absent:
        nulls = pa.nulls(table.num_rows, pa.string()).dictionary_encode()
        table = table.append_column(compact(schema).field(name), nulls)
    return table.select(schema.names)


_MAY_LACK: Final = frozenset({"run", "error"})


def slices(directory: Path, table: str) -> Iterator[pa.Table]:
    """Rows of a table, some at once. Raises HistoryError."""
    for part in files(directory, table):
        rows = read_part(part, SCHEMAS[table])
        for low in range(0, rows.num_rows, OPERATIONS_AT_ONCE):
            yield rows.slice(low, OPERATIONS_AT_ONCE).unify_dictionaries().combine_chunks()


def text_of(rows: pa.Table, column: str) -> pa.Array:
    return rows[column].cast(pa.string()).combine_chunks()


def common(rows: pa.Table) -> dict[str, Ints]:
    return {name: integers(rows, name, NULL) for name in ("op", "process", "invoke", "complete")}


def render_registers(directory: Path, plan: Mapping[str, Any], notation: Notation, end: int) -> Iterator[pa.Table]:
    """OPERATION rows, of a history that ended at `end`. Values are [key value] unless there is one register, number
    0."""
    parts = files(directory, "registers")
    keyed = any(np.any(integers(read_parquet(part, _KEY), "key", 0) != 0) for part in parts)
    value, key = named(plan.get("names"), notation, NULL), named(plan.get("key_names"), notation, NULL)
    for rows in slices(directory, "registers"):
        keys = integers(rows, "key", NULL)

        def of(texts: pa.Array, keys: Ints = keys) -> pa.Array:
            return join("[", key(keys), notation.gap, texts, "]") if keyed else texts

        read, cas, ok = equals(rows, "kind", "read"), equals(rows, "kind", "cas"), equals(rows, "outcome", "ok")
        values = value(integers(rows, "value", NULL))
        asked = pick(read, notation.nothing, values)
        if cas.any():
            pairs = join("[", value(integers(rows, "expected", NULL)), notation.gap, values, "]")
            asked = pick(cas, pairs, asked)
        reported = of(asked), of(pick(read & ok, values, asked))
        outcome = text_of(rows, "outcome")
        texts = fields(notation, text_of(rows, "kind"), outcome, reported, ("", errors(rows, notation)))
        yield operations_of(common(rows), outcome, texts, end)


_KEY: Final = pa.schema([REGISTERS.field("key")])


def render_calls(directory: Path, plan: Mapping[str, Any], notation: Notation, end: int) -> Iterator[pa.Table]:
    """OPERATION rows, of a history that ended at `end`."""
    spelt = plan.get("workload") != "kv"  # its values are texts as they stand
    name = notation.more("key")

    def value(text: str | None) -> str:
        return _of_json(text, notation, spelt=spelt)

    for rows in slices(directory, "calls"):
        argument, result = (transformed(text_of(rows, each), value) for each in ("argument", "result"))
        done = equals(rows, "outcome", "ok") & rows["result"].is_valid().to_numpy()
        keys = transformed(
            text_of(rows, "key"), lambda text: "" if text is None else f"{name}{_of_json(text, notation)}"
        )
        more = keys, join(keys, errors(rows, notation))
        outcome = text_of(rows, "outcome")
        texts = fields(notation, text_of(rows, "kind"), outcome, (argument, pick(done, result, argument)), more)
        yield operations_of(common(rows), outcome, texts, end)


def _of_json(text: str | None, notation: Notation, *, spelt: bool = True) -> str:
    """A value of CALLS. Where there are no keywords (JSON), :a remains ":a", which "a" is not."""
    if text is None:
        return notation.nothing
    value = json.loads(text)
    return notation.value(unspell(value) if spelt and notation.has_keywords else value)
