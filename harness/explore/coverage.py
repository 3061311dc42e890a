"""What an exploration has covered: which faults took effect, in how many seeds, which properties were checked, and
which abstract states its clusters have been in."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any, Final

from harness.explore.workers import Outcome

#: The last of the runs, by which one sees whether more of them would still reach something new.
LAST_RUNS: Final = 100


class States:
    """Abstract states that runs have reached (harness.targets.target.Invariants.count_states), in their order whichever
    comes back first."""

    def __init__(self) -> None:
        self._states: set[int] = set()
        self._under_faults: set[int] = set()
        self._waiting: dict[int, tuple[frozenset[int], frozenset[int]]] = {}
        self._next = 0
        self._new: deque[int] = deque(maxlen=LAST_RUNS)

    def take(self, number: int, outcome: Outcome) -> None:
        """Of the run of this number, from 0. What comes last of all may have a number that is missing before it."""
        simulated = outcome.simulated
        reached = (simulated.states, simulated.under_faults) if simulated is not None else (frozenset(), frozenset())
        self._waiting[number] = reached
        while self._next in self._waiting:
            self._count(*self._waiting.pop(self._next))
            self._next += 1

    def _count(self, states: frozenset[int], under_faults: frozenset[int]) -> None:
        before = len(self._states)
        self._states |= states
        self._under_faults |= under_faults
        self._new.append(len(self._states) - before)

    def as_dict(self) -> dict[str, int]:
        """distinct; under_faults: pairs of a coarser state and the faults that were in force; new: states that the
        last runs (so many as `last_runs`) were the first to reach."""
        for _, reached in sorted(self._waiting.items()):
            self._count(*reached)
        self._waiting.clear()
        return {
            "distinct": len(self._states), "under_faults": len(self._under_faults), "new": sum(self._new),
            "last_runs": len(self._new),
        }  # fmt: skip


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
