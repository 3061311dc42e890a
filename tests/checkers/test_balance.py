"""Plans that were carried out, and left the cluster unbalanced or moved too much."""

from __future__ import annotations

from typing import Any

import pytest

from checkers.balance import MOVED_TOO_MUCH, NOT_BALANCED, check, plans
from checkers.properties import BALANCE


def fault(refused: bool = False, **told: Any) -> dict[str, Any]:
    moves = [{"partition": "chaos-0", "from": [1, 2], "to": [4, 2]}]
    plan = {"unfinished": 0, "balanced": True, "planned": 1, "moves": moves, **told}
    evidence = {"rebalanced": plan, **({"refused": ["why"]} if refused else {})}
    return {"fault": 3, "nemesis": "membership:add", "start": 2_000_000_000, "evidence": evidence}


def anomalies(*faults: dict[str, Any]) -> list[tuple[str, str]]:
    return [(row["anomaly"], row["message"]) for row in check("r", faults, 1_000_000_000).rows]


def test_a_plan_that_balances_with_what_it_planned_is_right() -> None:
    assert anomalies(fault()) == [] and len(plans([fault()])) == 1


def test_a_cluster_that_is_not_balanced_then() -> None:
    load = {"after": {"1": {"replicas": 5, "leaders": 1}}}
    ((anomaly, message),) = anomalies(fault(balanced=False, load=load))
    assert anomaly == NOT_BALANCED
    assert message.startswith("fault 3 (membership:add, at 1.000 s) has moved all that it planned, and brokers hold 1")
    assert check("r", [fault(balanced=False)], 0).tally == [(BALANCE, NOT_BALANCED, 1, 1)]


def test_more_moved_than_planned() -> None:
    assert [anomaly for anomaly, _ in anomalies(fault(planned=0))] == [MOVED_TOO_MUCH]


@pytest.mark.parametrize("told", [{"unfinished": 2, "balanced": False}, {"unfinished": None}])
def test_what_could_not_be_finished_is_not_judged(told: dict[str, Any]) -> None:
    assert plans([fault(**told)]) == [] and anomalies(fault(**told)) == []
    assert anomalies(fault(refused=True, balanced=False)) == []


@pytest.mark.parametrize("evidence", [{}, {"rebalanced": 3}, 7, {"rebalanced": {"unfinished": 0, "moves": [3, {}]}}])
def test_whatever_the_evidence_says(evidence: Any) -> None:
    assert check("r", [{**fault(), "evidence": evidence}], 0).rows == []
