from __future__ import annotations

from typing import Any

from harness.explore import coverage
from harness.explore.workers import Outcome
from harness.plan.plan import Plan


def outcome(faults: dict[str, tuple[int, int, int]] | None, **counts: int) -> Outcome:
    """faults: injected, effective, skipped; None: the run was not judged."""
    plan = Plan(run="s1", on="simulation")
    if faults is None:
        return Outcome(plan, "hang", "it did not end")
    names = ("injected", "effective", "skipped")
    told = {name: dict(zip(names, of, strict=True)) for name, of in faults.items()}
    verdict: dict[str, Any] = {"verdict": "pass", "faults": told, "operations": counts, "anomalies": {"StrongIsr": {}}}
    return Outcome(plan, "judged", verdict=verdict)


def test_faults_are_counted_over_all_seeds() -> None:
    done = [
        outcome({"kill": (2, 1, 0), "pause": (0, 0, 3)}),
        outcome(None),
        outcome({"kill": (1, 0, 1), "clock": (9, 9, 0)}),
    ]
    assert coverage.of_faults(done) == {
        "clock": {"seeds": 1, "seeds_effective": 1, "injected": 9, "effective": 9, "skipped": 0},
        "kill": {"seeds": 2, "seeds_effective": 1, "injected": 3, "effective": 1, "skipped": 1},
        "pause": {"seeds": 0, "seeds_effective": 0, "injected": 0, "effective": 0, "skipped": 3},
    }
    assert coverage.checked(done) == ("StrongIsr",)


def test_how_large_a_run_is() -> None:
    done = outcome({"kill": (2, 1, 0), "pause": (1, 0, 3)}, **{"append ok": 5, "read info": 2, "acknowledged": 5})
    assert coverage.size(done.verdict) == (3, 7) and coverage.size(None) == (None, None)
