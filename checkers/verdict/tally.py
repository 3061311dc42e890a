"""Counts anomalies by name and by property, in the form in which every verdict states them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from checkers.properties import LOST_APPEND, WEAK

EXIT_CODES: Final = {"pass": 0, "fail": 1, "unknown": 2}

Tally = Sequence[tuple[str, str, int, int]]  # (property, anomaly, witnesses, records)


def name(violations: Tally, only_read: int = 0) -> str:
    """Anomalies with how many records of each, in the order of weight: what was lost first. only_read: how many of the
    lost were never acknowledged, but returned by a read."""
    totals: dict[str, int] = defaultdict(int)
    for _, anomaly, _, records in violations:
        totals[anomaly] += records
    named = []
    if LOST_APPEND in totals:
        lost = totals.pop(LOST_APPEND)
        of_these = f" ({lost - only_read:,} acknowledged, {only_read:,} only returned by reads)" if only_read else ""
        named.append(f"{lost:,} lost appends{of_these}")
    named += [f"{anomaly} ({count:,})" for anomaly, count in sorted(totals.items())]
    return ", ".join(named)


def by_property(checked: Iterable[str], tally: Tally, examples: Mapping[str, str]) -> dict[str, Any]:
    """What was found of each property, also of those that hold. examples: see Evidence."""
    summary = {property_: _property(property_) for property_ in checked}
    for property_, anomaly, witnesses, records in tally:
        entry = summary.setdefault(property_, _property(property_))
        entry["count"] += records
        entry["witnesses"] += witnesses
        entry["anomalies"][anomaly] = entry["anomalies"].get(anomaly, 0) + records
        entry["example"] = examples.get(property_)
    return summary


def _property(name: str) -> dict[str, Any]:
    return {"count": 0, "witnesses": 0, "weak": name in WEAK, "anomalies": {}, "example": None}
