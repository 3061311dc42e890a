"""What an exploration has covered: which faults took effect, in how many seeds, and which properties were checked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from harness.explore.workers import Outcome


def of_faults(done: Iterable[Outcome]) -> dict[str, dict[str, int]]:
    """By fault: `seeds` in which it was injected, `seeds_effective` in which it took effect, and how often
    it was `injected`, took effect (`effective`), and was `skipped`. The most frequent first."""
    found: dict[str, dict[str, int]] = {}
    for outcome in done:
        for fault, counts in (outcome.verdict or {}).get("faults", {}).items():
            kept = found.setdefault(
                fault, {"seeds": 0, "seeds_effective": 0, "injected": 0, "effective": 0, "skipped": 0}
            )
            for name in ("injected", "effective", "skipped"):
                kept[name] += counts[name]
            kept["seeds"] += counts["injected"] > 0
            kept["seeds_effective"] += counts["effective"] > 0
    return dict(sorted(found.items(), key=lambda item: -item[1]["injected"]))


def checked(done: Iterable[Outcome]) -> tuple[str, ...]:
    """The properties that were looked at, in the order of the verdicts."""
    return tuple(dict.fromkeys(name for outcome in done for name in (outcome.verdict or {}).get("anomalies", {})))


def size(verdict: Mapping[str, Any] | None) -> tuple[int | None, int | None]:
    """(faults that were injected, operations) of a run: the smaller, the easier to understand. None: not known."""
    if verdict is None:
        return None, None
    faults = sum(counts["injected"] for counts in verdict.get("faults", {}).values())
    operations = sum(
        count for name, count in verdict.get("operations", {}).items()
        if name.rpartition(" ")[2] in ("ok", "fail", "info")
    )  # fmt: skip
    return faults, operations
