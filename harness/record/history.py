"""Records the history of a run while it happens: as a journal of Parquet files, or, of a simulated run, in memory.

`Recorder` writes the journal. Everything recorded is in memory for at most one flush interval; a background thread
then writes it to results/<run>/journal/. One flush, number n, writes `<table>-<n>.parquet` for every table that has
new rows, and last `pending-<n>.parquet`: the appends that were invoked and not yet completed, as operations with
outcome `info` and no completion. That file commits the flush:

* only the newest pending file counts, and a part file with a higher number than it does not;
* so a harness killed at any moment leaves a history that is whole up to its last flush, and no value can have
  been read whose append is missing.

Faults are few and change while they last: `faults-000000.parquet` is replaced whole by each flush that needs it. A
workload's own operations (`calls`) are written when they are invoked, as `info`, and again once they complete: of each
the last row counts.

`MemoryRecorder` keeps everything and hands it out as the same tables: thousands of short simulated runs need no
journal each. `spark_history.schema` says what the columns mean.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from harness.errors import HarnessFailure, HistoryLost, describe
from harness.record.columns import Int64s as Int64s
from harness.record.columns import Operation as Operation
from harness.record.columns import Operations, Reads, ReplicaLog, repeat, replica_logs
from harness.record.columns import Outcome as Outcome
from harness.record.results import PENDING
from spark_history.damage import CHECKS, MARK, checksum, notes_beside
from spark_history.files import compact, last_rows
from spark_history.regular import require_regular
from spark_history.schema import CALLS, FAULTS, OPERATIONS, READS, REPLICA_LOGS, TABLES

_REPLACED: Final = (PENDING, "faults")  # by each flush, or by some
FLUSH_INTERVAL_S: Final = 1.0
_MOSTLY_UNIQUE: Final = frozenset({"op", "value", "offset"})  # a dictionary of these would only cost time


@dataclass(slots=True)
class _Recorded:
    """What was recorded since the last flush, if there are flushes."""

    operations: Operations = field(default_factory=Operations)
    reads: Reads = field(default_factory=Reads)
    replica_logs: list[ReplicaLog] = field(default_factory=list)
    tables: dict[str, list[pa.Table]] = field(default_factory=dict)  # what came as rows of _AS_ROWS
    calls: dict[int, dict[str, Any]] = field(default_factory=dict)  # CALLS, by op: as they stand now
    faults_changed: bool = False


@dataclass(frozen=True, slots=True)
class Call:
    """An operation of a workload's own. key, argument: JSON."""

    op: int
    process: int
    kind: str
    key: str | None
    argument: str | None
    invoke: int


class HistoryRecorder:
    """What a workload and the faults record of one run. All methods may be called from any thread."""

    def __init__(self, run: str) -> None:
        self._run = run
        self.directory: Path | None = None  # the run's own, if it has one
        self.written = 0  # bytes of the journal so far, but for files that are replaced
        self._closed = False
        self._lock = threading.Lock()
        self._next_op = 0
        self._new = _Recorded()
        self._pending: dict[int, Operation] = {}
        self._faults: dict[int, dict[str, Any]] = {}

    def invoke_append(
        self, process: int, topic: str, partition: int, count: int, invoke: int, *, first_value: int | None = None
    ) -> Operation:
        """Appends of `count` records to one partition. Their values are the operations' own ids, so unique in the
        run, unless `first_value` is given. To be called just before they are sent, and completed by complete()."""
        with self._lock:
            operation = self._begin(process, "append", topic, partition, invoke, count)
            operation.first_value = operation.op if first_value is None else first_value
            operation.left.append((0, count))
            self._pending[operation.op] = operation
        return operation

    def invoke(self, process: int, kind: str, topic: str, partition: int, invoke: int) -> Operation:
        """One operation that changes nothing: read, list_offsets or final_read. Kept only once it completes."""
        with self._lock:
            return self._begin(process, kind, topic, partition, invoke, 1)

    def _begin(self, process: int, kind: str, topic: str, partition: int, invoke: int, count: int) -> Operation:
        self._check()
        operation = Operation(process, self._next_op, kind, topic, partition, invoke, count)
        self._next_op += count
        return operation

    def complete(
        self,
        operation: Operation,
        complete: int | None,
        outcome: Outcome,
        *,
        offset: int | None = None,
        high_watermark: int | None = None,
        leader_epoch: int | None = None,
        error: str | None = None,
        records: tuple[Int64s, Int64s] | None = None,
    ) -> None:
        """How an operation ended.

        complete: monotonic ns, of an `info` when the client gave it up (it may still take effect later).
        offset: see the table in spark_history.schema; of a batch, that of its first record.
        records: offsets and values that a read returned.
        """
        with self._lock:
            self._check()
            if self._closed:
                return
            self._pending.pop(operation.op, None)
            self._new.operations.add(
                operation, 0, len(operation), complete, outcome, offset, high_watermark, leader_epoch, error
            )
            if records is not None and len(records[0]):
                self._new.reads.add(operation, *records)

    def complete_part(
        self,
        operation: Operation,
        start: int,
        count: int,
        complete: int | None,
        outcome: Outcome,
        *,
        offset: int | None = None,
        error: str | None = None,
    ) -> None:
        """How `count` appends of a batch ended, from the one at `start`; the others end by themselves. offset: of the
        first of them. Raises ValueError if one of them had ended before."""
        with self._lock:
            self._check()
            if self._closed:
                return
            operation.take(start, count)
            if not operation.left:
                del self._pending[operation.op]
            self._new.operations.add(operation, start, count, complete, outcome, offset, error=error)

    def record_fault(
        self,
        fault: int,
        nemesis: str,
        targets: Sequence[str],
        start: int,
        end: int | None,
        *,
        effective: bool,
        evidence: str,
    ) -> None:
        """A fault as far as it is known; a later call with the same number replaces it. evidence: JSON."""
        row = {"run": self._run, "fault": fault, "nemesis": nemesis, "targets": list(targets), "start": start}
        row |= {"end": end, "effective": effective, "evidence": evidence}
        with self._lock:
            self._check()
            self._faults[fault] = row
            self._new.faults_changed = True

    def add_replica_log(
        self, node: str, topic: str, partition: int, offsets: Int64s, leader_epochs: Int64s, values: Int64s
    ) -> None:
        """Records found on a replica's disk: three columns of one length."""
        with self._lock:
            self._check()
            self._new.replica_logs.append((node, topic, partition, offsets, leader_epochs, values))

    def add_rows(self, table: str, rows: pa.Table) -> None:
        """What nodes told of themselves, had in the metadata log, or what was collected of them; or what members of
        groups, and transactions, did. table: one of _AS_ROWS; rows: its columns but for `run`."""
        schema = TABLES[table]
        rows = rows.add_column(0, schema.field("run"), repeat(self._run, rows.num_rows, schema)).cast(schema)
        with self._lock:
            self._check()
            self._new.tables.setdefault(table, []).append(rows)

    def invoke_call(self, process: int, kind: str, invoke: int, *, key: Any = None, argument: Any = None) -> Call:
        """An operation of the workload's own, which a checker of its own judges (checkers/verdict/own.py). key: of the
        object that it is on; argument: what it asks for: whatever JSON can hold. To be called just before anything is
        sent for it, and completed by complete_call(); until then, and if it never is, it is `info`."""
        with self._lock:
            self._check()
            key, argument = (None if value is None else json.dumps(value) for value in (key, argument))
            call = Call(self._next_op, process, kind, key, argument, invoke)
            self._next_op += 1
            self._new.calls[call.op] = self._row(call, None, "info", None, None)
        return call

    def complete_call(
        self, call: Call, complete: int | None, outcome: Outcome, *, result: Any = None, error: str | None = None
    ) -> None:
        """How it ended. complete: as of complete(). result: what an operation that is ok returned, whatever JSON can
        hold."""
        with self._lock:
            self._check()
            if self._closed:
                return
            told = None if result is None else json.dumps(result)
            self._new.calls[call.op] = self._row(call, complete, outcome, told, error)

    def _row(
        self, call: Call, complete: int | None, outcome: Outcome, result: str | None, error: str | None
    ) -> dict[str, Any]:
        of_call = {name: getattr(call, name) for name in ("process", "op", "kind", "key", "argument", "invoke")}
        return {"run": self._run, **of_call, "result": result, "complete": complete, "outcome": outcome, "error": error}

    def close(self) -> None:
        """Appends still pending stay in the history as `info`, whatever becomes of them. Safe to call twice."""
        self._closed = True

    def _left(self) -> Operations:
        """What has not completed, as it stands now."""
        left = Operations()
        for operation in self._pending.values():
            left.add_left(operation)
        return left

    def _check(self) -> None:
        """Raises HistoryLost if what is recorded would be lost."""


class MemoryRecorder(HistoryRecorder):
    """The history of one run in memory."""

    def tables(self) -> dict[str, pa.Table]:
        """All that was recorded so far, by the names of spark_history.schema.TABLES; the pending appends are in
        `operations`, as in load_journal(), but texts of few distinct values are dictionaries (files.compact)."""
        with self._lock:
            new = self._new
            faults = [self._faults[number] for number in sorted(self._faults)]
            return {
                "operations": self._all_operations().table(self._run, compact(OPERATIONS)),
                "reads": new.reads.table(self._run, compact(READS)),
                "faults": pa.Table.from_pylist(faults, schema=compact(FAULTS)),
                "replica_logs": replica_logs(self._run, new.replica_logs, compact(REPLICA_LOGS)),
                **{table: _whole(new, table).cast(compact(TABLES[table])) for table in _AS_ROWS},
                "calls": pa.Table.from_pylist(list(new.calls.values()), schema=compact(CALLS)),
            }

    def _all_operations(self) -> Operations:
        operations = Operations()
        operations.extend(self._new.operations)
        operations.extend(self._left())
        return operations


class Recorder(HistoryRecorder):
    """The journal of one run.

    directory: the run's own, results/<run>. flush_interval: seconds; None: no thread, only close() writes (for
    runs in virtual time). Methods raise HistoryLost once the journal cannot be written.
    """

    def __init__(self, directory: Path, run: str, *, flush_interval: float | None = FLUSH_INTERVAL_S) -> None:
        super().__init__(run)
        self.directory = directory
        self._directory = directory / "journal"
        self._next_flush = 0
        self._failure: Exception | None = None
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None
        self._directory.mkdir(parents=True, exist_ok=True)
        self.flush()  # a journal from the start; and Arrow loads what it needs now, not in the middle of the run
        if flush_interval is not None:
            self._thread = threading.Thread(target=self._flush_every, args=(flush_interval,), daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Write the rest."""
        if self._closing.is_set():
            return
        super().close()
        self._closing.set()
        if self._thread is not None:
            self._thread.join()
        self._check()
        self.flush()

    def flush(self) -> None:
        """Write what is new. Called by the thread; call it directly only on a recorder without one."""
        with self._lock:
            new, self._new = self._new, _Recorded()
            pending = self._left()
            faults = list(self._faults.values())
        parts = {
            "operations": new.operations.table(self._run),
            "reads": new.reads.table(self._run),
            "replica_logs": replica_logs(self._run, new.replica_logs),
            **{table: _whole(new, table) for table in _AS_ROWS},
            "calls": pa.Table.from_pylist(list(new.calls.values()), schema=CALLS),
        }
        number = self._next_flush
        self._next_flush += 1
        files = {f"{table}-{number:06}.parquet": rows for table, rows in parts.items() if rows.num_rows}
        if new.faults_changed:
            files["faults-000000.parquet"] = pa.Table.from_pylist(faults, schema=FAULTS)
        files[f"{PENDING}-{number:06}.parquet"] = pending.table(self._run)
        self._write(files, number)
        if number:
            (self._directory / f"{PENDING}-{number - 1:06}.parquet").unlink(missing_ok=True)

    def _flush_every(self, interval: float) -> None:
        while not self._closing.wait(interval):
            try:
                self.flush()
            except Exception as error:  # whatever it was, these rows are missing: nothing may be built on the rest
                self._failure = error
                return

    def _check(self) -> None:
        if self._failure is not None:
            raise HistoryLost(f"the history cannot be written to {self._directory}: {describe(self._failure)}")

    def _write(self, files: dict[str, pa.Table], number: int) -> None:
        """All of the files or, if killed meanwhile, none that counts: the last of them is the pending file, and their
        checksums (spark_history/damage.py) come first."""
        for name, table in files.items():
            with (self._directory / f".{name}.tmp").open("wb") as file:
                write_part(table, file)
                file.flush()
                os.fsync(file.fileno())
        checks = CHECKS.format(number)
        sums: dict[str, Any] = {name: checksum(self._directory / f".{name}.tmp") for name in files}
        self.written += sum(size for name, (size, _) in sums.items() if not name.startswith(_REPLACED))
        if not number:
            sums |= notes_beside(self._directory.parent)
        with (self._directory / f".{checks}.tmp").open("w") as text:
            json.dump(sums, text)
            text.flush()
            os.fsync(text.fileno())
        for name in (checks, *files):
            (self._directory / f".{name}.tmp").rename(self._directory / name)
        descriptor = os.open(self._directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def write_part(table: pa.Table, file: Any) -> None:
    """A file of a journal. file: a path, or open for writing."""
    repetitive = [name for name in table.column_names if name not in _MOSTLY_UNIQUE]
    # Checksums: a damaged page may well decode, to other values.
    pq.write_table(
        table.replace_schema_metadata(MARK), file, compression="zstd", use_dictionary=repetitive,
        write_page_checksum=True,
    )  # fmt: skip


#: Tables that are recorded as they are.
_AS_ROWS: Final = (
    "trace", "metadata_log", "disk_state", "collected", "group_events", "transactions", "micro_operations",
    "stable_offsets",
)  # fmt: skip


def _whole(new: _Recorded, table: str) -> pa.Table:
    return pa.concat_tables([TABLES[table].empty_table(), *new.tables.get(table, ())])


def load_journal(directory: Path) -> dict[str, pa.Table]:
    """The tables of a journal, for those who do not need Spark; the pending appends are in `operations`.

    directory: results/<run>/journal. The journal may be of a run that was killed, or is still going on.
    Raises HarnessFailure naming a file that is damaged.
    """
    pending = max(directory.glob(f"{PENDING}-*.parquet"), default=None)
    committed = -1 if pending is None else _number(pending)
    tables = {}
    for table, schema in TABLES.items():
        parts = sorted(path for path in directory.glob(f"{table}-*.parquet") if _number(path) <= committed)
        if table == "operations" and pending is not None:
            parts.append(pending)
        tables[table] = pa.concat_tables([schema.empty_table(), *(_read(path) for path in parts)])
    tables["calls"] = last_rows(tables["calls"], "op")
    return tables


def _read(path: Path) -> pa.Table:
    try:
        require_regular(path)
        with contextlib.closing(pq.ParquetFile(path)) as file:
            return file.read()
    except (pa.ArrowException, OSError) as error:
        raise HarnessFailure(f"{path} is damaged or no Parquet file: {error}") from error


def _number(path: Path) -> int:
    return int(path.stem.rpartition("-")[2])
