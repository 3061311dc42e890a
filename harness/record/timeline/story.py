"""What happened to a partition, or to the metadata quorum, told in order of time: what was broken when, what the
cluster did about it, and what came of it.

Of what nodes trace only that is told which concerns the partition of the violation, and the metadata quorum where the
property is about it. A story that is too long loses what matters least.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

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
    lines += _faults(faults, where)
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


# -- faults ---------------------------------------------------------------------------------------------------------

#: Begin and end of a fault. {nodes}: by name; {is}, {has}: of one or of several.
#: By family, and by variant where that says more: how a fault begins, and how it ends.
_WORDS: Final[Mapping[str, tuple[str, str]]] = {
    "power": ("the power of {nodes} is cut", "{nodes} {has} power again and {starts}"),
    "power-outage": ("the power of {nodes} is cut", "{nodes} {has} power again and {starts}"),
    "power-outage-cluster": ("the power of {nodes} is cut", "{nodes} {has} power again and {starts}"),
    "page-cache": ("{nodes} {is} killed and {its} page cache is lost", "{nodes} {is} started again"),
    "page-cache:clean": ("clean pages of {nodes} are dropped from the page cache", "that is over"),
    "kill": ("{nodes} {is} killed", "{nodes} {is} started again"),
    "hw-truncation": (
        "{others} {restarts} out of reach of {first}, which leads, and then {first} is killed",
        "{first} is started again",
    ),
    "kill:term": ("{nodes} {is} asked to stop", "{nodes} {is} started again"),
    "pause": ("{nodes} {is} frozen", "{nodes} {goes} on"),
    "partition": ("{nodes} {is} cut off from the other nodes", "the network is whole again"),
    "network": ("links of {nodes} lose packets or are slow", "the links of {nodes} are as they were"),
    "clock": ("the clock of {nodes} jumps or drifts", "the clock of {nodes} is right again"),
    "clock:jump": ("the clock of {nodes} jumps", "the clock of {nodes} is right again"),
    "clock:drift": ("the clock of {nodes} drifts", "the clock of {nodes} is right again"),
    "clock-jump": ("the clock of {nodes} jumps", "the clock of {nodes} is right again"),
    "disk": ("the disk of {nodes} is full", "{nodes} {has} room again and {starts}, if it had ended"),
    "disk-full": ("the disk of {nodes} is full", "{nodes} {has} room again and {starts}, if it had ended"),
    "disk:error": ("the disk of {nodes} fails", "it works again, and {nodes} {starts} if it had ended"),
    "disk-error": ("the disk of {nodes} fails", "it works again, and {nodes} {starts} if it had ended"),
    "disk:error-once": ("one operation on the disk of {nodes} fails", "{nodes} {starts} if it had ended"),
    "disk:slow": ("the disk of {nodes} becomes slow", "the disk of {nodes} is as fast as ever"),
    "disk:read-only": ("the disk of {nodes} refuses writes", "the disk of {nodes} can be written again"),
    "disk:corrupt": ("{nodes} {is} killed, a file of {its} damaged, and {starts} on that", "the file is as it was"),
    "membership": ("the membership of {nodes} is changed", "the assignment is the old one again"),
    "membership:controlled-shutdown": ("{nodes} {is} asked to stop", "{nodes} {is} started again"),
    "membership:preferred-election": ("other replicas are to lead, for {nodes}", "the old replicas are to lead again"),
    "membership:reassign": ("partitions of {nodes} are reassigned", "the assignment is the old one again"),
    "membership:new-id": ("another broker takes the place of {nodes}", "{nodes} {is} back in {its} place"),
}
_DIRECTIONS: Final = {"outgoing": "what they send is lost", "incoming": "what is sent to them is lost"}


def _faults(rows: Sequence[Mapping[str, Any]], where: str) -> Iterator[_Line]:
    for row in rows:
        evidence = json.loads(row["evidence"])
        if "skipped" in evidence:
            continue
        begin, end = _words_of(row["nemesis"])
        one = len(row["targets"]) == 1
        forms = {
            "nodes": _named(row["targets"]),
            "is": "is" if one else "are", "has": "has" if one else "have",
            "its": "its" if one else "their", "goes": "goes" if one else "go", "starts": "starts" if one else "start",
            "restarts": "restart" if len(row["targets"]) > 2 else "restarts",
            "first": row["targets"][0] if row["targets"] else "nobody", "others": _named(row["targets"][1:]),
        }  # fmt: skip
        effects = "; ".join(_effects(evidence, where))
        yield _Line(row["start"] / 1e9, f"FAULT {begin.format(**forms)}{effects and f' ({effects})'}", _ESSENTIAL)
        if row["end"] is not None:
            yield _Line(row["end"] / 1e9, end.format(**forms), _ESSENTIAL - 1)


def _named(nodes: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(nodes[:-1]), *nodes[-1:])))


def _words_of(nemesis: str) -> tuple[str, str]:
    family, *variant = nemesis.split(":")[:2]
    known = _WORDS.get(":".join((family, *variant))) or _WORDS.get(family)
    return known or (f"{nemesis} strikes {{nodes}}", f"{nemesis} is over")


def _effects(evidence: Mapping[str, Any], where: str) -> Iterator[str]:
    if evidence.get("direction") in _DIRECTIONS:
        yield _DIRECTIONS[evidence["direction"]]
    for name, own in evidence.get("nodes", {}).items():
        if offset_ms := own.get("clock_offset_ms"):
            yield f"{words.duration(abs(offset_ms) / 1e3)} {'ahead' if offset_ms > 0 else 'back'}"
        if drifted_ms := own.get("clock_drifted_ms"):
            yield f"by {words.duration(abs(drifted_ms) / 1e3)} {'ahead' if drifted_ms > 0 else 'back'} in the end"
        if lost := own.get("lost_by_partition", {}).get(where):
            yield f"{name} loses {words.plural(lost, 'record')} of {where} that were never synced"


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
