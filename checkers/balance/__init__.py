"""Is a cluster balanced once a plan that was to balance it has been carried out? (003: minimize the amount of data
movement while maintaining a balanced load on each broker.)

A fault that resizes or rebalances a cluster tells what it planned, what it moved, and what brokers hold then. Of each
plan whose moves were all done, replicas and preferred leaders are within one of each other, or as near to each other as
racks allow; no more replicas were moved than were planned; and what was planned is the least, by another computation
(least_movement.py), as far as the fault tells what the plan was made of. Other faults may keep moves from being done;
whether they are done in the end, once all is healed, is part of healing (nemesis.membership.restoration).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from checkers.anomalies import Anomalies, seconds
from checkers.balance.least_movement import least
from checkers.properties import BALANCE

NOT_BALANCED: Final = "not balanced"
MOVED_TOO_MUCH: Final = "moved more than planned"
PLANNED_TOO_MUCH: Final = "planned more than the least"

#: Partitions, and brokers, beyond which the least is not computed.
_MOST_COMPUTED: Final = 300


def plans(faults: Iterable[Mapping[str, Any]]) -> list[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    """(fault, what it tells of its plan) of those that carried one out to the end."""
    told = [(fault, fault["evidence"].get("rebalanced")) for fault in faults if isinstance(fault["evidence"], Mapping)]
    return [
        (fault, plan) for fault, plan in told
        if isinstance(plan, Mapping) and plan.get("unfinished") == 0 and "refused" not in fault["evidence"]
    ]  # fmt: skip


def check(run: str, faults: Iterable[Mapping[str, Any]], origin: int) -> Anomalies:
    """faults: rows of the table `faults`, evidence parsed. origin: second 0 of the run, monotonic ns."""
    found = Anomalies(run, None, None)
    for fault, plan in plans(faults):
        name = f"fault {fault['fault']} ({fault['nemesis']}, at {seconds(int(fault['start']), origin)})"
        for anomaly, what in _judge(plan):
            found.add(BALANCE, anomaly, f"{name} {what}")
    return found


def _judge(plan: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    moved = sum(map(_added, plan.get("moves") or ()))
    planned = plan.get("planned")
    if isinstance(planned, int) and moved > planned:
        yield MOVED_TOO_MUCH, f"has moved {moved} replicas, where {planned} were planned"
    after, as_planned = _loads(plan, "after"), _loads(plan, "planned")
    if after and any(_apart(after, what) > max(1, _apart(as_planned, what)) for what in (0, 1)):
        held = ", ".join(f"{broker}: {replicas} (leads {led})" for broker, (replicas, led) in after.items())
        yield NOT_BALANCED, f"has moved all that it planned, and brokers hold {held}"
    if (made_of := _made_of(plan)) is None or not as_planned:
        return
    best = least(*made_of)
    if sum(replicas**2 for replicas, _ in as_planned.values()) > best.of_brokers:
        yield NOT_BALANCED, "has planned loads that are further from each other than they must be"
    elif plan.get("is_least") is True and isinstance(plan.get("bytes"), int) and plan["bytes"] > best.bytes:
        yield PLANNED_TOO_MUCH, f"has planned to move {plan['bytes']} bytes as the least, where {best.bytes} would do"


def _loads(plan: Mapping[str, Any], stage: str) -> dict[int, tuple[int, int]]:
    """Replicas and preferred leaderships of the brokers that the plan is for, at that stage; nothing: it does not
    tell."""
    load = plan.get("load")
    of = load.get(stage) if isinstance(load, Mapping) else None
    brokers = plan.get("brokers")
    if not isinstance(of, Mapping) or not isinstance(brokers, list):
        return {}
    found = {}
    for broker in brokers:
        counts = of.get(str(broker), {"replicas": 0, "leaders": 0})
        replicas, led = (counts.get(what) if isinstance(counts, Mapping) else None for what in ("replicas", "leaders"))
        if not isinstance(replicas, int) or not isinstance(led, int):
            return {}
        found[int(broker)] = (replicas, led)
    return found


def _apart(loads: Mapping[int, tuple[int, int]], what: int) -> int:
    counts = [load[what] for load in loads.values()]
    return max(counts, default=0) - min(counts, default=0)


def _made_of(
    plan: Mapping[str, Any],
) -> tuple[dict[str, list[int]], dict[int, str | None], dict[str, int]] | None:
    """Assignment, racks and weights, if the fault tells them as they should be."""
    assignment, racks, weights = (plan.get(what) for what in ("assignment", "racks", "weights"))
    if not all(isinstance(what, Mapping) and len(what) <= _MOST_COMPUTED for what in (assignment, racks, weights)):
        return None
    assert isinstance(assignment, Mapping) and isinstance(racks, Mapping) and isinstance(weights, Mapping)
    try:
        by_id = {int(broker): None if rack is None else str(rack) for broker, rack in racks.items()}
        held = {str(name): [int(broker) for broker in replicas] for name, replicas in assignment.items()}
        bytes_of = {name: int(weights[name]) for name in held}
    except (TypeError, ValueError, KeyError):
        return None
    fits = all(0 < len(set(brokers)) == len(brokers) <= len(by_id) for brokers in held.values())
    return (held, by_id, bytes_of) if fits and all(size >= 0 for size in bytes_of.values()) else None


def _added(move: Any) -> int:
    before, after = (move.get(key) for key in ("from", "to")) if isinstance(move, Mapping) else (None, None)
    return len(set(after) - set(before)) if isinstance(before, list) and isinstance(after, list) else 0
