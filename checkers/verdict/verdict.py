"""The verdict on a run: what the checkers found, weighed with what the faults did.

| verdict | when                                                                                             |
| ------- | ------------------------------------------------------------------------------------------------ |
| fail    | an invariant was violated, or a property other than the weak ones does not hold, whatever else   |
|         | happened                                                                                         |
| unknown | files of the run are damaged or missing (see salvage.py), or its history contradicts itself as    |
|         | only a faulty recorder can make it; or the run was ended before its time, or its harness killed; |
|         | or nothing was acknowledged; or the cluster did not recover, or the workload crashed; or one of  |
|         | the nemeses asked for did not take effect, or nothing was acknowledged once the first fault had  |
|         | struck (`vacuous`); or the history ends before the final reads; or some of the evidence on the   |
|         | nodes was not collected (see collected.py); or something of its consumer groups, or by a checker |
|         | of the user's own, was not decided                                                               |
| pass    | otherwise                                                                                        |

A nemesis took effect if one of its faults left evidence of it; a composite if all the parts of one of its times did.
With `must_take_effect` "any" (seeds of an exploration) one fault of whichever nemesis is enough, with "none" none is
needed.

Thresholds of the plan (see thresholds.py) can make a `fail` or `unknown` of what is a pass or unknown by this table.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from checkers import balance
from checkers.groups import Groups
from checkers.inside.contract import contract, not_known, weigh_losses
from checkers.inside.losses import explain
from checkers.inside.metadata.planned import weigh_planned
from checkers.inside.of_nodes import OfNodes, inside_of
from checkers.inside.violation import Violation
from checkers.log.deletion import Deletion
from checkers.properties import (
    BALANCE,
    DELETION,
    EXACTLY_ONCE_PROCESSING,
    GROUP_PROPERTIES,
    HISTORY_PROPERTIES,
    INVARIANTS,
    LOG_LINEARIZABILITY,
    LOG_MATCHING,
    LOST_APPEND,
    OF_LIVENESS,
    TRANSACTIONS,
    TRANSACTIONS_SETTLE,
    V2_INVARIANTS,
    VIOLATION,
    WEAK,
)
from checkers.verdict import thresholds
from checkers.verdict.own import Own
from checkers.verdict.tally import EXIT_CODES, Tally, by_property, name
from checkers.verdict.vacuous import vacuous

if TYPE_CHECKING:
    from checkers.transactions.runs import OfTransactions

#: Of simulated clusters, by what is inside of them.
_INSIDE: Final[Mapping[str, Sequence[str]]] = {"kraft": INVARIANTS, "v2": V2_INVARIANTS}
_LOSSES: Final = ("unsynced_bytes", "unsynced_files", "unsynced_records")

Fault = Mapping[str, Any]  # a FAULTS row, evidence parsed


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
    lost_in: Sequence[str] = ()  # partitions that lost acknowledged appends, e.g. chaos-0
    wrong_in: Sequence[str] = ()  # partitions whose history is no log's
    damaged: Sequence[tuple[str, str]] = ()  # (file, why): what of the run could not be read
    gaps: Sequence[str] = ()  # what of the evidence on the nodes was not collected, a sentence each: see collected.py
    ended: str = ""  # how the run ended before its time, a sentence without its full stop
    not_judged: Sequence[str] = ()  # what therefore was not decided, a sentence each
    faults_known: bool = True
    availability: Mapping[str, Any] | None = None  # see availability.py
    deletion: Deletion | None = None  # where records may be deleted, and it could be judged
    groups: Groups | None = None  # of consumers, where the plan has some; its anomalies are in `tally` too
    transactions: OfTransactions | None = None  # where the plan has some; its anomalies are in `tally` too
    own: Own | None = None  # what checkers of the user's own found; its anomalies are in `tally` too


def nothing(
    run: str,
    plan: Mapping[str, Any],
    why: str,
    *,
    damaged: Sequence[tuple[str, str]] = (),
    violation: Violation | None = None,
    doubts: Sequence[str] = (),
    ended: str = "",
    origin: int = 0,
    until: int = 0,
) -> Evidence:
    """Of a run the history of which cannot be judged at all, as `why`, a sentence, says."""
    return Evidence(
        run=run, plan=plan, tally=[], counts={}, faults=[], complete=False, missing=[], origin=origin, until=until,
        replica_records=0, doubts=doubts, ended=ended, violation=violation, damaged=damaged,
        not_judged=[f"nothing could be judged: {why}"], faults_known=False,
    )  # fmt: skip


def judge(evidence: Evidence, attribution: Sequence[Mapping[str, Any]] = ()) -> dict[str, Any]:
    """The content of verdict.json, but for what keeping.py adds. attribution: of what was lost, see attribution.py."""
    of_contract = _contract(evidence)
    verdict, reason = _decide(evidence, of_contract, attribution)
    counts = evidence.counts
    judged_s = round(max(evidence.until - evidence.origin, 0) / 1e9, 3)
    result = {
        "verdict": verdict,
        "reason": reason,
        "exit_code": EXIT_CODES[verdict],
        "run": evidence.run,
        "operations": dict(counts),
        "lost": counts.get("lost", 0),
        "undecided": counts.get("undecided", 0),
        "anomalies": _by_property(evidence),
        "faults": summarise_faults(evidence.faults),
        "nemeses": of_nemeses(evidence.plan, evidence.faults),
        "contract": of_contract,
        **({"losses": losses} if (losses := _losses(evidence)) else {}),
        **({"attribution": list(attribution)} if attribution else {}),
        **({"deletion": evidence.deletion.as_dict()} if evidence.deletion is not None else {}),
        **({"groups": evidence.groups.as_dict()} if evidence.groups is not None else {}),
        **({"transactions": evidence.transactions.as_dict()} if evidence.transactions is not None else {}),
        **({"own_checkers": evidence.own.told} if evidence.own is not None else {}),
        "availability": None if evidence.availability is None else dict(evidence.availability),
        "complete": evidence.complete and not evidence.gaps,
        "evidence_missing": list(evidence.gaps[:_MOST_GAPS]),
        "ended_early": evidence.ended or None,
        "origin_ns": evidence.origin,
        "judged_until_s": judged_s,
        "replica_records": evidence.replica_records,
        "orphans": evidence.orphans,
        "nodes": _of_nodes(evidence.nodes),
        "unclean_recoveries": _unclean_recoveries(evidence),
        "damaged": [{"file": file, "why": why} for file, why in evidence.damaged],
        "not_judged": list(evidence.not_judged),
    }
    return thresholds.apply(evidence.plan.get("expect") or (), result, EXIT_CODES)


def _contract(evidence: Evidence) -> dict[str, Any]:
    if not evidence.faults_known:
        return not_known("what is on record of the faults is damaged")
    if not evidence.plan:
        return not_known("the plan is missing or damaged")
    held = evidence.nodes.who_held_what if evidence.nodes is not None else None
    return contract(evidence.plan, evidence.faults, held, evidence.origin)


def _losses(evidence: Evidence) -> list[str]:
    """How what was lost was lost, a sentence each."""
    if not evidence.lost_in or not evidence.faults_known:
        return []
    held = evidence.nodes.who_held_what if evidence.nodes is not None else None
    return explain(evidence.lost_in, evidence.faults, held, evidence.origin)


def absent(plan: Mapping[str, Any], logs: Iterable[str]) -> list[str]:
    """The partitions that the plan has and of which nothing at all is on record. logs: e.g. chaos-0."""
    topic, partitions = plan.get("topic"), plan.get("partitions")
    if not isinstance(topic, str) or type(partitions) is not int:
        return []
    there = set(logs)
    return [log for log in (f"{topic}-{number}" for number in range(min(partitions, _MOST_LOGS))) if log not in there]


_MOST_LOGS: Final = 100_000
_MOST_GAPS: Final = 1000
_NAMED: Final = 3  # gaps in the reason


def places_of(rows: Iterable[Mapping[str, Any]], column: str, value: str) -> list[str]:
    """The partitions of those anomalies (ANOMALIES) that have this value in a column, e.g. chaos-0."""
    return sorted({f"{row['topic']}-{row['partition']}" for row in rows if row[column] == value})


def _of_nodes(nodes: OfNodes | None) -> dict[str, Any]:
    """What the properties inside the cluster were judged from; nothing in a run of before they were recorded."""
    if nodes is None:
        return {"trace_rows": 0, "metadata_records": 0, "checked": [], "not_checked": ["nothing was looked for"]}
    return {
        "trace_rows": nodes.trace_rows, "metadata_records": nodes.metadata_records,
        "trace_of": sorted(nodes.trace_of), "metadata_of": sorted(nodes.metadata_of),
        "checked": nodes.checked, "not_checked": nodes.not_checked,
        **({"looked_at": nodes.looked_at} if nodes.looked_at else {}),
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


def _decide(
    evidence: Evidence, of_contract: Mapping[str, Any], attribution: Sequence[Mapping[str, Any]]
) -> tuple[str, str]:
    violations = [entry for entry in evidence.tally if entry[0] not in WEAK]
    weight = ""
    if any(anomaly == LOST_APPEND for _, anomaly, *_ in violations):
        weight = weigh_losses(of_contract, evidence.lost_in) + weigh_planned(attribution)
    elif any(property_ == LOG_LINEARIZABILITY for property_, *_ in violations):
        weight = weigh_losses(of_contract, evidence.wrong_in)
    elif any(property_ in _AS_RECORDS for property_, *_ in violations):
        weight = weigh_losses(of_contract, ())
    named = name(violations, evidence.counts.get("lost unacknowledged", 0))
    if evidence.violation is not None:
        besides = f"; besides, {named}{weight}" if violations else ""
        return "fail", evidence.violation.sentence(evidence.origin) + besides
    if violations:
        return "fail", named + weight
    if evidence.damaged:
        file, why = evidence.damaged[0]
        others = len(evidence.damaged) - 1
        more = f", and so {'is' if others == 1 else 'are'} {others} more file{'s' * (others > 1)}" if others else ""
        return "unknown", f"{file} is damaged ({why}){more}; what is left shows no violation"
    if evidence.not_judged:
        return "unknown", "; ".join(evidence.not_judged)
    if evidence.orphans:
        return (
            "unknown",
            f"{evidence.orphans:,} records were returned by reads that are not on record: some are missing",
        )
    acknowledged = evidence.counts.get("acknowledged", 0)
    so_far = f"no violation in the {(evidence.until - evidence.origin) / 1e9:.1f} s on record"
    if not evidence.complete:
        undecided = evidence.counts.get("undecided", 0)
        so_far += f", {undecided:,} of {acknowledged:,} acknowledged appends undecided"
    if evidence.ended:
        return "unknown", f"{evidence.ended}: {so_far}"
    if not acknowledged:
        return "unknown", vacuous("no append was acknowledged")
    if evidence.doubts:  # of a harness that failed nobody knows whether its faults took effect
        return "unknown", "; ".join(evidence.doubts)
    if why := _proves_nothing(evidence):
        return "unknown", vacuous(why)
    if not evidence.complete:
        missing = ", ".join(evidence.missing[:3]) + (" …" if len(evidence.missing) > 3 else "")
        return "unknown", f"the final reads of {missing} are missing, so a loss at the end would go unseen: {so_far}"
    if evidence.gaps:
        more = f"; and {len(evidence.gaps) - _NAMED:,} more such" if len(evidence.gaps) > _NAMED else ""
        return "unknown", f"evidence is missing: {'; '.join(evidence.gaps[:_NAMED])}{more}"
    if not evidence.replica_records and evidence.plan.get("replica_logs", True):
        return "unknown", "no replica's log was collected, so whether the replicas match is not known"
    where = "in the final log"
    if (evidence.plan.get("log") or {}).get("keys"):
        where += ", or a later one of the same key is,"
    in_order = f"all {acknowledged:,} acknowledged appends are {where} and every operation is in order"
    if (deleted := evidence.deletion) is not None and deleted.deleted:
        in_order = (
            f"of {acknowledged:,} acknowledged appends {deleted.deleted:,} were deleted as they were to be, all others "
            f"are {where} and every operation is in order"
        )
        if deleted.not_judged:
            logs = ", ".join(deleted.not_judged[:_NAMED]) + ", …" * (len(deleted.not_judged) > _NAMED)
            in_order += f"; whether too much was deleted of {logs} is not known"
    if evidence.transactions is not None:
        in_order += f"; {evidence.transactions.said}"
    return "pass", in_order + _rarely_served(evidence.availability)


#: What is known of groups, and of transactions, is lost as records are.
_AS_RECORDS: Final = frozenset({*GROUP_PROPERTIES, TRANSACTIONS, EXACTLY_ONCE_PROCESSING, TRANSACTIONS_SETTLE})
#: Of the time, for each partition: one that acknowledged for less had little to prove.
_LEAST_SHARE: Final = 0.5


def _rarely_served(availability: Mapping[str, Any] | None) -> str:
    """A clause for the reason of a pass; "": every partition could be written to most of the time."""
    least = (availability or {}).get("least_served")
    if least is None or least["share"] >= _LEAST_SHARE:
        return ""
    return f"; but {least['partition']} acknowledged for only {least['share']:.0%} of the time"


def _proves_nothing(evidence: Evidence) -> str:
    """Why the faults prove nothing, or an empty string."""
    must = evidence.plan.get("must_take_effect", "each")
    if not evidence.plan.get("nemesis"):
        return ""
    if must != "none" and not any(fault["effective"] for fault in evidence.faults):
        asked = ", ".join(evidence.plan["nemesis"])
        return f"no fault of {asked} took effect"
    if must == "each" and (idle := [each for each in of_nemeses(evidence.plan, evidence.faults) if each["why_not"]]):
        return "; ".join(f"{each['nemesis']} did not take effect: {each['why_not']}" for each in idle)
    struck = first_effective(evidence.faults)
    if struck is not None and not evidence.counts.get("acknowledged since", 0):
        return "no append was acknowledged once the first fault had struck"
    return ""


def of_nemeses(plan: Mapping[str, Any], faults: Sequence[Fault]) -> list[dict[str, Any]]:
    """Of each nemesis of the plan, did it take effect? {nemesis, faults, skipped, effective, why_not}: how many of its
    faults were begun or skipped, of these skipped, and with evidence of an effect; why_not: a clause, None if it did.

    One fault with evidence is enough; of a composite, all the parts of one of its times."""
    asked = list(plan.get("nemesis") or ())
    return [_of_nemesis(name, _faults_of(name, asked, faults)) for name in asked]


def _faults_of(name: str, asked: Sequence[str], faults: Sequence[Fault]) -> list[Fault]:
    mine = [fault for fault in faults if _composite_of(fault) == name]
    mine += [fault for fault in faults if _composite_of(fault) is None and fault["nemesis"] == name]
    if mine or any(_composite_of(fault) for fault in faults):
        return mine
    # Runs of earlier versions do not say what is part of a composite: it is what nobody else asked for.
    return [fault for fault in faults if fault["nemesis"] not in asked]


def _composite_of(fault: Fault) -> str | None:
    return (fault["evidence"].get("part_of") or {}).get("composite")


def _of_nemesis(name: str, faults: Sequence[Fault]) -> dict[str, Any]:
    times: dict[Any, list[Fault]] = defaultdict(list)
    for fault in faults:
        part = fault["evidence"].get("part_of")
        times[fault["fault"] if part is None else ("time", part["occurrence"])].append(fault)
    took = any(
        all(fault["effective"] for fault in parts) and len(parts) >= _parts(parts[0]) for parts in times.values()
    )  # fmt: skip
    skipped = [fault for fault in faults if "skipped" in fault["evidence"]]
    summary = {
        "nemesis": name, "faults": len(faults), "skipped": len(skipped),
        "effective": sum(bool(fault["effective"]) for fault in faults), "why_not": None,
    }  # fmt: skip
    return summary if took else summary | {"why_not": _why_not(faults, skipped)}


def _parts(fault: Fault) -> int:
    return int((fault["evidence"].get("part_of") or {}).get("parts", 1))


def _why_not(faults: Sequence[Fault], skipped: Sequence[Fault]) -> str:
    if not faults:
        return "none of its faults was begun"
    idle = [fault for fault in faults if not fault["effective"] and fault not in skipped]
    reported = []
    if skipped:
        reported.append(f"{len(skipped)} of {len(faults)} faults skipped ({skipped[0]['evidence']['skipped']})")
    if idle:
        reported.append(f"{len(idle)} of {len(faults)} without effect ({_without_effect(idle[0])})")
    return ", ".join(reported) or "never all of its parts at a time"


def _without_effect(fault: Fault) -> str:
    evidence = fault["evidence"]
    failed = next((str(value) for key, value in evidence.items() if key.endswith("_failed")), None)
    return failed or ("nothing that had not been synced was lost" if _is_power(fault) else "it left no trace")


def first_effective(faults: Iterable[Fault]) -> int | None:
    """When the first fault that took effect struck, monotonic ns."""
    return min((fault["start"] for fault in faults if fault["effective"]), default=None)


def _is_power(fault: Fault) -> bool:
    return any(key in evidence for evidence in _each(fault) for key in _LOSSES)


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


def _by_property(evidence: Evidence) -> dict[str, Any]:
    """Every property that was checked, also those that hold; some invariants only the simulation checks."""
    of_history = tuple(name for name in HISTORY_PROPERTIES if name != LOG_MATCHING or evidence.replica_records)
    if balance.plans(evidence.faults):
        of_history += (BALANCE,)
    if evidence.deletion is not None:
        of_history += (DELETION,)
    if evidence.groups is not None:
        of_history += tuple(evidence.groups.checked)
    if evidence.transactions is not None:
        of_history += tuple(evidence.transactions.checked)
    if evidence.own is not None:
        of_history += tuple(evidence.own.checked)
    simulated = evidence.plan.get("on") == "simulation"
    checked = (*of_history, *(_INSIDE.get(inside_of(evidence.plan), ()) if simulated else ()))
    if evidence.nodes is not None:
        checked += tuple(name for name in evidence.nodes.checked if name not in checked)
    if evidence.violation is not None:  # the run was stopped before it was healed
        checked = tuple(name for name in checked if name not in OF_LIVENESS)
    tally, examples = list(evidence.tally), dict(evidence.examples)
    if evidence.violation is not None:
        tally.append((evidence.violation.property, VIOLATION, 1, 1))
        examples[evidence.violation.property] = evidence.violation.sentence(evidence.origin)
    return by_property(checked, tally, examples)
