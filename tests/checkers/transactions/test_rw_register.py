"""rw-register: every anomaly by hand, and agreement with brute force on random histories, at every consistency level."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from checkers.transactions.consistency import IMPLIED_MODELS
from checkers.transactions.consistency import forbidden as forbidden_by
from tests.checkers.histories.random_histories import HISTORIES
from tests.checkers.histories.rw_histories import LEVELS, draw_registers, rw_anomalies
from tests.checkers.histories.transaction_histories import check

OPTIONS = ("wfr_keys", "sequential_keys", "linearizable_keys")
STRICT = "strict-serializable"


def test_every_level_is_put_to_the_test() -> None:
    assert set(LEVELS) == set(IMPLIED_MODELS)


@pytest.mark.timeout(3600)
def test_agrees_with_brute_force() -> None:
    levels = Counter[tuple[str, bool]]()
    seen = Counter[str]()
    for number in range(HISTORIES):
        random = Random(number)
        txns = draw_registers(random)
        assumed = [name for name in OPTIONS if random.random() < 0.5]
        expected = rw_anomalies(txns, assumed)
        plan = dict.fromkeys(assumed, True)
        judged = check(txns, "rw-register", consistency=STRICT, **plan)
        assert not judged.undecided
        mine = {anomaly for _, anomaly, _, _ in judged.tally}
        context = (number, assumed, txns, expected, mine)
        assert mine <= expected, context
        assert {each for each in expected if each[:2] not in ("G0", "G-", "G2") and each[:3] != "G1c"} <= mine, context
        for level, wrong in LEVELS.items():
            fails = bool(mine & forbidden_by(level))
            assert fails == bool(expected & wrong), (level, *context)
            levels[level, fails] += 1
        seen.update(expected)
    assert len(levels) == 2 * len(LEVELS), "every level is broken by some and holds of others"
    assert min(levels.values()) > HISTORIES // 100
    print(sorted(seen.items()))
