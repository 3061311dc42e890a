"""A search tells the first seed in their order that failed, however many are simulated at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from checkers.inside.violation import Violation
from harness.explore.proofs.search import Search, search_all
from harness.explore.simulate import Simulated, simulate
from harness.explore.source import Seeds
from harness.explore.workers import Job, Outcome
from harness.plan.plan import Plan

PLAN = Plan(run="search", on="simulation", nemesis=("kill",), time_limit=5)
VIOLATION = Violation("LogMatching", "two logs differ", "chaos-0", ("broker-1",), 5, 5, "append")


def plan_of(seed: int) -> Plan:
    return PLAN.model_copy(update={"seed": seed})


def verdict(result: str, contract: Mapping[str, bool]) -> Mapping[str, Any]:
    anomalies = {"log linearizability": {"count": 1, "weak": False, "anomalies": {"lost append": 1}, "example": "one"}}
    return {
        "verdict": result, "reason": result, "contract": contract, "origin_ns": 0, "faults": {},
        "operations": {}, "anomalies": anomalies if result == "fail" else {},
    }  # fmt: skip


def outcome(
    seed: int, result: str, *, within: bool = True, promised: bool = True, violation: Violation | None = None
) -> Outcome:
    contract = {"within": within, "promised": promised}
    simulated = Simulated(plan_of(seed), (), {}, violation, (), (), "hash", 100, 60.0, 2.0)
    return Outcome(plan_of(seed), "judged", simulated=simulated, verdict=verdict(result, contract))


def searching(count: int = 4, budget_s: float = 100.0) -> Search:
    return Search("M00", Seeds(plan_of, range(count)), budget_s)


def test_the_first_of_the_seeds_that_fail_is_found_whichever_comes_back_first() -> None:
    search = searching()
    assert [search.next_job() for _ in range(3)] == [(n, Job(plan_of(n))) for n in range(3)]
    search.take(2, outcome(2, "fail"))
    assert not search.ended, "0 and 1 may still fail"
    search.take(0, outcome(0, "pass"))
    search.take(1, outcome(1, "fail"))
    assert search.ended and search.found is not None
    assert (search.found.seed, search.found.runs, search.runs) == (1, 2, 2)
    assert (search.simulated_s, search.wall_s) == (120.0, 4.0), "what was simulated in vain does not count"
    assert search.next_job() is None


@pytest.mark.parametrize("covered", [{"within": False}, {"promised": False}])
def test_what_is_beyond_the_promise_is_not_found_but_a_violation_is(covered: dict[str, bool]) -> None:
    search = searching()
    for _ in range(2):
        search.next_job()
    search.take(0, outcome(0, "fail", **covered))
    assert search.found is None and not search.ended
    search.take(1, outcome(1, "fail", **covered, violation=VIOLATION))
    assert search.found is not None and str(search.found) == "LogMatching"


def test_a_search_ends_with_its_seeds_or_its_budget() -> None:
    search = searching(2)
    while (job := search.next_job()) is not None:
        search.take(job[0], outcome(job[0], "pass"))
    assert search.ended and search.found is None and search.runs == 2
    poor = searching(100, budget_s=3.0)
    while (job := poor.next_job()) is not None:
        poor.take(job[0], outcome(job[0], "unknown"))
    assert poor.ended and poor.runs == 2, "of two seconds each"


def test_what_was_begun_before_the_budget_was_spent_is_looked_at() -> None:
    search = searching(10, budget_s=3.0)
    for _ in range(3):
        search.next_job()
    search.take(2, outcome(2, "fail"))
    search.take(1, outcome(1, "pass"))
    search.take(0, outcome(0, "pass"))
    assert search.wall_s > search.budget_s and search.ended and search.found is not None
    assert search.found.seed == 2


def test_several_searches_share_the_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With real processes, and a bug that each run of it shows within a second."""
    searches = [
        Search(name, Seeds.of(PLAN.model_copy(update={"bug": name}), range(3)), 100.0) for name in ("M63", "M67")
    ]
    ended = list(search_all(searches, 2, tmp_path / "workers"))
    assert {each.subject: str(each.found) for each in ended} == {"M63": "VoterEndOffset", "M67": "QuorumState"}
    assert all(each.runs == 1 for each in ended)
    found = ended[0].found
    assert found is not None and found.schedule is not None
    again = simulate(found.plan, found.schedule)
    assert again.violation is not None and again.violation.property == found.property


def test_a_run_that_code_under_test_brings_to_grief_is_found_as_a_crash() -> None:
    search = searching(1)
    search.next_job()
    search.take(0, replace(outcome(0, "pass"), result="crashed", reason="TypeError: no"))
    assert search.found is not None and search.found.property == "crash"
