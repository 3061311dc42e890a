"""A run of ours as Jepsen would have written it: EDN or JSON lines, an event a line, in the order of time.

Registers: :f :read, :write, :cas (value [old new]); where there are several registers, values are [key value], as of
jepsen.independent. Other objects: their own :f, with :key. Transactions: :f :txn (:send, :poll where it is only that)
of micro-operations, as Elle and Jepsen's kafka workload have them. Logs: see logs.py. Faults are operations of
:nemesis, and its first one, :plan, tells what of the plan checkers need, so that the export gets the run's verdict.

Events of the same time: invocations come before completions, for operations that touch are concurrent. A Jepsen process
has one operation at a time and ends with an `info`: see lanes.py. Every operation that may have taken effect has a
completion, as in Jepsen: one of which none is on record is an `info` at the end of the history.

A history of any size is exported in bounded memory: its operations become events, as texts, in files of some span of
time each; these are sorted one after the other. Texts are made in columns (notation.py).
"""

from __future__ import annotations

import gzip
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from io import BufferedIOBase
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from spark_history.files import Bools, Ints, integers, nullable, read_row_groups
from spark_history.jepsen.events.edn import Keyword
from spark_history.jepsen.export.lanes import NEMESIS, Lanes
from spark_history.jepsen.export.notation import Notation, choose, join, numbers, pick, transformed
from spark_history.jepsen.operations import NULL
from spark_history.regular import replacing
from spark_history.schema import OPERATIONS

EVENTS_IN_MEMORY: Final = 1 << 20
EVENTS_AT_ONCE: Final = 1 << 17
#: How files that are soon read again are written: texts that are all different, so quickly.
SCRATCH: Final[Mapping[str, Any]] = {"compression": "lz4", "use_dictionary": False, "write_statistics": False}
#: So many operations become texts at once.
OPERATIONS_AT_ONCE: Final = 1 << 17

#: An operation: its invocation and, if there is one, its completion, as text without :index, :time and :process.
OPERATION: Final = pa.schema(
    [
        ("op", pa.int64()),
        ("process", pa.int32()),  # null: the nemesis
        ("invoke", pa.int64()),
        ("complete", pa.int64()),
        ("done", pa.bool_()),  # whether the process is free then: it is not after an info
        ("invocation", pa.string()),
        ("completion", pa.string()),
    ]
)


@dataclass
class Texts:
    """The texts of some operations, a row each."""

    before: pa.Array  # the fields of the invocation
    after: pa.Array  # of the completion


def operations_of(columns: Mapping[str, Ints], outcome: pa.Array, texts: Texts, end: int) -> pa.Table:
    """OPERATION rows. columns: op, process, invoke and complete (NULL: none on record) of each. end: when the history
    ended. What has no completion and may have taken effect is completed then, as Jepsen completes it: a checker that
    finds no completion would take it that it never happened."""
    complete = columns["complete"]
    done = pc.not_equal(outcome, "info").to_numpy(zero_copy_only=False)
    ok = pc.equal(outcome, "ok").to_numpy(zero_copy_only=False)
    complete = np.where((complete == NULL) & ~ok, end, complete)
    there = complete != NULL
    found = {
        "op": pa.array(columns["op"]),
        "process": nullable(columns["process"], NEMESIS).cast(pa.int32()),
        "invoke": pa.array(columns["invoke"]),
        "complete": nullable(complete, NULL),
        "done": pa.array(done),
        "invocation": texts.before,
        "completion": texts.after if there.all() else pick(there, texts.after, pa.scalar(None, pa.string())),
    }
    return pa.table(found, schema=OPERATION)


def fields(
    notation: Notation,
    f: pa.Array,
    outcome: pa.Array,
    values: tuple[pa.Array, pa.Array],
    more: tuple[Any, Any] = ("", ""),
) -> Texts:
    """f: Jepsen's :f. values, more: of the invocation and of the completion; more: further fields, as texts."""
    kinds, outcomes = f.dictionary_encode(), outcome.dictionary_encode()
    names, words = kinds.dictionary.to_pylist(), outcomes.dictionary.to_pylist()
    codes, of_outcome = (each.indices.to_numpy(zero_copy_only=False).astype(np.int64) for each in (kinds, outcomes))
    before = choose([notation.head("invoke", name) for name in names], codes)
    heads = [notation.head(word, name) for name in names for word in words]
    after = choose(heads, codes * len(words) + of_outcome)
    return Texts(join(before, values[0], more[0]), join(after, values[1], more[1]))


def errors(table: pa.Table, notation: Notation) -> pa.Array:
    """The field :error of each row that has one, as a text."""
    name = notation.more("error")
    column = table["error"].combine_chunks()
    return transformed(column, lambda text: "" if text is None else f"{name}{notation.value(text)}")


def write_events(path: Path, operations: Iterator[pa.Table], notation: Notation, processes: int) -> int:
    """Write OPERATION rows, in any order, as events in the order of time; how many events.

    path: its name ends in .gz: gzipped. processes: one more than the highest number. Raises OSError.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    lanes = Lanes(max(processes, 1))
    count = 0
    with tempfile.TemporaryDirectory(prefix="chaos-export-", dir=path.parent) as scratch, ExitStack() as stack:
        temporary = stack.enter_context(replacing(path))
        out = stack.enter_context(_open(temporary, gzipped=path.suffix == ".gz"))
        for part in _in_order(operations, Path(scratch)):
            part = part.combine_chunks()
            time, is_end, row = _events(part)
            op, process = (integers(part, name, NEMESIS) for name in ("op", "process"))
            done = part["done"].to_numpy(zero_copy_only=False)
            who = lanes.processes(op, process, done, row, is_end)
            chunks = (*part["invocation"].chunks, *part["completion"].chunks)
            texts = pa.concat_arrays([chunk.cast(pa.large_string()) for chunk in chunks])  # may be more than 2 GiB
            place = row + is_end * len(op)
            for low in range(0, len(row), EVENTS_AT_ONCE):
                some = slice(low, low + EVENTS_AT_ONCE)
                said = texts.take(pa.array(place[some])).cast(pa.string())
                _write_lines(
                    out, notation, np.arange(count + low, count + low + len(said)), time[some], who[some], said
                )
            count += len(row)
    return count


def _write_lines(out: BufferedIOBase, notation: Notation, index: Ints, time: Ints, who: Ints, said: pa.Array) -> None:
    name = "nemesis" if not notation.has_keywords else Keyword("nemesis")
    process = pick(who == NEMESIS, notation.value(name), numbers(who))
    first, second, third, fourth, last = notation.line
    lines = join(first, numbers(index), second, numbers(time), third, process, fourth, said, last)
    for chunk in lines.chunks if isinstance(lines, pa.ChunkedArray) else [lines]:
        # The texts of a column lie one after the other.
        ends = np.frombuffer(chunk.buffers()[1], np.int32)[chunk.offset : chunk.offset + len(chunk) + 1]
        out.write(memoryview(chunk.buffers()[2])[int(ends[0]) : int(ends[-1])])


def _open(path: Path, *, gzipped: bool) -> BufferedIOBase:
    return gzip.open(path, "wb", compresslevel=5) if gzipped else path.open("wb")


def _events(operations: pa.Table) -> tuple[Ints, Bools, Ints]:
    """Time, whether it is a completion, and the row, of the events that these rows hold, in their order."""
    times, ends, rows = [], [], []
    for name, text, end in (("invoke", "invocation", False), ("complete", "completion", True)):
        there = np.flatnonzero(operations[text].is_valid().to_numpy())
        times.append(operations[name].fill_null(0).to_numpy()[there])
        ends.append(np.full(len(there), end))
        rows.append(there)
    time, end_, row = (np.concatenate(parts) for parts in (times, ends, rows))
    order = np.lexsort((operations["op"].to_numpy()[row], end_, time))
    return time[order], end_[order], row[order]


def _in_order(operations: Iterator[pa.Table], scratch: Path) -> Iterator[pa.Table]:
    """OPERATION rows such that all events of a table are before those of the next: an operation may stand in two, with
    its invocation in the first and its completion in the second."""
    held: list[pa.Table] = []
    for table in operations:
        held.append(table)
        if sum(each.num_rows for each in held) > EVENTS_IN_MEMORY // 2:
            break
    else:
        if held:
            yield pa.concat_tables(held)
        return
    spans = _Spans(scratch)
    for table in held:
        spans.add(table)
    held.clear()
    for table in operations:
        spans.add(table)
    yield from spans.in_order()


class _Spans:
    """Operations in files, each of a span of time that begins as the rows come in; cut up when it has grown too big."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._files = 0

    def add(self, operations: pa.Table) -> None:
        pq.write_table(operations, self._directory / f"{self._files:06}.parquet", **SCRATCH)
        self._files += 1

    def in_order(self) -> Iterator[pa.Table]:
        files = [self._directory / f"{number:06}.parquet" for number in range(self._files)]
        times = pa.schema([field for field in OPERATION if field.name in ("invoke", "complete")])
        samples, total = [], 0
        for file in files:
            for rows in read_row_groups(file, times):
                every = np.concatenate([rows[name].drop_null().to_numpy() for name in times.names])
                samples.append(every[::64])
                total += len(every)
        sample = np.sort(np.concatenate(samples))
        step = max(EVENTS_IN_MEMORY // 64, 1)
        cuts = np.unique(sample[step::step])
        with ExitStack() as stack:
            writers = [
                stack.enter_context(pq.ParquetWriter(self._span(number), OPERATION, **SCRATCH))
                for number in range(len(cuts) + 1)
            ]
            for file in files:
                for rows in read_row_groups(file, OPERATION):
                    for number, part in _cut(rows, cuts):
                        writers[number].write_table(part)
                file.unlink()
        for number in range(len(cuts) + 1):
            yield pq.read_table(self._span(number), schema=OPERATION)
            self._span(number).unlink()

    def _span(self, number: int) -> Path:
        return self._directory / f"span-{number:06}.parquet"


def _cut(rows: pa.Table, cuts: Ints) -> Iterator[tuple[int, pa.Table]]:
    """The rows by the span that their events are in; of one that begins and ends in different spans both halves."""
    invoke = np.searchsorted(cuts, rows["invoke"].to_numpy(), "right")
    ends = rows["completion"].is_valid().to_numpy()
    complete = np.where(ends, np.searchsorted(cuts, rows["complete"].fill_null(0).to_numpy(), "right"), -1)
    for number in np.unique(np.concatenate([invoke, complete[ends]])).tolist():
        begins, finishes = invoke == number, complete == number
        part = rows.filter(pa.array(begins | finishes))
        mine = begins | finishes
        for column, kept in (("invocation", begins[mine]), ("completion", finishes[mine])):
            place = part.schema.get_field_index(column)
            part = part.set_column(place, OPERATION.field(column), pc.if_else(pa.array(kept), part[column], None))
        yield number, part.cast(OPERATION)


def render_plan(
    plan: Mapping[str, Any], faults: Sequence[Mapping[str, Any]], origin: int, notation: Notation
) -> pa.Table:
    """The nemesis' operations: what the plan says, then each fault from its start to its end."""
    rows: dict[str, list[Any]] = {name: [] for name in OPERATION.names}

    def add(op: int, start: int, end: int | None, before: str, after: str | None) -> None:
        for column, value in zip(rows.values(), (op, None, start, end, False, before, after), strict=True):
            column.append(value)

    reported = {Keyword(name.replace("_", "-")): value for name, value in plan.items()}
    first = f"{notation.head('info', 'plan')}{notation.value(reported)}"
    add(-1, min([origin, *(fault["start"] for fault in faults)]), None, first, None)
    for fault in faults:
        names = ("fault", "targets", "effective", "evidence")
        value = notation.value({Keyword(name): fault[name] for name in names})
        start = notation.head("info", f"start-{fault['nemesis']}") + value
        value = notation.value({Keyword("fault"): fault["fault"]})
        stop = notation.head("info", f"stop-{fault['nemesis']}") + value
        end = fault["end"]
        add(fault["fault"], fault["start"], end, start, None if end is None else stop)
    return pa.table(rows, schema=OPERATION)


@dataclass(frozen=True)
class Survey:
    """Of all operations. processes: one more than the highest number; origin, end: the first and the last time, 0:
    there is no operation."""

    processes: int
    origin: int
    end: int


def survey_files(paths: Iterable[Path]) -> Survey:
    """Raises HistoryError."""
    processes, times = 0, []
    for path in paths:
        for rows in read_row_groups(path, _SURVEY):
            if rows.num_rows:
                processes = max(processes, (pc.max(rows["process"]).as_py() or 0) + 1)
                times += [pc.min(rows["invoke"]).as_py() or 0, pc.max(rows["invoke"]).as_py() or 0]
                times.append(pc.max(rows["complete"]).as_py() or times[-1])
    return Survey(processes, min(times, default=0), max(times, default=0))


_SURVEY: Final = pa.schema([OPERATIONS.field(name) for name in ("process", "invoke", "complete")])
