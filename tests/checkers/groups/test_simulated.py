"""Groups that do all right are never blamed, and what is planted in their histories is found by its name."""

from __future__ import annotations

from collections import Counter
from random import Random

from checkers.properties import WEAK
from tests.checkers.groups import brute_force, planted, simulated
from tests.checkers.groups.group_history import named
from tests.checkers.histories.random_histories import HISTORIES


def test_no_right_history_is_blamed_by_the_brute_force_or_the_checker() -> None:
    met: Counter[str] = Counter()
    for number in range(HISTORIES // 4):
        history = simulated.draw(Random(number))
        found = history.judge()
        wrong = [row["message"] for each in found.anomalies for row in each.rows if row["property"] not in WEAK]
        assert not wrong and not found.undecided, (number, wrong, found.undecided)
        truth, undecided = brute_force.judge(history)
        assert named(found) == truth and not undecided, number
        met.update({name for _, name, _ in truth})
    assert met["processed again"] and met["overlapping ownership"]


def test_what_is_planted_is_found_as_brute_force_finds_it() -> None:
    met: Counter[str] = Counter()
    for number in range(HISTORIES // 25):
        history = simulated.draw(Random(-number - 1))
        for anomaly in planted.PLANTS:
            wrong = planted.plant(anomaly, history, Random(number))
            if wrong is not None:
                found = named(wrong.judge())
                assert anomaly in {name for _, name, _ in found}, (number, anomaly)
                assert found == brute_force.judge(wrong)[0], (number, anomaly)
                met[anomaly] += 1
    assert min(met[anomaly] for anomaly in planted.PLANTS) >= max(1, HISTORIES // 500), met
