"""Runs of logs as operations of a Jepsen history (see logs.py for the form): from the journal, or, of a generated run,
from the history as it is laid out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_history.files import HistoryError, Ints, categories, compact, integers, read_parquet
from spark_history.ingest import History, Journal, LogHistory, find_journal, last_of_each, open_laid_out
from spark_history.jepsen.export import Notation, Rendered, survey_files
from spark_history.schema import FAULTS, LAID_OUT_OPERATIONS, LAID_OUT_READS, OPERATIONS, READS, TABLES

NULL: Final = int(np.iinfo(np.int64).min)
#: A journal of fewer rows is taken as a whole, so that a record finds its read wherever that is.
_WHOLE: Final = 2_000_000
_READS: Final = pa.schema([READS.field(name) for name in ("op", "offset", "value")])
_LAID_OUT: Final = pa.schema([each for each in LAID_OUT_OPERATIONS if each.name not in ("topic", "partition", "run")])
_F: Final = {"append": "append", "read": "read", "list_offsets": "list-offsets", "final_read": "final-read"}


def render_log(directory: Path, notation: Notation) -> Iterator[pa.Table]:
    """OPERATION rows of the run in `directory`. Raises HistoryError."""
    if (directory / "journal").is_dir():
        for operations, reads in _journal(directory):
            yield _render(operations, reads, notation)
        return
    history = _history(directory)
    for log in history.logs:
        for operations, reads in _laid_out(history.path, log):
            yield _render(operations, reads, notation)


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


def survey(directory: Path) -> tuple[int, int]:
    """How many processes there are at most, and when the first operation was invoked (0: there is none)."""
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

    @lru_cache(maxsize=2)
    def load(number: int) -> tuple[Ints, Ints, Ints]:
        rows = read_parquet(path / log.segments[number].paths["reads"], LAID_OUT_READS)
        offset, value, op = (integers(rows, name, NULL) for name in ("offset", "value", "op"))
        return offset, value, op

    for number, segment in enumerate(log.segments):
        rows = read_parquet(path / segment.paths["operations"], _LAID_OUT)
        first, last, records = (integers(rows, name, -1) for name in ("first", "last", "records"))
        ops = integers(rows, "op", NULL)
        parts: list[tuple[int, Ints, Ints]] = []
        for row in np.flatnonzero(records > 0).tolist():
            found = []
            for before in range(number, -1, -1):
                offset, value, op = load(before)
                low, high = np.searchsorted(offset, [first[row], last[row] + 1])
                found.append((offset[low:high], value[low:high], op[low:high]))
                if log.segments[before].low <= first[row]:
                    break
            columns = [np.concatenate([part[i] for part in reversed(found)]) for i in range(3)]
            parts.append((int(ops[row]), *_own(*columns, mine=int(ops[row]), records=int(records[row]))))
        reads = pa.table(
            {
                "op": np.repeat([part[0] for part in parts], [len(part[1]) for part in parts]).astype(np.int64),
                "offset": np.concatenate([np.empty(0, np.int64), *(part[1] for part in parts)]),
                "value": np.concatenate([np.empty(0, np.int64), *(part[2] for part in parts)]),
            },
            schema=_READS,
        )
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


def _render(operations: pa.Table, reads: pa.Table, notation: Notation) -> pa.Table:
    """A row a request: consecutive appends of one batch are one."""
    operations = operations.unify_dictionaries().combine_chunks()
    operations = operations.take(pa.array(np.argsort(integers(operations, "op", NULL), kind="stable")))
    names = ("op", "process", "partition", "value", "invoke", "complete", "offset", "high_watermark", "leader_epoch")
    numbers = {name: integers(operations, name, NULL) for name in names}
    texts = {name: _texts(operations, name) for name in ("kind", "topic", "outcome", "error")}
    of_read, read_offset, read_value = (integers(reads, name, NULL) for name in ("op", "offset", "value"))
    order = np.argsort(of_read, kind="stable")
    of_read, read_offset, read_value = of_read[order], read_offset[order], read_value[order]

    starts = _batches(numbers, texts)
    ends = np.append(starts[1:], operations.num_rows) if len(starts) else starts
    lows, highs = (np.searchsorted(of_read, numbers["op"][starts], side) for side in ("left", "right"))
    rendered = Rendered()
    for start, end, low, high in zip(starts.tolist(), ends.tolist(), lows.tolist(), highs.tolist(), strict=True):
        row = {name: int(column[start]) for name, column in numbers.items()}
        kind, topic, outcome, error = (names_[int(codes[start])] for names_, codes in texts.values())
        values, offsets = numbers["value"][start:end], numbers["offset"][start:end]
        log = (notation.value(topic), str(row["partition"]))

        def of_log(what: str, log: tuple[str, str] = log) -> str:
            return notation.vector([*log, what])

        more = _more(row, notation, offset=kind in ("read", "final_read"))
        asked = of_log(notation.vector(map(str, values.tolist())) if kind == "append" else notation.nothing)
        f = _F.get(str(kind), str(kind))
        before = notation.fields("invoke", f, asked, {name: more[name] for name in ("offset",) if name in more})
        after = None
        if row["complete"] != NULL:
            if outcome != "ok":
                value = asked
            elif kind == "append":
                value = of_log(_pairs(offsets, values, notation))
            elif kind == "list_offsets":
                value = of_log(notation.nothing if row["offset"] == NULL else str(row["offset"]))
            else:
                value = of_log(_pairs(read_offset[low:high], read_value[low:high], notation))
            if error is not None:
                more["error"] = notation.value(error)
            after = notation.fields(str(outcome), f, value, more)
        complete = None if row["complete"] == NULL else row["complete"]
        rendered.add(row["op"], row["process"], row["invoke"], complete, str(outcome), before, after)
    return rendered.table()


def _more(row: Mapping[str, int], notation: Notation, *, offset: bool) -> dict[str, str]:
    names = {"high-watermark": "high_watermark", "leader-epoch": "leader_epoch"} | (
        {"offset": "offset"} if offset else {}
    )
    return {name: notation.value(row[column]) for name, column in names.items() if row[column] != NULL}


def _pairs(offsets: Ints, values: Ints, notation: Notation) -> str:
    each = zip(offsets.tolist(), values.tolist(), strict=True)
    return notation.vector(notation.vector((notation.nothing if o == NULL else str(o), str(v))) for o, v in each)


def _batches(numbers: Mapping[str, Ints], texts: Mapping[str, tuple[list[Any], Any]]) -> Ints:
    """The first row of each request."""
    if not len(numbers["op"]):
        return np.empty(0, np.int64)
    names, codes = texts["kind"]
    append = codes == (names.index("append") if "append" in names else -2)
    same = append[1:] & append[:-1] & (numbers["op"][1:] == numbers["op"][:-1] + 1)
    for name in ("process", "partition", "invoke", "complete", "leader_epoch"):
        same &= numbers[name][1:] == numbers[name][:-1]
    offset = numbers["offset"]
    same &= (offset[1:] == offset[:-1] + 1) | ((offset[1:] == NULL) & (offset[:-1] == NULL))
    for _, column in texts.values():
        same &= column[1:] == column[:-1]
    starts: Ints = np.flatnonzero(np.append(True, ~same))
    return starts


def _texts(operations: pa.Table, column: str) -> tuple[list[Any], Any]:
    """The distinct texts and null, and which of them each row has."""
    chunks = operations[column].chunks
    names, codes = categories(chunks[0]) if chunks else ([], np.empty(0, np.int32))
    return [*names, None], codes  # a null's code is -1
