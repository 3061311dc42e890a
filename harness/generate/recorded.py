"""The journal of a long run under faults, as the recorder leaves it: many flushes, all partitions in each of them.

What makes such a run hard to judge is what a working log alone (generate/log.py) has little of: most appends are not
acknowledged, of some of these only a read tells that they took effect, and what they wrote is on three brokers.

By construction it is linearizable: batches take effect in the order of their invocations, readers and questions for the
end come when the batches of a flush are over. Each flush has FLUSH_NS of the run, and the final reads and the brokers'
logs are in the last ones.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from harness.record.history import write_part
from spark_history import damage
from spark_history.files import Bools, Ints, nullable
from spark_history.log import NOWHERE
from spark_history.schema import COLLECTED, FAULTS, OPERATIONS, READS, REPLICA_LOGS

TOPIC: Final = "chaos"
BATCH: Final = 10  # records
BROKERS: Final = ("broker-1", "broker-2", "broker-3")
FINAL_RECORDS: Final = 500
FLUSH_NS: Final = 10**9
ORIGIN: Final = 10**9
_PRODUCERS: Final = 40
_READER, _ENDS, _FINAL = range(_PRODUCERS, _PRODUCERS + 3)  # processes
_BUSY: Final = 0.8  # of a flush: in the rest all that was sent is answered, and read
_OK, _SEEN, _UNSEEN, _FAILED = range(4)  # acknowledged; indeterminate, and took effect or did not; failed
_SHARES: Final = (0.5, 0.1, 0.2, 0.2)
_OUTCOMES: Final = ("ok", "info", "info", "fail")
_ERRORS: Final = (None, "CONNECTION_LOST", "REQUEST_TIMED_OUT", "NOT_LEADER_OR_FOLLOWER")
_FAULTS_OF: Final = 25  # flushes to a fault
_EPOCH_OFFSETS: Final = 20_000  # of one leader


def generate_recorded(
    directory: Path, *, appends: int, flushes: int = 500, partitions: int = 64, seed: int = 1
) -> dict[str, Any]:
    """Write journal/ and plan.json of one run; its verdict is `pass`. Memory is that of the log itself, 16 bytes a
    record. Returns the plan."""
    return _Run(directory, appends, flushes, partitions, seed).write()


class _Run:
    def __init__(self, directory: Path, appends: int, flushes: int, partitions: int, seed: int) -> None:
        self._directory = directory
        self._journal = directory / "journal"
        self._flushes = flushes
        self._partitions = partitions
        self._batches = np.diff(np.linspace(0, appends // BATCH, flushes + 1).astype(np.int64)).tolist()
        self._random = np.random.default_rng(seed)
        self._ends = np.zeros(partitions, np.int64)
        self._logs: list[list[Ints]] = [[] for _ in range(partitions)]  # values, in the order of offsets
        self._op = 0

    def write(self) -> dict[str, Any]:
        self._journal.mkdir(parents=True)
        plan = {
            "run": self._directory.name, "workload": "append", "source": "generated", "nemesis": [], "acks": "all",
            "min_insync_replicas": 2, "topic": TOPIC, "partitions": self._partitions, "settings": {},
        }  # fmt: skip
        (self._directory / "plan.json").write_text(json.dumps(plan))
        for number in range(self._flushes):
            self._flush(number)
        pending = self._appends(self._flushes, np.full(_PRODUCERS, _UNSEEN), pending=True)
        self._final_reads(self._flushes)
        logs = [np.concatenate([np.empty(0, np.int64), *parts]) for parts in self._logs]
        for place, broker in enumerate(BROKERS):
            self._replica_logs(self._flushes + 1 + place, broker, logs)
        newest = self._flushes + len(BROKERS)
        self._write("collected", newest, self._collected())
        self._write("faults", 0, self._faults())
        self._write("pending", newest, pending)
        damage.write_checks(self._directory, newest)
        return plan

    def _write(self, table: str, number: int, rows: pa.Table) -> None:
        write_part(rows, self._journal / f"{table}-{number:06}.parquet")

    def _flush(self, number: int) -> None:
        before = self._ends.copy()
        kinds = self._random.choice(4, self._batches[number], p=_SHARES)
        appends = self._appends(number, kinds)
        reads, records = self._reads(number, before)
        self._write("operations", number, pa.concat_tables([appends, reads, self._ends_asked(number)]))
        if records.num_rows:
            self._write("reads", number, records)

    def _appends(self, number: int, kinds: Ints, *, pending: bool = False) -> pa.Table:
        batches = len(kinds)
        partition = np.repeat(self._random.integers(0, self._partitions, batches), BATCH)
        kind = np.repeat(kinds, BATCH)
        op = self._take_ops(batches * BATCH)
        invoke = ORIGIN + number * FLUSH_NS + np.arange(batches) * int(_BUSY * FLUSH_NS) // max(batches, 1)
        # A producer has one batch under way at a time.
        latency = min(int(_BUSY * FLUSH_NS) // max(batches, 1) * _PRODUCERS, FLUSH_NS // 20)
        complete = invoke + self._random.integers(latency // 2, latency, batches)
        took_effect = (kind == _OK) | (kind == _SEEN)
        offset = np.full(len(op), NOWHERE)
        for each in range(self._partitions):
            mine = np.flatnonzero(took_effect & (partition == each))
            offset[mine] = self._ends[each] + np.arange(len(mine))
            self._ends[each] += len(mine)
            self._logs[each].append(op[mine])
        offset[kind != _OK] = NOWHERE
        return _operations(
            self._directory.name,
            {
                "process": np.repeat(np.arange(batches) % _PRODUCERS, BATCH), "op": op, "kind": "append",
                "partition": partition, "value": op, "invoke": np.repeat(invoke, BATCH),
                "complete": np.full(len(op), NOWHERE) if pending else np.repeat(complete, BATCH),
                "outcome": _named(kind, _OUTCOMES), "offset": offset, "error": _named(kind, _ERRORS),
            },
        )  # fmt: skip

    def _take_ops(self, count: int) -> Ints:
        self._op += count
        return np.arange(self._op - count, self._op)

    def _reads(self, number: int, before: Ints) -> tuple[pa.Table, pa.Table]:
        """One of each partition that grew, of all that is new in it."""
        grown = np.flatnonzero(self._ends > before)
        time = ORIGIN + number * FLUSH_NS + int(0.9 * FLUSH_NS)
        ranges = {int(each): (int(before[each]), int(self._ends[each])) for each in grown}
        values = {each: self._logs[each][-1] for each in ranges}
        return self._fetch("read", _READER, time, list(ranges.items()), values)

    def _fetch(
        self, kind: str, process: int, time: int, ranges: list[tuple[int, tuple[int, int]]], values: Mapping[int, Ints]
    ) -> tuple[pa.Table, pa.Table]:
        """ranges: partition and offsets of each. values: of each partition, of its ranges one after the other."""
        op = self._take_ops(len(ranges))
        partition = np.array([each for each, _ in ranges], np.int64)
        low, high = (np.array([span[side] for _, span in ranges], np.int64) for side in (0, 1))
        invoke = time + np.arange(len(op)) * 1_000
        run, sizes = self._directory.name, high - low
        operations = _operations(
            run,
            {
                "process": process, "op": op, "kind": kind, "partition": partition, "invoke": invoke,
                "complete": invoke + 900, "outcome": "ok", "offset": low, "high_watermark": self._ends[partition],
            },
        )  # fmt: skip
        within = np.arange(int(sizes.sum())) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        columns = {
            "run": run, "op": np.repeat(op, sizes), "topic": TOPIC, "partition": np.repeat(partition, sizes),
            "offset": np.repeat(low, sizes) + within,
            "value": np.concatenate([np.empty(0, np.int64), *values.values()]),
        }  # fmt: skip
        return operations, _table(columns, READS, len(within))

    def _ends_asked(self, number: int) -> pa.Table:
        invoke = ORIGIN + number * FLUSH_NS + int(0.95 * FLUSH_NS) + np.arange(self._partitions) * 1_000
        return _operations(
            self._directory.name,
            {
                "process": _ENDS, "op": self._take_ops(self._partitions), "kind": "list_offsets",
                "partition": np.arange(self._partitions), "invoke": invoke, "complete": invoke + 900, "outcome": "ok",
                "offset": self._ends,
            },
        )  # fmt: skip

    def _final_reads(self, number: int) -> None:
        ranges = [
            (each, (low, min(low + FINAL_RECORDS, end)))
            for each, end in enumerate(self._ends.tolist())
            for low in range(0, max(end, 1), FINAL_RECORDS)
        ]
        values = {each: np.concatenate([np.empty(0, np.int64), *parts]) for each, parts in enumerate(self._logs)}
        time = ORIGIN + (number + 10) * FLUSH_NS
        operations, records = self._fetch("final_read", _FINAL, time, ranges, values)
        self._write("operations", number, operations)
        self._write("reads", number, records)

    def _replica_logs(self, number: int, broker: str, logs: list[Ints]) -> None:
        sizes = [len(log) for log in logs]
        offset = np.concatenate([np.empty(0, np.int64), *(np.arange(size) for size in sizes)])
        columns = {
            "run": self._directory.name, "node": broker, "topic": TOPIC,
            "partition": np.repeat(np.arange(self._partitions), sizes), "offset": offset,
            "leader_epoch": offset // _EPOCH_OFFSETS, "value": np.concatenate([np.empty(0, np.int64), *logs]),
        }  # fmt: skip
        self._write("replica_logs", number, _table(columns, REPLICA_LOGS, len(offset)))

    def _collected(self) -> pa.Table:
        rows = [
            {"run": self._directory.name, "node": broker, "what": "replica log", "topic": TOPIC, "partition": each,
             "records": end}
            for broker in BROKERS
            for each, end in enumerate(self._ends.tolist())
        ]  # fmt: skip
        return pa.Table.from_pylist(rows, schema=COLLECTED)

    def _faults(self) -> pa.Table:
        rows = [
            {"run": self._directory.name, "fault": number, "nemesis": "kill", "targets": [BROKERS[number % 3]],
             "start": ORIGIN + flush * FLUSH_NS, "end": ORIGIN + (flush + 5) * FLUSH_NS, "effective": True,
             "evidence": json.dumps({"exit_status": 137})}
            for number, flush in enumerate(range(_FAULTS_OF, self._flushes, _FAULTS_OF))
        ]  # fmt: skip
        return pa.Table.from_pylist(rows, schema=FAULTS)


def _operations(run: str, columns: Mapping[str, Any]) -> pa.Table:
    defaults = {"run": run, "topic": TOPIC, "leader_epoch": 0}
    return _table({**defaults, **columns}, OPERATIONS, len(columns["op"]))


def _table(columns: Mapping[str, Any], schema: pa.Schema, size: int) -> pa.Table:
    """columns: one value for all rows, or one a row, NOWHERE being null; those left out are null."""
    arrays = []
    for field in schema:
        column = columns.get(field.name)
        if isinstance(column, str):
            column = _named(np.zeros(size, np.int64), (column,))
        elif isinstance(column, int):
            column = np.full(size, column)
        if column is None:
            column = pa.nulls(size, field.type)
        elif isinstance(column, np.ndarray):
            column = nullable(column, NOWHERE)
        arrays.append(column.cast(field.type))
    return pa.table(arrays, schema=schema)


def _named(codes: Ints | Bools, names: tuple[str | None, ...]) -> pa.Array:
    return pa.array(names, pa.string()).take(pa.array(codes))
