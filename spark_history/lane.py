"""Lay out the history of some logs: the work of one ingestion task.

A log is the history of one partition of one topic. `lay_out_lane` streams the journal past its logs, keeping only
their rows, so that no shuffle is needed: decoding the journal once a task is cheaper than moving its rows between
tasks. `lay_out_run` does the same for a run in memory.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_history.files import Ints, categories, compact, equals, integers, read_parquet, write_parquet
from spark_history.layout import LaidOut, ReadIndex, lay_out, without_offset
from spark_history.log import NOWHERE, WHOLE, Log, Range
from spark_history.schema import OPERATIONS, READS, REPLICA_LOGS

_READ_COLUMNS: Final = pa.schema([READS.field(name) for name in ("op", "topic", "partition", "offset", "value")])


def lay_out_lane(unit: dict[str, Any]) -> pa.Table:
    """Read the journal, write the files of some logs, and say what they hold: one row a log, `facts` as JSON.

    unit: logs [[topic, partition], ...], low and high of the segment (of all of them), journal {table: [path]},
    pending (path or null), directory to write to, run.
    """
    logs = [Log(topic, partition) for topic, partition in unit["logs"]]
    part = Range(unit["low"], unit["high"])
    operations = _gather_operations(unit, logs, part)
    indexes = [ReadIndex(rows, part) for rows in operations]
    for path in unit["journal"]["reads"]:
        for index, rows in zip(indexes, _split(read_parquet(path, _READ_COLUMNS), logs), strict=True):
            index.add(*(integers(rows, name, NOWHERE) for name in ("op", "offset", "value")))
    replica_logs = _gather(unit["journal"]["replica_logs"], REPLICA_LOGS, logs)

    facts = []
    for log, rows, index, replicas in zip(logs, operations, indexes, replica_logs, strict=True):
        laid_out = lay_out(rows, index, part)
        replicas = _by_offset(replicas.filter(pa.array(part.holds(integers(replicas, "offset", NOWHERE)))))
        tables = {"operations": laid_out.operations, "reads": laid_out.reads, "replica_logs": replicas}
        paths = {}
        for table, content in tables.items():
            paths[table] = f"{table}/{log.folder}/{part.low:015}.parquet"
            content = content.drop_columns([name for name in ("topic", "partition") if name in content.column_names])
            write_parquet(Path(unit["directory"]) / paths[table], content)
        facts.append(
            {
                "topic": log.topic,
                "partition": log.partition,
                "low": part.low,
                "high": part.high,
                "paths": paths,
                "final_reads": vars(laid_out.final_reads),
                "end": laid_out.end,
                "orphans": laid_out.orphans,
            }
        )
    return pa.table({"facts": [json.dumps(fact) for fact in facts]})


def _gather_operations(unit: dict[str, Any], logs: Sequence[Log], part: Range) -> list[pa.Table]:
    pending = read_parquet(unit["pending"], OPERATIONS) if unit["pending"] else None
    kept: list[list[pa.Table]] = [[] for _ in logs]
    for path in unit["journal"]["operations"]:
        file = read_parquet(path, OPERATIONS)
        if pending is not None and pending.num_rows:
            pending = pending.filter(pc.invert(pc.is_in(pending["op"], file["op"])))
        for rows, mine in zip(_split(file, logs), kept, strict=True):
            if part != WHOLE:
                elsewhere = equals(rows, "kind", "append") & ~without_offset(rows)
                rows = rows.filter(pa.array(~elsewhere | part.holds(integers(rows, "offset", NOWHERE))))
            mine.append(rows)
    if pending is not None:
        for rows, mine in zip(_split(pending, logs), kept, strict=True):
            mine.append(rows)
    return [_concatenate_tables(tables, OPERATIONS) for tables in kept]


def _gather(paths: Sequence[str], schema: pa.Schema, logs: Sequence[Log]) -> list[pa.Table]:
    kept: list[list[pa.Table]] = [[] for _ in logs]
    for path in paths:
        for rows, mine in zip(_split(read_parquet(path, schema), logs), kept, strict=True):
            mine.append(rows)
    return [_concatenate_tables(tables, schema) for tables in kept]


def _concatenate_tables(tables: Sequence[pa.Table], schema: pa.Schema) -> pa.Table:
    return pa.concat_tables([compact(schema).empty_table(), *tables]).combine_chunks()


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
    rows = np.flatnonzero(np.isin(key, wanted))
    rows = rows[np.argsort(key[rows], kind="stable")]
    mine, ordered = table.take(pa.array(rows)), key[rows]
    for low, high in zip(np.searchsorted(ordered, wanted), np.searchsorted(ordered, wanted, "right"), strict=True):
        yield mine.slice(int(low), int(high - low))


def _keys_of(table: pa.Table) -> tuple[list[str], Ints]:
    """The topics in a table of one chunk, and for each row its topic's number there << 32, plus its partition."""
    chunks = table["topic"].chunks
    topics, codes = categories(chunks[0]) if chunks else ([], np.empty(0, np.int32))
    return topics, (codes.astype(np.int64) << 32) + integers(table, "partition", 0)


def _by_offset(table: pa.Table) -> pa.Table:
    return table.take(pa.array(np.argsort(integers(table, "offset", NOWHERE), kind="stable")))
