"""What transactors do, as rows of TRANSACTIONS and MICRO_OPERATIONS (spark_history/schema.py); their sends as appends.

A send is also an append of the log, whatever becomes of its transaction: what a leader acknowledged stands in the log,
committed or aborted, and a reader that is not read_committed finds it. A transaction is on record before it is carried
out, with what it is to send, for its process, or the harness, may be killed meanwhile; as it ends, all of it is again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from harness.record.history import HistoryRecorder, Operation, Outcome

Micro = Sequence[Any]  # "send", partition, value; or "poll", and what it returned, if that is known
Record = Sequence[int]  # partition, offset, value
CRASHED: Final = "CLIENT_CRASHED"
HUNG: Final = "CLIENT_HUNG"
_INT: Final = pa.int64()
_TABLES: Final = {
    "transactions": pa.schema([
        ("process", pa.int32()), ("op", _INT), ("invoke", _INT), ("complete", _INT), ("outcome", pa.string()),
        ("error", pa.string()),
    ]),
    "micro_operations": pa.schema([
        ("op", _INT), ("position", pa.int32()), ("kind", pa.string()), ("key", _INT), ("offset", _INT), ("value", _INT),
    ]),
    "stable_offsets": pa.schema([
        ("topic", pa.string()), ("partition", pa.int32()), ("last_stable", _INT), ("end", _INT), ("invoke", _INT),
        ("complete", _INT),
    ]),
}  # fmt: skip


@dataclass
class _Asked:
    """A transaction under way."""

    process: int
    invoke: int
    operations: Sequence[Micro]
    appends: Mapping[int, Operation]  # by value


class TransactionRecorder:
    """What is told is on record after flush(). topic: that all partitions are of."""

    def __init__(self, recorder: HistoryRecorder, topic: str) -> None:
        self._recorder = recorder
        self._topic = topic
        self._rows: dict[str, list[dict[str, Any]]] = {name: [] for name in _TABLES}
        self._next = 0
        self._pending: dict[int, _Asked] = {}

    def begin(
        self, process: int, operations: Sequence[Micro], invoke: int, polled: Mapping[int, Sequence[Record]] = {}
    ) -> int:
        """The transaction's number. polled: what was polled before, as in end()."""
        op, self._next = self._next, self._next + 1
        appends = {
            value: self._recorder.invoke_append(process, self._topic, partition, 1, invoke, first_value=value)
            for partition, value in (operation[1:] for operation in operations if operation[0] == "send")
        }
        asked = self._pending[op] = _Asked(process, invoke, operations, appends)
        self._add(op, asked, None, "info", None, {}, polled)
        return op

    def end(
        self, op: int, complete: int, outcome: Outcome, error: str | None = None, *,
        sent: Mapping[int, int] = {}, polled: Mapping[int, Sequence[Record]] = {},
    ) -> None:  # fmt: skip
        """sent: offsets by value, as far as they were acknowledged. polled: records that begin() was not told of, by
        the number of the operation."""
        asked = self._pending.pop(op)
        for value, append in asked.appends.items():
            offset = sent.get(value)
            told: Outcome = "info" if offset is None else "ok"  # what was not acknowledged may have been appended
            self._recorder.complete(append, complete, told, offset=offset, error=error if offset is None else None)
        self._add(op, asked, complete, outcome, error, sent, polled)

    def lost(self, op: int, now: int, why: str) -> None:
        """Nobody will tell what became of it. why: CRASHED or HUNG."""
        self.end(op, now, "info", why)

    def stable(self, partition: int, last_stable: int, end: int, invoke: int, complete: int) -> None:
        self._rows["stable_offsets"].append(
            {
                "topic": self._topic, "partition": partition, "last_stable": last_stable, "end": end, "invoke": invoke,
                "complete": complete,
            }
        )  # fmt: skip

    def flush(self) -> None:
        """In the order of the tables: what a transaction did is on record no earlier than itself."""
        for name, schema in _TABLES.items():
            rows, self._rows[name] = self._rows[name], []
            if rows:
                self._recorder.add_rows(name, pa.Table.from_pylist(rows, schema=schema))

    def _add(
        self, op: int, asked: _Asked, complete: int | None, outcome: str, error: str | None, sent: Mapping[int, int],
        polled: Mapping[int, Sequence[Record]] = {},
    ) -> None:  # fmt: skip
        self._rows["transactions"].append(
            {
                "process": asked.process, "op": op, "invoke": asked.invoke, "complete": complete, "outcome": outcome,
                "error": error,
            }
        )  # fmt: skip
        for position, (kind, *operands) in enumerate(asked.operations):
            if kind == "send":
                partition, value = operands
                found: Sequence[tuple[int, int | None, int]] = [(partition, sent.get(value), value)]
            else:
                found = [(key, offset, value) for key, offset, value in polled.get(position, ())]
            self._rows["micro_operations"] += [
                {"op": op, "position": position, "kind": kind, "key": key, "offset": offset, "value": value}
                for key, offset, value in found
            ]
