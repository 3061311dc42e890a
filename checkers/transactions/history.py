"""The transactions of one run as arrays, and how they lie on disk (see also checkers/stored.py).

    history/transactions/<number>.parquet      TRANSACTIONS, in the order of their invocations
    history/micro_operations/<number>.parquet  MICRO_OPERATIONS by key, transaction and position; of one key all in one
                                               file (a part), so that a part yields its dependencies by itself
    history/assignments/<number>.parquet       ASSIGNMENTS in the order of their invocations, if there are any; every
                                               part needs them all, and they are few

A transaction is known by its index: its place in the order of invocations. Micro-operations of one read keep the order
in which they were recorded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from checkers.stored import Stored, Writer
from spark_history.errors import HistoryError
from spark_history.files import Bools, Ints, compact, equals, integers, read_parquet
from spark_history.log import NEVER
from spark_history.schema import ASSIGNMENTS, MICRO_OPERATIONS, TRANSACTIONS

OK: Final = 0
FAIL: Final = 1
INFO: Final = 2
NOTHING: Final = int(np.iinfo(np.int64).min)  # an offset, a value or a process that is null
PART_ROWS: Final = 2_000_000  # of micro-operations, more only if one key has more

_WRITES: Final = ("append", "write", "send")
_READS: Final = ("read", "poll")
_TRANSACTIONS: Final = pa.schema([field for field in TRANSACTIONS if field.name != "error"])
_MICRO: Final = pa.schema([field for field in MICRO_OPERATIONS if field.name != "run"])
TABLES: Final = {"transactions": TRANSACTIONS, "micro_operations": MICRO_OPERATIONS}

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
    def over(self) -> Ints:
        """By when each had polled what it tells of, whatever became of it: its completion; NEVER: none on record."""
        return self.complete

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
    read: Bools  # else an append, a write or a send
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


def stored(directory: Path, asked: Mapping[str, Any] | None = None) -> Stored:
    """A run on disk. asked: entries that override those of its plan. Raises HistoryError."""
    return Stored.of(directory, tuple(TABLES), asked)


def load_transactions(run: Stored) -> Transactions:
    """Raises HistoryError."""
    paths = run.paths("transactions")
    try:
        written = tuple((stat.st_mtime_ns, stat.st_size) for stat in (path.stat() for path in paths))
    except OSError as error:
        raise HistoryError(f"{error.filename} cannot be read ({error.strerror})") from None
    return _load(run.run, tuple(str(path) for path in paths), written)


@lru_cache(maxsize=1)  # the tasks of one run follow each other in a worker
def _load(run: str, paths: tuple[str, ...], written: tuple[tuple[int, int], ...]) -> Transactions:
    """written: when, so that files which were replaced are read again."""
    tables = [read_parquet(path, _TRANSACTIONS) for path in paths]
    return transactions_of(run, pa.concat_tables([compact(_TRANSACTIONS).empty_table(), *tables]))


def load_part(txns: Transactions, path: Path) -> Micro:
    return micro_of(txns, read_parquet(path, _MICRO))


def writer_of(directory: Path, plan: Mapping[str, Any]) -> Writer:
    """Writes the layout above: transactions in the order of their invocations, and of micro-operations all of some
    keys a file, sorted by key, op and position."""
    return Writer(directory, plan, TABLES)


def write_history(directory: Path, plan: Mapping[str, Any], tables: Mapping[str, pa.Table]) -> None:
    """Tables in memory (TRANSACTIONS, MICRO_OPERATIONS, perhaps ASSIGNMENTS) in the layout that check_directories()
    reads."""
    assignments = tables.get("assignments")
    with_assignments = {} if assignments is None else {"assignments": ASSIGNMENTS}
    writer = Writer(directory, plan, TABLES | with_assignments)
    if assignments is not None:
        order = np.lexsort((integers(assignments, "op", NOTHING), integers(assignments, "invoke", 0)))
        writer.add("assignments", assignments.take(pa.array(order)))
    transactions = tables["transactions"]
    order = np.lexsort((integers(transactions, "op", NOTHING), integers(transactions, "invoke", 0)))
    writer.add("transactions", transactions.take(pa.array(order)))
    for part in _parts(tables["micro_operations"]):
        writer.add("micro_operations", part)
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
