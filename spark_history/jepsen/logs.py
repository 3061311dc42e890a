"""Histories of logs, the workload `append`, in the form that `chaos export` writes: OPERATIONS, READS and FAULTS.

One operation of the history is one request: a batch of appends, a fetch, a list-offsets. P is a process, as Jepsen
has them: it has one operation at a time, so a producer with batches in flight to several partitions is several.

    {:type :invoke, :process P, :f :append, :value ["topic" 3 [17 18]], …}
    {:type :ok,     :process P, :f :append, :value ["topic" 3 [[4 17] [5 18]]], :leader-epoch 2}    [offset value]
    {:type :invoke, :process P, :f :read, :value ["topic" 3 nil], :offset 4}                       the fetch offset
    {:type :ok,     :process P, :f :read, :value ["topic" 3 [[4 17] [5 18]]], :offset 4, :high-watermark 9}
    {:type :invoke, :process P, :f :list-offsets, :value ["topic" 3 nil]}
    {:type :ok,     :process P, :f :list-offsets, :value ["topic" 3 9]}                            the end of the log
    {… :f :final-read …}                                                       as :read, once everything is healed
    {:type :info, :process :nemesis, :f :start-kill, :value {:fault 0, :targets ["broker-1"], :effective true, …}}
    {:type :info, :process :nemesis, :f :stop-kill, :value {:fault 0}}
    {:type :info, :process :nemesis, :f :plan, :value {:run "…", :acks "all", …}}                  first of all

`fail` and `info` repeat the value of the invocation and add :error. All have :index and :time (monotonic ns).

A batch is acknowledged as a whole, so an ok append names each value of its invocation, in order. A completion that
leaves some out says nothing of them (neither that they failed nor that they may be there), so it is an error.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from spark_history.errors import HistoryError
from spark_history.files import compact, nullable
from spark_history.jepsen.events.event import shown
from spark_history.jepsen.events.plain import untag
from spark_history.jepsen.operations import (
    NULL,
    Numbers,
    Operations,
    Pair,
    Rows,
    category,
    faults,
    ints,
    table,
)
from spark_history.schema import OPERATIONS, READS, TABLES

KINDS: Final = ("append", "read", "list_offsets", "final_read", "delete_records")
_KIND: Final = {
    "append": 0, "read": 1, "list-offsets": 2, "list_offsets": 2, "final-read": 3, "final_read": 3,
    "delete-records": 4, "delete_records": 4,
}  # fmt: skip
FS: Final = frozenset(_KIND)
_INT32_END: Final = 1 << 31


def logs(operations: Operations, pairs: Iterable[Pair], run: str) -> dict[str, pa.Table]:
    """OPERATIONS, READS and FAULTS, and the other tables of a run, which are empty. Raises HistoryError."""
    rows, reads = _LogRows(operations.foreign.path), _Reads()
    for pair in pairs:
        kind = _KIND.get(pair.invoke.f or "")
        try:
            if kind is None:
                raise ValueError(pair.invoke.f)
            rows.add_pair(pair, kind, reads)
        except (TypeError, ValueError, LookupError, AttributeError, OverflowError):
            of = pair.invoke if pair.complete is None else pair.complete
            raise HistoryError(
                f"{operations.foreign.path} line {of.line}: {of.f or 'an operation'} {shown(of.value)} is none of a "
                'log (append, read, list-offsets, final-read, delete-records of ["topic" partition …])'
            ) from None
    order = rows.order()
    columns = rows.columns(run, operations.timed, order, open_info=False)
    columns |= rows.log_columns(order)
    tables = {each: compact(schema).empty_table() for each, schema in TABLES.items()}
    tables["operations"] = table(OPERATIONS, columns)
    tables["reads"] = reads.table(run, order, rows)
    tables["faults"] = faults(operations, run)
    return tables


class _LogRows(Rows):
    """A row an append of a batch, or another operation."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        self.topics: dict[str, int] = {}
        self.kind, self.topic = array("b"), array("q")
        self.partition, self.value, self.offset = array("q"), array("q"), array("q")
        self.high_watermark, self.leader_epoch = array("q"), array("q")

    def add_pair(self, pair: Pair, kind: int, reads: _Reads) -> None:
        """Raises ValueError and its like if the pair is not what the module says, HistoryError if its events are of
        different things."""
        topic, partition, asked = untag(pair.invoke.value)
        if not isinstance(topic, str):
            raise ValueError(topic)
        number = self.topics.setdefault(topic, len(self.topics))
        if self._integer(pair, "partition", partition, 0, _INT32_END) == NULL:
            raise ValueError(partition)
        done, more = None, pair.invoke.more
        if pair.complete is not None:
            more = {**more, **pair.complete.more}
            if pair.complete.type == "ok":
                *log, done = untag(pair.complete.value)
                self._same(pair, "the log", [topic, partition], log)
        values, offsets = [NULL], [NULL]
        if kind == 0:
            values = list(asked)
            offsets = [NULL] * len(values)
            if done is not None:
                self._same(pair, "append of", values, [value for _, value in done])
                offsets = [self._integer(pair, "offset", offset, 0) for offset, _ in done]
            if not values:
                return
        elif kind == 2:
            offsets = [self._integer(pair, "offset", done)]
        else:
            offsets = [self._integer(pair, ":offset", more.get("offset"))]
        found = done if kind in (1, 3) and done else ()
        read_offsets, read_values = [offset for offset, _ in found], [value for _, value in found]
        for offset in (min(read_offsets), max(read_offsets)) if found else ():
            self._integer(pair, "offset", offset, 0)
        if NULL in (values if kind == 0 else read_values):
            self._integer(pair, "value", NULL)
        row = len(self.at)
        self.add(pair, len(values))
        count = len(values)
        self.value.extend(array("q", values))
        self.offset.extend(array("q", offsets))
        for column, each in (
            (self.kind, kind), (self.topic, number),
            (self.partition, partition),
            (self.high_watermark, self._integer(pair, ":high-watermark", more.get("high-watermark"))),
            (self.leader_epoch, self._integer(pair, ":leader-epoch", more.get("leader-epoch"), -1, _INT32_END)),
        ):  # fmt: skip
            column.extend(array(column.typecode, [each]) * count)
        if found:
            reads.add(row, number, partition, read_offsets, read_values)
            if offsets[0] == NULL:
                self.offset[row] = read_offsets[0]

    def _integer(self, pair: Pair, what: str, value: Any, least: int = NULL + 1, end: int = Numbers.FIRST) -> int:
        """NULL: there is none. Raises HistoryError if it is none that a log can have, or is not below `end`."""
        if value is None:
            return NULL
        if type(value) is int and least <= value < end:
            return value
        of = pair.invoke if pair.complete is None else pair.complete
        raise HistoryError(f"{self._path} line {of.line}: {shown(value)} is no {what} that a log can have")

    def _same(self, pair: Pair, what: str, asked: list[Any], done: list[Any]) -> None:
        if asked != done and pair.complete is not None:
            raise HistoryError(
                f"{self._path} line {pair.complete.line}: this completes {what} {shown(done)}, but what was invoked on "
                f"line {pair.invoke.line} is {what} {shown(asked)}"
            )

    def log_columns(self, order: Any) -> dict[str, pa.Array]:
        columns = {
            name: ints(getattr(self, name))[order] for name in ("partition", "value", "offset", "high_watermark")
        }
        epoch = ints(self.leader_epoch)[order]
        kind = np.frombuffer(self.kind, np.int8)[order] if len(order) else np.empty(0, np.int8)
        return {
            "kind": category(KINDS, kind.astype(np.int32)),
            "topic": category(list(self.topics), ints(self.topic)[order].astype(np.int32)),
            "partition": pa.array(columns["partition"].astype(np.int32)),
            "value": nullable(columns["value"], NULL),
            "offset": nullable(columns["offset"], NULL),
            "high_watermark": nullable(columns["high_watermark"], NULL),
            "leader_epoch": nullable(epoch, NULL).cast(pa.int32()),
        }


class _Reads:
    def __init__(self) -> None:
        self.row, self.topic, self.partition = array("q"), array("q"), array("q")
        self.offset, self.value = array("q"), array("q")

    def add(self, row: int, topic: int, partition: int, offsets: list[int], values: list[int]) -> None:
        """What one read returned."""
        count = len(offsets)
        for column, each in ((self.row, row), (self.topic, topic), (self.partition, partition)):
            column.extend(array("q", [each]) * count)
        self.offset.extend(array("q", offsets))
        self.value.extend(array("q", values))

    def table(self, run: str, order: Any, rows: _LogRows) -> pa.Table:
        number = np.empty(len(order), np.int64)
        number[order] = np.arange(len(order))
        columns = {
            "run": category([run], np.zeros(len(self.row), np.int32)),
            "op": pa.array(number[ints(self.row)]),
            "topic": category(list(rows.topics), ints(self.topic).astype(np.int32)),
            "partition": pa.array(ints(self.partition).astype(np.int32)),
            "offset": pa.array(ints(self.offset)),
            "value": pa.array(ints(self.value)),
        }
        return table(READS, columns)
