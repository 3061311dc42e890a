"""Runs of registers, of other objects and of transactions as operations of a Jepsen history, in Jepsen's own forms."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from spark_history.files import HistoryError, Ints, compact, integers, read_parquet
from spark_history.jepsen import edn
from spark_history.jepsen.edn import Keyword
from spark_history.jepsen.export import Notation, Rendered, survey_files
from spark_history.jepsen.operations import NULL
from spark_history.jepsen.plain import unspell
from spark_history.jepsen.transactions import REBALANCE_LOG
from spark_history.schema import CALLS, MICRO_OPERATIONS, REGISTERS, TRANSACTIONS

SCHEMAS: Final = {
    "registers": REGISTERS, "calls": CALLS, "transactions": TRANSACTIONS, "micro_operations": MICRO_OPERATIONS,
}  # fmt: skip


def files(directory: Path, table: str) -> list[Path]:
    """Of a table of the run in `directory`, as its manifest names them. Raises HistoryError."""
    path = directory / "history" / "manifest.json"
    try:
        named = json.loads(path.read_text())["tables"].get(table, [])
        return [directory / "history" / str(name) for name in named]
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise HistoryError(f"{path} cannot be read, so there is no history to be had: {error}") from None


def survey(directory: Path) -> tuple[int, int]:
    """How many processes there are at most, and when the first operation was invoked (0: there is none)."""
    return survey_files(path for table in ("registers", "calls", "transactions") for path in files(directory, table))


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


def render_registers(directory: Path, plan: Mapping[str, Any], notation: Notation) -> Iterator[pa.Table]:
    """OPERATION rows, a table a file. Values are [key value] unless there is one register, number 0."""
    parts = files(directory, "registers")
    keyed = any(np.any(integers(read_parquet(part, _KEY), "key", 0) != 0) for part in parts)
    value, key = _names(plan.get("names"), notation), _names(plan.get("key_names"), notation)
    for part in parts:
        rendered = Rendered()
        for row in read_part(part, REGISTERS).to_pylist():

            def of(text: str, row: Mapping[str, Any] = row) -> str:
                return notation.vector((key(row["key"]), text)) if keyed else text

            asked = value(row["value"])
            if row["kind"] == "cas":
                asked = notation.vector((value(row["expected"]), asked))
            read = row["kind"] == "read"
            before = of(notation.nothing if read else asked)
            after = of(asked) if read and row["outcome"] == "ok" else before
            _add(rendered, row, notation, row["kind"], before, after, {})
        yield rendered.table()


_KEY: Final = pa.schema([REGISTERS.field("key")])


def render_calls(directory: Path, plan: Mapping[str, Any], notation: Notation) -> Iterator[pa.Table]:
    """OPERATION rows, a table a file."""
    spelt = plan.get("workload") != "kv"  # its values are texts as they stand
    for part in files(directory, "calls"):
        rendered = Rendered()
        for row in read_part(part, CALLS).to_pylist():
            argument, result = (_of_json(row[name], notation, spelt=spelt) for name in ("argument", "result"))
            more = {} if row["key"] is None else {"key": _of_json(row["key"], notation)}
            done = row["outcome"] == "ok" and row["result"] is not None
            _add(rendered, row, notation, row["kind"], argument, result if done else argument, more)
        yield rendered.table()


def _of_json(text: str | None, notation: Notation, *, spelt: bool = True) -> str:
    """A value of CALLS. Where there are no keywords (JSON), :a remains ":a", which "a" is not."""
    if text is None:
        return notation.nothing
    value = json.loads(text)
    return notation.value(unspell(value) if spelt and notation.has_keywords else value)


def _add(
    rendered: Rendered,
    row: Mapping[str, Any],
    notation: Notation,
    f: str,
    before: str,
    after: str,
    more: Mapping[str, str],
) -> None:
    invocation = notation.fields("invoke", f, before, more)
    completion = None
    if row["complete"] is not None:
        error = {} if row["error"] is None else {"error": notation.value(row["error"])}
        completion = notation.fields(row["outcome"], f, after, {**more, **error})
    rendered.add(row["op"], row["process"], row["invoke"], row["complete"], row["outcome"], invocation, completion)


def render_transactions(directory: Path, plan: Mapping[str, Any], notation: Notation) -> Iterator[pa.Table]:
    """OPERATION rows, a table a file. The micro-operations of a run, which lie by key, are held in memory."""
    parts = [read_part(part, MICRO_OPERATIONS) for part in files(directory, "micro_operations")]
    micro = pa.concat_tables(parts) if parts else None
    columns: dict[str, Any] = {}
    if micro is not None:
        columns = {name: integers(micro, name, NULL) for name in ("op", "position", "key", "offset", "value")}
        order = np.lexsort((columns["position"], columns["op"]))  # stable: the records of a read keep their order
        columns = {name: column[order] for name, column in columns.items()}
        columns["kind"] = micro["kind"].take(pa.array(order)).to_pylist()
    value, key = _names(plan.get("names"), notation), _names(plan.get("key_names"), notation)
    kafka, rebalanced = plan.get("workload") == "kafka", plan.get("rebalanced") or {}
    for part in files(directory, "transactions"):
        rendered = Rendered()
        for row in read_part(part, TRANSACTIONS).to_pylist():
            low, high = np.searchsorted(columns["op"], [row["op"], row["op"] + 1]) if columns else (0, 0)
            mine = [{name: column[at] for name, column in columns.items()} for at in range(low, high)]
            asked, done, kinds = _micro_operations(mine, value, key, notation)
            f = "txn" if not kafka or len(kinds) != 1 else kinds.pop()
            more = {}
            if keys := rebalanced.get(str(row["op"])):
                of = {notation.value(Keyword("keys")): notation.vector(map(key, keys))}
                more[REBALANCE_LOG] = notation.vector([notation.map(of)])
            # What is not ok may have been given an offset all the same, and that is evidence, which needs a completion.
            if row["complete"] is None and any(each["kind"] == "send" and each["offset"] != NULL for each in mine):
                row["complete"] = row["invoke"]
            _add(rendered, row, notation, f, asked, done if kafka or row["outcome"] == "ok" else asked, more)
        yield rendered.table()


def _micro_operations(
    rows: list[dict[str, Any]], value: Callable[[Any], str], key: Callable[[Any], str], notation: Notation
) -> tuple[str, str, set[str]]:
    """As invoked, as completed, and which kinds there are."""
    asked: list[str] = []
    done: list[str] = []
    kinds: set[str] = set()
    word = {name: notation.value(Keyword(name)) for name in ("append", "r", "send", "poll")}
    at = 0
    while at < len(rows):
        end = at
        while end < len(rows) and rows[end]["position"] == rows[at]["position"]:
            end += 1
        first, kind = rows[at], str(rows[at]["kind"])
        kinds.add(kind)
        of, found = key(int(first["key"])), [row for row in rows[at:end] if row["value"] != NULL]
        if kind == "append":
            asked.append(notation.vector((word["append"], of, value(int(first["value"])))))
            done.append(asked[-1])
        elif kind == "read":
            records = notation.vector(value(int(row["value"])) for row in found)
            asked.append(notation.vector((word["r"], of, notation.nothing)))
            done.append(notation.vector((word["r"], of, records)))
        elif kind == "send":
            sent = value(int(first["value"]))
            offset = notation.nothing if first["offset"] == NULL else str(first["offset"])
            asked.append(notation.vector((word["send"], of, sent)))
            done.append(notation.vector((word["send"], of, notation.vector((offset, sent)))))
        else:
            by_key: dict[int, list[str]] = {int(row["key"]): [] for row in rows[at:end]}
            for row in found:
                by_key[int(row["key"])].append(notation.vector((str(row["offset"]), value(int(row["value"])))))
            asked.append(notation.vector((word["poll"],)))
            polled = notation.map({key(each): notation.vector(texts) for each, texts in by_key.items()})
            done.append(notation.vector((word["poll"], polled)))
        at = end
    return notation.vector(asked), notation.vector(done), kinds


def _names(names: Any, notation: Notation) -> Callable[[Any], str]:
    """What a number stands for, as text; null: nil."""
    texts = {int(number): text for number, text in (names or {}).items()}
    known = {number: notation.value(edn.read(text)) for number, text in texts.items()}
    if len(set(known.values())) < len(known):  # in JSON :a and "a" are the same: as EDN they are not
        known = {number: notation.value(text) for number, text in texts.items()}

    def name(number: Ints | int | None) -> str:
        return notation.nothing if number is None else known.get(int(number)) or str(number)

    return name
