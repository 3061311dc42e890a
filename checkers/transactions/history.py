"""The transactions of one run as arrays, and how they lie on disk.

    history/transactions/<number>.parquet      TRANSACTIONS, in the order of their invocations
    history/micro_operations/<number>.parquet  MICRO_OPERATIONS by key, transaction and position; of one key all in one
                                               file (a part), so that a part yields its dependencies by itself

A transaction is known by its index: its place in the order of invocations. Micro-operations of one read keep the order
in which they were recorded.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_history.files import Bools, HistoryError, Ints, compact, equals, integers, read_parquet, write_parquet
from spark_history.lane import NEVER
from spark_history.schema import MICRO_OPERATIONS, TRANSACTIONS

OK: Final = 0
FAIL: Final = 1
INFO: Final = 2
NOTHING: Final = int(np.iinfo(np.int64).min)  # an offset, a value or a process that is null
PART_ROWS: Final = 2_000_000  # of micro-operations, more only if one key has more

_WRITES: Final = ("append", "send")
_READS: Final = ("read", "poll")
_TRANSACTIONS: Final = pa.schema([field for field in TRANSACTIONS if field.name != "error"])
_MICRO: Final = pa.schema([field for field in MICRO_OPERATIONS if field.name != "run"])

Codes = npt.NDArray[np.int8]


@dataclass(frozen=True)
class Transactions:
    """All transactions of a run, in the order of invocation. Times are monotonic ns."""

    run: str
    op: Ints
    process: Ints  # NOTHING: not known
    invoke: Ints
    complete: Ints  # NEVER: no completion on record
    outcome: Codes  # OK, FAIL or INFO

    def __len__(self) -> int:
        return len(self.op)

    @property
    def done(self) -> Ints:
        """By when each has taken effect: its completion if it is ok, else NEVER."""
        return np.where(self.outcome == OK, self.complete, NEVER)

    @property
    def origin(self) -> int:
        return int(self.invoke[0]) if len(self) else 0

    def index(self, ops: Ints) -> Ints:
        """The transactions with these op numbers. Raises HistoryError if one is not on record."""
        if not len(ops):
            return ops
        if len(self) and self.op[0] == 0 and self.op[-1] == len(self) - 1 and bool((np.diff(self.op) == 1).all()):
            found, known = ops, (ops >= 0) & (ops < len(self))
        else:
            order = np.argsort(self.op, kind="stable")
            place = np.minimum(np.searchsorted(self.op[order], ops), max(len(self) - 1, 0))
            found = order[place] if len(self) else np.zeros(len(ops), np.int64)
            known = self.op[found] == ops if len(self) else np.zeros(len(ops), bool)
        if not known.all():
            missing = int(ops[np.flatnonzero(~known)[0]])
            raise HistoryError(f"run {self.run!r}: a micro-operation belongs to transaction {missing}, not on record")
        return found

    def counts(self) -> dict[str, int]:
        names = {OK: "ok", FAIL: "fail", INFO: "info"}
        found = {f"transaction {name}": int(np.count_nonzero(self.outcome == code)) for code, name in names.items()}
        return {"operations": len(self), **found}


def transactions_of(run: str, table: pa.Table) -> Transactions:
    """From TRANSACTIONS. Raises HistoryError if these cannot be."""
    table = table.select(_TRANSACTIONS.names).cast(compact(_TRANSACTIONS)).combine_chunks().unify_dictionaries()
    outcome = np.full(table.num_rows, INFO, np.int8)
    outcome[equals(table, "outcome", "ok")] = OK
    outcome[equals(table, "outcome", "fail")] = FAIL
    columns = {name: integers(table, name, null) for name, null in
               (("op", NOTHING), ("process", NOTHING), ("invoke", 0), ("complete", NEVER))}  # fmt: skip
    order = np.lexsort((columns["op"], columns["invoke"]))
    found = Transactions(run, outcome=outcome[order], **{name: column[order] for name, column in columns.items()})
    ops = np.sort(found.op)
    if (twice := np.flatnonzero(ops[1:] == ops[:-1])).size:
        raise HistoryError(f"run {run!r}: transaction {ops[twice[0]]} is on record twice")
    if (early := np.flatnonzero(found.complete < found.invoke)).size:
        raise HistoryError(f"run {run!r}: transaction {found.op[early[0]]} completed before it was invoked")
    if (open_ := np.flatnonzero((found.outcome == OK) & (found.complete == NEVER))).size:
        raise HistoryError(f"run {run!r}: transaction {found.op[open_[0]]} is ok but has no completion")
    return found


@dataclass(frozen=True)
class Micro:
    """Micro-operations by key, transaction and position. One row a record that a read returned, as in the table."""

    key: Ints
    txn: Ints  # index of the transaction
    position: Ints
    read: Bools  # else an append or a send
    offset: Ints
    value: Ints

    def __len__(self) -> int:
        return len(self.key)

    def take(self, rows: Ints | Bools) -> Micro:
        return Micro(*(column[rows] for column in vars(self).values()))

    @staticmethod
    def join(parts: Sequence[Micro]) -> Micro:
        """Parts of one run."""
        columns = [[getattr(part, name) for part in parts] for name in MICRO_COLUMNS]
        return _ordered(Micro(*(np.concatenate(column) if len(column) > 1 else column[0] for column in columns)))


MICRO_COLUMNS: Final = ("key", "txn", "position", "read", "offset", "value")


def micro_of(txns: Transactions, table: pa.Table) -> Micro:
    """From MICRO_OPERATIONS. Raises HistoryError."""
    table = table.select(_MICRO.names).cast(compact(_MICRO)).unify_dictionaries().combine_chunks()
    read, write = (np.logical_or.reduce([equals(table, "kind", name) for name in names]) for names in (_READS, _WRITES))
    if not (read | write).all():
        kind = table["kind"][int(np.flatnonzero(~(read | write))[0])].as_py()
        known = ", ".join(_WRITES + _READS)
        raise HistoryError(f"run {txns.run!r}: a micro-operation of the kind {kind!r}, which is none of {known}")
    key, position, offset, value = (integers(table, name, NOTHING) for name in ("key", "position", "offset", "value"))
    txn = txns.index(integers(table, "op", NOTHING))
    return _ordered(Micro(key, txn, position, read, offset, value))


def _ordered(micro: Micro) -> Micro:
    return micro if _in_order(micro) else micro.take(np.lexsort((micro.position, micro.txn, micro.key)))


def _in_order(micro: Micro) -> bool:
    rises: Bools | None = None
    for column in (micro.position, micro.txn, micro.key):  # the least significant first
        later, same = column[1:] > column[:-1], column[1:] == column[:-1]
        rises = later | same if rises is None else later | (same & rises)
    return rises is None or bool(rises.all())


@dataclass(frozen=True)
class Stored:
    """A run on disk."""

    directory: Path
    plan: Mapping[str, Any]
    manifest: Mapping[str, Any]

    @staticmethod
    def of(directory: Path) -> Stored:
        """Raises HistoryError if there is no history of transactions."""
        documents = []
        for path in (directory / "plan.json", directory / "history" / "manifest.json"):
            try:
                documents.append(json.loads(path.read_text()))
            except (OSError, ValueError) as error:
                raise HistoryError(f"{path} cannot be read ({type(error).__name__})") from None
        plan, manifest = documents
        tables = manifest.get("tables", {}) if isinstance(manifest, dict) else {}
        if not isinstance(plan, dict) or any(name not in tables for name in ("transactions", "micro_operations")):
            raise HistoryError(f"{directory} holds no history of transactions")
        return Stored(directory, plan, manifest)

    @property
    def run(self) -> str:
        return str(self.plan.get("run") or self.directory.name)

    def paths(self, table: str) -> list[Path]:
        return [self.directory / "history" / path for path in self.manifest["tables"][table]]

    def transactions(self) -> Transactions:
        paths = self.paths("transactions")
        try:
            written = tuple((stat.st_mtime_ns, stat.st_size) for stat in (path.stat() for path in paths))
        except OSError as error:
            raise HistoryError(f"{error.filename} cannot be read ({error.strerror})") from None
        return _load(self.run, tuple(str(path) for path in paths), written)


@lru_cache(maxsize=1)  # the tasks of one run follow each other in a worker
def _load(run: str, paths: tuple[str, ...], written: tuple[tuple[int, int], ...]) -> Transactions:
    """written: when, so that files which were replaced are read again."""
    tables = [read_parquet(path, _TRANSACTIONS) for path in paths]
    return transactions_of(run, pa.concat_tables([compact(_TRANSACTIONS).empty_table(), *tables]))


def load_part(txns: Transactions, path: Path) -> Micro:
    return micro_of(txns, read_parquet(path, _MICRO))


class Writer:
    """Writes the layout above, a file at a time: for histories that are larger than memory."""

    def __init__(self, directory: Path, plan: Mapping[str, Any]) -> None:
        self.directory, self.plan = directory, plan
        self._tables: dict[str, list[str]] = {"transactions": [], "micro_operations": []}
        self._rows = dict.fromkeys(self._tables, 0)
        self._origin = 0

    def transactions(self, table: pa.Table) -> None:
        """The next, in the order of invocation."""
        if not self._rows["transactions"] and table.num_rows:
            self._origin = int(table["invoke"][0].as_py())
        self._write("transactions", table.select(TRANSACTIONS.names).cast(TRANSACTIONS))

    def micro_operations(self, table: pa.Table) -> None:
        """All of some keys, sorted by key, op and position."""
        self._write("micro_operations", table.select(MICRO_OPERATIONS.names).cast(MICRO_OPERATIONS))

    def _write(self, name: str, table: pa.Table) -> None:
        paths = self._tables[name]
        paths.append(f"{name}/{len(paths):06}.parquet")
        self._rows[name] += table.num_rows
        write_parquet(self.directory / "history" / paths[-1], table)

    def close(self) -> None:
        """Write what makes it a history: only now will a checker take it."""
        manifest = {
            "format": 1,
            "workload": self.plan.get("workload"),
            "tables": self._tables,
            "rows": self._rows,
            "origin": self._origin,
        }
        (self.directory / "history").mkdir(parents=True, exist_ok=True)
        for path, content in (
            (self.directory / "plan.json", dict(self.plan)),
            (self.directory / "history" / "manifest.json", manifest),
        ):
            path.write_text(json.dumps(content, indent=2) + "\n")


def write_history(directory: Path, plan: Mapping[str, Any], tables: Mapping[str, pa.Table]) -> None:
    """Tables in memory (TRANSACTIONS, MICRO_OPERATIONS) in the layout that check_directories() reads."""
    writer = Writer(directory, plan)
    transactions = tables["transactions"]
    order = np.lexsort((integers(transactions, "op", NOTHING), integers(transactions, "invoke", 0)))
    writer.transactions(transactions.take(pa.array(order)))
    for part in _parts(tables["micro_operations"]):
        writer.micro_operations(part)
    writer.close()


def _parts(micro: pa.Table) -> Iterator[pa.Table]:
    columns: Sequence[Ints] = [integers(micro, name, NOTHING) for name in ("position", "op", "key")]
    micro, key = micro.take(pa.array(order := np.lexsort(columns))), columns[2][order]
    low = 0
    while low < len(key) or not low:
        high = min(low + PART_ROWS, len(key))
        if high < len(key):
            high = int(np.searchsorted(key, key[high - 1], "right"))
        yield micro.slice(low, high - low)
        low = max(high, 1)
