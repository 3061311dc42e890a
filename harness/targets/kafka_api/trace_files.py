"""Puts what the nodes told of themselves (cluster_image/telemetry/trace.py) into a run's history.

In containers each node appends its lines to trace/<node>.jsonl of the run's directory: not on its own volume, which
loses what is not synced when its power is cut. In simulation the lines are in memory.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from harness.record.collected import Collected, why
from harness.targets.target import TRACE_SUFFIX, Recorder
from spark_history.schema import TRACE

#: As cluster_image.telemetry.trace.TraceLines writes it. Compiled and run by Arrow, on all lines at once.
_LINE: Final = (
    r'^\{"time":(?P<time>\d{1,18}),"node":\d+,"event":"(?P<event>[^"\\]*)",'
    r'"where":"(?P<where>[^"\\]*)","fields":(?P<fields>\{.*\})\}$'
)
_WHERE: Final = r"^(?P<topic>.+)-(?P<partition>\d{1,9})$"
#: Of one node's file; a minute of a busy broker's is a few megabytes.
_MOST_BYTES: Final = 1 << 30
#: Read at a time: lines take up to 40 times as much memory while they are parsed.
_BLOCK_BYTES: Final = 1 << 22
_LONGEST_LINE: Final = 1 << 24
_COLUMNS: Final = TRACE.remove(TRACE.get_field_index("run"))


@dataclass(frozen=True)
class Traces:
    rows: pa.Table  # TRACE but for `run`
    pieces: Sequence[Collected]  # a trace each


def read_traces(source: Path | Mapping[str, str]) -> Traces:
    """source: the folder of the files, which need not be there, or the text of each node's trace."""
    if isinstance(source, Path):
        by_node = {path.name.removesuffix(TRACE_SUFFIX): _blocks(path) for path in source.glob(f"*{TRACE_SUFFIX}")}
    else:
        by_node = {node: iter([text.rpartition("\n")[0]]) for node, text in source.items()}
    pieces: list[Collected] = []
    parts = [_COLUMNS.empty_table()]
    for node, blocks in sorted(by_node.items()):
        count, problem = 0, None
        try:
            for text in blocks:
                rows, whole = _parse(node, text, count)
                parts.append(rows.cast(_COLUMNS))
                count += rows.num_rows
                if not whole:
                    problem = f"the trace of {node} is damaged at line {count + 1:,}; what follows is left out"
                    break
        except _TooMuch as error:
            problem = f"the trace of {node} {error}"
        except Exception as error:  # whatever a node may have written: it must not cost what others left
            problem = f"the trace of {node} cannot be read: {why(error)}"
        pieces.append(Collected(node, "trace", count, problem))
    return Traces(pa.concat_tables(parts), pieces)


def record_traces(traces: Traces, recorder: Recorder) -> list[Collected]:
    recorder.add_rows("trace", traces.rows)
    return list(traces.pieces)


class _TooMuch(Exception):
    """A clause that says how much."""


def _blocks(path: Path) -> Iterator[str]:
    """Its lines, many at a time, without the end of the last. A last line without an end is being written, or its
    process was killed. Raises _TooMuch, OSError."""
    with path.open("rb") as file:
        if (size := os.fstat(file.fileno()).st_size) > _MOST_BYTES:
            raise _TooMuch(f"has {size:,} bytes, more than the {_MOST_BYTES:,} that are read")
        rest = b""
        while block := file.read(_BLOCK_BYTES):
            lines, end, last = block.rpartition(b"\n")
            if end:
                yield (rest + lines).decode(errors="replace")
                rest = last
            else:
                rest += last
            if len(rest) > _LONGEST_LINE:
                raise _TooMuch(f"has a line of more than {_LONGEST_LINE:,} bytes")


def _parse(node: str, text: str, first: int) -> tuple[pa.Table, bool]:
    """Its rows, and whether these are all. Up to the first line that is none: what follows a gap in a trace may be
    misread. text: whole lines, the first of them the trace's number `first`; empty: none."""
    lines = text.split("\n") if text or first else []
    parsed = pc.extract_regex(pa.array(lines, pa.string()), pattern=_LINE)
    count = len(lines)
    if parsed.null_count:
        count = int(np.flatnonzero(pc.is_null(parsed).to_numpy(zero_copy_only=False))[0])
    parsed = parsed.slice(0, count)
    place = pc.extract_regex(parsed.field("where"), pattern=_WHERE)
    # What does not match is null, but its fields are empty texts.
    topic, partition = (pc.if_else(pc.is_valid(place), place.field(name), None) for name in ("topic", "partition"))
    rows = pa.table(
        {
            "node": pa.array([node], pa.string()).take(pa.array(np.zeros(count, np.int64))),
            "number": np.arange(first, first + count),
            "time": parsed.field("time").cast(pa.int64()),
            "event": parsed.field("event"),
            "topic": topic,
            "partition": partition.cast(pa.int32()),
            "fields": parsed.field("fields"),
        }
    )
    return rows, count == len(lines)
