"""Foreign histories of transactions: TRANSACTIONS and MICRO_OPERATIONS from Elle's list-append and Jepsen's kafka.

list-append: `[[:append k v] [:r k [v …]] …]`. A read that found nothing is nil or [].
kafka: `[[:send k v] …]`, completed as `[:send k [offset v]]`, and `[:poll]`, completed as `[:poll {k [[offset v] …]}]`.
What clients do besides (assign, subscribe, crash, debug-topic-partitions …) is no transaction, and left out.

Of a transaction that is ok its completion says what it did. Of any other the invocation says what it may have done,
and its reads prove nothing; an offset that was acknowledged before it failed is kept.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa

from spark_history.files import HistoryError, Ints, nullable
from spark_history.jepsen import edn
from spark_history.jepsen.edn import Named
from spark_history.jepsen.operations import NULL, Numbers, Operations, Pair, Rows, category, ints, table
from spark_history.schema import MICRO_OPERATIONS, TRANSACTIONS

KINDS: Final = ("append", "read", "send", "poll")
_APPEND, _READ, _SEND, _POLL = range(4)
#: What clients of Jepsen's kafka workload do that is no transaction.
NO_TRANSACTIONS: Final = frozenset({"assign", "subscribe", "crash", "debug-topic-partitions", "unsubscribe", "close"})


def head(micro: Any) -> str | None:
    """What a micro-operation does; None: this is none."""
    if not isinstance(micro, (tuple, list)) or not micro:
        return None
    first = micro[0]
    return first.name if isinstance(first, Named) else first.removeprefix(":") if isinstance(first, str) else None


@dataclass
class _Micro:
    """Rows of MICRO_OPERATIONS. `row`: of the transaction in Rows."""

    row: array[int] = field(default_factory=lambda: array("q"))
    position: array[int] = field(default_factory=lambda: array("q"))
    kind: array[int] = field(default_factory=lambda: array("b"))
    key: array[int] = field(default_factory=lambda: array("q"))
    offset: array[int] = field(default_factory=lambda: array("q"))
    value: array[int] = field(default_factory=lambda: array("q"))
    keys: Numbers = field(default_factory=Numbers)
    values: Numbers = field(default_factory=Numbers)

    def add(self, row: int, position: int, kind: int, key: Any, offset: int | None, value: int) -> None:
        self.row.append(row)
        self.position.append(position)
        self.kind.append(kind)
        self.key.append(self.keys.of(key))
        self.offset.append(NULL if offset is None else offset)
        self.value.append(value)

    def add_list(self, row: int, position: int, key: Any, values: Any) -> None:
        """The records of one read of a list."""
        if not values:
            self.add(row, position, _READ, key, None, NULL)
            return
        count = len(values)
        self.row.extend(array("q", [row]) * count)
        self.position.extend(array("q", [position]) * count)
        self.kind.extend(array("b", [_READ]) * count)
        self.key.extend(array("q", [self.keys.of(key)]) * count)
        self.offset.extend(range(count))
        self.value.extend(map(self.values.of, values))

    def table(self, run: str, order: Ints) -> pa.Table:
        number = np.empty(len(order), np.int64)  # of the transaction of each row
        number[order] = np.arange(len(order))
        op = number[ints(self.row)]
        by_op = np.argsort(op, kind="stable")
        kind = np.frombuffer(self.kind, np.int8)[by_op] if len(self.kind) else np.empty(0, np.int8)
        columns = {
            "run": category([run], np.zeros(len(op), np.int32)),
            "op": pa.array(op[by_op]),
            "position": pa.array(ints(self.position)[by_op].astype(np.int32)),
            "kind": category(KINDS, kind.astype(np.int32)),
            "key": pa.array(ints(self.key)[by_op]),
            "offset": nullable(ints(self.offset)[by_op], NULL),
            "value": nullable(ints(self.value)[by_op], NULL),
        }
        return table(MICRO_OPERATIONS, columns)


def transactions(
    operations: Operations, pairs: Iterable[Pair], run: str, workload: str
) -> tuple[dict[str, pa.Table], Numbers, Numbers]:
    """`transactions` and `micro_operations`, with what the numbers of values and of keys stand for. workload:
    list-append or kafka. Raises HistoryError."""
    rows, micro = Rows(), _Micro()
    read = _read_lists if workload == "list-append" else _read_logs
    for pair in pairs:
        if pair.invoke.f in NO_TRANSACTIONS:
            continue
        row = len(rows.at)
        outcome = rows.add(pair)
        try:
            read(micro, row, outcome, pair)
        except (TypeError, ValueError, LookupError, AttributeError, OverflowError):
            of = pair.complete if outcome == "ok" and pair.complete is not None else pair.invoke
            raise HistoryError(
                f"{operations.foreign.path} line {of.line}: {_short(of.value)} is no transaction of {workload}"
            ) from None
    order = rows.order()
    columns = rows.columns(run, operations.timed, order, open_info=True)
    tables = {"transactions": table(TRANSACTIONS, columns), "micro_operations": micro.table(run, order)}
    return tables, micro.values, micro.keys


def _read_lists(micro: _Micro, row: int, outcome: str, pair: Pair) -> None:
    """Raises ValueError and its like if the value has another form."""
    value = pair.invoke.value
    if outcome == "ok" and pair.complete is not None and pair.complete.value is not None:
        value = pair.complete.value
    for position, each in enumerate(value):
        what, key, argument = each
        name = what if isinstance(what, str) else what.name
        if name in ("append", ":append"):
            micro.add(row, position, _APPEND, key, None, micro.values.of(argument))
        elif name not in ("r", ":r", "read"):
            raise ValueError(name)
        elif outcome == "ok":
            if isinstance(argument, str) or not (argument is None or hasattr(argument, "__len__")):
                raise ValueError(argument)
            micro.add_list(row, position, key, argument)


def _read_logs(micro: _Micro, row: int, outcome: str, pair: Pair) -> None:
    """Raises ValueError and its like if the value has another form."""
    asked, done = pair.invoke.value, None if pair.complete is None else pair.complete.value
    if outcome != "ok" and not _same_form(asked, done):
        done = None
    for position, each in enumerate(asked if done is None else done):
        what = head(each)
        if what == "send":
            offset, value = None, each[2]
            if done is not None and isinstance(value, (tuple, list)):
                offset, value = value
            micro.add(row, position, _SEND, each[1], offset, micro.values.of(value))
        elif what != "poll":
            raise ValueError(what)
        elif outcome == "ok":
            for key, records in (each[1] if len(each) > 1 and each[1] is not None else {}).items():
                # A key of JSON is a string, the same key of a send a number.
                number = int(key) if isinstance(key, str) and key.lstrip("-").isdigit() else key
                for offset, value in records:
                    micro.add(row, position, _POLL, number, offset, micro.values.of(value))
                if not records:
                    micro.add(row, position, _POLL, number, None, NULL)


def _same_form(asked: Any, done: Any) -> bool:
    """Does a completion that is not ok say what became of each micro-operation, and not only why?"""
    return (
        isinstance(done, (tuple, list))
        and isinstance(asked, (tuple, list))
        and [head(each) for each in done] == [head(each) for each in asked]
    )


def _short(value: Any) -> str:
    text = edn.write(value)
    return text if len(text) <= 80 else f"{text[:77]}…"
