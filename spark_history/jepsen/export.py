"""A run of ours as Jepsen would have written it: EDN or JSON lines, an event a line, in the order of time.

Registers: :f :read, :write, :cas (value [old new]); where there are several registers, values are [key value], as of
jepsen.independent. Other objects: their own :f, with :key. Transactions: :f :txn (:send, :poll where it is only that)
of micro-operations, as Elle and Jepsen's kafka workload have them. Logs: see logs.py. Faults are operations of
:nemesis, and its first one, :plan, tells what of the plan checkers need, so that the export gets the run's verdict.

Events of the same time: invocations come before completions, for operations that touch are concurrent. A Jepsen process
has one operation at a time and ends with an `info`; an operation whose process is not free goes to another one, whose
number is higher by a multiple of the number of processes.

A history of any size is exported in bounded memory: its operations become events, rendered, in files of some span of
time each; these are sorted one after the other.
"""

from __future__ import annotations

import gzip
import json
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from heapq import heappop, heappush
from pathlib import Path
from typing import Any, Final, Protocol, TextIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from spark_history.files import Ints, read_parquet, read_row_groups, replacing, write_parquet
from spark_history.jepsen import edn
from spark_history.jepsen.edn import Keyword
from spark_history.jepsen.plain import to_json
from spark_history.schema import OPERATIONS

EVENTS_IN_MEMORY: Final = 1 << 20

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


class Notation(Protocol):
    """How an event is written."""

    nothing: str  # nil
    has_keywords: bool  # and all that EDN has

    def vector(self, items: Iterable[str]) -> str: ...

    def map(self, items: Mapping[str, str]) -> str: ...

    def fields(self, type_: str, f: str, value: str | None, more: Mapping[str, str]) -> str:
        """All but index, time and process. value and more: as value() gives them."""

    def value(self, value: Any) -> str: ...

    def line(self, index: int, time: int, process: int | None, fields: str) -> str: ...


class Edn:
    nothing = "nil"
    has_keywords = True

    def vector(self, items: Iterable[str]) -> str:
        return f"[{' '.join(items)}]"

    def map(self, items: Mapping[str, str]) -> str:
        return f"{{{', '.join(f'{key} {value}' for key, value in items.items())}}}"

    def fields(self, type_: str, f: str, value: str | None, more: Mapping[str, str]) -> str:
        rest = "".join(f", :{name} {text}" for name, text in more.items())
        return f":type :{type_}, :f :{f}, :value {value or 'nil'}{rest}"

    def value(self, value: Any) -> str:
        return edn.write(value)

    def line(self, index: int, time: int, process: int | None, fields: str) -> str:
        who = ":nemesis" if process is None else process
        return f"{{:index {index}, :time {time}, :process {who}, {fields}}}\n"


class JsonLines:
    nothing = "null"
    has_keywords = False

    def vector(self, items: Iterable[str]) -> str:
        return f"[{', '.join(items)}]"

    def map(self, items: Mapping[str, str]) -> str:
        named = ((key if key.startswith('"') else json.dumps(key), value) for key, value in items.items())
        return f"{{{', '.join(f'{key}: {value}' for key, value in named)}}}"

    def fields(self, type_: str, f: str, value: str | None, more: Mapping[str, str]) -> str:
        rest = "".join(f', "{name}": {text}' for name, text in more.items())
        return f'"type": "{type_}", "f": {json.dumps(f)}, "value": {value or "null"}{rest}'

    def value(self, value: Any) -> str:
        return to_json(value)

    def line(self, index: int, time: int, process: int | None, fields: str) -> str:
        who = '"nemesis"' if process is None else process
        return f'{{"index": {index}, "time": {time}, "process": {who}, {fields}}}\n'


NOTATIONS: Final[Mapping[str, Callable[[], Notation]]] = {"edn": Edn, "jsonl": JsonLines}


@dataclass
class Rendered:
    """Operations as they are rendered; rows of OPERATION."""

    rows: dict[str, list[Any]] = field(default_factory=lambda: {name: [] for name in OPERATION.names})

    def add(
        self,
        op: int,
        process: int | None,
        invoke: int,
        complete: int | None,
        outcome: str,
        before: str,
        after: str | None,
    ) -> None:
        """before, after: the fields of invocation and completion."""
        values = (op, process, invoke, complete, outcome != "info", before, after)
        for column, value in zip(self.rows.values(), values, strict=True):
            column.append(value)

    def __len__(self) -> int:
        return len(self.rows["op"])

    def table(self) -> pa.Table:
        return pa.table(self.rows, schema=OPERATION)


def write_events(path: Path, operations: Iterator[pa.Table], notation: Notation, processes: int) -> int:
    """Write OPERATION rows, in any order, as events in the order of time; how many events.

    path: its name ends in .gz: gzipped. processes: one more than the highest number. Raises OSError.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    processes_ = _Processes(max(processes, 1))
    count = 0
    with tempfile.TemporaryDirectory(prefix="chaos-export-", dir=path.parent) as scratch, ExitStack() as stack:
        temporary = stack.enter_context(replacing(path))
        out: TextIO = stack.enter_context(_open(temporary, gzipped=path.suffix == ".gz"))
        for part in _in_order(operations, Path(scratch)):
            time, is_end, row = _events(part)
            columns = [part[name].to_pylist() for name in ("op", "process", "done", "invocation", "completion")]
            lines = []
            for at, end, number in zip(time.tolist(), is_end.tolist(), row.tolist(), strict=True):
                op, process, done, before, after = (column[number] for column in columns)
                if process is not None:
                    process = processes_.complete(op, done) if end else processes_.invoke(op, process)
                lines.append(notation.line(count, at, process, after if end else before))
                count += 1
            out.writelines(lines)
    return count


def _open(path: Path, *, gzipped: bool) -> TextIO:
    return gzip.open(path, "wt", encoding="utf-8", compresslevel=5) if gzipped else path.open("w", encoding="utf-8")


class _Processes:
    """Which process of the export an operation is of."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._free: dict[int, list[int]] = {}  # lanes by process
        self._used: dict[int, int] = {}  # lanes so far
        self._of: dict[int, tuple[int, int]] = {}  # operations that have not completed: process and lane

    def invoke(self, op: int, process: int) -> int:
        free = self._free.get(process)
        if free:
            lane = heappop(free)
        else:
            lane = self._used.get(process, 0)
            self._used[process] = lane + 1
        self._of[op] = process, lane
        return process + lane * self._width

    def complete(self, op: int, done: bool) -> int:
        process, lane = self._of.pop(op)
        if done:
            heappush(self._free.setdefault(process, []), lane)
        return process + lane * self._width


def _events(operations: pa.Table) -> tuple[Ints, Any, Ints]:
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
        write_parquet(self._directory / f"{self._files:06}.parquet", operations)
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
                stack.enter_context(pq.ParquetWriter(self._directory / f"span-{number:06}.parquet", OPERATION))
                for number in range(len(cuts) + 1)
            ]
            for file in files:
                for rows in read_row_groups(file, OPERATION):
                    for number, part in _cut(rows, cuts):
                        writers[number].write_table(part)
                file.unlink()
        for number in range(len(cuts) + 1):
            path = self._directory / f"span-{number:06}.parquet"
            yield pq.read_table(path, schema=OPERATION)
            path.unlink()


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
    rendered = Rendered()
    told = {Keyword(name.replace("_", "-")): value for name, value in plan.items()}
    first = notation.fields("info", "plan", notation.value(told), {})
    rendered.add(-1, None, min([origin, *(fault["start"] for fault in faults)]), None, "info", first, None)
    for fault in faults:
        names = ("fault", "targets", "effective", "evidence")
        value = notation.value({Keyword(name): fault[name] for name in names})
        start = notation.fields("info", f"start-{fault['nemesis']}", value, {})
        stop = notation.fields(
            "info", f"stop-{fault['nemesis']}", notation.value({Keyword("fault"): fault["fault"]}), {}
        )
        end = fault["end"]
        rendered.add(fault["fault"], None, fault["start"], end, "info", start, None if end is None else stop)
    return rendered.table()


_SURVEY: Final = pa.schema([OPERATIONS.field("process"), OPERATIONS.field("invoke")])


def survey_files(paths: Iterable[Path]) -> tuple[int, int]:
    """How many processes there are at most, and when the first operation was invoked (0: there is none)."""
    processes, origins = 0, []
    for path in paths:
        rows = read_parquet(path, _SURVEY)
        if rows.num_rows:
            processes = max(processes, (pc.max(rows["process"]).as_py() or 0) + 1)
            origins.append(pc.min(rows["invoke"]).as_py() or 0)
    return processes, min(origins, default=0)
