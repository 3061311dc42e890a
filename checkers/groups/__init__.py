"""The consumer groups of a run of `chaos run` whose plan has `groups`: what their members were given and did, held
against what Kafka says of delivery ("Message Delivery Semantics" of its design; KafkaConsumer's documentation) and of
rebalances (KIP-345, KIP-429, KIP-447, KIP-848). Jepsen's analyses of Redpanda and Bufstream look for the same by what
consumers poll: records skipped, or never polled, and positions that go back.

| property | in | anomalies |
| --- | --- | --- |
| at-least-once processing | delivery.py | unprocessed record |
| at-most-once processing | delivery.py | processed twice |
| committed offsets | committed.py | committed offset went back, lost commit, phantom commit |
| consumer positions | positions.py | skipped records, position went back |
| consumer positions | committed.py | skipped after rebalance, began below the committed offset |
| commit order | order.py | committed before processing, processed before commit |
| partition ownership | ownership.py | two owners, zombie commit |
| group settles | settling.py | group not settled |
| consumer groups, allowed | all | weak: what a right Kafka may do too |

The plan's `groups`: {NAME: {"commit": "after" or "before" processing, "mode": "auto", "sync" or "async", "protocol":
"classic" or "consumer", "assignor": …, "static": bool, "settle_s": seconds}}.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa

from checkers.anomalies import Anomalies
from checkers.groups import committed, delivery, order, ownership, positions, settling
from checkers.groups.committed import Trust
from checkers.groups.events import COMMIT, KINDS, OK, POLL, Group, read
from checkers.groups.records import COLUMNS, NOTHING, Acknowledged, Known, acknowledged, union
from checkers.groups.report import Report
from checkers.properties import (
    AT_LEAST_ONCE,
    AT_MOST_ONCE,
    COMMIT_ORDER,
    COMMITTED_OFFSETS,
    CONSUMER_POSITIONS,
    GROUP_SETTLES,
    GROUPS_ALLOWED,
    PARTITION_OWNERSHIP,
)
from spark_history.errors import HistoryError
from spark_history.log import NEVER, NOWHERE

__all__ = ["COLUMNS", "Facts", "Groups", "acknowledged", "applies", "check"]

SETTLE_S: Final = 30.0

Log = tuple[str, int]
Written = Mapping[Log, Acknowledged]


@dataclass(frozen=True)
class Facts:
    """What is known of the run. Times are monotonic ns. healed: when all faults were; None: not known. until: the last
    thing on record."""

    run: str
    plan: Mapping[str, Any]
    faults: Sequence[Mapping[str, Any]]  # rows of FAULTS
    origin: int
    until: int
    healed: int | None = None


@dataclass
class Groups:
    """What was found. checked: names of properties. undecided: why others were not decided, a sentence each. counts:
    by group, how many events of each kind there are."""

    anomalies: list[Anomalies]
    checked: list[str]
    undecided: list[str] = field(default_factory=list)
    counts: dict[str, dict[str, int]] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        return {"checked": self.checked, "undecided": self.undecided, "events": self.counts}


def applies(plan: Mapping[str, Any]) -> bool:
    return isinstance(plan.get("groups"), Mapping) and bool(plan["groups"])


def healed_of(record: Mapping[str, Any]) -> int | None:
    """From run.json."""
    healed = record.get("healed_ns")
    return healed if type(healed) is int and healed >= 0 else None


def check(facts: Facts, events: pa.Table, written: Written) -> Groups:
    """events: GROUP_EVENTS; written: see acknowledged(). Of a run that this applies to. Raises HistoryError."""
    settings = {str(name): of for name, of in facts.plan["groups"].items() if isinstance(of, Mapping)}
    groups = read(events)
    report = Report(facts.run, facts.origin, facts.faults)
    found = Groups([], _checked(settings))
    known = _known(groups.values(), written)
    for name, of in sorted(settings.items()):
        if name not in groups:
            found.undecided.append(f"group {name}: nothing of it is on record")
            continue
        _judge(facts, groups[name], of, written, known, report, found)
    found.anomalies = report.anomalies()
    return found


def _checked(settings: Mapping[str, Mapping[str, Any]]) -> list[str]:
    orders = {str(of.get("commit", "after")) for of in settings.values()}
    once = [AT_LEAST_ONCE] * ("after" in orders) + [AT_MOST_ONCE] * ("before" in orders)
    return [
        *once, COMMITTED_OFFSETS, CONSUMER_POSITIONS, COMMIT_ORDER, PARTITION_OWNERSHIP, GROUP_SETTLES, GROUPS_ALLOWED,
    ]  # fmt: skip


def _known(groups: Iterable[Group], written: Written) -> Mapping[Log, Known]:
    polled: dict[Log, list[tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]]] = {}
    for group in groups:
        for log, share in group.shares.items():
            polls = share.of_kind(POLL)
            polls = polls[share.rows.outcome[polls] == OK]
            polled.setdefault(log, []).append((share.rows.start[polls], share.rows.end[polls]))
    empty = np.empty(0, np.int64)
    known = {}
    for log in {*polled, *written}:
        parts = polled.get(log, [])
        ranges = union(np.concatenate([empty, *(a for a, _ in parts)]), np.concatenate([empty, *(b for _, b in parts)]))
        known[log] = Known(written.get(log, NOTHING).offset, ranges)
    return known


def _judge(
    facts: Facts,
    group: Group,
    settings: Mapping[str, Any],
    written: Written,
    known: Mapping[Log, Known],
    report: Report,
    found: Groups,
) -> None:
    before, auto = settings.get("commit") == "before", settings.get("mode") == "auto"
    settle_ns, healed = _settle_ns(group.name, settings), facts.healed
    struck = min((int(fault["start"]) for fault in facts.faults), default=NEVER)
    trust = Trust(struck, NEVER if healed is None else healed + settle_ns)
    unsure = []
    for log, share in sorted(group.shares.items()):
        positions.check(share, known[log], auto, report)
        ownership.check(share, settings, report)
        commits = share.of_kind(COMMIT)
        untold = bool(np.any(share.rows.end[commits] == NOWHERE))  # of which offset?
        if auto:
            committed.check_auto(share, known[log], report)
        elif untold:
            unsure.append(share.log)
        else:
            committed.check(share, known[log], trust, report)
            if before:
                order.check_before(share, report)
            else:
                order.check_after(share, known[log], report)
        if before:
            delivery.check_twice(share, report)
        else:
            delivery.count_again(share, report)
    if unsure:
        found.undecided.append(f"group {group.name}: what was committed of {_few(unsure)} is not known")
    found.counts[group.name] = _count(group)
    _judge_end(facts, group, _logs(facts.plan, group, written), written, settle_ns, not before, report, found)


def _settle_ns(name: str, settings: Mapping[str, Any]) -> int:
    settle_s = settings.get("settle_s", SETTLE_S)
    if isinstance(settle_s, bool) or not isinstance(settle_s, int | float) or not 0 < settle_s < _MOST_S:
        raise HistoryError(f"the plan's settle_s of group {name} is to be a number of seconds, not {settle_s!r}")
    return int(settle_s * 1e9)


_MOST_S: Final = 1e9


def _count(group: Group) -> dict[str, int]:
    counts = np.zeros(len(KINDS), np.int64)
    for share in group.shares.values():
        counts += np.bincount(share.rows.kind, minlength=len(KINDS))
    return {kind: int(count) for kind, count in zip(KINDS, counts, strict=True) if count}


def _logs(plan: Mapping[str, Any], group: Group, written: Written) -> list[Log]:
    """All partitions of the topics that the group consumes."""
    topics = {topic for topic, _ in group.shares}
    of_run, partitions = plan.get("topic"), plan.get("partitions")
    logs = set(group.shares)
    if isinstance(of_run, str):
        topics.add(of_run)
        logs |= {(of_run, number) for number in range(min(partitions, _MOST_LOGS) if type(partitions) is int else 0)}
    return sorted(logs | {log for log in written if log[0] in topics})


_MOST_LOGS: Final = 100_000


def _judge_end(
    facts: Facts,
    group: Group,
    logs: Sequence[Log],
    written: Written,
    settle_ns: int,
    at_least_once: bool,
    report: Report,
    found: Groups,
) -> None:
    """What the group is to have come to by the end."""
    settings = facts.plan.get("log") or {}
    deletes = facts.plan.get("log_start") == "moves" or "compact" in str(settings.get("cleanup.policy", ""))
    missing: dict[Log, Any] = {}
    if at_least_once and deletes:
        found.undecided.append(f"group {group.name}: records are deleted, so which it was to process is not known")
    elif at_least_once:
        every = {log: delivery.unprocessed(group.shares.get(log), written.get(log, NOTHING)) for log in logs}
        missing = {log: offsets for log, offsets in every.items() if len(offsets)}
    if facts.healed is None:
        why = f"group {group.name}: when all faults were healed is not known, so whether it"
        found.undecided.append(f"{why} settles is not known")
        if missing:
            found.undecided.append(f"{why} had the time for all records is not known")
        return
    calm = settling.calm(group, facts.healed, max(facts.until, group.until))
    by = min(calm.until, calm.since + settle_ns)
    enough = calm.lasts(settle_ns)
    shorter = settling.stretches(group, facts.healed, max(facts.until, group.until))
    if not calm.members:
        found.undecided.append(f"group {group.name}: no member was there once all faults were healed")
        return
    _judge_missing(group, missing, written, calm, settle_ns, report, found)
    open_: list[str] = []
    for log in logs:
        share, of_log = group.shares.get(log), written.get(log, NOTHING)
        why, slow = settling.why_not(share, of_log, facts.healed, by, calm.members)
        if not why:
            continue
        if enough and not (slow and share is not None and settling.at_work(share, by, settle_ns)):
            settling.report_not_settled(group.name, *log, why, by, report)
        elif not any(
            settling.why_not(share, of_log, facts.healed, each.until, each.members)[0] == "" for each in shorter
        ):
            open_.append(f"{log[0]}-{log[1]}")
    if open_:
        had = f"it had {(calm.until - calm.since) / 1e9:.1f} s of {settle_ns / 1e9:g} s"
        found.undecided.append(f"group {group.name}: {had} to settle, and had not of {_few(open_)}")


def _judge_missing(
    group: Group,
    missing: Mapping[Log, Any],
    written: Written,
    calm: settling.Calm,
    settle_ns: int,
    report: Report,
    found: Groups,
) -> None:
    open_: list[str] = []
    for (topic, partition), offsets in missing.items():
        share = group.shares.get((topic, partition))
        since = max(calm.since, int(written[topic, partition].complete.max(initial=0)))
        if calm.until - since < settle_ns or (share is not None and settling.at_work(share, calm.until, settle_ns)):
            open_.append(f"{topic}-{partition}")
            continue
        first = int(offsets[0])
        report.add_missing(
            topic, partition, AT_LEAST_ONCE, delivery.UNPROCESSED,
            f"group {group.name}: {len(offsets):,} acknowledged records of {topic}-{partition}, the first at {first}, "
            f"were processed by no member by {report.at(calm.until)}, though members {_few(sorted(calm.members))} had "
            "the time", offset=first, count=len(offsets),
        )  # fmt: skip
    if open_:
        found.undecided.append(f"group {group.name}: no member had the time for all records of {_few(open_)}")


def _few(items: Sequence[Any]) -> str:
    return ", ".join(map(str, items[:_NAMED])) + (", …" if len(items) > _NAMED else "")


_NAMED: Final = 3
