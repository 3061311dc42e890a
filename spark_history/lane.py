"""Lay out the history of some logs: the work of one ingestion task.

A log is the history of one partition of one topic. `lay_out` is the whole of it in memory; `lay_out_lane` streams
the journal past it, keeping only the rows of its own logs, so that no shuffle is needed: decoding the journal once
a task is cheaper than moving its rows between tasks.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_history.files import (
    Bools,
    HistoryError,
    Ints,
    categories,
    compact,
    equals,
    integers,
    nullable,
    read_parquet,
    write_parquet,
)
from spark_history.schema import LAID_OUT_OPERATIONS, LAID_OUT_READS, OPERATIONS, READS, REPLICA_LOGS

NOWHERE: Final = -1  # a position, offset or value that is null
NEVER: Final = int(np.iinfo(np.int64).max)  # a completion that is null

_READ_COLUMNS: Final = pa.schema([READS.field(name) for name in ("op", "topic", "partition", "offset", "value")])


@dataclass(frozen=True)
class Log:
    topic: str
    partition: int

    @property
    def folder(self) -> str:
        return f"topic={self.topic}/partition={self.partition}"


@dataclass(frozen=True)
class Range:
    """A segment of a log: offsets from low to below high; high None: to the end."""

    low: int = 0
    high: int | None = None

    def holds(self, positions: Ints) -> Bools:
        """Positions in this range; the first segment of a log also takes what has no position."""
        inside: Bools = positions < (NEVER if self.high is None else self.high)
        if self.low > 0:
            inside &= positions >= self.low
        return inside


WHOLE: Final = Range()


@dataclass(frozen=True)
class FinalReads:
    """What the final reads of a log, or of a segment of it, covered."""

    covered: tuple[tuple[int, int], ...] = ()  # disjoint ranges of offsets read, in order
    start: int = NEVER  # the lowest fetch offset
    end: int = NOWHERE  # the highest bound of a final read; NOWHERE: there was none
    time: int = NOWHERE  # the latest invocation of a final read that reported `end`, ns
    op: int = NOWHERE  # that read
    first: int = NEVER  # the lowest offset at which one returned a record

    @property
    def complete(self) -> bool:
        """Was every record from `start` to `end` within the range of a fetch?"""
        return self.end != NOWHERE and (self.end <= self.start or (self.start, self.end) in self.covered)

    @property
    def last(self) -> int:
        """The last offset at which a final read returned a record."""
        return self.covered[-1][1] - 1 if self.covered else NOWHERE

    def known(self, compacted: bool) -> bool:
        """As `complete`; of a compacted log records may be missing between, but never the last one."""
        return self.complete or (compacted and self.end != NOWHERE and self.last == self.end - 1)

    @staticmethod
    def of(fields: Mapping[str, Any]) -> FinalReads:
        """The inverse of dataclasses.asdict(), also after a journey as JSON."""
        return FinalReads(**{**fields, "covered": tuple((low, high) for low, high in fields["covered"])})

    @staticmethod
    def merge(parts: Sequence[FinalReads]) -> FinalReads:
        end = max((part.end for part in parts), default=NOWHERE)
        time, op = max(((part.time, part.op) for part in parts if part.end == end), default=(NOWHERE, NOWHERE))
        return FinalReads(
            covered=_union([span for part in parts for span in part.covered], end),
            start=min((part.start for part in parts), default=NEVER),
            end=end,
            time=time,
            op=op,
            first=min((part.first for part in parts), default=NEVER),
        )


def _union(spans: Sequence[tuple[int, int]], end: int) -> tuple[tuple[int, int], ...]:
    """Overlapping and adjacent ranges joined, cut off at `end`."""
    joined: list[tuple[int, int]] = []
    for low, high in sorted((low, min(high, end)) for low, high in spans if low < end):
        if joined and low <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], high))
        else:
            joined.append((low, high))
    return tuple(joined)


@dataclass(frozen=True)
class LaidOut:
    operations: pa.Table  # LAID_OUT_OPERATIONS, by position
    reads: pa.Table  # LAID_OUT_READS, by offset
    final_reads: FinalReads
    end: int  # the highest position that an ok operation is evidence of: the log was once this long
    orphans: int  # records whose read is not on record, or is not ok; left out


class ReadIndex:
    """What reads of one log returned, a file at a time: which range of it is kept, and facts of all of it."""

    def __init__(self, operations: pa.Table, part: Range) -> None:
        """operations: of this log, with every append that has no offset and every read."""
        self._part = part
        final = equals(operations, "kind", "final_read")
        rows = np.flatnonzero((equals(operations, "kind", "read") | final) & equals(operations, "outcome", "ok"))
        op = integers(operations, "op", NOWHERE)
        rows = rows[np.argsort(op[rows], kind="stable")]
        self.op = op = op[rows]
        self._final = final[rows]
        self._complete = integers(operations, "complete", NEVER)[rows]
        self._fetch = integers(operations, "offset", NOWHERE)[rows]
        self.first = np.full(len(op), NEVER)
        self.last = np.full(len(op), NOWHERE)
        self.records = np.zeros(len(op), np.int64)
        self.repeats = np.zeros(len(op), np.int64)
        self._sought = np.sort(integers(operations, "value", NOWHERE)[_without_offset(operations)])
        self._found: list[tuple[Ints, Ints, Bools, Ints]] = []
        self._kept: list[tuple[Ints, Ints, Ints, Bools]] = []
        self.orphans = 0

    def add(self, op: Ints, offset: Ints, value: Ints) -> None:
        if not len(op):
            return
        row = np.searchsorted(self.op, op)
        known = row < len(self.op)
        known[known] = self.op[row[known]] == op[known]
        if not known.all():
            self.orphans += int(np.count_nonzero(~known))
            row, op, offset, value = row[known], op[known], offset[known], value[known]
            if not len(op):
                return
        self._summarise(row, offset)
        final = self._final[row]
        if len(self._sought):
            hit = np.isin(value, self._sought)
            self._found.append((value[hit], offset[hit], final[hit], self._complete[row[hit]]))
        inside = self._part.holds(offset)
        if inside.all():
            self._kept.append((op, offset, value, final))
        else:
            self._kept.append((op[inside], offset[inside], value[inside], final[inside]))

    def _summarise(self, row: Ints, offset: Ints) -> None:
        # Records of one read stand together as they were recorded, so the runs are few.
        starts = np.flatnonzero(np.concatenate(([True], row[1:] != row[:-1])))
        run = row[starts]
        np.minimum.at(self.first, run, np.minimum.reduceat(offset, starts))
        np.maximum.at(self.last, run, np.maximum.reduceat(offset, starts))
        np.add.at(self.records, run, np.diff(np.append(starts, len(row))))
        repeated = np.concatenate(([False], offset[1:] <= offset[:-1]))
        repeated[starts] = False
        if repeated.any():
            np.add.at(self.repeats, row[repeated], 1)

    def records_kept(self) -> pa.Table:
        op, offset, value, final = _concatenate(self._kept, 4)
        return lay_out_reads(op, offset, value, final.astype(bool), torn=self.op[self._torn()])

    def _torn(self) -> Bools:
        """The reads that did not return every offset of their range once, in order."""
        start = np.where(self._fetch == NOWHERE, self.first, np.minimum(self._fetch, self.first))
        torn: Bools = (self.records > 0) & ((self.records != self.last - start + 1) | (self.repeats > 0))
        return torn

    def find(self, values: Ints) -> tuple[Ints, Ints]:
        """For each value of an append without an offset: the offset at which it was read (by a final read if any
        did, the lowest of several), and the earliest completion of a read that returned it."""
        value, offset, final, complete = _concatenate(self._found, 4)
        positions, observed = np.full(len(values), NOWHERE), np.full(len(values), NEVER)
        order = np.lexsort((offset, final == 0, value))
        value, offset, complete = value[order], offset[order], complete[order]
        distinct, first = np.unique(value, return_index=True)
        if len(distinct):
            earliest = np.minimum.reduceat(complete, first)
            row = np.minimum(np.searchsorted(distinct, values), len(distinct) - 1)
            hit = distinct[row] == values
            positions[hit], observed[hit] = offset[first][row[hit]], earliest[row[hit]]
        return positions, observed


def lay_out_reads(op: Ints, offset: Ints, value: Ints, final: Bools, *, torn: Ints) -> pa.Table:
    """LAID_OUT_READS of one log, from what its reads returned in any order. torn: reads of which every record is
    kept."""
    if not (offset[1:] >= offset[:-1]).all():
        order = np.argsort(offset, kind="stable")
        op, offset, value, final = op[order], offset[order], value[order], final[order]
    first = np.flatnonzero(np.concatenate((np.ones(min(len(offset), 1), bool), offset[1:] != offset[:-1])))
    if len(first) < len(offset):
        differs = np.concatenate(([False], (offset[1:] == offset[:-1]) & (value[1:] != value[:-1])))
        disputed = np.logical_or.reduceat(differs, first)
        last_final = np.maximum.reduceat(np.where(final, np.arange(len(offset)), NOWHERE), first)
        rows = np.where(last_final != NOWHERE, last_final, first)
        if disputed.any() or len(torn):
            kept = np.repeat(disputed, np.diff(first, append=len(offset)))
            kept |= np.isin(op, torn)
            kept[rows] = True
            rows = np.flatnonzero(kept)
        op, offset, value, final = op[rows], offset[rows], value[rows], final[rows]
    return pa.table([pa.array(column) for column in (op, offset, value, final)], schema=LAID_OUT_READS)


def lay_out(operations: pa.Table, index: ReadIndex, part: Range = WHOLE) -> LaidOut:
    """One log, or a segment of one.

    operations: OPERATIONS of this log; of its acknowledged appends those in `part` are enough. index: made from
    the same operations, with all records that reads returned added. Raises HistoryError if operations contradict
    themselves in a way that only a faulty recorder can cause.
    """
    _check_sanity(operations)
    append = equals(operations, "kind", "append")
    ok = equals(operations, "outcome", "ok")
    offset = integers(operations, "offset", NOWHERE)
    watermark = integers(operations, "high_watermark", NOWHERE)
    op, invoke = integers(operations, "op", NOWHERE), integers(operations, "invoke", 0)

    position = np.where(ok & (append | equals(operations, "kind", "list_offsets")), offset, NOWHERE)
    observed = np.full(len(op), NEVER)
    sought = _without_offset(operations)
    position[sought], observed[sought] = index.find(integers(operations, "value", NOWHERE)[sought])

    first, last, records, repeats = (np.full(len(op), NOWHERE) for _ in range(4))
    read = ok & (equals(operations, "kind", "read") | equals(operations, "kind", "final_read"))
    row = np.searchsorted(index.op, op[read])
    first[read] = np.where(index.records[row] > 0, index.first[row], NOWHERE)
    last[read], records[read], repeats[read] = index.last[row], index.records[row], index.repeats[row]
    position[read] = np.maximum(watermark[read], last[read] + 1)

    extra = {"position": (position, NOWHERE), "observed": (observed, NEVER), "records": (records, NOWHERE)}
    extra |= {"first": (first, NOWHERE), "last": (last, NOWHERE), "repeats": (repeats, NOWHERE)}
    for name in LAID_OUT_OPERATIONS.names[len(OPERATIONS) :]:
        operations = operations.append_column(name, nullable(*extra[name]))
    final = read & equals(operations, "kind", "final_read") & part.holds(position)
    kept = np.flatnonzero(part.holds(position))
    kept = kept[np.argsort((2 * position + append)[kept], kind="stable")]
    evidence = ok & (position != NOWHERE)
    return LaidOut(
        operations=operations.take(pa.array(kept)),
        reads=index.records_kept(),
        final_reads=_final_reads(*(column[final] for column in (offset, first, last, position, invoke, op))),
        end=int((position + append)[evidence].max(initial=0)),
        orphans=index.orphans,
    )


def _final_reads(offset: Ints, first: Ints, last: Ints, bound: Ints, invoke: Ints, op: Ints) -> FinalReads:
    if not len(offset):
        return FinalReads()
    end = int(bound.max())
    spans = [(int(low), int(high) + 1) for low, high in zip(offset, last, strict=True) if high >= low]
    latest = int(np.argmax(np.where(bound == end, invoke, NOWHERE)))
    lowest = int(first[first != NOWHERE].min(initial=NEVER))
    return FinalReads(_union(spans, end), int(offset.min()), end, int(invoke[latest]), int(op[latest]), lowest)


def _without_offset(operations: pa.Table) -> Bools:
    """Appends whose place in the log only a read can tell: not acknowledged, or acknowledged unseen (acks=0)."""
    placed = equals(operations, "outcome", "ok") & (integers(operations, "offset", NOWHERE) != NOWHERE)
    unplaced: Bools = equals(operations, "kind", "append") & ~placed
    return unplaced


def _check_sanity(operations: pa.Table) -> None:
    """Every operation once, completed after it was invoked; every value appended once."""
    op = integers(operations, "op", NOWHERE)
    invoke, complete = integers(operations, "invoke", 0), integers(operations, "complete", NEVER)
    name = f"of {operations['topic'][0]}-{operations['partition'][0]}" if len(op) else ""
    if (twice := _repeated(op)) is not None:
        raise HistoryError(f"operation {twice} {name} is on record twice: the recorder is at fault, not the cluster")
    if (early := np.flatnonzero(complete < invoke)).size:
        raise HistoryError(f"operation {op[early[0]]} {name} completed before it was invoked: its times are wrong")
    if (open_ := np.flatnonzero(equals(operations, "outcome", "ok") & (complete == NEVER))).size:
        raise HistoryError(f"operation {op[open_[0]]} {name} is ok but has no completion")
    values = integers(operations, "value", NOWHERE)[equals(operations, "kind", "append")]
    if (twice := _repeated(values)) is not None:
        raise HistoryError(f"value {twice} {name} was appended twice: only unique values make a history decidable")


def _repeated(values: Ints) -> int | None:
    ordered = np.sort(values)
    again = np.flatnonzero(ordered[1:] == ordered[:-1])
    return int(ordered[again[0]]) if len(again) else None


def _concatenate(parts: Sequence[tuple[Any, ...]], columns: int) -> list[Ints]:
    return [np.concatenate([np.empty(0, np.int64), *(part[i] for part in parts)]) for i in range(columns)]


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
                elsewhere = equals(rows, "kind", "append") & ~_without_offset(rows)
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
