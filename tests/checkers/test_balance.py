"""Plans that were carried out, and left the cluster unbalanced or moved too much."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from checkers.balance import MOVED_TOO_MUCH, NOT_BALANCED, PLANNED_TOO_MUCH, check, plans
from checkers.properties import BALANCE
from cluster_image.placement import online, rebalance
from harness.explore.simulate import simulate
from harness.plan.plan import Plan


def fault(refused: bool = False, **told: Any) -> dict[str, Any]:
    moves = [{"partition": "chaos-0", "from": [1, 2], "to": [4, 2]}]
    plan = {"unfinished": 0, "brokers": [1, 2, 4], "planned": 1, "moves": moves, **told}
    evidence = {"rebalanced": plan, **({"refused": ["why"]} if refused else {})}
    return {"fault": 3, "nemesis": "membership:add", "start": 2_000_000_000, "evidence": evidence}


def anomalies(*faults: dict[str, Any]) -> list[tuple[str, str]]:
    return [(row["anomaly"], row["message"]) for row in check("r", faults, 1_000_000_000).rows]


def test_a_plan_that_balances_with_what_it_planned_is_right() -> None:
    assert anomalies(fault()) == [] and len(plans([fault()])) == 1


def loads(**counts: tuple[int, int]) -> dict[str, dict[str, int]]:
    """By broker ("b1"), replicas and preferred leaderships."""
    return {name[1:]: {"replicas": replicas, "leaders": led} for name, (replicas, led) in counts.items()}


UNEVEN = {"load": {"after": loads(b1=(5, 1), b2=(3, 1), b4=(4, 1))}}


def test_a_cluster_that_is_not_balanced_then() -> None:
    ((anomaly, message),) = anomalies(fault(**UNEVEN))
    assert anomaly == NOT_BALANCED
    assert message == (
        "fault 3 (membership:add, at 1.000 s) has moved all that it planned, and brokers hold 1: 5 (leads 1), "
        "2: 3 (leads 1), 4: 4 (leads 1)"
    )
    assert check("r", [fault(**UNEVEN)], 0).tally == [(BALANCE, NOT_BALANCED, 1, 1)]
    leads = {"load": {"after": loads(b1=(4, 3), b2=(4, 1), b4=(4, 1))}}
    assert [anomaly for anomaly, _ in anomalies(fault(**leads))] == [NOT_BALANCED]
    none = {"load": {"after": loads(b1=(2, 1), b2=(2, 1))}}
    assert [anomaly for anomaly, _ in anomalies(fault(**none))] == [NOT_BALANCED], "broker 4 holds nothing"


def test_what_racks_keep_apart_may_be_apart() -> None:
    racks = {"load": {"planned": UNEVEN["load"]["after"], "after": UNEVEN["load"]["after"]}}
    assert anomalies(fault(**racks)) == []


MADE_OF = {
    "racks": {"1": None, "2": None, "4": None}, "weights": {"t-0": 5, "t-1": 3, "t-2": 9},
    "assignment": {"t-0": [1], "t-1": [1], "t-2": [2]},
}  # fmt: skip
PLANNED = {"load": {"planned": loads(b1=(1, 1), b2=(1, 1), b4=(1, 1))}}


def test_a_plan_that_is_not_the_least() -> None:
    assert anomalies(fault(**MADE_OF, **PLANNED, is_least=True, bytes=3)) == []
    ((anomaly, message),) = anomalies(fault(**MADE_OF, **PLANNED, is_least=True, bytes=5))
    assert anomaly == PLANNED_TOO_MUCH and message.endswith("to move 5 bytes as the least, where 3 would do")
    assert anomalies(fault(**MADE_OF, **PLANNED, is_least=None, bytes=5)) == [], "it does not say so"


def test_a_plan_that_does_not_balance() -> None:
    planned = {"load": {"planned": loads(b1=(2, 2), b2=(1, 1), b4=(0, 0))}}
    assert [anomaly for anomaly, _ in anomalies(fault(**MADE_OF, **planned, is_least=True, bytes=0))] == [NOT_BALANCED]


def test_more_moved_than_planned() -> None:
    assert [anomaly for anomaly, _ in anomalies(fault(planned=0))] == [MOVED_TOO_MUCH]


@pytest.mark.parametrize("told", [{"unfinished": 2, **UNEVEN}, {"unfinished": None}])
def test_what_could_not_be_finished_is_not_judged(told: dict[str, Any]) -> None:
    assert plans([fault(**told)]) == [] and anomalies(fault(**told)) == []
    assert anomalies(fault(refused=True, **UNEVEN)) == []


@pytest.mark.parametrize("evidence", [
    {}, {"rebalanced": 3}, 7, {"rebalanced": {"unfinished": 0, "moves": [3, {}]}},
    fault(**PLANNED, **MADE_OF | {"weights": {}})["evidence"], fault(**PLANNED, **MADE_OF | {"racks": {}})["evidence"],
    fault(**PLANNED, **MADE_OF | {"assignment": {"t-0": ["x"]}})["evidence"],
    fault(load={"after": {"1": 3}})["evidence"],
])  # fmt: skip
def test_whatever_the_evidence_says(evidence: Any) -> None:
    assert check("r", [{**fault(), "evidence": evidence}], 0).rows == []


def test_a_planner_that_moves_the_largest_partitions_is_found_in_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    changes = {"nemesis": ("membership:add",), "spare_brokers": 1, "time_limit": 25.0, "partitions": 9}
    plan = Plan(run="r", on="simulation", rate=40.0, seed=1).model_copy(update=changes)
    good = simulate(plan).judge()
    assert good["verdict"] == "pass" and good["anomalies"][BALANCE]["count"] == 0

    def largest_first(assignment: Any, racks: Any, weights: Any) -> Any:
        made = rebalance.plan(assignment, racks, {partition: 10**9 - size for partition, size in weights.items()})
        moves = tuple(replace(m, bytes=weights[m.partition] * len(m.added)) for m in made.moves)
        return replace(made, moves=moves)

    monkeypatch.setattr(online, "plan", largest_first)
    bad = simulate(plan).judge()
    assert bad["verdict"] == "fail" and PLANNED_TOO_MUCH in bad["reason"]
