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

from spark_history.schema import TRACE

#: As cluster_image.trace.TraceLines writes it. Compiled and run by Arrow, on all lines at once.
_LINE: Final = (
    r'^\{"time":(?P<time>\d+),"node":\d+,"event":"(?P<event>[^"\\]*)",'
    r'"where":"(?P<where>[^"\\]*)","fields":(?P<fields>\{.*\})\}$'
)
_WHERE: Final = r"^(?P<topic>.+)-(?P<partition>\d+)$"
SUFFIX: Final = ".jsonl"


class TraceRecorder(Protocol):
    """The part of history.Recorder used here."""

    def add_rows(self, table: str, rows: Any) -> None: ...


@dataclass(frozen=True)
class Traces:
    rows: pa.Table  # TRACE but for `run`
    problems: Sequence[str]  # a sentence for each trace that could not be read to its end


def read_traces(source: Path | Mapping[str, str]) -> Traces:
    """source: the folder of the files, which need not be there, or the text of each node's trace."""
    problems: list[str] = []
    texts = dict(_texts(source, problems)) if isinstance(source, Path) else source
    columns = TRACE.remove(TRACE.get_field_index("run"))
    parts = [columns.empty_table()]
    for node, text in sorted(texts.items()):
        parts.append(_parse(node, text, problems).cast(columns))
    return Traces(pa.concat_tables(parts), problems)


def record_traces(traces: Traces, recorder: TraceRecorder) -> list[str]:
    recorder.add_rows("trace", traces.rows)
    return list(traces.problems)


def _texts(folder: Path, problems: list[str]) -> list[tuple[str, str]]:
    texts = []
    for path in sorted(folder.glob(f"*{SUFFIX}")):
        try:
            texts.append((path.name.removesuffix(SUFFIX), path.read_text(errors="replace")))
        except OSError as error:
            problems.append(f"the trace of {path.name.removesuffix(SUFFIX)} cannot be read: {error}")
    return texts


def _parse(node: str, text: str, problems: list[str]) -> pa.Table:
    """Up to the first line that is none: what follows a gap in a trace may be misread. A last line without an end is
    being written, or its process was killed."""
    whole = text.rpartition("\n")[0]
    lines = whole.split("\n") if whole else []
    parsed = pc.extract_regex(pa.array(lines, pa.string()), pattern=_LINE)
    count = len(lines)
    if parsed.null_count:
        count = int(np.flatnonzero(pc.is_null(parsed).to_numpy(zero_copy_only=False))[0])
    if count < len(lines):
        problems.append(f"the trace of {node} is damaged at line {count + 1:,}; what follows is left out")
    parsed = parsed.slice(0, count)
    place = pc.extract_regex(parsed.field("where"), pattern=_WHERE)
    # What does not match is null, but its fields are empty texts.
    topic, partition = (pc.if_else(pc.is_valid(place), place.field(name), None) for name in ("topic", "partition"))
    return pa.table(
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
