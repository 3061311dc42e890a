"""Who led each partition when, with which ISR and ELR, and who led the metadata quorum: from the committed metadata and
the nodes' traces, of whichever target. And the same as events that a story can be told of.

Kafka's nodes leave no trace of their roles and logs of their own: what they log of them stands in for it.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow as pa

from checkers.inside.metadata.copies import split
from checkers.inside.metadata.findings import Findings
from checkers.inside.metadata.history import MetadataHistory, judge_history
from checkers.inside.metadata.memberships import CommitTimes
from checkers.inside.metadata.quorum_trace import node_ids, what_was_reported
from checkers.inside.trace_rows import TraceRows, read_rows
from harness.record.timeline import clock
from harness.record.timeline.lines import ALL, RunTimeline
from harness.record.timeline.nodes import log_lines
from harness.record.timeline.story import Event
from spark_history.errors import HistoryError
from spark_history.files import compact, read_parquet
from spark_history.schema import METADATA_LOG, TRACE


class State(NamedTuple):
    """A partition from `time` (monotonic ns) on. Brokers by id; leader: -1: none."""

    time: int
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    elr: tuple[int, ...]
    replicas: tuple[int, ...]


class Leadership(NamedTuple):
    """Of the metadata quorum. node: its leader's name; "": none is known."""

    time: int
    node: str
    epoch: int


@dataclass(frozen=True)
class Inside:
    """Of one run. states: by partition (chaos-0). watermarks: by partition, as its leaders told it: (ns, offset)."""

    states: Mapping[str, Sequence[State]] = field(default_factory=dict)
    quorum: Sequence[Leadership] = ()
    watermarks: Mapping[str, Sequence[tuple[int, int]]] = field(default_factory=dict)
    names: Mapping[int, str] = field(default_factory=dict)  # of nodes, by id


_LOG: Final = re.compile(r"partition=([\w.-]+-\d+)[^\]]*\] Truncating to offset (\d+)")
_ROLE: Final = re.compile(
    r"(Leader|Follower) ([\w.-]+-\d+) (?:with topic id \S+ )?starts at leader epoch (\d+) from offset (\d+) with "
    r"partition epoch \d+,? (?:and )?high watermark (\d+)(?:, ISR \[([\d,]*)\])?"
)
_CURRENT: Final = re.compile(r"Current leader is (-?\d+)")
_FIELDS: Final = {
    "leader": "leader", "isr": "isr", "elr": "eligible_leader_replicas", "replicas": "replicas",
}  # fmt: skip


@dataclass(frozen=True)
class InsideOfRun:
    """Of the run in a directory. What is damaged or missing gives nothing."""

    timeline: RunTimeline

    @cached_property
    def inside(self) -> Inside:
        trace, metadata = self._table("trace", TRACE), self._table("metadata_log", METADATA_LOG)
        if not trace.num_rows:
            return Inside()
        try:
            rows = read_rows(trace)
            names = {id_: name for name, id_ in node_ids(rows).items()}
        except Exception:  # whatever is damaged in it: the checkers say so, and a report is shown all the same
            return Inside()
        states: Mapping[str, Sequence[State]] = {}
        with suppress(Exception):
            states = _states(rows, self._replayed(rows, metadata))
        return Inside(states, _quorum(rows), _watermarks(rows), names)

    def _replayed(self, rows: TraceRows, metadata: pa.Table) -> MetadataHistory:
        return judge_history(
            metadata, split(metadata), what_was_reported(rows), Findings("of a report"), min_insync_replicas=1,
            elr_enabled=False, recovery_quorum=False,
        )  # fmt: skip

    def _table(self, name: str, schema: pa.Schema) -> pa.Table:
        path = self.timeline.directory / "history" / name / f"{name}.parquet"
        with suppress(HistoryError):
            return read_parquet(path, schema)
        return schema.empty_table().cast(compact(schema))

    @property
    def has_traces(self) -> bool:
        return bool(self._of_trace)

    # -- as a story needs it -------------------------------------------------------------------------------------------

    def events(self, where: str) -> list[Event]:
        """In order of time, of one partition; "": of the metadata quorum. Times in seconds on the clock of the run."""
        found = self._of_trace.get(where, []) + (self._of_logs.get(where, []) if where else [])
        if where and not any(event.event == "decide" for event in found):
            found = found + list(self._decided(where))
        return sorted(found, key=lambda event: event.time)

    @cached_property
    def _of_trace(self) -> Mapping[str, list[Event]]:
        trace = self._table("trace", TRACE)
        found: dict[str, list[Event]] = defaultdict(list)
        numbers = trace["partition"].to_pylist()
        columns = [trace[name].cast(pa.string()).to_pylist() for name in ("node", "event", "topic", "fields")]
        for partition, time, node, event, topic, fields in zip(
            numbers, trace["time"].to_pylist(), *columns, strict=True
        ):
            with suppress(ValueError, AttributeError):
                known = {key: tuple(of) if isinstance(of, list) else of for key, of in json.loads(fields).items()}
                of_quorum = topic is None or topic.startswith("__") or event.startswith(("quorum", "metadata"))
                found["" if of_quorum else f"{topic}-{partition}"].append(
                    Event(time / 1e9, node, event, "" if of_quorum else f"{topic}-{partition}", known)
                )
        return found

    @cached_property
    def _of_logs(self) -> Mapping[str, list[Event]]:
        """Roles and truncations, where nodes trace none."""
        if any(event.event == "role" for of in self._of_trace.values() for event in of):
            return {}
        found: dict[str, list[Event]] = defaultdict(list)
        shifts = clock.shifts(self.timeline.faults)
        for path in sorted(self.timeline.directory.glob("logs/broker-*.log")):
            for line in log_lines(path, ALL, self.timeline.wall_clock, shifts.get(path.stem, ())):
                event = _logged(line.time, line.node, line.text)
                if event is not None:
                    found[event.where].append(event)
        return found

    def _decided(self, where: str) -> Iterator[Event]:
        before: State | None = None
        for state in self.inside.states.get(where, ()):
            changed = {
                name: getattr(state, key) for key, name in _FIELDS.items()
                if before is None or getattr(state, key) != getattr(before, key)
            }  # fmt: skip
            before = state
            leader = next((each.node for each in reversed(self.inside.quorum) if each.time <= state.time), "")
            if changed:
                yield Event(state.time / 1e9, leader or "the controller", "decide", where, changed)


def inside_of(directory: Path, second_zero: int | None = None) -> InsideOfRun:
    return InsideOfRun(RunTimeline(directory, second_zero))


def _logged(time: int, node: str, text: str) -> Event | None:
    """What Kafka logs of a replica, as kraft's trace would have it."""
    if "Truncating to offset" in text and (found := _LOG.search(text)):
        return Event(time / 1e9, node, "truncate", found[1], {"end": int(found[2])})
    if "starts at leader epoch" in text and (found := _ROLE.search(text)):
        role, where, epoch, end, watermark, isr = found.groups()
        current = _CURRENT.search(text)
        own = int(node.rpartition("-")[2]) if node.rpartition("-")[2].isdecimal() else -1
        return Event(time / 1e9, node, "role", where, {
            "leader": own if role == "Leader" else int(current[1]) if current else -1, "leader_epoch": int(epoch),
            "isr": tuple(int(each) for each in (isr or "").split(",") if each), "end": int(end),
            "high_watermark": int(watermark),
        })  # fmt: skip
    return None


def _states(rows: TraceRows, history: MetadataHistory) -> dict[str, list[State]]:
    times = CommitTimes(rows)
    found: dict[str, list[State]] = defaultdict(list)
    for place, offset, state, _ in history.steps:
        time = times.of(offset)
        if time is not None and place[0] not in history.removed:
            found[f"{place[0]}-{place[1]}"].append(
                State(time, state.leader, state.leader_epoch, state.isr, state.elr, state.replicas)
            )
    return dict(found)


def _quorum(rows: TraceRows) -> list[Leadership]:
    """Who led, once for each change."""
    epochs = rows.number("epoch")
    roles = rows.fields["role"].to_pylist()
    found: list[Leadership] = []
    order = [row for row in rows.is_event("quorum").nonzero()[0].tolist() if roles[row] == "leader"]
    for row in sorted(order, key=lambda row: (rows.time[row], epochs[row])):
        node, epoch = rows.nodes[rows.node[row]], int(epochs[row])
        if not found or (epoch > found[-1].epoch):
            found.append(Leadership(int(rows.time[row]), node, epoch))
    return found


def _watermarks(rows: TraceRows) -> dict[str, list[tuple[int, int]]]:
    """The highest that any replica had told by then."""
    offsets = rows.number("offset")
    found: dict[str, list[tuple[int, int]]] = defaultdict(list)
    order = rows.is_event("high watermark").nonzero()[0]
    for row in order[rows.time[order].argsort(kind="stable")].tolist():
        if rows.topic[row] < 0:
            continue
        of, offset = found[f"{rows.topics[rows.topic[row]]}-{rows.partition[row]}"], int(offsets[row])
        if not of or offset > of[-1][1]:
            of.append((int(rows.time[row]), offset))
    return dict(found)
