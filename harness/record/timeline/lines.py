"""Merges what nodes logged and traced, faults, and what clients did, on the time line of a run."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import quote, unquote

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from harness.errors import BadArguments
from harness.record.timeline import clock, violations
from harness.record.timeline.faults import told_steps
from harness.record.timeline.nodes import Line, Span, log_lines, trace_lines
from harness.record.timeline.violations import Violation
from spark_history.regular import NotRegular, open_regular, read_object, require_regular
from spark_history.schema import FAULTS

Ints = npt.NDArray[np.int64]

#: What is shown on either side of a moment.
WINDOW_S: Final = 1.0
#: Operations of a moment; those that did not succeed come first, then the nearest.
MOST_OPERATIONS: Final = 100
ALL: Final[Span] = (-(1 << 62), 1 << 62)
_SHOWN: Final = (
    "process",
    "op",
    "kind",
    "topic",
    "partition",
    "value",
    "invoke",
    "complete",
    "outcome",
    "offset",
    "error",
)
_KINDS: Final = {
    "append": "append", "read": "read", "list_offsets": "end of log asked", "final_read": "final read",
    "delete_records": "deletion",
}  # fmt: skip


class Around(NamedTuple):
    """What is to be looked at. title: in words; spans: merged, monotonic ns; ops, where: what it is about, if that is
    known: operations and a partition."""

    title: str
    spans: list[Span]
    ops: frozenset[int] = frozenset()
    where: str = ""


@dataclass(frozen=True)
class RunTimeline:
    """Of the run in a directory, whatever of it there is; what is missing or damaged has no lines."""

    directory: Path
    second_zero: int | None = None  # None: to be found out

    @cached_property
    def verdict(self) -> dict[str, Any]:
        return self._object("verdict.json")

    @cached_property
    def run(self) -> dict[str, Any]:
        return self._object("run.json")

    def _object(self, name: str) -> dict[str, Any]:
        with suppress(OSError, ValueError):
            return read_object(self.directory / name)
        return {}

    @cached_property
    def origin(self) -> int:
        """Second 0: when the first operation was invoked, or what is nearest to it on record."""
        if self.second_zero is not None:
            return self.second_zero
        manifest = self._object("history/manifest.json")
        for known in (self.verdict.get("origin_ns"), manifest.get("origin"), self.run.get("workload_start_ns")):
            if isinstance(known, int) and known:
                return known
        starts = [fault["start"] for fault in self.faults]
        return min(starts) if starts else 0

    @cached_property
    def faults(self) -> list[dict[str, Any]]:
        """FAULTS rows that struck, in order, evidence parsed."""
        rows: list[dict[str, Any]] = []
        laid_out = sorted((self.directory / "history" / "faults").glob("*.parquet"))
        for path in laid_out or sorted((self.directory / "journal").glob("faults-*.parquet")):
            with suppress(OSError, ValueError, pa.ArrowException), open_regular(path) as file:
                table = pq.ParquetFile(pa.BufferReader(file.read())).read(use_threads=False)
                rows += table.select([name for name in FAULTS.names if name in table.column_names]).to_pylist()
        found = []
        for row in rows:
            with suppress(ValueError, TypeError):
                row["evidence"] = json.loads(row["evidence"] or "{}")
                if isinstance(row["evidence"], dict) and row.get("start") is not None:
                    found.append(row)
        return sorted(found, key=lambda row: (row["start"], row["fault"]))

    @cached_property
    def violations(self) -> list[Violation]:
        return violations.read(self.directory)

    @cached_property
    def nodes(self) -> list[str]:
        """That left a log or a trace."""
        paths = [*self.directory.glob("logs/*.log"), *self.directory.glob("trace/*.jsonl")]
        return sorted({path.stem for path in paths})

    @cached_property
    def wall_clock(self) -> clock.WallClock | None:
        return clock.wall_clock(self.directory, self.run)

    # -- what to look at -----------------------------------------------------------------------------------------------

    def around(self, what: str, window_s: float = WINDOW_S) -> Around:
        """what: a violation (3, V3), a fault (F2) or a time in seconds (5.8, 12s). Raises BadArguments."""
        if found := re.fullmatch(r"[Vv#]?(\d{1,9})", what):
            number = int(found[1])
            if not 1 <= number <= len(self.violations):
                there = f"V1 to V{len(self.violations)}" if self.violations else "none"
                raise BadArguments(
                    f"there is no violation {number} in this run; there are: {there} (a time is given as {what}s)"
                )
            return self.of_violation(self.violations[number - 1], window_s)
        if found := re.fullmatch(r"[Ff](\d{1,9})", what):
            fault = next((each for each in self.faults if each["fault"] == int(found[1])), None)
            if fault is None:
                raise BadArguments(f"there is no fault {what} in this run")
            ends = [time for time in (fault["start"], fault["end"]) if time is not None]
            return Around(f"fault F{fault['fault']}, {fault['nemesis']}", _spans(ends, window_s))
        if found := re.fullmatch(r"(-?\d{1,12}(?:\.\d{1,9})?)\s*s?", what):
            at = self.origin + int(float(found[1]) * 1e9)
            return Around(f"{found[1]} s", _spans([at], window_s))
        raise BadArguments(f"--around {what!r}: give a violation (V3), a fault (F2) or a time in seconds (12.5s)")

    def of_violation(self, violation: Violation, window_s: float = WINDOW_S) -> Around:
        """When its operations took place, and when the faults struck that are known to have caused it."""
        times = [time for span in violation.spans() for time in span]
        times += [fault["start"] for fault in self.faults if fault["fault"] in self.causes(violation)]
        if not times and (violated := self.verdict.get("judged_until_s")) is not None and violation.offset is None:
            times = [self.origin + int(violated * 1e9)]
        title = f"{violation.name}: {violation.message}"
        return Around(title, _spans(times, window_s), frozenset(violation.ops), violation.where)

    def causes(self, violation: Violation) -> list[int]:
        """Faults that took what it is about, by the verdict's attribution."""
        found = []
        groups = self.verdict.get("attribution")
        for group in groups if isinstance(groups, list) else ():
            with suppress(AttributeError, KeyError, TypeError, ValueError):
                ranges = group["partitions"].get(violation.where) or []
                offset = violation.offset
                inside = offset is not None and any(first <= offset <= last for first, last in ranges)
                if inside and group["fault"] is not None:
                    found += [int(group["fault"])]
        return found

    # -- lines ---------------------------------------------------------------------------------------------------------

    def lines(
        self,
        spans: Sequence[Span],
        *,
        nodes: Collection[str] | None = None,
        ops: Collection[int] = (),
        where: str = "",
        operations: bool = True,
        most_operations: int = MOST_OPERATIONS,
    ) -> list[Line]:
        """In order of time. nodes: only what these say, and faults; None: all. ops: operations that are to be among
        those shown; where: only operations on this partition."""
        shifts = clock.shifts(self.faults)
        found: list[Line] = []
        for span in spans:
            for node in self.nodes:
                if nodes is not None and node not in nodes:
                    continue
                log = self.directory / "logs" / f"{node}.log"
                found += log_lines(log, span, self.wall_clock, shifts.get(node, ()))
                found += trace_lines(self.directory / "trace" / f"{node}.jsonl", span)
            found += [line for line in self._fault_lines() if span[0] <= line.time <= span[1]]
            if operations and nodes is None:
                found += self._operations(span, frozenset(ops), where, most_operations)
        return sorted(found, key=lambda line: line.time)

    def _fault_lines(self) -> Iterator[Line]:
        for fault in self.faults:
            name = f"F{fault['fault']} {fault['nemesis']}"
            whom = ", ".join(fault["targets"] or ()) or "nobody"
            if skipped := fault["evidence"].get("skipped"):
                yield Line(fault["start"], "", "fault", f"{name} did not strike: {skipped}")
                continue
            effect = "" if fault.get("effective") else " (no evidence of an effect)"
            yield Line(fault["start"], "", "fault", f"{name} strikes {whom}{effect}")
            for step in told_steps(fault["evidence"]):
                yield Line(fault["start"] + round(step.time * 1e9), "", "fault", f"{name}: {step.text}")
            if fault["end"] is not None:
                yield Line(fault["end"], "", "fault", f"{name} is healed ({whom})")
            if isinstance(again := fault["evidence"].get("in_sync_at"), int):
                yield Line(again, "", "fault", f"after {name} every replica is back in its ISR")

    def _operations(self, span: Span, ops: frozenset[int], where: str, most: int) -> list[Line]:
        rows = list(self._under_way(span, where))
        middle = (max(span[0], -(1 << 61)) + min(span[1], 1 << 61)) // 2
        rows.sort(key=lambda row: (row["op"] not in ops, row["outcome"] == "ok", abs(_ended(row) - middle)))
        found = [
            Line(_ended(row), "", "operation", _told(row), f"{row['topic']}-{row['partition']}") for row in rows[:most]
        ]  # fmt: skip
        if len(rows) > most:
            more = f"({len(rows) - most:,} more operations of this time are not shown)"
            found.append(Line(min(span[1], max(map(_ended, rows))), "", "operation", more))
        return found

    def _under_way(self, span: Span, where: str) -> Iterator[dict[str, Any]]:
        """Rows of OPERATIONS, in the span."""
        topic, _, partition = where.rpartition("-")
        folder = self.directory / "history" / "operations"
        mine = folder / f"topic={quote(topic, safe='')}" / f"partition={partition}"
        files = sorted(mine.glob("*.parquet") if where else folder.rglob("*.parquet"))
        for path in files or sorted((self.directory / "journal").glob("operations-*.parquet")):
            with suppress(OSError, NotRegular, pa.ArrowException, ValueError):
                require_regular(path)
                keys = dict(part.split("=", 1) for part in path.parent.parts if "=" in part)
                of_folder = {"topic": unquote(keys.get("topic", "")), "partition": int(keys.get("partition", -1))}
                with pq.ParquetFile(path) as file:
                    present = [name for name in _SHOWN if name in file.schema_arrow.names]
                    for number in range(file.metadata.num_row_groups):
                        if _apart(file.metadata.row_group(number), span):
                            continue
                        table = file.read_row_group(number, present, use_threads=False)
                        inside = (_integers(table, "invoke") <= span[1]) & (_integers(table, "complete") >= span[0])
                        for row in _taken(table, np.flatnonzero(inside)).to_pylist():
                            row = of_folder | row
                            if not where or where == f"{row['topic']}-{row['partition']}":
                                yield row


# Arrow imports pandas as soon as it is given anything of Python's or numpy's to compute with, to see what it is; that
# takes longer than all else that is done here, so it is given none.


def _integers(table: pa.Table, name: str) -> Ints:
    """A column of int64; a null is later than anything else."""
    parts = [np.empty(0, np.int64)]
    for chunk in table[name].chunks:
        valid, values = chunk.buffers()
        part = np.frombuffer(values, np.int64)[chunk.offset : chunk.offset + len(chunk)]
        if chunk.null_count:
            bits = np.unpackbits(np.frombuffer(valid, np.uint8), bitorder="little")
            part = np.where(bits[chunk.offset : chunk.offset + len(chunk)], part, ALL[1])
        parts.append(part)
    return np.concatenate(parts)


def _taken(table: pa.Table, rows: Ints) -> pa.Table:
    """Of these rows."""
    indices = pa.Array.from_buffers(pa.int64(), len(rows), [None, pa.py_buffer(rows.astype(np.int64))])
    return table.take(indices)


def _ended(row: Mapping[str, Any]) -> int:
    return int(row["invoke"] if row["complete"] is None else row["complete"])


def _apart(group: Any, span: Span) -> bool:
    """Is nothing of this row group in the span, by its statistics?"""
    for at in range(group.num_columns):
        column = group.column(at)
        known = column.statistics
        if known is None or not known.has_min_max:
            continue
        if column.path_in_schema == "invoke" and known.min > span[1]:
            return True
        if column.path_in_schema == "complete" and not known.null_count and known.max < span[0]:
            return True
    return False


def _told(row: Mapping[str, Any]) -> str:
    what = _KINDS.get(row["kind"], str(row["kind"]))
    value = f" of {row['value']}" if row["value"] is not None else ""
    at = f" at offset {row['offset']}" if row["offset"] is not None else ""
    took = "" if row["complete"] is None else f" after {(row['complete'] - row['invoke']) / 1e6:.1f} ms"
    how = {"ok": "ok", "fail": "failed", "info": "not known"}.get(row["outcome"], str(row["outcome"]))
    error = f" ({row['error']})" if row["error"] else ""
    return f"process {row['process']}, op {row['op']}: {what}{value}{at}: {how}{error}{took}"


def _spans(times: Sequence[int], window_s: float) -> list[Span]:
    """Around each, those that overlap as one."""
    window = int(window_s * 1e9)
    return merged([(time - window, time + window) for time in times])


def merged(spans: Sequence[Span]) -> list[Span]:
    """In order, those that overlap as one."""
    found: list[Span] = []
    for start, end in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((start, end))
    return found
