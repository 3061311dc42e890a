"""What a recorder holds until it is written: columns, and no object an operation or a record.

Operations come in runs: all the records of a batch that ended alike have one invocation, one completion, and ids,
values and offsets that count up, so that a run of a thousand is one entry in each column, spread out as it is written.
`spark_history.schema` says what the columns mean.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_history.schema import OPERATIONS, READS, REPLICA_LOGS

Outcome = Literal["ok", "fail", "info"]
Int64s = Sequence[int] | np.ndarray[Any, np.dtype[np.int64]]


@dataclass(slots=True, eq=False)
class Operation:
    """One or more operations with one invocation: all the appends of a batch, or one read.

    The operations of a batch have consecutive ids from `op`, and consecutive values from `first_value`. left: of a
    batch, [start, end) of those that have not completed, by position.
    """

    process: int
    op: int
    kind: str
    topic: str
    partition: int
    invoke: int  # monotonic nanoseconds
    count: int = 1
    first_value: int | None = None  # of an append
    left: list[tuple[int, int]] = field(default_factory=list)

    def __len__(self) -> int:
        return self.count

    @property
    def values(self) -> Sequence[int]:
        """Of an append, in order."""
        assert self.first_value is not None
        return range(self.first_value, self.first_value + self.count)

    def take(self, start: int, count: int) -> None:
        """These have completed. Raises ValueError if not all of them were left."""
        end = start + count
        for position, (first, last) in enumerate(self.left):
            if first <= start < end <= last:
                rest = [(first, start), (end, last)]
                self.left[position : position + 1] = [each for each in rest if each[0] < each[1]]
                return
        raise ValueError(f"of operations {self.op} to {self.op + self.count - 1}, {start} to {end - 1} are not left")


_COLUMNS: Final = (
    "process", "op", "kind", "topic", "partition", "invoke", "value", "complete", "outcome", "offset", "high_watermark",
    "leader_epoch", "error",
)  # fmt: skip
#: Of a run's operations, those that count up from one to the next, if there is a first.
_COUNTING: Final = ("op", "value", "offset")


class Operations:
    """Runs of operations as columns."""

    def __init__(self) -> None:
        self._counts: list[int] = []
        self._columns: dict[str, list[Any]] = {name: [] for name in _COLUMNS}
        self._appends = [self._counts.append, *(column.append for column in self._columns.values())]

    def add(
        self, operation: Operation, start: int, count: int, complete: int | None, outcome: Outcome, offset: int | None,
        high_watermark: int | None = None, leader_epoch: int | None = None, error: str | None = None,
    ) -> None:  # fmt: skip
        """Of a batch, `count` operations from the one at `start`. offset: of the first of these."""
        first = None if operation.first_value is None else operation.first_value + start
        entries = (
            count, operation.process, operation.op + start, operation.kind, operation.topic, operation.partition,
            operation.invoke, first, complete, outcome, offset, high_watermark, leader_epoch, error,
        )  # fmt: skip
        for append, entry in zip(self._appends, entries, strict=True):
            append(entry)

    def add_left(self, operation: Operation) -> None:
        """Those that have not completed, as indeterminate."""
        for start, end in operation.left:
            self.add(operation, start, end - start, None, "info", None)

    def extend(self, others: Operations) -> None:
        self._counts += others._counts
        for name, column in self._columns.items():
            column += others._columns[name]

    def table(self, run: str, schema: pa.Schema = OPERATIONS) -> pa.Table:
        """A row an operation. schema: OPERATIONS, or the same with dictionaries."""
        counts = np.array(self._counts, np.int64)
        rows = pa.array(np.repeat(np.arange(len(counts)), counts))
        position = pa.array(_position_in_run(counts))
        columns = {"run": repeat(run, len(rows), schema)}
        for name, entries in self._columns.items():
            column = pa.array(entries, schema.field(name).type).take(rows)
            columns[name] = pc.add(column, position) if name in _COUNTING else column  # null stays null
        return pa.table({name: columns[name] for name in schema.names}, schema=schema)


class Reads:
    """What reads returned."""

    def __init__(self) -> None:
        self._columns: dict[str, list[Any]] = {name: [] for name in ("op", "topic", "partition")}
        self._offsets: list[Int64s] = []
        self._values: list[Int64s] = []

    def add(self, operation: Operation, offsets: Int64s, values: Int64s) -> None:
        for name, entries in self._columns.items():
            entries.append(getattr(operation, name))
        self._offsets.append(offsets)
        self._values.append(values)

    def table(self, run: str, schema: pa.Schema = READS) -> pa.Table:
        """A row a record. schema: READS, or the same with dictionaries."""
        counts = [len(offsets) for offsets in self._offsets]
        rows = pa.array(np.repeat(np.arange(len(counts)), counts))
        columns = {
            "run": repeat(run, len(rows), schema),
            **{name: pa.array(each, schema.field(name).type).take(rows) for name, each in self._columns.items()},
            "offset": _concatenate(self._offsets),
            "value": _concatenate(self._values),
        }
        return pa.table({name: columns[name] for name in schema.names}, schema=schema)


ReplicaLog = tuple[str, str, int, Int64s, Int64s, Int64s]  # node, topic, partition, offsets, leader epochs, values


def replica_logs(run: str, logs: Sequence[ReplicaLog], schema: pa.Schema = REPLICA_LOGS) -> pa.Table:
    rows = pa.array(np.repeat(np.arange(len(logs)), [len(log[3]) for log in logs]))
    columns = {
        "run": repeat(run, len(rows), schema),
        "node": pa.array([log[0] for log in logs], schema.field("node").type).take(rows),
        "topic": pa.array([log[1] for log in logs], schema.field("topic").type).take(rows),
        "partition": pa.array([log[2] for log in logs], pa.int32()).take(rows),
        "offset": _concatenate(log[3] for log in logs),
        "leader_epoch": _concatenate(log[4] for log in logs).cast(pa.int32()),
        "value": _concatenate(log[5] for log in logs),
    }
    return pa.table(columns, schema=schema)


def repeat(run: str, count: int, schema: pa.Schema) -> Any:
    return pa.array([run], schema.field("run").type).take(pa.array(np.zeros(count, np.int64)))


def _position_in_run(counts: np.ndarray[Any, np.dtype[np.int64]]) -> np.ndarray[Any, np.dtype[np.int64]]:
    """[3, 1, 2] -> [0, 1, 2, 0, 0, 1]"""
    starts = np.cumsum(counts) - counts
    position: np.ndarray[Any, np.dtype[np.int64]] = np.arange(int(counts.sum())) - np.repeat(starts, counts)
    return position


def _concatenate(parts: Iterable[Int64s]) -> Any:
    arrays = [np.asarray(part, dtype=np.int64) for part in parts]
    return pa.array(np.concatenate([np.empty(0, np.int64), *arrays]), pa.int64())
