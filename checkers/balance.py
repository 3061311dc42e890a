"""Is a cluster balanced once a plan that was to balance it has been carried out? (003: minimize the amount of data
movement while maintaining a balanced load on each broker.)

A fault that resizes or rebalances a cluster tells what it planned, what it moved, and what brokers hold then. Of each
plan whose moves were all done, replicas and preferred leaders are within one of each other, and no more replicas were
moved than were planned, which is the least that there can be. Other faults may keep moves from being done; whether they
are done in the end, once all is healed, is part of healing (nemesis.membership.restoration).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from checkers.anomalies import Anomalies, seconds
from checkers.properties import BALANCE

NOT_BALANCED: Final = "not balanced"
MOVED_TOO_MUCH: Final = "moved more than planned"


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
        if plan.get("balanced") is False:
            found.add(BALANCE, NOT_BALANCED, f"{name} has moved all that it planned, and brokers hold {_held(plan)}")
        moved = sum(map(_added, plan.get("moves") or ()))
        planned = plan.get("planned")
        if isinstance(planned, int) and moved > planned:
            found.add(BALANCE, MOVED_TOO_MUCH, f"{name} has moved {moved} replicas, where {planned} were planned")
    return found


def _added(move: Any) -> int:
    before, after = (move.get(key) for key in ("from", "to")) if isinstance(move, Mapping) else (None, None)
    return len(set(after) - set(before)) if isinstance(before, list) and isinstance(after, list) else 0


def _held(plan: Mapping[str, Any]) -> str:
    load = plan.get("load")
    after = load.get("after") if isinstance(load, Mapping) else None
    held = after if isinstance(after, Mapping) else {}
    return ", ".join(f"{broker}: {counts}" for broker, counts in held.items()) or "more or less than each other"
