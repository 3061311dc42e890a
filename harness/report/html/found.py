"""The violations of a report: by kind, the worst first; of each kind one that is told in full, the others in a table.

What a browser needs to open any of those listed (operations, what lay on the disks around it, what nodes said then) is
one JSON object beside the page's script, kept within MOST_* so that a report of a long run stays small.
"""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from checkers.inside.metadata.planned import DOCUMENTED
from checkers.properties import LOST_APPEND, VIOLATION
from cluster_image.telemetry.printable import printable
from harness.record.timeline.lines import RunTimeline, merged
from harness.record.timeline.nodes import Line, Span
from harness.record.timeline.partitions import InsideOfRun
from harness.record.timeline.story import Acknowledged, setting_of, tell
from harness.record.timeline.violations import Violation
from harness.report import words
from harness.report.html.aggregate import Summary, operations_by_id
from harness.report.html.data import RunData
from harness.report.html.first import attribution, kind_of, ranges_of
from harness.report.html.witness import witness_svg

LISTED: Final = 100  # violations of a kind, in its table
LISTED_OPERATIONS: Final = 8  # of one violation
MOST_STORIES: Final = 24
MOST_LINES: Final = 2500  # of nodes, in the whole report
MOST_OF_A_MOMENT: Final = 400
MOST_OF_A_LINE: Final = 500  # characters, for the script
_READ_WHOLE_NS: Final = 300_000_000_000
LINES_OF_ONE: Final = 60  # that are shown without a script
WINDOW_S: Final = 0.6  # on either side of what a violation is about
AROUND: Final = 3  # offsets on either side, on the disks
MOST_MESSAGE: Final = 600  # characters, in a table

#: Of nodes' lines, those that tell most when not all fit in.
_TELLING: Final = ("role", "truncate", "unclean recovery", "quorum", "decide", "isr", "start", "told")


@dataclass(frozen=True)
class Found:
    """groups: for the template. evidence: JSON for the script. stories: (id, title, lines)."""

    groups: list[dict[str, Any]]
    evidence: dict[str, Any]
    stories: list[tuple[str, str, list[str]]]


def found(
    data: RunData, summary: Summary, properties: Mapping[str, Mapping[str, Any]], inside: InsideOfRun
) -> Found:  # fmt: skip
    timeline = inside.timeline
    by_kind: dict[tuple[str, str], list[Violation]] = {}
    for violation in timeline.violations:
        by_kind.setdefault((violation.broken, violation.anomaly), []).append(violation)
    shown = {kind: _of_each_partition(of) for kind, of in by_kind.items()}
    listed = [violation for of in shown.values() for violation in of]
    wanted = {op for violation in listed for op in violation.ops[:LISTED_OPERATIONS]}
    chosen = data.operations.find(wanted) if wanted else pd.DataFrame()
    operations = operations_by_id(chosen, summary.faults, summary.origin or 0)
    disks = _Disks(data)
    spans = {violation.number: timeline.of_violation(violation, WINDOW_S).spans for violation in listed}
    firsts = [of[0] for of in by_kind.values()]
    lines = _lines(timeline, [spans[each.number] for each in (*firsts, *listed)])
    stories = _stories(data, summary, inside, shown, chosen)
    groups: list[dict[str, Any]] = []
    for (broken, anomaly), of in by_kind.items():
        first, known = of[0], properties.get(broken, {})
        groups.append({
            "id": f"kind-{len(groups) + 1}",
            "property": broken,
            "anomaly": anomaly,
            "title": broken if anomaly == VIOLATION else anomaly,
            "weak": first.weak,
            "count": _mapping(known.get("anomalies")).get(anomaly, sum(each.count for each in of)),
            "causes": _causes(data, of),
            "first": {
                **_card(first, operations, timeline.origin),
                "taken": _taken(data, summary, first),
                "disks": disks.around(first),
                "lines": [_shown(line, timeline.origin) for line in _nearest(lines, spans[first.number], first)],
                "story": next((id_ for id_, where, _ in stories if where == (broken, anomaly, first.where)), ""),
            },
            "rows": [_row(each, timeline, stories) for each in shown[broken, anomaly]],
            "unlisted": max(len(of) - LISTED, 0),
        })  # fmt: skip
    evidence = {
        "operations": {str(op): _operation(row) for op, row in operations.items()},
        "violations": {
            each.name: {
                "ops": list(each.ops[:LISTED_OPERATIONS]), "where": each.where, "disks": disks.around(each),
                "spans": [[_seconds(start, timeline), _seconds(end, timeline)] for start, end in spans[each.number]],
            }
            for each in listed
        },
        "nodes": timeline.nodes,
        "lines": [[_seconds(line.time, timeline), *_told(line)] for line in lines],
    }  # fmt: skip
    return Found(groups, evidence, [(id_, _title(where), text) for id_, where, text in stories])


def _told(line: Line) -> tuple[str, str, str, str, str]:
    return line.node, line.kind, line.where, line.level if line.severe else "", printable(line.text[:MOST_OF_A_LINE])


def _of_each_partition(of: Sequence[Violation]) -> list[Violation]:
    """As many of a kind as are listed, of each partition the first ones."""
    turns: dict[str, int] = defaultdict(int)
    in_turn = []
    for violation in of:
        in_turn.append((turns[violation.where], violation.number, violation))
        turns[violation.where] += 1
    return sorted((each for *_, each in sorted(in_turn)[:LISTED]), key=lambda each: each.number)


def _seconds(time: int, timeline: RunTimeline) -> float:
    return round((time - timeline.origin) / 1e9, 6)


def _card(violation: Violation, operations: Mapping[int, dict[str, Any]], origin: int) -> dict[str, Any]:
    return {
        "name": violation.name,
        "message": violation.message,
        "drawing": witness_svg(violation.witness, origin),
        "where": violation.where,
        "offset": violation.offset,
        "value": violation.value,
        "count": violation.count,
        "operations": [operations[op] for op in violation.ops[:LISTED_OPERATIONS] if op in operations],
        "unlisted": max(len(violation.ops) - LISTED_OPERATIONS, 0),
    }


def _row(
    violation: Violation, timeline: RunTimeline, stories: Sequence[tuple[str, tuple[str, str, str], list[str]]]
) -> dict[str, Any]:  # fmt: skip
    times = [time for span in violation.spans() for time in span]
    key = violation.broken, violation.anomaly, violation.where
    return {
        "name": violation.name,
        "where": violation.where,
        "offset": violation.offset,
        "value": violation.value,
        "second": _seconds(min(times), timeline) if times else None,
        "message": violation.message
        if len(violation.message) <= MOST_MESSAGE
        else violation.message[:MOST_MESSAGE] + "…",
        "faults": [f"F{number}" for number in timeline.causes(violation)],
        "story": next((id_ for id_, where, _ in stories if where == key), ""),
    }


def _causes(data: RunData, of: Sequence[Violation]) -> str:
    """How violations of a kind follow from what was lost, as a sentence; "": not, as far as is known."""
    lost: dict[str, list[tuple[int, int]]] = {}
    for group in attribution(data):
        for where, ranges in group["partitions"].items():
            if ranges:
                lost.setdefault(where, []).extend(ranges)
    if not lost or of[0].anomaly == LOST_APPEND:
        return ""
    there = [each for each in of if each.where in lost]
    if not there:
        return "" if all(not each.where for each in of) else "None of these is on a partition that lost records."
    at = [
        each for each in there
        if each.offset is not None and each.offset >= min(first for first, _ in lost[each.where])
    ]  # fmt: skip
    shown = f"{len(at)} of {len(of)}" if len(at) < len(of) else f"all {len(of)}" if len(of) > 1 else "it"
    many = "are" if len(at) != 1 else "is"
    return words.sentence(
        f"{shown} {many} on a partition that lost records, at an offset from which on records are gone: what follows "
        "from that loss is no second bug"
    ) if at else ""  # fmt: skip


def _taken(data: RunData, summary: Summary, violation: Violation) -> str:
    """What took a lost record, as a sentence; "": it is none, or nothing is known of it."""
    if violation.anomaly != LOST_APPEND or violation.offset is None:
        return ""
    for group in attribution(data):
        ranges = group["partitions"].get(violation.where, ())
        if any(start <= violation.offset <= end for start, end in ranges):
            node = group["node"]
            last = f"; {node} had it last" if node and node not in group["cause"] else ""
            fault = next((each for each in summary.faults if each.number == group["fault"]), None)
            if fault is None:
                known = group["cause"].endswith(DOCUMENTED)
                return words.sentence(f"{group['cause']}{last}" if known else f"what took it is {group['cause']}{last}")
            return words.sentence(f"{kind_of(fault)} {fault.name} at {fault.start:.1f} s {group['cause']}{last}")
    return ""


def _operation(row: Mapping[str, Any]) -> dict[str, Any]:
    names = ("op", "kind", "process", "outcome", "invoked", "completed", "offset", "high_watermark", "leader_epoch",
             "value", "error")  # fmt: skip
    plain = {name: None if row.get(name) is None else row[name] for name in names}
    return {
        name: int(value) if isinstance(value, np.integer) else round(value, 6) if isinstance(value, float) else value
        for name, value in plain.items()
    }


# -- what lay on the disks -------------------------------------------------------------------------------------------


class _Disks:
    """Records of replicas around offsets, read once for each partition."""

    def __init__(self, data: RunData) -> None:
        self._root = data.directory / "history" / "replica_logs"
        self._read: dict[str, pd.DataFrame] = {}
        self.nodes = sorted({str(node) for node in data.replicas["node"].dropna()})

    def around(self, violation: Violation) -> dict[str, Any] | None:
        """{nodes, rows: [[offset, [value, epoch] or null of each node], …]}; None: nothing is known."""
        if violation.offset is None or not violation.where or not self.nodes:
            return None
        table = self._of(violation.where)
        low, high = max(violation.offset - AROUND, 0), violation.offset + AROUND
        rows = table.iloc[table["offset"].searchsorted(low) : table["offset"].searchsorted(high, side="right")]
        held = {(int(r.offset), str(r.node)): [_plain(r.value), _plain(r.leader_epoch)] for r in rows.itertuples()}
        return {
            "nodes": self.nodes,
            "rows": [[at, *(held.get((at, node)) for node in self.nodes)] for at in range(low, high + 1)],
        }

    def _of(self, where: str) -> pd.DataFrame:
        if where not in self._read:
            topic, _, partition = where.rpartition("-")
            tables = []
            folder = self._root / f"topic={quote(topic, safe='')}" / f"partition={partition}"
            for path in sorted(folder.glob("*.parquet")):
                with suppress(OSError, pa.ArrowException, KeyError):
                    tables.append(pq.read_table(path, columns=["node", "offset", "leader_epoch", "value"]))
            empty = pd.DataFrame({name: [] for name in ("node", "offset", "leader_epoch", "value")})
            frame = pa.concat_tables(tables, promote_options="permissive").to_pandas() if tables else empty
            self._read[where] = frame.sort_values("offset", kind="stable", ignore_index=True)
        return self._read[where]


def _plain(value: Any) -> int | None:
    return None if pd.isna(value) else int(value)


# -- what nodes said -------------------------------------------------------------------------------------------------


def _lines(timeline: RunTimeline, of: Sequence[Sequence[Span]]) -> list[Line]:
    """Of the moments given, those of the first ones as far as there is room."""
    moments = merged([span for spans in of for span in spans])
    if not moments:
        return []
    whole = moments[0][0], moments[-1][1]
    # Files are read once if that is not much, else where something happened.
    read = [whole] if whole[1] - whole[0] <= _READ_WHOLE_NS else moments
    there = timeline.lines(read, operations=False)
    times = [line.time for line in there]
    found: dict[Line, None] = {}
    for span in dict.fromkeys(span for spans in of for span in spans):
        lines = there[bisect_left(times, span[0]) : bisect_right(times, span[1])]
        room = min(MOST_LINES - len(found), MOST_OF_A_MOMENT)
        found |= dict.fromkeys(sorted((line for line in lines if line not in found), key=_weight)[: max(room, 0)])
    return sorted(found)


def _weight(line: Line) -> int:
    """The lightest first."""
    if line.kind == "fault" or line.severe:
        return 0
    if line.kind == "trace":
        return 1 if line.text.startswith(_TELLING) else 3
    return 2


def _nearest(lines: Sequence[Line], spans: Sequence[Span], violation: Violation) -> list[Line]:
    """Of each of its moments as many."""
    found: list[Line] = []
    for start, end in spans:
        mine = [
            line for line in lines
            if start <= line.time <= end
            and (line.kind == "fault" or not line.where or not violation.where or line.where == violation.where)
        ]  # fmt: skip
        found += sorted(mine, key=_weight)[: LINES_OF_ONE // len(spans)]
    return sorted(found)


def _shown(line: Line, origin: int) -> dict[str, Any]:
    return {
        "second": (line.time - origin) / 1e9, "node": line.node, "kind": line.kind, "where": line.where,
        "level": line.level if line.severe else "", "text": line.text,
    }  # fmt: skip


# -- stories ---------------------------------------------------------------------------------------------------------


def _stories(
    data: RunData,
    summary: Summary,
    inside: InsideOfRun,
    by_kind: Mapping[tuple[str, str], Sequence[Violation]],
    chosen_operations: pd.DataFrame,
) -> list[tuple[str, tuple[str, str, str], list[str]]]:
    """(id, (property, anomaly, partition), numbered lines): of the first violation of each kind, then of each kind on
    each partition, the worst kinds first."""
    if data.plan is None:
        return []
    chosen = [of[0] for of in by_kind.values()]
    known = {(each.broken, each.anomaly, each.where) for each in chosen}
    for of in by_kind.values():
        for each in of:
            key = each.broken, each.anomaly, each.where
            if key not in known and len(chosen) < MOST_STORIES:
                known.add(key)
                chosen.append(each)
    plain = chosen_operations.astype("object").where(chosen_operations.notna(), None).to_dict("records")
    rows = {int(row["op"]): row for row in plain}
    faults = [{**row, "evidence": json.dumps(row["evidence"])} for row in inside.timeline.faults]
    ended = (inside.timeline.origin + int(summary.duration * 1e9)) / 1e9
    told = []
    for number, each in enumerate(chosen[:MOST_STORIES], 1):
        text: list[str] = []
        with suppress(Exception):  # a story is told of what is whole; the rest of the page does not wait for it
            text = tell(
                faults, inside.events(each.where), _acknowledged([rows[op] for op in each.ops if op in rows]),
                where=each.where, setting=setting_of(data.plan), sentence=f"{each.broken}: {each.message}",
                origin=inside.timeline.origin / 1e9, ended=ended,
            )  # fmt: skip
        if text:
            told.append((f"story-{number}", (each.broken, each.anomaly, each.where), text))
    return told


def _acknowledged(rows: Sequence[Mapping[str, Any]]) -> Acknowledged:
    """rows: the operations of a violation."""
    known: dict[tuple[Any, Any], list[Mapping[str, Any]]] = defaultdict(list)
    for row in sorted(rows, key=lambda row: row["complete"] or 0):
        if row["kind"] == "append" and row["outcome"] == "ok":
            known[row["partition"], row["offset"]].append(row)
    return lambda partition, offset: known.get((partition, offset), ())


def _title(where: tuple[str, str, str]) -> str:
    broken, anomaly, partition = where
    what = broken if anomaly == VIOLATION else f"{anomaly} ({broken})"
    return f"{what}{f' on {partition}' if partition else ''}"


# -- lost records ----------------------------------------------------------------------------------------------------


def lost_by_cause(data: RunData) -> list[dict[str, Any]]:
    """What the verdict says of what took lost records, the most first."""
    return [
        {
            **group,
            "fault": None if group["fault"] is None else f"F{group['fault']}",
            "takers": "",
            "where": "; ".join(
                f"{name} {', '.join(f'{a}–{b}' if b > a else f'{a}' for a, b in ranges[:3])}{' …' * (len(ranges) > 3)}"
                for name, ranges in list(group["partitions"].items())[:4]
            ) + (f"; and {len(group['partitions']) - 4} more partitions" if len(group["partitions"]) > 4 else ""),
        }
        for group in attribution(data)
    ]  # fmt: skip


def lost_groups(summary: Summary, most: int) -> Iterable[dict[str, Any]]:
    """Lost records by partition; rows beyond `most` of all partitions together are only counted."""
    room = most
    for name, rows in summary.lost.groupby("partition_name", sort=False):
        listed = rows.head(room)
        room -= len(listed)
        yield {
            "name": name,
            "count": len(rows),
            "ranges": ranges_of(rows["offset"]),
            "rows": [
                {
                    "offset": row.offset,
                    "value": row.value,
                    "acknowledged": words.second(row.second) + (" (read)" if pd.isna(row.complete) else ""),
                    "fault": row.fault_name or words.DASH,
                    "node": row.node if isinstance(row.node, str) else words.DASH,
                    "found": "nothing: the log ends before" if pd.isna(row.found) else f"value {row.found}",
                }
                for row in listed.itertuples()
            ],
            "unlisted": len(rows) - len(listed),
        }


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
