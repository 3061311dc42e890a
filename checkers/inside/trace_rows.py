"""The trace of a run's nodes as columns of numbers, in the order in which each node told it.

A trace may end early: a process that is killed takes what it held back with it (cluster_image/telemetry/trace.py). So
a checker may build on what was told, never on what was not.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from spark_history.errors import HistoryError, first_line
from spark_history.files import NO_CODE, Bools, Ints, categories, integers

NONE: Final = -2  # of a number that an event does not have: -1 is a leader that is not known
_NUMBERS: Final = (
    "leader", "leader_epoch", "partition_epoch", "end", "high_watermark", "offset", "epoch", "node_id", "done",
    "assigned",
)  # fmt: skip
_LISTS: Final = ("isr", "voters")
_TEXTS: Final = ("role", "kind")
_FIELDS: Final = pa.schema(
    [(name, pa.int64()) for name in _NUMBERS]
    + [(name, pa.list_(pa.int64())) for name in _LISTS]
    + [(name, pa.string()) for name in _TEXTS]
)  # fmt: skip
#: Events whose fields are read; those of others are for people.
EVENTS: Final = (
    "start", "replica", "role", "isr", "isr proposed", "isr written", "append", "truncate", "high watermark",
    "log start", "quorum", "metadata append", "metadata truncate", "metadata",
    "metadata snapshot", "isr refused", "state change received", "state change completed",
)  # fmt: skip
CODE: Final = {event: code for code, event in enumerate(EVENTS)}


@dataclass(frozen=True)
class TraceRows:
    """Sorted by node and number. life: of the process that told it, counted over all nodes. apart: times of different
    nodes tell which was first only if they are further apart, ns.

    Lists are looked up with `members`, roles with `role`; both only where they are needed."""

    nodes: Sequence[str]
    topics: Sequence[str]
    node: Ints  # index into nodes
    life: Ints
    time: Ints  # monotonic ns
    event: Ints  # CODE
    topic: Ints  # index into topics, NO_CODE: of no partition
    partition: Ints
    fields: pa.Table  # _FIELDS
    apart: int = 0

    def __len__(self) -> int:
        return len(self.node)

    def number(self, name: str) -> Ints:
        return integers(self.fields, name, NONE)

    def members(self, name: str, row: int) -> tuple[int, ...] | None:
        value = self.fields[name][row].as_py()
        return None if value is None else tuple(value)

    def is_event(self, *events: str) -> Bools:
        return np.isin(self.event, [CODE[event] for event in events])


def read_rows(table: pa.Table, clock_uncertainty_ns: int = 0) -> TraceRows:
    """table: TRACE rows of one run, categories as dictionaries. clock_uncertainty_ns: how far each node's times may be
    off, either way. Raises HistoryError."""
    table = table.filter(pc.is_in(table["event"].cast(pa.string()), pa.array(EVENTS))).combine_chunks()
    table = table.take(pc.sort_indices(table.select(["node", "number"]).set_column(
        0, "node", table["node"].cast(pa.string())
    ), sort_keys=[("node", "ascending"), ("number", "ascending")])).combine_chunks()  # fmt: skip
    nodes, node = _codes(table, "node")
    events, of_event = _codes(table, "event")
    topics, topic = _codes(table, "topic")
    event = np.array([CODE[name] for name in events], np.int64)[of_event]
    return TraceRows(
        nodes=nodes,
        topics=topics,
        node=node,
        life=np.cumsum((event == CODE["start"]) | (np.diff(node, prepend=NO_CODE) != 0)),
        time=integers(table, "time", 0),
        event=event,
        topic=topic,
        partition=integers(table, "partition", NO_CODE),
        fields=_fields(table["fields"]),
        apart=2 * clock_uncertainty_ns,
    )


def _codes(table: pa.Table, column: str) -> tuple[list[str], Ints]:
    chunks = table[column].cast(pa.string()).combine_chunks().dictionary_encode()
    names, codes = categories(chunks)
    return names, codes.astype(np.int64)


def _fields(column: pa.ChunkedArray) -> pa.Table:
    """Arrow's reader takes all objects at once, a line each."""
    if not len(column):
        return _FIELDS.empty_table()
    lines = "\n".join(column.to_pylist()).encode()
    options = pj.ParseOptions(explicit_schema=_FIELDS, unexpected_field_behavior="ignore")
    try:
        fields = pj.read_json(io.BytesIO(lines), parse_options=options)
    except pa.ArrowException as error:
        raise HistoryError(f"the fields of a trace cannot be read: {first_line(error)}") from None
    return fields.select(_FIELDS.names).combine_chunks()


def rows_by_node(table: pa.Table) -> dict[str, int]:
    """table: with a column `node`."""
    counts = table["node"].cast(pa.string()).value_counts()
    return {each["values"].as_py(): each["counts"].as_py() for each in counts}
