"""The first screen of a report: what was promised, was it kept, what happened, in a few sentences that name the fault;
and what one needs to run it again."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from checkers.inside.metadata.planned import DOCUMENTED
from harness.plan.plan import Plan
from harness.report import words
from harness.report.html.aggregate import Fault, Summary
from harness.report.html.data import RunData

_FEW: Final = 3
_PLACES: Final = {"docker": "containers", "simulation": "simulated", "ssh": "hosts over SSH"}
#: A cause as checkers/inside/attribution.py has it.
DROPPED: Final = re.compile(r"took it from (\S+), which was elected leader without it; (.+) dropped it to follow")
#: Of a plan, that say which run it is and not how it differs from others.
_OF_A_RUN: Final = frozenset({
    "run", "nemesis", "seed", "settings", "schedule", "features", "clients", "target", "on",
    "workload",
})  # fmt: skip


def sentences(data: RunData, summary: Summary) -> list[tuple[str, str]]:
    """(what it answers, the sentence), in the order in which one asks."""
    found = [
        ("Promised", _promised(data)),
        ("Kept?", _kept(data, summary)),
        ("What happened", _happened(data, summary)),
        ("Where" if len(summary.lost) else "Availability", _where(data, summary)),
        ("Was it allowed?", _allowed(data)),
    ]
    return [(question, words.sentence(answer)) for question, answer in found if answer]


def _promised(data: RunData) -> str:
    contract = _mapping(data.verdict.get("contract"))
    promise = _mapping(contract.get("promise") or data.plan_fields.get("promise"))
    if not promise.get("sentence"):
        return ""
    exceptions = "" if contract.get("promised", True) is not False else "; not with the settings of this run"
    return f"{promise['sentence']} ({promise.get('source')}){exceptions}"


def _kept(data: RunData, summary: Summary) -> str:
    outcome = data.verdict.get("verdict")
    if not data.verdict:
        return "not known: this run has not been judged"
    acknowledged, lost = summary.counts["ok"], len(summary.lost)
    if not lost:
        if outcome == "pass":
            deleted = _mapping(data.verdict.get("deletion")).get("deleted")
            but = f" ({deleted:,} were deleted, as they were to be)" if isinstance(deleted, int) and deleted else ""
            return (
                f"yes: none of {acknowledged:,} acknowledged records is lost{but}, and every operation fits one order"
            )
        if outcome == "unknown":
            return "not known: this run proves nothing either way, and must not be read as a pass"
        return f"no acknowledged record is lost; but {_example(data)}" if outcome == "fail" else ""
    gone = int(summary.lost["complete"].notna().sum())
    only_read = lost - gone
    share = f" ({gone / acknowledged:.1%})" if acknowledged else ""
    read = (
        f"; and {words.plural(only_read, 'record')} that consumers read, and that no producer was told of, "
        f"{'is' if only_read == 1 else 'are'} gone too: {lost:,} in all"
        if only_read
        else ""
    )
    unpromised = _mapping(data.verdict.get("contract")).get("promised") is False
    kept = "nothing was promised with these settings:" if unpromised else "no:"
    return f"{kept} of {acknowledged:,} acknowledged records {gone:,}{share} never came back{read}"


def _example(data: RunData) -> str:
    """Of what does not hold, in a sentence."""
    broken = [
        (str(name), entry) for name, entry in _mapping(data.verdict.get("anomalies")).items()
        if isinstance(entry, Mapping) and entry.get("count") and not entry.get("weak")
    ]  # fmt: skip
    reason = str(data.verdict.get("reason") or "something does not hold")
    for name, entry in broken:
        example = str(entry.get("example") or "")
        if example and example not in reason:
            return f"{name} does not hold: {example}"
    return f"{', '.join(name for name, _ in broken)} does not hold" if broken else reason


def _happened(data: RunData, summary: Summary) -> str:
    faults = {fault.number: fault for fault in summary.faults}
    groups = [group for group in attribution(data) if group["records"]]
    if groups:
        told = [_took(group, faults) for group in _by_fault(groups)[:_FEW]]
        if all(group["fault"] is None for group in groups):  # what is known by partition, if not by offset
            losses = data.verdict.get("losses")
            told += [str(each) for each in losses[:1]] if isinstance(losses, list) else []
        return "; ".join(told)
    if len(summary.lost):
        return "which fault took them was not measured: this run was recorded, or judged, by an older version"
    effective = [fault for fault in summary.faults if fault.effective]
    if not effective:
        return "no fault is proven to have taken effect" if summary.faults else "no fault was injected"
    kinds = Counter(fault.nemesis for fault in effective)
    which = ", ".join(f"{count} of {name}" if len(kinds) > 1 else name for name, count in kinds.items())
    took = sum(_records(fault) for fault in effective)
    lossy = f"; together they took {words.plural(took, 'unsynced record')} of single replicas" if took else ""
    count = len(effective)
    return f"{words.plural(count, 'fault')} ({which}) of {len(summary.faults)} took effect{lossy}"


def _by_fault(groups: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """One for each fault, and one for those of which none is known; the most records first."""
    found: dict[Any, dict[str, Any]] = {}
    for group in groups:
        key = group["fault"]
        mine = found.setdefault(
            key, {**group, "records": 0, "acknowledged": 0, "nodes": Counter(), "causes": Counter()}
        )
        mine["records"] += group["records"]
        mine["acknowledged"] += group["acknowledged"]
        mine["nodes"][group["node"]] += group["records"]
        mine["causes"][group["cause"]] += group["records"]
    return sorted(found.values(), key=lambda group: -group["records"])


def _took(group: Mapping[str, Any], faults: Mapping[int, Fault]) -> str:
    back = f"{group['acknowledged']:,} acknowledged {'one' if group['acknowledged'] == 1 else 'ones'} never came back"
    fault = faults.get(group["fault"]) if group["fault"] is not None else None
    nodes = [node for node, _ in group["nodes"].most_common() if node]
    last = f"; {nodes[0]} had {'most of them' if len(nodes) > 1 else 'them'} last" if nodes else ""
    if dropped := DROPPED.fullmatch(max(group["causes"], key=group["causes"].get)):
        last = f"; {dropped[1]} was elected leader without them, and {dropped[2]} dropped them to follow it"
    if fault is None:
        cause = max(group["causes"], key=group["causes"].get)
        if cause.endswith(DOCUMENTED):
            return f"{words.plural(group['records'], 'record')} lost, and {cause}{last}"
        cause = cause.removeprefix("not known: ")
        return f"what took {words.plural(group['records'], 'lost record')} is not known: {cause}{last}"
    took, whom = _records(fault), _of_whom(fault)
    taken = f"took {words.plural(took, 'unsynced record')} of {whom}" if took else f"struck {whom}"
    return f"{kind_of(fault)} {fault.name} at {fault.start:.1f} s {taken}; {back}{last}"


def kind_of(fault: Fault) -> str:
    family = fault.nemesis.partition(":")[0]
    known = {"power": "the power cut", "power-outage": "the power cut", "power-outage-cluster": "the power cut",
             "page-cache": "the loss of the page cache", "kill": "the kill"}  # fmt: skip
    if fault.nemesis == "disk:corrupt":
        return "the damage to a file"
    return known.get(family, fault.nemesis)


def _of_whom(fault: Fault) -> str:
    lost = {
        node for node, own in _mapping(fault.evidence.get("nodes")).items()
        if isinstance(own, Mapping) and (own.get("unsynced_records") or own.get("damaged_by_partition"))
    }  # fmt: skip
    named = [target for target in fault.targets if target in lost] or fault.targets
    if len(named) > _FEW + 1:
        return f"{len(named)} nodes"
    return " and ".join(filter(None, (", ".join(named[:-1]), named[-1]))) if named else "nobody"


def _records(fault: Fault) -> int:
    found = fault.evidence.get("unsynced_records")
    return found if isinstance(found, int) else 0


def _where(data: RunData, summary: Summary) -> str:
    if not len(summary.lost):
        gap = summary.longest_gap
        return (
            f"the longest time without any acknowledgement: {words.duration(gap[0])}, from {words.second(gap[1])}"
            if gap
            else ""
        )
    lost = summary.lost
    ranges = [
        f"{name} {ranges_of(rows['offset'], 2)}" for name, rows in lost.groupby("partition_name", sort=False)
    ]  # fmt: skip
    more = f" and {len(ranges) - _FEW} more partitions" if len(ranges) > _FEW else ""
    seconds = lost["second"].dropna()
    when = f", acknowledged from {seconds.min():.1f} s to {seconds.max():.1f} s" if len(seconds) else ""
    return f"lost are the offsets {'; '.join(ranges[:_FEW])}{more}{when}"


def _allowed(data: RunData) -> str:
    contract = _mapping(data.verdict.get("contract"))
    if contract.get("within") is None or not contract.get("explanation"):
        return ""
    if contract.get("promised") is False:
        return f"yes: nothing better is promised with the settings of this run: {contract['explanation']}"
    if contract["within"]:
        bug = ": what was lost is a bug" if data.verdict.get("lost") and contract.get("promised") else ""
        return f"the faults stayed within what is promised to be survived{bug}: {contract['explanation']}"
    return f"the faults went beyond what is promised to be survived: {contract['explanation']}"


def attribution(data: RunData) -> list[dict[str, Any]]:
    """`attribution` of verdict.json, as far as it is what it is to be (see checkers/inside/attribution.py)."""
    found = []
    entries = data.verdict.get("attribution")
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, Mapping) and isinstance(entry.get("records"), int):
            found.append({
                "fault": entry.get("fault") if isinstance(entry.get("fault"), int) else None,
                "node": str(entry["node"]) if entry.get("node") else None,
                "cause": str(entry.get("cause") or ""),
                "records": entry["records"],
                "acknowledged": entry["acknowledged"] if isinstance(entry.get("acknowledged"), int) else 0,
                "first_s": entry.get("first_s"), "last_s": entry.get("last_s"),
                "partitions": {
                    str(name): _ranges(ranges) for name, ranges in _mapping(entry.get("partitions")).items()
                },
            })  # fmt: skip
    return found


def _ranges(value: Any) -> list[tuple[int, int]]:
    """Pairs of numbers; what is none is left out."""
    return [
        (each[0], each[1])
        for each in (value if isinstance(value, list) else ())
        if isinstance(each, list) and len(each) == 2 and all(type(offset) is int for offset in each)
    ]


def ranges_of(offsets: Any, most: int = 6) -> str:
    """Offsets as runs, e.g. 17–20, 25, 31–40."""
    import numpy as np

    values = np.unique(offsets.dropna().to_numpy("int64"))
    if not len(values):
        return words.DASH
    breaks = np.flatnonzero(np.diff(values) > 1)
    starts, ends = values[[0, *(breaks + 1)]], values[[*breaks, len(values) - 1]]
    runs = [f"{first}" if first == last else f"{first}–{last}" for first, last in zip(starts, ends, strict=True)]
    return ", ".join(runs[:most]) + (f" and {len(runs) - most} more runs" if len(runs) > most else "")


def facts(data: RunData) -> Iterator[tuple[str, str]]:
    """What was tested, by what, where, and how it differs from a run without options: (name, value)."""
    run, plan = data.run, data.plan_fields
    target = str(plan.get("target") or "")
    yield "Target", ": ".join(filter(None, (target, str(run.get("tested") or ""))))
    chaos = _mapping(run.get("chaos"))
    checkers = _mapping(data.verdict.get("checkers"))
    commit = f", commit {str(chaos['commit'])[:12]}" if chaos.get("commit") else ""
    by = f"; judged by checkers {checkers.get('version')} ({checkers.get('source')})" if checkers else ""
    if chaos or checkers:
        yield "chaos", f"{chaos.get('version') or 'version not noted'}{commit}{by}"
    host = _mapping(run.get("host"))
    if host:
        memory = f", {words.size(host['memory_bytes'])}" if isinstance(host.get("memory_bytes"), int) else ""
        yield "Host", f"{host.get('system')}, {host.get('cpus')} processors{memory}, Python {host.get('python')}"
    yield (
        "Where",
        _PLACES.get(str(plan.get("on")), str(plan.get("on") or "")),
    )
    rate = words.number(_number(plan.get("rate")))
    yield "Workload", f"{plan.get('workload', 'append')}, {rate} records a second, acks={plan.get('acks')}"
    yield "Settings that differ from the defaults", "; ".join(_differences(plan)) or "nothing"


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def _differences(plan: Mapping[str, Any]) -> Iterable[str]:
    for name, field in Plan.model_fields.items():
        if name in _OF_A_RUN or name not in plan:
            continue
        value, default = plan[name], field.default
        if isinstance(value, list):  # as JSON has a tuple
            value = tuple(map(str, value))
        if value != default:
            yield f"{name.replace('_', ' ')} {', '.join(value) if isinstance(value, tuple) else value}"
    for kind in ("settings", "features", "clients"):
        for name, value in _mapping(plan.get(kind)).items():
            yield f"{name}={value}"


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
