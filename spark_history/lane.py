"""Lay out the history of some logs: the work of one ingestion task.

A log is the history of one partition of one topic. `lay_out_lane` streams the journal past its logs, keeping only
their rows, so that no shuffle is needed: decoding the journal once a task is cheaper than moving its rows between
tasks. `lay_out_run` does the same for a run in memory.

A flush has few rows of each log, so files are shared out to the logs BATCH_ROWS at a time: what is done once for a log
would else be done once for a log and a file, and take longer than all that concerns the rows.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from spark_history.files import Ints, categories, compact, equals, integers, read_parquet, read_row_group, write_parquet
from spark_history.layout import LaidOut, ReadIndex, lay_out, without_offset
from spark_history.log import NOWHERE, WHOLE, Log, Range
from spark_history.regular import require_regular
from spark_history.schema import OPERATIONS, READS, REPLICA_LOGS

BATCH_ROWS: Final = 1 << 19

_READ_COLUMNS: Final = pa.schema([READS.field(name) for name in ("op", "topic", "partition", "offset", "value")])

_T = TypeVar("_T")
_R = TypeVar("_R")


class _Threads(ThreadPoolExecutor):
    def __init__(self, count: int) -> None:
        super().__init__(count)
        self.count = count


def lay_out_lane(unit: dict[str, Any]) -> pa.Table:
    """Read the journal, write the files of some logs, and say what they hold: one row a log, `facts` as JSON.

    unit: logs [[topic, partition], ...], low and high of the segment (of all of them), journal {table: [path]},
    pending (path or null), directory to write to, threads to use.
    """
    logs = [Log(topic, partition) for topic, partition in unit["logs"]]
    part, root = Range(unit["low"], unit["high"]), Path(unit["directory"])
    with _Threads(unit.get("threads", 1)) as threads:
        facts = _lay_out_clients(unit, logs, part, root, threads)  # what these hold is let go of before replicas
        replica_logs = _gather(unit["journal"]["replica_logs"], REPLICA_LOGS, logs, threads)

        def write(log: Log, replicas: list[pa.Table]) -> str:
            whole = _whole(replicas)
            replicas.clear()
            if part != WHOLE:
                whole = whole.filter(pa.array(part.holds(integers(whole, "offset", NOWHERE))))
            return _write(root, "replica_logs", log, part, whole)

        paths = list(threads.map(write, logs, replica_logs))
    for fact, path in zip(facts, paths, strict=True):
        fact["paths"]["replica_logs"] = path
    return pa.table({"facts": [json.dumps(fact) for fact in facts]})


def _lay_out_clients(
    unit: dict[str, Any], logs: Sequence[Log], part: Range, root: Path, threads: _Threads
) -> list[dict[str, Any]]:
    """What clients did and saw."""
    operations = _gather_operations(unit, logs, part, threads)
    indexes = list(threads.map(lambda pieces: ReadIndex(pa.concat_tables(pieces), part), operations))
    for split in _shared_out(unit["journal"]["reads"], _READ_COLUMNS, logs, threads):
        for index, rows in zip(indexes, split, strict=True):
            index.add(*(integers(rows, name, NOWHERE) for name in ("op", "offset", "value")))

    held = dict(zip(logs, zip(operations, indexes, strict=True), strict=True))
    del operations, indexes

    def write(log: Log) -> dict[str, Any]:
        pieces, index = held.pop(log)
        laid_out = lay_out(_whole(pieces), index, part)
        return {
            "topic": log.topic,
            "partition": log.partition,
            "low": part.low,
            "high": part.high,
            "paths": {
                "operations": _write(root, "operations", log, part, laid_out.operations),
                "reads": _write(root, "reads", log, part, laid_out.reads),
            },
            "final_reads": vars(laid_out.final_reads),
            "end": laid_out.end,
            "orphans": laid_out.orphans,
        }

    return list(threads.map(write, logs))


def _write(root: Path, table: str, log: Log, part: Range, content: pa.Table) -> str:
    path = f"{table}/{log.folder}/{part.low:015}.parquet"
    content = content.drop_columns([name for name in ("topic", "partition") if name in content.column_names])
    write_parquet(root / path, content)
    return path


def _gather_operations(
    unit: dict[str, Any], logs: Sequence[Log], part: Range, threads: _Threads
) -> list[list[pa.Table]]:
    """In pieces."""
    pending = read_parquet(unit["pending"], OPERATIONS) if unit["pending"] else None
    waiting = None if pending is None or not pending.num_rows else pending["op"].combine_chunks()
    completed: list[Any] = []

    def choose(table: pa.Table) -> pa.Table:
        if waiting is not None:
            completed.append(table["op"].filter(pc.is_in(table["op"], value_set=waiting)))
        if part == WHOLE:
            return table
        elsewhere = equals(table, "kind", "append") & ~without_offset(table)
        return table.filter(pa.array(~elsewhere | part.holds(integers(table, "offset", NOWHERE))))

    kept = _gather(unit["journal"]["operations"], OPERATIONS, logs, threads, choose)
    if pending is not None:
        for each in completed:
            pending = pending.filter(pc.invert(pc.is_in(pending["op"], each)))
        for rows, mine in zip(_split(pending, logs), kept, strict=True):
            mine.append(rows)
    return kept


def _gather(
    paths: Sequence[str],
    schema: pa.Schema,
    logs: Sequence[Log],
    threads: _Threads,
    choose: Callable[[pa.Table], pa.Table] | None = None,
) -> list[list[pa.Table]]:
    """The rows of each log, in pieces. choose: which rows of a table are wanted."""
    kept = [[compact(schema).empty_table()] for _ in logs]
    for split in _shared_out(paths, schema, logs, threads, choose):
        for rows, mine in zip(split, kept, strict=True):
            mine.append(rows)
    return kept


def _shared_out(
    paths: Sequence[str],
    schema: pa.Schema,
    logs: Sequence[Log],
    threads: _Threads,
    choose: Callable[[pa.Table], pa.Table] | None = None,
) -> Iterator[list[pa.Table]]:
    """The rows of each log, of some BATCH_ROWS rows of the files at a time, in the order of the files."""

    def share(pieces: list[_Piece]) -> list[pa.Table]:
        read = [
            read_parquet(path, schema) if group is None else read_row_group(path, schema, group)[0]
            for path, group, _ in pieces
        ]
        table = pa.concat_tables(read).unify_dictionaries().combine_chunks()
        return list(_split(table if choose is None else choose(table), logs))

    return _ahead(threads, share, _batches(paths))


_Piece = tuple[str, int | None, int]  # file, row group (None: all of the file), rows


def _batches(paths: Sequence[str]) -> Iterator[list[_Piece]]:
    batch: list[_Piece] = []
    for path in paths:
        for piece in _pieces(path):
            if batch and sum(rows for *_, rows in batch) + piece[2] > BATCH_ROWS:
                yield batch
                batch = []
            batch.append(piece)
    if batch:
        yield batch


def _pieces(path: str) -> list[_Piece]:
    try:
        require_regular(path)
        footer = pq.read_metadata(path)
    except (OSError, pa.ArrowException):
        return [(path, None, 0)]  # who reads it says what is wrong
    if footer.num_rows <= BATCH_ROWS:
        return [(path, None, footer.num_rows)]
    return [(path, group, footer.row_group(group).num_rows) for group in range(footer.num_row_groups)]


def _ahead(threads: _Threads, work: Callable[[_T], _R], items: Iterable[_T]) -> Iterator[_R]:
    """As map(); but no more is under way, or done and not yet taken, than one for each thread and one more."""
    under_way: deque[Future[_R]] = deque()
    for item in items:
        under_way.append(threads.submit(work, item))
        if len(under_way) > threads.count:
            yield under_way.popleft().result()
    while under_way:
        yield under_way.popleft().result()


def _whole(tables: Sequence[pa.Table]) -> pa.Table:
    return pa.concat_tables(tables).unify_dictionaries().combine_chunks()


#: What of a run in memory is needed: the checkers look at no other columns.
_IN_MEMORY: Final = {
    "operations": pa.schema([field for field in OPERATIONS if field.name not in ("run", "error")]),
    "reads": _READ_COLUMNS,
    "replica_logs": pa.schema([field for field in REPLICA_LOGS if field.name != "run"]),
}


def split_run(tables: Mapping[str, pa.Table], *names: str) -> list[tuple[Log, Sequence[pa.Table]]]:
    """A run that is in memory: each of its logs in order, with its rows of the tables named (`operations` first).

    tables: as load_journal() gives them.
    """
    chosen = [tables[name].select(_IN_MEMORY[name].names).cast(compact(_IN_MEMORY[name])) for name in names]
    topics, key = _keys_of(chosen[0].combine_chunks())
    named = [(topics[code >> 32], code & 0xFFFFFFFF) for code in np.unique(key).tolist()]
    logs = [Log(topic, partition) for topic, partition in sorted(named)]
    return list(zip(logs, zip(*(_split(table, logs) for table in chosen), strict=True), strict=True))


def lay_out_run(tables: Mapping[str, pa.Table]) -> list[tuple[Log, LaidOut, pa.Table]]:
    """Each log of a run that is in memory, in one segment, with its replica logs. Raises HistoryError."""
    laid_out = []
    for log, (rows, returned, replicas) in split_run(tables, "operations", "reads", "replica_logs"):
        index = ReadIndex(rows, WHOLE)
        index.add(*(integers(returned, name, NOWHERE) for name in ("op", "offset", "value")))
        laid_out.append((log, lay_out(rows, index), replicas))
    return laid_out


def _split(table: pa.Table, logs: Sequence[Log]) -> Iterator[pa.Table]:
    """The rows of each log, in their order. One sort whatever the number of logs."""
    table = table.unify_dictionaries().combine_chunks()
    topics, key = _keys_of(table)
    codes = {topic: code for code, topic in enumerate(topics)}
    wanted = np.array([(codes.get(log.topic, -1) << 32) + log.partition for log in logs], np.int64)
    order = np.argsort(wanted, kind="stable")
    ordered = wanted[order]
    at = np.searchsorted(ordered, key)
    at[at == len(ordered)] = 0
    rows = np.flatnonzero(ordered[at] == key) if len(ordered) else np.empty(0, np.int64)
    # Small numbers are sorted by counting.
    log_of = at[rows].astype(np.uint16 if len(logs) < 1 << 16 else np.int64)
    by_log = np.argsort(log_of, kind="stable")
    mine = table.take(pa.array(rows[by_log]))
    bounds = np.concatenate(([0], np.cumsum(np.bincount(log_of, minlength=len(logs)))))
    place = np.empty(len(logs), np.int64)
    place[order] = np.arange(len(logs))
    for number in place.tolist():
        yield mine.slice(int(bounds[number]), int(bounds[number + 1] - bounds[number]))


def _keys_of(table: pa.Table) -> tuple[list[str], Ints]:
    """The topics in a table of one chunk, and for each row its topic's number there << 32, plus its partition."""
    chunks = table["topic"].chunks
    topics, codes = categories(chunks[0]) if chunks else ([], np.empty(0, np.int32))
    return topics, (codes.astype(np.int64) << 32) + integers(table, "partition", 0)
