"""The verdict on a run: what the checkers found, weighed with what the faults did.

| verdict | when                                                                                             |
| ------- | ------------------------------------------------------------------------------------------------ |
| fail    | an invariant was violated, or a property other than the weak ones does not hold, whatever else   |
|         | happened                                                                                         |
| unknown | nothing was acknowledged; or the faults asked for left no trace, or nothing was acknowledged once |
|         | the first had struck (`vacuous`); or the history ends before the final reads; or no replica's    |
|         | log was collected; or the cluster did not recover, or the workload crashed                       |
| pass    | otherwise                                                                                        |
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from checkers.anomalies import HISTORY_PROPERTIES, INVARIANTS, LIVENESS, LOST_APPEND, VIOLATION, WEAK
from checkers.invariants import Violation
from checkers.nodes import OfNodes

EXIT_CODES: Final = {"pass": 0, "fail": 1, "unknown": 2}
_LOSSES: Final = ("unsynced_bytes", "unsynced_files", "unsynced_records")

Fault = Mapping[str, Any]  # a FAULTS row, evidence parsed
Tally = Sequence[tuple[str, str, int, int]]  # (property, anomaly, witnesses, records)


@dataclass(frozen=True)
class Evidence:
    """All that a verdict rests on."""

    run: str
    plan: Mapping[str, Any]  # plan.json
    tally: Tally
    counts: Mapping[str, int]  # log_linearizability.count_operations, summed, and `lost`
    faults: Sequence[Fault]
    complete: bool  # the final log of every partition is known
    missing: Sequence[str]  # partitions whose final log is not known
    origin: int  # monotonic ns
    until: int
    replica_records: int
    orphans: int = 0  # records left out because the read that returned them is not on record
    doubts: Sequence[str] = ()  # of the harness
    violation: Violation | None = None  # of an invariant, which stopped the run
    examples: Mapping[str, str] = field(default_factory=dict)  # by property, a sentence: see anomalies.examples
    nodes: OfNodes | None = None  # from their traces and metadata logs; its anomalies are in `tally` too


def judge(evidence: Evidence) -> dict[str, Any]:
    """The content of verdict.json."""
    verdict, reason = _decide(evidence)
    counts = evidence.counts
    judged_s = round(max(evidence.until - evidence.origin, 0) / 1e9, 3)
    return {
        "verdict": verdict,
        "reason": reason,
        "exit_code": EXIT_CODES[verdict],
        "run": evidence.run,
        "operations": dict(counts),
        "lost": counts.get("lost", 0),
        "undecided": counts.get("undecided", 0),
        "anomalies": _by_property(evidence),
        "faults": summarise_faults(evidence.faults),
        "contract": contract(evidence.plan, evidence.faults),
        "complete": evidence.complete,
        "judged_until_s": judged_s,
        "replica_records": evidence.replica_records,
        "orphans": evidence.orphans,
        "nodes": _of_nodes(evidence.nodes),
        "unclean_recoveries": _unclean_recoveries(evidence),
    }


def _of_nodes(nodes: OfNodes | None) -> dict[str, Any]:
    """What the properties inside the cluster were judged from; nothing in a run of before they were recorded."""
    if nodes is None:
        return {"trace_rows": 0, "metadata_records": 0, "checked": [], "not_checked": ["nothing was looked for"]}
    return {
        "trace_rows": nodes.trace_rows, "metadata_records": nodes.metadata_records,
        "checked": nodes.checked, "not_checked": nodes.not_checked,
    }  # fmt: skip


def _unclean_recoveries(evidence: Evidence) -> list[dict[str, Any]]:
    """See nodes.py, with a sentence each, and `at_s` (null: not known) on the time line of the operations."""
    recoveries = []
    for entry in evidence.nodes.unclean_recoveries if evidence.nodes is not None else ():
        at_s = None if entry["time"] is None else round((entry["time"] - evidence.origin) / 1e9, 3)
        when = "" if at_s is None else f" at {at_s:.3f} s"
        how = f", strategy {entry['strategy']}" if entry["strategy"] else ""
        of = entry["candidates"]
        among = f", of the logs on brokers {', '.join(map(str, of))}" if of else ""
        sentence = (
            f"possible loss: unclean recovery of {entry['topic']}-{entry['partition']}{when}: broker {entry['leader']} "
            f"leads from leader epoch {entry['leader_epoch']} on{how}{among}"
        )
        recoveries.append({**entry, "at_s": at_s, "message": sentence})
    return recoveries


def _decide(evidence: Evidence) -> tuple[str, str]:
    violations = [entry for entry in evidence.tally if entry[0] not in WEAK]
    if evidence.violation is not None:
        besides = f"; besides, {_name(violations)}" if violations else ""
        return "fail", evidence.violation.sentence(evidence.origin) + besides
    if violations:
        return "fail", _name(violations)
    acknowledged = evidence.counts.get("acknowledged", 0)
    if not acknowledged:
        return "unknown", "vacuous: no append was acknowledged"
    if vacuous := _vacuous(evidence):
        return "unknown", f"vacuous: {vacuous}"
    if not evidence.complete:
        undecided = evidence.counts.get("undecided", 0)
        judged_s = (evidence.until - evidence.origin) / 1e9
        missing = ", ".join(evidence.missing[:3]) + (" …" if len(evidence.missing) > 3 else "")
        return "unknown", (
            f"the final reads of {missing} are missing, so a loss at the end would go unseen: no violation in the "
            f"{judged_s:.1f} s on record, {undecided:,} of {acknowledged:,} acknowledged appends undecided"
        )
    if not evidence.replica_records:
        return "unknown", "no replica's log was collected, so whether the replicas match is not known"
    if evidence.doubts:
        return "unknown", "; ".join(evidence.doubts)
    return "pass", f"all {acknowledged:,} acknowledged appends are in the final log and every operation is in order"


def _name(violations: Tally) -> str:
    """In the order of weight: what was lost first."""
    totals: dict[str, int] = defaultdict(int)
    for _, anomaly, _, records in violations:
        totals[anomaly] += records
    named = [f"{totals.pop(LOST_APPEND):,} lost appends"] if LOST_APPEND in totals else []
    named += [f"{anomaly} ({count:,})" for anomaly, count in sorted(totals.items())]
    return ", ".join(named)


def _vacuous(evidence: Evidence) -> str:
    """Why the faults prove nothing, or an empty string."""
    if not evidence.plan.get("nemesis"):
        return ""
    asked = ", ".join(evidence.plan["nemesis"])
    effective = [fault for fault in evidence.faults if fault["effective"]]
    if not effective:
        return f"no fault of {asked} left a trace of having taken effect"
    cuts = [fault for fault in evidence.faults if _is_power(fault)]
    if cuts and not any(_lost_anything(fault["evidence"]) for fault in cuts):
        return "no power cut lost anything that had not been synced"
    if not evidence.counts.get("acknowledged since", 0):
        return "no append was acknowledged once the first fault had struck"
    return ""


def first_effective(faults: Iterable[Fault]) -> int | None:
    """When the first fault that took effect struck, monotonic ns."""
    return min((fault["start"] for fault in faults if fault["effective"]), default=None)


def _is_power(fault: Fault) -> bool:
    return any(key in evidence for evidence in _each(fault) for key in _LOSSES)


def _lost_anything(evidence: Mapping[str, Any]) -> bool:
    return any((evidence.get(key) or 0) > 0 for key in _LOSSES)


def _each(fault: Fault) -> list[Mapping[str, Any]]:
    """The evidence as a whole and of each node."""
    return [fault["evidence"], *fault["evidence"].get("nodes", {}).values()]


def summarise_faults(faults: Sequence[Fault]) -> dict[str, Any]:
    """By nemesis: how many were injected, how many took effect, and what they lost."""
    summary: dict[str, dict[str, int]] = {}
    for fault in faults:
        mine = summary.setdefault(fault["nemesis"], {"injected": 0, "effective": 0, "skipped": 0})
        skipped = "skipped" in fault["evidence"]
        mine["skipped" if skipped else "injected"] += 1
        mine["effective"] += bool(fault["effective"])
        for key in _LOSSES:
            if key in fault["evidence"]:
                mine[key] = mine.get(key, 0) + int(fault["evidence"][key] or 0)
    return summary


def contract(plan: Mapping[str, Any], faults: Iterable[Fault]) -> dict[str, Any]:
    """Did the faults stay within what the protocol promises to survive: MinISR - 1 brokers at a time that lost
    unsynced records or bytes and are not back in sync? (design, section 4)"""
    limit = int(plan.get("min_insync_replicas", 1)) - 1
    moments: list[tuple[int, int, str]] = []
    for fault in faults:
        evidence = fault["evidence"]
        end = None if "not_in_sync" in evidence else evidence.get("in_sync_at", fault["end"])
        for broker in _lossy_brokers(fault):
            moments.append((fault["start"], 1, broker))
            if end is not None:  # else it never was whole again
                moments.append((end, -1, broker))
    out: dict[str, int] = defaultdict(int)
    worst, together = 0, []
    for _, change, broker in sorted(moments):
        out[broker] += change
        now = sorted(name for name, count in out.items() if count > 0)
        if len(now) > worst:
            worst, together = len(now), now
    within = worst <= limit
    names = ", ".join(together)
    if not worst:
        explanation = "no broker lost unsynced data"
    else:
        explanation = (
            f"at worst {worst} {'broker' if worst == 1 else 'brokers'} ({names}) had lost unsynced data and "
            f"{'was' if worst == 1 else 'were'} not back in sync, where MinISR - 1 = {limit} "
            f"{'is' if limit == 1 else 'are'} allowed at a time"
        )
    acks = str(plan.get("acks", "all"))
    if acks != "all":
        explanation += f"; with acks={acks} an acknowledged record may be lost with its leader alone"
    strategy = (plan.get("settings") or {}).get("unclean.recovery.strategy", "balanced")
    if strategy != "balanced":
        explanation += (
            f"; with unclean.recovery.strategy={strategy} acknowledged records may be lost whenever no eligible "
            "replica is available, lossy shutdown or not"
        )
    return {"within": within, "limit": limit, "worst": worst, "explanation": explanation}


def _lossy_brokers(fault: Fault) -> list[str]:
    """Brokers that a fault made lose unsynced records or bytes."""
    evidence: Mapping[str, Any] = fault["evidence"]
    nodes: Mapping[str, Any] = evidence.get("nodes") or dict.fromkeys(fault["targets"] or (), evidence)
    return sorted(
        name
        for name, own in nodes.items()
        if name.startswith("broker") and any((own.get(key) or 0) > 0 for key in ("unsynced_bytes", "unsynced_records"))
    )


def _by_property(evidence: Evidence) -> dict[str, Any]:
    """Every property that was checked, also those that hold; some invariants only the simulation checks."""
    checked = (*HISTORY_PROPERTIES, *(INVARIANTS if evidence.plan.get("on") == "simulation" else ()))
    if evidence.nodes is not None:
        checked += tuple(name for name in evidence.nodes.checked if name not in checked)
    if evidence.violation is not None:  # the run was stopped before it was healed
        checked = tuple(name for name in checked if name != LIVENESS)
    summary = {name: _property(name) for name in checked}
    tally, examples = list(evidence.tally), dict(evidence.examples)
    if evidence.violation is not None:
        tally.append((evidence.violation.property, VIOLATION, 1, 1))
        examples[evidence.violation.property] = evidence.violation.sentence(evidence.origin)
    for property_, anomaly, witnesses, records in tally:
        entry = summary.setdefault(property_, _property(property_))
        entry["count"] += records
        entry["witnesses"] += witnesses
        entry["anomalies"][anomaly] = entry["anomalies"].get(anomaly, 0) + records
        entry["example"] = examples.get(property_)
    return summary


def _property(name: str) -> dict[str, Any]:
    return {"count": 0, "witnesses": 0, "weak": name in WEAK, "anomalies": {}, "example": None}
