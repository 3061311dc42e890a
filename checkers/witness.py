"""Witnesses: the two or three operations that contradict each other, as data, and drawn as text.

The column `witness` of ANOMALIES holds, as JSON,

    {"operations": [{"op": 17, "process": 3, "what": "append 17 at offset 4", "invoke": ns, "complete": ns or null,
                     "outcome": "ok"}, …],
     "faults": [{"fault": 2, "nemesis": "power-outage", "targets": ["broker-1"], "start": ns, "end": ns or null}, …],
     "edges": [{"from": op, "to": op, "why": "wr on key 3: …"}, …]}

and, where it is not 0, `more`: how many operations are left out in the middle (the anomaly's `ops` has all), and
`more_edges` and `more_faults` likewise. At most MOST are kept of each, and SAID characters of what each did, so that no
witness grows with its history.

`operations` in the order of their invocations; `faults` are those in force while the operations ran; `edges`, of
transactions only, lead around the cycle. Times are monotonic nanoseconds.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from checkers.anomalies import seconds
from spark_history.schema import LAID_OUT_OPERATIONS


@dataclass(frozen=True)
class Step:
    """One operation of a witness. what: as a person would say it, without its times."""

    op: int
    process: int | None
    what: str
    invoke: int
    complete: int | None  # None: no completion on record
    outcome: str = "ok"


@dataclass(frozen=True)
class Edge:
    """Of a cycle: transaction `from_` must come before `to`, and why."""

    from_: int
    to: int
    why: str


#: Operations that a sentence, a witness or a drawing tells, or edges of a cycle; of more, the first and last half.
MOST: Final = 12
SAID: Final = 300

_Item = TypeVar("_Item")


def few(items: Sequence[_Item]) -> tuple[list[_Item], list[_Item], int]:
    """The first and the last of them, and how many are left out in between."""
    if len(items) <= MOST:
        return list(items), [], 0
    half = MOST // 2
    return list(items[:half]), list(items[-half:]), len(items) - 2 * half


def listing(items: Sequence[_Item], say: Callable[[_Item], str], between: str = "; ") -> str:
    """A list as part of a sentence: of at most MOST."""
    first, last, more = few(items)
    reported = [say(item) for item in first]
    if more:
        reported.append(f"… (and {more:,} more, which anomalies.parquet names)")
    return between.join([*reported, *(say(item) for item in last)])


def encode(steps: Iterable[Step], *, faults: Sequence[Mapping[str, Any]] = (), edges: Iterable[Edge] = ()) -> str:
    """The JSON of a witness. faults: rows of FAULTS; those in force while the steps ran are kept."""
    ordered = sorted(steps, key=lambda step: (step.invoke, step.op))
    reported: dict[str, Any] = {}

    def report(name: str, items: Sequence[_Item], told: Callable[[_Item], dict[str, Any]]) -> None:
        first, last, more = few(items)
        reported[name] = [told(item) for item in (*first, *last)]
        if more:
            reported[_MORE[name]] = more

    report("operations", ordered, lambda step: asdict(replace(step, what=_cut(step.what))))
    report("faults", _in_force(ordered, faults), lambda fault: fault)
    report("edges", list(edges), lambda edge: {"from": edge.from_, "to": edge.to, "why": _cut(edge.why)})
    return json.dumps(reported)


_MORE: Final = {"operations": "more", "faults": "more_faults", "edges": "more_edges"}


def _cut(text: str) -> str:
    return text if len(text) <= SAID else f"{text[: SAID // 2]}…{text[-SAID // 2 :]}"


def _in_force(steps: Sequence[Step], faults: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    if not steps:
        return []
    since = steps[0].invoke
    until = max(step.invoke if step.complete is None else step.complete for step in steps)
    names = ("fault", "nemesis", "targets", "start", "end")
    return [
        {name: fault[name] for name in names}
        for fault in faults
        # One without targets was skipped.
        if fault["targets"] and fault["start"] <= until and (fault["end"] is None or fault["end"] >= since)
    ]


#: What steps_of() needs of operations.
OF_STEPS: Final = pa.schema(
    [
        LAID_OUT_OPERATIONS.field(name)
        for name in (
            "op", "process", "kind", "value", "invoke", "complete", "outcome", "offset", "position", "first", "last",
            "records",
        )
    ]
)  # fmt: skip


def named_operations(operations: pa.Table, ops: Iterable[int]) -> pa.Table:
    """Those of OF_STEPS that have these numbers."""
    return operations.select(OF_STEPS.names).filter(pc.is_in(operations["op"], pa.array(ops, pa.int64())))


def steps_of(operations: pa.Table) -> dict[int, Step]:
    """By number, the steps of some operations of logs (OF_STEPS)."""
    return {
        row["op"]: Step(row["op"], row["process"], _what(row), row["invoke"], row["complete"], row["outcome"])
        for row in operations.to_pylist()
    }


def _what(row: Mapping[str, Any]) -> str:
    if row["kind"] == "append":
        at = "" if row["position"] is None else f" at offset {row['position']}"
        return f"append {row['value']}{at}"
    if row["kind"] == "list_offsets":
        return f"list_offsets: the log ends at {row['offset']}"
    kind = row["kind"].replace("_", " ")
    if not row["records"] or row["records"] < 0:
        returned = "nothing"
    elif row["first"] == row["last"]:
        returned = f"offset {row['first']}"
    else:
        returned = f"offsets {row['first']} to {row['last']}"
    return f"{kind} from {row['offset']}: {returned}, the log has {row['position']} records"


def explain(row: dict[str, Any], steps: Mapping[int, Step], faults: Sequence[Mapping[str, Any]]) -> None:
    """Give an anomaly (ANOMALIES) its witness, and name the faults in force in its sentence."""
    mine = [steps[op] for op in dict.fromkeys(row["ops"]) if op in steps]
    if not mine:
        return
    row["witness"] = encode(mine, faults=faults)
    named = []
    parts = json.loads(row["witness"])
    for fault in parts["faults"]:
        targets = " ".join(fault["targets"] or ())
        named.append(f"{fault['nemesis']} of {targets}" if targets else fault["nemesis"])
    if named:
        left = len(named) + parts.get("more_faults", 0) - MAX_FAULTS
        more = f" and {left} more" if left > 0 else ""
        row["message"] += f" (in force: {', '.join(named[:MAX_FAULTS])}{more})"


MAX_FAULTS: Final = 3  # that a sentence names
WIDTH: Final = 48  # characters of a drawing's time axis


def draw(witness: str, origin: int, *, width: int = WIDTH) -> list[str]:
    """Lines of text: an operation each as a bar on one time axis, then the faults in force, then a cycle's edges.

    origin: monotonic ns of second 0. `|---|` lasts from invocation to completion, `|--->` has no completion.
    """
    parts = json.loads(witness)
    bars = [
        (f"p{each['process']}" if each["process"] is not None else "", each["invoke"], each["complete"],
         f"op {each['op']}: {each['what']}" + ("" if each["outcome"] == "ok" else f" ({each['outcome']})"))
        for each in parts["operations"]
    ]  # fmt: skip
    if not bars:
        return []
    since = min(bar[1] for bar in bars)
    until = max(max(bar[1], bar[2] or 0) for bar in bars)
    span = max(until - since, 1)

    def column(time: int) -> int:
        return int(min(max((time - since) * (width - 1) // span, 0), width - 1))

    label = max(len(bar[0]) for bar in bars)
    lines = []
    for who, start, end, what in bars:
        low, high = column(start), width - 1 if end is None else column(end)
        body = "|" if high == low else "|" + "-" * (high - low - 1) + (">" if end is None else "|")
        when = f"{seconds(start, origin)} to {'?' if end is None else seconds(end, origin)}"
        lines.append(f"{who:<{label}} {' ' * low}{body:<{width - low}} {what}  [{when}]")
    _tell_more(lines, parts, "operations", "operations")
    for fault in parts["faults"]:
        end = fault["end"]
        low, high = column(fault["start"]), width - 1 if end is None else column(end)
        targets = " ".join(fault["targets"] or ())
        lines.append(f"{'':<{label}} {' ' * low}{'~' * (high - low + 1):<{width - low}} {fault['nemesis']} {targets}")
    _tell_more(lines, parts, "faults", "faults in force")
    names = {each["op"]: f"op {each['op']}" for each in parts["operations"]}
    for edge in parts["edges"]:
        lines.append(f"{names.get(edge['from'], edge['from'])} -> {names.get(edge['to'], edge['to'])}: {edge['why']}")
    _tell_more(lines, parts, "edges", "such steps around the cycle")
    return lines


def _tell_more(lines: list[str], parts: Mapping[str, Any], name: str, what: str) -> None:
    """Where the middle of a list was left out, say so."""
    if more := parts.get(_MORE[name]):
        lines.insert(len(lines) - len(parts[name]) + len(parts[name]) // 2, f"… and {more:,} more {what}")
