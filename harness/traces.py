"""Puts what the nodes told of themselves (cluster_image/trace.py) into a run's history.

In containers each node appends its lines to trace/<node>.jsonl of the run's directory: not on its own volume, which
loses what is not synced when its power is cut. In simulation the lines are in memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from harness.collected import Collected
from spark_history.schema import TRACE

#: As cluster_image.trace.TraceLines writes it. Compiled and run by Arrow, on all lines at once.
_LINE: Final = (
    r'^\{"time":(?P<time>\d+),"node":\d+,"event":"(?P<event>[^"\\]*)",'
    r'"where":"(?P<where>[^"\\]*)","fields":(?P<fields>\{.*\})\}$'
)
_WHERE: Final = r"^(?P<topic>.+)-(?P<partition>\d+)$"
SUFFIX: Final = ".jsonl"
#: Of one node's file, which is read into memory at once; a minute of a busy broker's is a few megabytes.
_MOST_BYTES: Final = 1 << 30


class TraceRecorder(Protocol):
    """The part of history.Recorder used here."""

    def add_rows(self, table: str, rows: Any) -> None: ...


@dataclass(frozen=True)
class Traces:
    rows: pa.Table  # TRACE but for `run`
    pieces: Sequence[Collected]  # a trace each


def read_traces(source: Path | Mapping[str, str]) -> Traces:
    """source: the folder of the files, which need not be there, or the text of each node's trace."""
    pieces: list[Collected] = []
    texts = dict(_texts(source, pieces)) if isinstance(source, Path) else source
    columns = TRACE.remove(TRACE.get_field_index("run"))
    parts = [columns.empty_table()]
    for node, text in sorted(texts.items()):
        rows, problem = _parse(node, text)
        parts.append(rows.cast(columns))
        pieces.append(Collected(node, "trace", rows.num_rows, problem))
    return Traces(pa.concat_tables(parts), pieces)


def record_traces(traces: Traces, recorder: TraceRecorder) -> list[Collected]:
    recorder.add_rows("trace", traces.rows)
    return list(traces.pieces)


def _texts(folder: Path, pieces: list[Collected]) -> list[tuple[str, str]]:
    texts = []
    for path in sorted(folder.glob(f"*{SUFFIX}")):
        node = path.name.removesuffix(SUFFIX)
        try:
            if (size := path.stat().st_size) > _MOST_BYTES:
                problem = f"the trace of {node} has {size:,} bytes, more than the {_MOST_BYTES:,} that are read"
                pieces.append(Collected(node, "trace", problem=problem))
                continue
            texts.append((node, path.read_text(errors="replace")))
        except OSError as error:
            pieces.append(Collected(node, "trace", problem=f"the trace of {node} cannot be read: {error}"))
    return texts


def _parse(node: str, text: str) -> tuple[pa.Table, str | None]:
    """Its rows, and why these are not all, as a sentence. Up to the first line that is none: what follows a gap in a
    trace may be misread. A last line without an end is being written, or its process was killed."""
    whole = text.rpartition("\n")[0]
    lines = whole.split("\n") if whole else []
    parsed = pc.extract_regex(pa.array(lines, pa.string()), pattern=_LINE)
    count, problem = len(lines), None
    if parsed.null_count:
        count = int(np.flatnonzero(pc.is_null(parsed).to_numpy(zero_copy_only=False))[0])
    if count < len(lines):
        problem = f"the trace of {node} is damaged at line {count + 1:,}; what follows is left out"
    parsed = parsed.slice(0, count)
    place = pc.extract_regex(parsed.field("where"), pattern=_WHERE)
    # What does not match is null, but its fields are empty texts.
    topic, partition = (pc.if_else(pc.is_valid(place), place.field(name), None) for name in ("topic", "partition"))
    rows = pa.table(
        {
            "node": pa.array([node], pa.string()).take(pa.array(np.zeros(count, np.int64))),
            "number": np.arange(count),
            "time": parsed.field("time").cast(pa.int64()),
            "event": parsed.field("event"),
            "topic": topic,
            "partition": partition.cast(pa.int32()),
            "fields": parsed.field("fields"),
        }
    )
    return rows, problem
