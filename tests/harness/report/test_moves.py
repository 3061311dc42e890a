"""The section of the report that shows what a resizing or rebalancing fault has moved."""

from __future__ import annotations

from typing import Any

import pytest

from harness.report import words
from harness.report.html.aggregate import Fault
from harness.report.html.moves import MOST_DRAWN, moves

TOLD: dict[str, Any] = {
    "brokers": [1, 10], "planned": 2, "bytes": 2048, "is_least": True, "unfinished": 0, "after_ns": 1_000_000_000,
    "moving_ns": 3_000_000_000,
    "load": {
        "before": {"1": {"replicas": 3, "leaders": 1}}, "planned": {"1": {"replicas": 2, "leaders": 1}},
        "after": {"1": {"replicas": 2, "leaders": 1}, "10": {"replicas": 2, "leaders": 0}},
    },
    "moves": [
        {"partition": "chaos-0", "from": [1, 2], "to": [4, 2], "moving_ns": 1_500_000_000},
        {"partition": "chaos-1", "from": [1, 2], "to": [2, 4], "moving_ns": 3_000_000_000},
    ],
}  # fmt: skip


def fault(number: int, start: float, end: float | None, **evidence: Any) -> Fault:
    return Fault(number, "membership:add", ["broker-4"], start, end, True, evidence)


def test_each_move_is_a_bar_and_each_broker_a_row() -> None:
    (entry,) = moves([fault(0, 10.0, 20.0, rebalanced=TOLD)])
    assert entry["sentence"].startswith("2 of 2 replicas moved in 3 s (2.0 KiB planned, the least possible); brokers 1")
    assert [row["broker"] for row in entry["loads"]] == ["1", "10"]
    assert entry["loads"][0] | {"replicas_before": 3, "replicas_after": 2, "leaders_planned": 1} == entry["loads"][0]
    assert entry["loads"][1]["replicas_before"] is None
    drawn = str(entry["drawn"])
    assert drawn.count("<rect") == 2 and "chaos-0: +4 −1" in drawn and "done after 1.5 s" in drawn
    assert not entry["not_drawn"]


def test_what_struck_meanwhile_is_named() -> None:
    """The moves went on from 11 s to 14 s."""
    moving = fault(0, 10.0, 20.0, rebalanced=TOLD)
    others = [fault(1, 2.0, 10.5), fault(2, 13.0, 13.5), fault(3, 5.0, None), fault(4, 15.0, 16.0)]
    skipped = fault(5, 12.0, 12.0, skipped="no time left")
    (entry,) = moves([moving, *others, skipped])
    assert [other.number for other in entry["meanwhile"]] == [2, 3]


def test_of_very_many_moves_the_first_are_drawn() -> None:
    many = [{**TOLD["moves"][0], "partition": f"chaos-{n}"} for n in range(MOST_DRAWN + 7)]
    (entry,) = moves([fault(0, 0.0, 9.0, rebalanced={**TOLD, "moves": many})])
    assert str(entry["drawn"]).count("<rect") == MOST_DRAWN and entry["not_drawn"] == 7


@pytest.mark.parametrize("told", [
    {}, {"moves": "x", "load": 3, "moving_ns": "soon"}, {"moves": [3, {"partition": 1}], "load": {"after": {"1": 2}}},
    {**TOLD, "moves": [{"partition": "<b>", "from": [], "to": [], "moving_ns": -1}]}, {**TOLD, "bytes": None},
])  # fmt: skip
def test_whatever_the_evidence_says_a_section_is_made(told: dict[str, Any]) -> None:
    (entry,) = moves([fault(0, 1.0, 2.0, rebalanced=told)])
    assert "<b>" not in str(entry["drawn"] or "")
    assert isinstance(words.evidence({"rebalanced": told}), str)
    assert moves([fault(0, 1.0, 2.0, rebalanced="x"), fault(1, 1.0, 2.0)]) == []


def test_in_words() -> None:
    told = {**TOLD, "unfinished": 1}
    assert words.evidence({"rebalanced": told}) == (
        "2 of 2 replicas moved in 3 s (2.0 KiB planned, the least possible); 1 partition still on the move then; "
        "brokers 1, 10 then held 2 replicas each, and each was the preferred leader of 0 to 1 partitions"
    )
