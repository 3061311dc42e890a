"""Runs of logs as operations of a Jepsen history (see logs.py for the form): from the journal, or, of a generated run,
from the history as it is laid out."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_history.errors import HistoryError
from spark_history.files import Ints, categories, compact, equals, integers, last_rows, read_parquet
from spark_history.ingest import History, Journal, LogHistory, find_journal, last_of_each, open_laid_out
from spark_history.jepsen.export.export import OPERATIONS_AT_ONCE, Survey, errors, fields, operations_of, survey_files
from spark_history.jepsen.export.notation import Notation, join, lists, numbers, pick, transformed
from spark_history.schema import FAULTS, LAID_OUT_OPERATIONS, LAID_OUT_READS, OPERATIONS, READS, TABLES

NULL: Final = int(np.iinfo(np.int64).min)
#: A journal of fewer rows is taken as a whole, so that a record finds its read wherever that is.
_WHOLE: Final = 2_000_000
_READS: Final = pa.schema([READS.field(name) for name in ("op", "offset", "value")])
_LAID_OUT: Final = pa.schema([each for each in LAID_OUT_OPERATIONS if each.name not in ("topic", "partition", "run")])
_F: Final = {
    "append": "append", "read": "read", "list_offsets": "list-offsets", "final_read": "final-read",
    "delete_records": "delete-records",
}  # fmt: skip


def render_log(directory: Path, notation: Notation, end: int) -> Iterator[pa.Table]:
    """OPERATION rows of the run in `directory`, a history that ended at `end`. Raises HistoryError."""
    if (directory / "journal").is_dir():
        for operations, reads in _journal(directory):
            yield from _render(operations, reads, notation, end)
        return
    history = _history(directory)
    for log in history.logs:
        for operations, reads in _laid_out(history.path, log):
            yield from _render(operations, reads, notation, end)


def read_parts(directory: Path) -> Iterator[tuple[str, pa.Table]]:
    """Every table of the run in `directory`, in parts, each in its schema with dictionaries. Raises HistoryError."""
    if not (directory / "journal").is_dir():
        history = _history(directory)
        for log in history.logs:
            for operations, reads in _laid_out(history.path, log):
                yield "operations", operations
                yield "reads", _with_log(reads, log.topic, log.partition)
        yield "faults", read_parquet(history.path / "faults" / "faults.parquet", FAULTS)
        return
    journal = find_journal(directory)
    pending = _pending(journal)
    for table, paths in journal.files.items():
        if table == "calls" and paths:  # each is there more than once
            yield table, last_rows(pa.concat_tables([read_parquet(path, TABLES[table]) for path in paths]), "op")
            continue
        for path in paths:
            rows = read_parquet(path, TABLES[table])
            if table == "operations":
                pending = _not_in(pending, rows)
            yield table, rows
    yield "operations", pending


def read_faults(directory: Path) -> list[dict[str, Any]]:
    """FAULTS rows, the last that was recorded of each, in order. Raises HistoryError."""
    if (directory / "journal").is_dir():
        paths = list(find_journal(directory).files["faults"])
    else:
        paths = [directory / "history" / "faults" / "faults.parquet"]
    return last_of_each(paths)


def survey(directory: Path) -> Survey:
    """Raises HistoryError."""
    if (directory / "journal").is_dir():
        journal = find_journal(directory)
        paths = [*journal.files["operations"], *([journal.pending] if journal.pending else [])]
    else:
        history = _history(directory)
        paths = [history.path / segment.paths["operations"] for log in history.logs for segment in log.segments]
    return survey_files(paths)


def _history(directory: Path) -> History:
    history = open_laid_out(directory)
    if history is None:
        raise HistoryError(f"{directory} holds no history: it has no journal, and was not laid out without one")
    for name, why in history.damaged[:1]:
        raise HistoryError(f"{directory / name} is damaged: {why}")
    return history


def _pending(journal: Journal) -> pa.Table:
    empty = compact(OPERATIONS).empty_table()
    return empty if journal.pending is None else read_parquet(journal.pending, OPERATIONS)


def _not_in(pending: pa.Table, operations: pa.Table) -> pa.Table:
    return pending.filter(pc.invert(pc.is_in(pending["op"], operations["op"]))) if pending.num_rows else pending


def _with_log(reads: pa.Table, topic: str, partition: int) -> pa.Table:
    size = reads.num_rows
    columns = {
        "run": pa.nulls(size, compact(READS).field("run").type),
        "topic": pa.DictionaryArray.from_arrays(pa.array(np.zeros(size, np.int32)), pa.array([topic])),
        "partition": pa.array(np.full(size, partition, np.int32)),
        **{name: reads[name] for name in _READS.names},
    }
    return pa.table({name: columns[name] for name in READS.names})


def _journal(directory: Path) -> Iterator[tuple[pa.Table, pa.Table]]:
    journal = find_journal(directory)
    pending = _pending(journal)
    reads = {path.stem.rpartition("-")[2]: path for path in journal.files["reads"]}
    held: list[tuple[pa.Table, pa.Table]] = []
    rows = 0
    for path in journal.files["operations"]:
        operations = read_parquet(path, OPERATIONS)
        pending = _not_in(pending, operations)
        records = reads.pop(path.stem.rpartition("-")[2], None)  # the records of a flush are of its operations
        part = operations, _READS.empty_table() if records is None else read_parquet(records, _READS)
        rows += part[0].num_rows + part[1].num_rows
        held.append(part)
        if rows > _WHOLE:
            yield from held
            held.clear()
    held += [(compact(OPERATIONS).empty_table(), read_parquet(path, _READS)) for path in reads.values()]
    held.append((pending, _READS.empty_table()))
    if rows <= _WHOLE:
        yield pa.concat_tables([part[0] for part in held]), pa.concat_tables([part[1] for part in held])
    else:
        yield from held


def _laid_out(path: Path, log: LogHistory) -> Iterator[tuple[pa.Table, pa.Table]]:
    """The records of a read are those that the log holds from its first to its last; where reads disagreed, its own."""

    @lru_cache(maxsize=4)
    def load(number: int) -> tuple[Ints, Ints, Ints]:
        rows = read_parquet(path / log.segments[number].paths["reads"], LAID_OUT_READS)
        offset, value, op = (integers(rows, name, NULL) for name in ("offset", "value", "op"))
        return offset, value, op

    for number, segment in enumerate(log.segments):
        rows = read_parquet(path / segment.paths["operations"], _LAID_OUT)
        first, last, records = (integers(rows, name, -1) for name in ("first", "last", "records"))
        ops = integers(rows, "op", NULL)
        held = np.flatnonzero(records > 0)
        before = number
        while before and len(held) and log.segments[before].low > first[held].min():
            before -= 1  # a read that began in an earlier segment
        offset, value, op = (np.concatenate(each) for each in zip(*map(load, range(before, number + 1)), strict=True))
        low, high = (np.searchsorted(offset, each) for each in (first[held], last[held] + 1))
        # Where the log holds each offset of its range once, and as many as it returned, these are its records.
        again = np.concatenate(([0], np.cumsum(np.append(False, offset[1:] == offset[:-1]))))[: len(offset) + 1]
        clean = (high - low == records[held]) & (again[high] == again[np.minimum(low + 1, high)])
        counts = (high - low)[clean]
        at = np.repeat(low[clean] - (np.cumsum(counts) - counts), counts) + np.arange(int(counts.sum()))
        parts = [(np.repeat(ops[held[clean]], counts), offset[at], value[at])]
        for row, start, end in zip(*(each[~clean].tolist() for each in (held, low, high)), strict=True):
            mine = int(ops[row])
            own = _own(offset[start:end], value[start:end], op[start:end], mine=mine, records=int(records[row]))
            parts.append((np.full(len(own[0]), mine), *own))
        found = [np.concatenate(each) for each in zip(*parts, strict=True)]
        reads = pa.table(dict(zip(("op", "offset", "value"), found, strict=True)), schema=_READS)
        size = rows.num_rows
        columns_ = {name: rows[name] for name in _LAID_OUT.names if name in OPERATIONS.names}
        columns_ |= {
            "run": pa.nulls(size, compact(OPERATIONS).field("run").type),
            "topic": pa.DictionaryArray.from_arrays(pa.array(np.zeros(size, np.int32)), pa.array([log.topic])),
            "partition": pa.array(np.full(size, log.partition, np.int32)),
        }
        yield pa.table({name: columns_[name] for name in OPERATIONS.names}).cast(compact(OPERATIONS)), reads


def _own(offset: Ints, value: Ints, op: Ints, *, mine: int, records: int) -> tuple[Ints, Ints]:
    """Of each offset one row, that of the read itself if it has one; of a read that left out some, the middle goes."""
    order = np.lexsort((op != mine, offset))
    offset, value = offset[order], value[order]
    kept = np.append(True, offset[1:] != offset[:-1]) if len(offset) else np.empty(0, bool)
    offset, value = offset[kept], value[kept]
    surplus = len(offset) - records
    if surplus > 0 and records > 1:
        offset, value = (np.delete(column, np.s_[1 : 1 + surplus]) for column in (offset, value))
    return offset, value


def _render(operations: pa.Table, reads: pa.Table, notation: Notation, end: int) -> Iterator[pa.Table]:
    """A row a request: consecutive appends of one batch are one."""
    operations = operations.unify_dictionaries().combine_chunks()
    order = np.argsort(integers(operations, "op", NULL), kind="stable")
    operations = operations.take(pa.array(order)).combine_chunks()
    of_read, offset, value = (integers(reads, name, NULL) for name in ("op", "offset", "value"))
    order = np.argsort(of_read, kind="stable")
    records = of_read[order], offset[order], value[order]
    starts = _batches(operations)
    ends = np.append(starts[1:], operations.num_rows) if len(starts) else starts
    # Requests of some rows and records at once: their texts are to fit into one column.
    lows, highs = (np.searchsorted(records[0], integers(operations, "op", NULL)[starts], side)
                   for side in ("left", "right"))  # fmt: skip
    weight = np.cumsum(ends - starts + (highs - lows)) // OPERATIONS_AT_ONCE
    for part in np.split(np.arange(len(starts)), np.flatnonzero(weight[1:] != weight[:-1]) + 1):
        if len(part):
            bounds = starts[part], ends[part], lows[part], highs[part]
            yield _render_requests(operations, records, bounds, notation, end)


def _render_requests(
    operations: pa.Table,
    records: tuple[Ints, Ints, Ints],
    bounds: tuple[Ints, Ints, Ints, Ints],
    notation: Notation,
    end: int,
) -> pa.Table:
    """bounds: of each request its rows in `operations`, from and to, and those of what it read in `records`."""
    starts, ends, lows, highs = bounds
    rows = operations.slice(int(starts[0]), int(ends[-1] - starts[0]))
    starts, ends = starts - starts[0], ends - starts[0]
    firsts = rows.take(pa.array(starts)).combine_chunks()
    high = int(highs.max())
    low = int(lows[highs > lows].min()) if (highs > lows).any() else high
    _, read_offset, read_value = (column[low:high] for column in records)
    kind, outcome = _text(firsts, "kind"), _text(firsts, "outcome")
    append, ok = equals(firsts, "kind", "append"), equals(firsts, "outcome", "ok")
    lists_offsets = equals(firsts, "kind", "list_offsets")
    gap, offset = notation.gap, integers(firsts, "offset", NULL)
    topic = transformed(_text(firsts, "topic"), notation.value)
    log = join("[", topic, gap, numbers(integers(firsts, "partition", NULL)), gap)

    values = integers(rows, "value", NULL)
    batch = join("[", lists(numbers(values), starts, ends, gap), "]")
    asked = pick(append, batch, notation.nothing)
    acknowledged = _pairs(integers(rows, "offset", NULL), values, starts, ends, notation)
    returned = _pairs(read_offset, read_value, np.clip(lows - low, 0, None), np.clip(highs - low, 0, None), notation)
    end_of_log = pick(offset == NULL, notation.nothing, numbers(offset))
    done = pick(append, acknowledged, pick(lists_offsets, end_of_log, returned))
    reported = join(log, asked, "]"), join(log, pick(ok, done, asked), "]")

    of_offset = equals(firsts, "kind", "read") | equals(firsts, "kind", "final_read")
    of_offset |= equals(firsts, "kind", "delete_records")
    where = _optional("offset", np.where(of_offset, offset, NULL), notation)
    more = [
        _optional("high-watermark", integers(firsts, "high_watermark", NULL), notation),
        _optional("leader-epoch", integers(firsts, "leader_epoch", NULL), notation),
        where,
        errors(firsts, notation),
    ]
    f = transformed(kind, lambda text: _F.get(str(text), str(text)))
    texts = fields(notation, f, outcome, reported, (where, join(*more)))
    columns = {name: integers(firsts, name, NULL) for name in ("op", "process", "invoke", "complete")}
    return operations_of(columns, outcome, texts, end)


def _text(rows: pa.Table, column: str) -> pa.Array:
    return rows[column].cast(pa.string()).combine_chunks()


def _optional(name: str, values: Ints, notation: Notation) -> pa.Array:
    """A field of those that have it."""
    return pick(values == NULL, "", join(notation.more(name), numbers(values)))


def _pairs(offset: Ints, value: Ints, lows: Ints, highs: Ints, notation: Notation) -> pa.Array:
    at = pick(offset == NULL, notation.nothing, numbers(offset))
    return join("[", lists(join("[", at, notation.gap, numbers(value), "]"), lows, highs, notation.gap), "]")


def _batches(operations: pa.Table) -> Ints:
    """The first row of each request."""
    if not operations.num_rows:
        return np.empty(0, np.int64)
    names = ("op", "process", "partition", "invoke", "complete", "leader_epoch", "offset")
    numbers_ = {name: integers(operations, name, NULL) for name in names}
    append = equals(operations, "kind", "append")
    same = append[1:] & append[:-1] & (numbers_["op"][1:] == numbers_["op"][:-1] + 1)
    for name in names[1:-1]:
        same &= numbers_[name][1:] == numbers_[name][:-1]
    offset = numbers_["offset"]
    same &= (offset[1:] == offset[:-1] + 1) | ((offset[1:] == NULL) & (offset[:-1] == NULL))
    for name in ("topic", "outcome", "error"):
        column = _codes(operations, name)
        same &= column[1:] == column[:-1]
    starts: Ints = np.flatnonzero(np.append(True, ~same))
    return starts


def _codes(operations: pa.Table, column: str) -> Any:
    """Which of its texts each row has; -1: null."""
    chunks = operations[column].chunks
    return categories(chunks[0])[1] if chunks else np.empty(0, np.int32)
