"""rw-register: every anomaly by hand, and agreement with brute force on random histories, at every consistency level;
list-append likewise."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random
from time import monotonic
from typing import Any

import pytest

from checkers.transactions import check_directories, history, registers
from checkers.transactions.consistency import IMPLIED_MODELS
from checkers.transactions.consistency import forbidden as forbidden_by
from checkers.verdict.judged import verdict
from harness.generate.objects import generate
from spark_history.errors import HistoryError
from tests.checkers.histories.elle_histories import (
    LEVELS,
    draw_lists,
    draw_registers,
    list_cycles,
    rw_anomalies,
    serial_order,
)
from tests.checkers.histories.random_histories import HISTORIES
from tests.checkers.histories.transaction_histories import Micro, Txn, check, found

OPTIONS = ("wfr_keys", "sequential_keys", "linearizable_keys")
STRICT = "strict-serializable"


def w(key: int, value: int) -> Micro:
    return ("write", key, value)


def r(key: int, value: int | None = None) -> Micro:
    return ("read", key, value)


def at_once(*micro: list[Micro]) -> list[Txn]:
    return [Txn(each, number, 100 + number) for number, each in enumerate(micro)]


def one_by_one(*micro: list[Micro], process: int | None = None) -> list[Txn]:
    return [Txn(each, 10 * number, 10 * number + 5, process=process) for number, each in enumerate(micro)]


def of(txns: list[Txn], **plan: Any) -> set[str]:
    return found(txns, "rw-register", **plan)


WFR = {"wfr_keys": True}
SEQUENTIAL = {"sequential_keys": True}
LINEARIZABLE = {"linearizable_keys": True}
FAILED = Txn([w(0, 1)], 0, 5, "fail")


@pytest.mark.parametrize(
    ("names", "txns", "plan"),
    [
        ({"G1a"}, [FAILED, Txn([r(0, 1)], 10, 15)], {}),
        ({"G1b"}, at_once([w(0, 1), w(0, 2)], [r(0, 1)]), {}),
        ({"G1c"}, at_once([w(0, 1), r(1, 2)], [w(1, 2), r(0, 1)]), {}),
        ({"internal"}, at_once([w(0, 1), r(0)], [r(0, 1)]), {}),
        ({"internal"}, at_once([w(0, 1)], [r(0), r(0, 1)]), {}),
        ({"future-read"}, at_once([r(0, 1), w(0, 1)]), {}),
        ({"garbage-read"}, at_once([w(0, 1)], [r(0, 7)]), {}),
        (set(), at_once([w(0, 1)], [r(0, 7)]), {"initial": 7}),
        ({"lost-update", "G2-item"}, at_once([r(0), w(0, 1)], [r(0), w(0, 2)]), {}),
        ({"lost-update"}, at_once([w(0, 9)], [r(0, 9), w(0, 1)], [r(0, 9), w(0, 2)]), {}),
        # one write of a transaction is read, and the other is not: nil comes before everything
        ({"G-single"}, at_once([w(0, 1), w(1, 2)], [r(0), r(1, 2)]), {}),
        # write skew
        ({"G2-item"}, at_once([r(0), w(1, 2)], [r(1), w(0, 1)]), {}),
        # a long fork
        ({"G-nonadjacent"}, at_once([w(0, 1)], [w(1, 2)], [r(0, 1), r(1)], [r(0), r(1, 2)]), {}),
        # without an order of the versions there is nothing to be seen; writes follow reads gives one
        (set(), at_once([w(0, 1), w(1, 1)], [w(0, 2), w(1, 2)]), {}),
        ({"G0"}, at_once([w(0, 1), r(1, 2), w(1, 3)], [r(0, 1), w(0, 4), w(1, 2)], [r(0, 4)]), WFR),
        (set(), at_once([w(0, 1)], [r(0, 1), w(0, 2), w(1, 3)], [r(0, 1), r(1, 3)]), {}),
        ({"G-single"}, at_once([w(0, 1)], [r(0, 1), w(0, 2), w(1, 3)], [r(0, 1), r(1, 3)]), WFR),
        # stale reads
        ({"G-single-realtime"}, one_by_one([w(0, 1)], [r(0)]), {}),
        ({"G-single-process"}, one_by_one([w(0, 1)], [r(0)], process=3), {}),
        (set(), one_by_one([w(0, 1)], [w(0, 2)], [r(0, 1)]), {}),
        ({"cyclic-versions"}, one_by_one([w(0, 1)], [w(0, 2)], [r(0, 1)]), LINEARIZABLE),
        (set(), one_by_one([w(0, 1)], [w(0, 2)], [r(0, 1)]), SEQUENTIAL),
        ({"cyclic-versions"}, one_by_one([w(0, 1)], [w(0, 2)], [r(0, 1)], process=3), SEQUENTIAL),
        ({"G1c-realtime"}, one_by_one([r(0, 1)], [w(0, 1)]), {}),
        # an indeterminate write that was read has happened
        ({"G-single"}, [Txn([w(0, 1), w(1, 2)], 0, None, "info"), *at_once([r(0), r(1, 2)])], {}),
        (set(), [Txn([w(0, 1), w(1, 2)], 0, None, "info"), *at_once([r(0), r(1)])], {}),
    ],
)  # fmt: skip
def test_anomalies_by_name(names: set[str], txns: list[Txn], plan: dict[str, Any]) -> None:
    assert of(txns, **plan) == names


@pytest.mark.parametrize(
    ("level", "txns", "plan"),
    [
        ("read-uncommitted", one_by_one([w(0, 1)], [w(0, 2)], [r(0, 1)]), LINEARIZABLE),
        ("read-committed", at_once([w(0, 1), r(1, 2)], [w(1, 2), r(0, 1)]), {}),
        ("read-atomic", at_once([w(0, 1), r(0)], [r(0, 1)]), {}),
        ("cursor-stability", at_once([w(0, 9)], [r(0, 9), w(0, 1)], [r(0, 9), w(0, 2)]), {}),
        ("consistent-view", at_once([w(0, 1), w(1, 2)], [r(0), r(1, 2)]), {}),
        ("snapshot-isolation", at_once([w(0, 1)], [w(1, 2)], [r(0, 1), r(1)], [r(0), r(1, 2)]), {}),
        ("repeatable-read", at_once([r(0), w(1, 2)], [r(1), w(0, 1)]), {}),
        ("strong-session-snapshot-isolation", one_by_one([w(0, 1)], [r(0)], process=3), {}),
        ("strong-snapshot-isolation", one_by_one([w(0, 1)], [r(0)]), {}),
    ],
)  # fmt: skip
def test_a_level_forbids_what_those_below_it_allow(level: str, txns: list[Txn], plan: dict[str, Any]) -> None:
    words = {}
    for each, wrong in LEVELS.items():
        judged = check(txns, "rw-register", consistency=each, **plan)
        words[each] = verdict(judged, {})["verdict"]
        names = {anomaly for _, anomaly, _, _ in judged.tally}
        assert (words[each] == "fail") == bool(names & wrong)
    assert words[level] == "fail" and words[STRICT] == "fail"
    for below in IMPLIED_MODELS[level]:
        assert words[below] == "pass", below


def test_a_process_goes_on_after_an_indeterminate_transaction() -> None:
    txns = [Txn([r(0, 2)], 0, 5, process=3), Txn([w(1, 1)], 10, None, "info", 3), Txn([w(0, 2)], 20, 25, process=3)]
    assert of(txns) == {"G1c-process"}


def test_a_cycle_comes_to_no_transaction_twice() -> None:
    """Between T3 and T2, and, over real time, between T3 and T0: not over all three of them at once."""
    txns = [
        Txn([r(1, 4)], 17, 57),
        Txn([w(0, 2), r(1), w(1, 3)], 64, None, "info"),
        Txn([r(1), w(1, 4), r(0, 2)], 105, 110),
    ]
    assert of(txns) == {"G-single", "G1c-realtime"}


def test_a_witness_says_what_each_transaction_did() -> None:
    (row,) = check(at_once([w(0, 1), w(1, 2)], [r(0), r(1, 2)]), "rw-register").rows
    assert row["ops"] == [1, 0] and "T1 read key 0 as nil, and T2 set it to 1" in row["message"]
    rows = check(one_by_one([w(0, 1)], [w(0, 2)], [r(0, 1)]), "rw-register", **LINEARIZABLE).rows
    row = next(row for row in rows if row["anomaly"] == "cyclic-versions")
    assert sorted(row["ops"]) == [0, 1, 2]
    assert "transaction 0 wrote 1, and transaction 1, invoked after it, wrote 2" in row["message"]


def test_what_makes_it_undecidable_is_said() -> None:
    twice = check(at_once([w(0, 1)], [w(0, 1)]), "rw-register")
    assert verdict(twice, {})["reason"].startswith("value 1 was written to key 0 twice: only unique values")
    initial = check(at_once([w(0, 5)]), "rw-register", initial=5)
    assert verdict(initial, {})["reason"].startswith("5 was written to key 0, and is what it holds before")
    for plan in ({"wfr_keys": "yes"}, {"initial": "x"}):
        with pytest.raises(HistoryError, match="the plan's"):
            check(at_once([w(0, 5)]), "rw-register", **plan)


def test_too_many_at_once_are_not_related_each_to_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registers, "MANY", 100)
    many = [Txn([w(0, 1 + number)], 0, 5) for number in range(30)]
    more = [Txn([w(0, 100 + number)], 10, 15) for number in range(30)]
    judged = check([*many, *more], "rw-register", **LINEARIZABLE)
    assert "1 keys have too many transactions at once to relate each to each" in judged.undecided
    readers = [Txn([r(0)], 0, 5) for _ in range(30)]
    assert check([*many, *readers], "rw-register").undecided
    assert not check([*many[:3], *readers], "rw-register").undecided


def large(number: int, keys: int, processes: int, seed: int = 1) -> list[Txn]:
    """Serializable: one after the other, overlapping."""
    random, held, value, txns = Random(seed), dict[int, int | None](), 0, list[Txn]()
    for at in range(number):
        micro = []
        for key in random.sample(range(keys), random.randint(1, min(2, keys))):
            if random.random() < 0.5:
                micro.append(r(key, held.get(key)))
            else:
                value += 1
                held[key] = value
                micro.append(w(key, value))
        txns.append(Txn(micro, 10 * at, 10 * at + random.randint(1, 10 * processes - 1), process=at % processes))
    return txns


@pytest.mark.parametrize(("keys", "processes"), [(1, 30), (10, 20), (3000, 100)])
def test_a_large_history_takes_a_few_seconds(keys: int, processes: int) -> None:
    txns = large(30_000, keys, processes)
    started = monotonic()
    judged = check(txns, "rw-register", **dict.fromkeys(OPTIONS, True))
    assert not judged.tally and not judged.undecided
    assert monotonic() - started < 20


@pytest.mark.parametrize("defect", [None, "g1c", "g-nonadjacent", "cyclic-versions", "lost-update"])
def test_a_history_in_parts_is_judged_as_a_whole(
    defect: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = dict.fromkeys(OPTIONS, True)
    found = []
    for rows in (history.PART_ROWS, 300):
        monkeypatch.setattr(history, "PART_ROWS", rows)
        generate(tmp_path / str(rows), operations=1000, processes=5, seed=3, defect=defect, workload="rw-register")
        (judged,) = check_directories([tmp_path / str(rows)], asked=asked)
        found.append((sorted(judged.tally), judged.undecided, judged.counts))
    assert len(list((tmp_path / "300" / "history" / "micro_operations").iterdir())) > 1
    assert found[0] == found[1] and bool(found[0][0]) == (defect is not None)


def test_every_level_is_put_to_the_test() -> None:
    assert set(LEVELS) == set(IMPLIED_MODELS)


@pytest.mark.timeout(3600)
def test_agrees_with_brute_force() -> None:
    levels = Counter[tuple[str, bool]]()
    for number in range(HISTORIES):
        random = Random(number)
        txns = draw_registers(random)
        assumed = [name for name in OPTIONS if random.random() < 0.5]
        expected = rw_anomalies(txns, assumed)
        judged = check(txns, "rw-register", consistency=STRICT, **dict.fromkeys(assumed, True))
        assert not judged.undecided
        mine = {anomaly for _, anomaly, _, _ in judged.tally}
        context = (number, assumed, txns, expected, mine)
        assert mine <= expected, context
        assert {each for each in expected if not is_cycle(each)} <= mine, context
        for level, wrong in LEVELS.items():
            fails = bool(mine & forbidden_by(level))
            assert fails == bool(expected & wrong), (level, *context)
            levels[level, fails] += 1
    assert len(levels) == 2 * len(LEVELS) and min(levels.values()) > HISTORIES // 100, "some break it, some do not"


@pytest.mark.timeout(3600)
def test_what_a_serial_order_explains_never_fails_by_brute_force() -> None:
    orders = Counter[tuple[bool, bool]]()
    for number in range(HISTORIES):
        txns = draw_registers(Random(number))
        exists, strictly = serial_order(txns, strict=False), serial_order(txns, strict=True)
        orders[exists, strictly] += 1
        if strictly:  # such registers are all that can be assumed
            assert not of(txns, consistency=STRICT, **dict.fromkeys(OPTIONS, True)), (number, txns)
        if exists:
            assert not of(txns, consistency="serializable", **WFR), (number, txns)
    assert len(orders) == 3 and min(orders.values()) > HISTORIES // 100


@pytest.mark.timeout(3600)
def test_list_append_agrees_with_brute_force_at_every_level() -> None:
    levels = Counter[tuple[str, bool]]()
    for number in range(HISTORIES):
        txns = draw_lists(Random(number))
        expected = list_cycles(txns)
        assert expected is not None
        judged = check(txns, consistency=STRICT)
        mine = {anomaly for _, anomaly, _, _ in judged.tally}
        context = (number, txns, expected, mine)
        assert {each for each in mine if is_cycle(each)} <= expected, context
        for level, wrong in LEVELS.items():
            fails = bool({each for each in mine if is_cycle(each)} & forbidden_by(level))
            assert fails == bool(expected & wrong), (level, *context)
            levels[level, fails] += 1
    assert len(levels) == 2 * len(LEVELS) and min(levels.values()) > HISTORIES // 100, "some break it, some do not"


def is_cycle(anomaly: str) -> bool:
    return anomaly.startswith(("G0", "G1c", "G-", "G2"))
