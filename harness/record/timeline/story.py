"""What happened to a partition, or to the metadata quorum, told in order of time: what was broken when, what the
cluster did about it, and what came of it.

Of what nodes trace only that is told which concerns the partition of the violation, and the metadata quorum where the
property is about it. A story that is too long loses what matters least.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from harness.record.timeline.faults import told_faults
from harness.report import words

MAX_LINES: Final = 40


@dataclass(frozen=True)
class Event:
    """What a node traced (cluster_image.telemetry.trace). time: seconds on the clock of the run."""

    time: float
    node: str
    event: str
    where: str
    fields: Mapping[str, Any]

    def __str__(self) -> str:
        """`  12.345678 s  broker-2      topic-0  high watermark: offset 7`"""
        fields = ", ".join(f"{name} {_value(value)}" for name, value in self.fields.items())
        return f"{self.time:12.6f} s  {self.node:12}  {self.where or '-':10}  {self.event}: {fields}"


def _value(value: object) -> str:
    return f"[{_list(value)}]" if isinstance(value, tuple) else str(value)


@dataclass(frozen=True)
class _Line:
    """weight: the lightest go first where there are too many."""

    time: float
    text: str
    weight: int = 3


_ESSENTIAL: Final = 9
#: At one offset more than one append is acknowledged only where something is broken.
_MOST_APPENDS: Final = 3


#: The acknowledged appends at an offset of a partition (its number), in order of time: rows of OPERATIONS.
Acknowledged = Callable[[int, int], Sequence[Mapping[str, Any]]]


def tell(
    faults: Sequence[Mapping[str, Any]],
    trace: Iterable[Event],
    acknowledged: Acknowledged,
    *,
    where: str,
    setting: str,
    sentence: str,
    origin: float,
    ended: float,
) -> list[str]:
    """Numbered lines. Times are seconds since the first operation, as in the verdict.

    faults: rows of FAULTS, `evidence` as JSON. where: the partition; "": the story is of the metadata quorum. setting,
    sentence: how it begins, and what came of it. origin, ended: seconds on the clock of the run."""
    named = _named_appends(acknowledged, sentence, where)
    lines = [_Line(origin, setting, _ESSENTIAL)]
    lines += (_Line(time, text, _ESSENTIAL - (not strikes)) for time, text, strikes in told_faults(faults, where))
    lines += _partition(trace, where, origin, named) if where else _quorum(trace, origin)
    lines += (_append(each, where) for each in named)
    lines = [line for line in lines if line.time <= ended]
    lines.sort(key=lambda line: line.time)
    lines.append(_Line(ended, sentence, _ESSENTIAL))
    return _numbered(_lightened(lines), origin)


def setting_of(plan: Any) -> str:
    """How a story begins. plan: a harness.plan.plan.Plan."""
    bug = f", bug {plan.bug}" if plan.bug else ""
    min_isr = "" if plan.min_isr is None else f", MinISR {plan.min_isr}"
    return (
        f"{words.plural(plan.concurrency, 'producer')} {'begins' if plan.concurrency == 1 else 'begin'} to append "
        f"{plan.rate:g} a second with acks={plan.acks} to {words.plural(plan.partitions, 'partition')} of "
        f"{plan.topic}: {words.plural(plan.replication_factor, 'replica')}{min_isr}; "
        f"{words.plural(plan.brokers, 'broker')}, {words.plural(plan.controllers, 'controller')}{bug}"
    )


# -- what the cluster did -------------------------------------------------------------------------------------------


def _partition(
    trace: Iterable[Event], where: str, origin: float, named: Sequence[Mapping[str, Any]]
) -> Iterator[_Line]:
    """Elections, ISRs and truncations of one partition. named: acknowledged appends at one offset, which the story is
    about."""
    ends: dict[str, int] = {}
    watermarks: dict[str, int] = {}
    for event in trace:
        node, fields = event.node, event.fields
        if event.where != where:
            continue
        reported = event.time >= origin
        if event.event == "decide" and reported and (decided := _decision(fields)):
            yield _Line(event.time, f"{node} decides for {where}: {decided}", 4)
        elif event.event == "unclean recovery" and reported:
            yield _Line(event.time, f"{node} recovers {where} uncleanly: {_recovery(fields)}", 6)
        elif event.event == "role":
            ends[node], watermarks[node] = fields["end"], fields["high_watermark"]
            if reported:
                yield _role(event)
        elif event.event == "isr proposed" and reported:
            yield _Line(event.time, f"{node} proposes the ISR [{_list(fields['isr'])}] for {where}", 1)
        elif event.event == "truncate":
            before, ends[node] = ends.get(node, fields["end"]), fields["end"]
            if reported and fields["end"] < before:
                known = f"; its high watermark was {watermarks[node]}" if node in watermarks else ""
                cut = [r for r in named if fields["end"] <= r["offset"] < before and r["complete"] / 1e9 < event.time]
                dropped = f", and drops what was acknowledged at offset {cut[0]['offset']}" if cut else ""
                text = f"{node} truncates its log of {where} from offset {before} to {fields['end']}{dropped}{known}"
                yield _Line(event.time, text, 8 if cut else 6)
        elif event.event == "isr written" and reported:
            isr, epoch = _list(fields["isr"]), fields["leader_epoch"]
            text = f"{node} writes the ISR [{isr}] of {where}, as leader of epoch {epoch}"
            yield _Line(event.time, text, 3)
        elif event.event == "append":
            ends[node] = fields["end"]
        elif event.event == "high watermark":
            if reported and fields["offset"] < watermarks.get(node, 0):
                text = f"the high watermark of {node} falls from {watermarks[node]} to {fields['offset']}"
                yield _Line(event.time, text, 6)
            watermarks[node] = fields["offset"]


def _role(event: Event) -> _Line:
    fields, node = event.fields, event.node
    held = f"its log ends at {fields['end']}, its high watermark is {fields['high_watermark']}"
    if node == f"broker-{fields['leader']}":
        text = (
            f"{node} leads {event.where} in leader epoch {fields['leader_epoch']}, ISR [{_list(fields['isr'])}]: {held}"
        )
        return _Line(event.time, text, 5)
    whom = f"follows broker-{fields['leader']}" if fields["leader"] >= 0 else "knows of no leader"
    return _Line(event.time, f"{node} {whom} in leader epoch {fields['leader_epoch']} of {event.where}: {held}", 2)


def _decision(fields: Mapping[str, Any]) -> str:
    """Of a record about a partition, what it changes: empty if that is nothing a story needs."""
    reported = [
        f"{name} {_value(fields[key]) if key != 'leader' or fields[key] >= 0 else 'none'}"
        for key, name in _DECIDED
        if key in fields
    ]
    return ", ".join(reported)


_DECIDED: Final = (
    ("leader", "leader"), ("isr", "ISR"), ("eligible_leader_replicas", "ELR"), ("last_known_elr", "LastKnownELR"),
    ("replicas", "replicas"),
)  # fmt: skip


def _recovery(fields: Mapping[str, Any]) -> str:
    """Who is chosen, and among which logs."""
    logs = ", ".join(
        f"that of broker-{broker} ends at {end} in epoch {epoch}"
        for broker, epoch, end in zip(fields["candidates"], fields["epochs"], fields["ends"], strict=True)
    )
    return f"broker-{fields['leader']} ({fields['strategy']}; of the logs, {logs})"


def _quorum(trace: Iterable[Event], origin: float) -> Iterator[_Line]:
    """Elections and truncations of the metadata quorum."""
    ends: dict[str, int] = {}
    for event in trace:
        reported = event.time >= origin
        if event.event == "quorum" and reported:
            role, epoch = event.fields["role"], event.fields["epoch"]
            if role == "leader":
                yield _Line(event.time, f"{event.node} leads the metadata quorum in epoch {epoch}", 5)
            elif event.node.startswith("controller"):
                yield _Line(event.time, f"{event.node} is {role} in epoch {epoch} of the metadata quorum", 2)
        elif event.event in ("metadata append", "metadata truncate"):
            before, ends[event.node] = ends.get(event.node, 0), event.fields["end"]
            if reported and event.fields["end"] < before:
                text = f"{event.node} truncates its metadata log from offset {before} to {event.fields['end']}"
                yield _Line(event.time, text, 6)


# -- what clients saw -----------------------------------------------------------------------------------------------


def _named_appends(acknowledged: Acknowledged, sentence: str, where: str) -> Sequence[Mapping[str, Any]]:
    """The acknowledged appends at the first offset named in the sentence that has one."""
    _, _, partition = where.rpartition("-")
    if not partition.isdecimal():
        return ()
    # "up to offset 51" names an end, and "offsets 50 to 50" what is there.
    for number in re.findall(r"offsets (\d+) to", sentence) + re.findall(r"offset (\d+)", sentence):
        if rows := acknowledged(int(partition), int(number)):
            return rows[:_MOST_APPENDS]
    return ()


def _append(row: Mapping[str, Any], where: str) -> _Line:
    epoch = "" if row["leader_epoch"] is None else f" in leader epoch {row['leader_epoch']}"
    text = f"the append of value {row['value']} at offset {row['offset']} of {where} is acknowledged{epoch}"
    return _Line(row["complete"] / 1e9, text, _ESSENTIAL)


# -- lines ----------------------------------------------------------------------------------------------------------


def _lightened(lines: list[_Line]) -> list[_Line]:
    """At most MAX_LINES: of the lightest the earliest go first."""
    too_many = len(lines) - MAX_LINES
    by_weight = sorted(range(len(lines) - 1), key=lambda place: (lines[place].weight, place))
    gone = set(by_weight[: max(too_many, 0)])
    return [line for place, line in enumerate(lines) if place not in gone]


def _numbered(lines: Sequence[_Line], origin: float) -> list[str]:
    return [f"{number:2}. {line.time - origin:8.3f} s  {line.text}" for number, line in enumerate(lines, 1)]


def _list(items: Iterable[object]) -> str:
    return ", ".join(map(str, items))
