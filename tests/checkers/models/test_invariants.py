"""bank, long-fork, comments, sequential, set-full, total-queue: anomalies by name, and agreement with brute force."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from checkers import models
from checkers.models import invariants
from checkers.verdict.judged import Judged, verdict
from spark_history.errors import HistoryError
from tests.checkers.histories.invariant_histories import DRAWS, JUDGES, Truth, draw
from tests.checkers.histories.model_histories import Op, table
from tests.checkers.histories.random_histories import HISTORIES


def check(workload: str, history: Sequence[Op], **plan: Any) -> Judged:
    family = models if workload in ("queue", "set", "fifo-queue") else invariants
    return family.check_tables({"run": "r", "workload": workload, **plan}, {"calls": table(history)})


def word(judged: Judged) -> str:
    return str(verdict(judged, {})["verdict"])


def found(judged: Judged, *, allowed: bool = False) -> dict[str, int]:
    return {name: records for of, name, _, records in judged.tally if of.endswith(", allowed") == allowed}


def done(kind: str, argument: Any, result: Any, invoke: int, complete: int | None = None, outcome: str = "ok") -> Op:
    return Op(kind, argument, result, invoke, invoke + 5 if complete is None and outcome == "ok" else complete, outcome)


@pytest.mark.parametrize("workload", DRAWS)
@pytest.mark.timeout(3600)
def test_agrees_with_brute_force(workload: str) -> None:
    met = Counter[str]()
    for seed in range(HISTORIES):
        rng = random.Random(f"{workload} {seed}")
        history, plan = draw(rng, workload)
        truth = JUDGES[workload](history, plan)
        context = (seed, plan, history, truth)
        if truth.word is None:
            with pytest.raises(HistoryError):
                check(workload, history, **plan)
            met["refused"] += 1
            continue
        judged = check(workload, history, **plan)
        if workload == "queue":
            assert bool(judged.tally) == bool(truth.anomalies), (*context, judged.rows)
        else:
            agree(judged, truth, workload, context)
        met.update({truth.word: 1, **dict.fromkeys(truth.anomalies, 1)})
    assert min(met[each] for each in ("pass", "fail")) > HISTORIES // 20, met


def agree(judged: Judged, truth: Truth, workload: str, context: Any) -> None:
    mine = found(judged)
    if workload == "long-fork":  # of so many reads that fork, not every pair is told
        mine = dict.fromkeys(mine, 1)
    assert mine == truth.anomalies, (*context, judged.rows)
    assert found(judged, allowed=True) == truth.allowed, (*context, judged.rows)
    assert bool(judged.undecided) >= (truth.word == "unknown"), (*context, judged.undecided)
    if any(count for name, count in judged.counts.items() if name.endswith(" ok")):
        assert word(judged) == truth.word, (*context, judged.rows, judged.undecided)


TO_AND_FRO = [done("txn", [["w", 1, 1]], None, 0), done("txn", [["w", 2, 1]], None, 0)]
SEES_1 = done("txn", [["r", 1, None], ["r", 2, None]], [["r", 1, 1], ["r", 2, None]], 10)
SEES_2 = done("txn", [["r", 2, None], ["r", 1, None]], [["r", 2, 1], ["r", 1, None]], 10)


@pytest.mark.parametrize(
    ("workload", "anomaly", "ops", "history"),
    [
        ("bank", "wrong-total", [0, 1], [done("read", None, {"a": 1, "b": 2}, 0), done("read", None, {"a": 1}, 9)]),
        ("bank", "negative-value", [0], [done("read", None, {"a": -1, "b": 2}, 0)]),
        ("bank", "nil-balance", [0], [done("read", None, {"a": None, "b": 2}, 0)]),
        ("bank", "unexpected-key", [1], [done("read", None, {"a": 1}, 0), done("read", None, {"a": 1, "b": 0}, 9)]),
        ("long-fork", "long-fork", [0, 1, 2, 3], [*TO_AND_FRO, SEES_1, SEES_2]),
        ("comments", "missing", [0, 2, 1], [done("write", 1, None, 0), done("write", 2, None, 10),
                                            done("read", None, [2], 3, 30)]),
        ("sequential", "trailing-nil", [0, 1], [done("write", 7, None, 0),
                                                done("read", 7, [7, [None, "7_1", None]], 3)]),
        ("set-full", "lost", [0, 1, 2], [done("add", 1, None, 0), done("read", None, [1], 10),
                                         done("read", None, [], 20)]),
        ("set-full", "duplicated", [1], [done("add", 1, None, 0), done("read", None, [1, 1], 10)]),
        ("total-queue", "lost", [0], [done("enqueue", 1, None, 0), done("drain", None, [], 10)]),
        ("total-queue", "unexpected", [0], [done("dequeue", None, 1, 0)]),
    ],
)  # fmt: skip
def test_anomaly_has_its_name_and_its_witness(workload: str, anomaly: str, ops: list[int], history: list[Op]) -> None:
    (row,) = check(workload, history).rows
    assert (row["anomaly"], row["property"], row["ops"]) == (anomaly, f"{workload} invariant", ops)
    for op in ops:
        assert f"operation {op}" in row["message"]


def test_options_of_the_plan() -> None:
    below = [done("read", None, {"a": -1, "b": 2}, 0)]
    assert word(check("bank", below, negative_balances=True)) == "pass"
    assert found(check("bank", below, negative_balances=True, total_amount=2)) == {"wrong-total": 1}
    assert found(check("bank", below, accounts=["a"])) == {"unexpected-key": 1}
    stale = [done("add", 1, None, 0), done("read", None, [], 10), done("read", None, [1], 20)]
    assert word(check("set-full", stale)) == "pass" and word(check("set-full", stale, linearizable=True)) == "fail"
    assert found(check("set-full", stale), allowed=True) == {"stale": 1}
    with pytest.raises(HistoryError, match="operation 2 reads 2 keys, and groups here are of 3"):
        check("long-fork", [*TO_AND_FRO, SEES_1], group_size=3)
    for workload, name, value in (("bank", "total_amount", "x"), ("set-full", "linearizable", 1)):
        with pytest.raises(HistoryError, match=f"the plan's {name} must be"):
            check(workload, below, **{name: value})


def test_latencies_of_a_set_are_measured() -> None:
    ms = 1_000_000
    history = [
        done("add", 1, None, 0, 10 * ms), done("add", 2, None, 0, 10 * ms), done("add", 3, None, 0, 10 * ms),
        done("read", None, [3], 12 * ms, 13 * ms), done("read", None, [1], 40 * ms, 41 * ms),
    ]  # fmt: skip
    judged = check("set-full", history)
    assert judged.measured["stable_latency_ms"]["1"] == pytest.approx(2, abs=0.001)
    assert judged.measured["lost_latency_ms"] == {
        "0": 0.0, "0.5": pytest.approx(2, abs=0.001), "0.95": pytest.approx(2, abs=0.001),
        "0.99": pytest.approx(2, abs=0.001), "1": pytest.approx(2, abs=0.001),
    }  # fmt: skip
    assert verdict(judged, {})["measured"] == judged.measured
    assert (judged.counts["stable"], judged.counts["lost"], judged.counts["stale"]) == (1, 2, 1)


def test_neighbours_are_told_apart() -> None:
    """A history is right by the one definition and wrong by the other."""
    stale = [done("add", 1, None, 0), done("read", None, [], 10), done("read", None, [1], 20)]
    assert (word(check("set-full", stale)), word(check("set", stale))) == ("pass", "fail")
    strange = [done("add", 1, None, 0), done("read", None, [1, 2], 10)]
    assert (word(check("set-full", strange)), word(check("set", strange))) == ("pass", "fail")
    left = [done("enqueue", 1, None, 0), done("enqueue", 2, None, 10), done("dequeue", None, 2, 20)]
    assert (word(check("total-queue", left)), word(check("queue", left))) == ("fail", "pass")
    assert word(check("fifo-queue", left)) == "fail"
    twice = [done("enqueue", 1, None, 0), done("dequeue", None, 1, 10), done("dequeue", None, 1, 20)]
    early = [done("dequeue", None, 1, 0), done("enqueue", 1, None, 10)]
    for history in (twice, early):
        assert (word(check("total-queue", history)), word(check("queue", history))) == ("pass", "fail")


@pytest.mark.parametrize(
    ("workload", "history", "message"),
    [
        ("bank", [done("read", None, 5, 0)], "the result of a read of a bank must be a map of accounts to balances"),
        ("bank", [done("read", None, {"#1": "x"}, 0)], "the balance of account 1 is no number"),
        ("bank", [done("write", 5, None, 0)], "a 'write', which a bank does not have: it has read, transfer"),
        ("comments", [done("read", None, 5, 0)], "the result of a read of a comments must be a list, not 5"),
        ("sequential", [done("read", 1, [1, 2, 3], 0)], r"must be \[key \[subkey or nil …\]\]"),
        ("long-fork", [done("txn", [["w", 1, 1], ["r", 2, None]], None, 0)], "is one write, or reads alone"),
        ("long-fork", [done("txn", 5, None, 0)], r"must be \[\[w key value\]\]"),
        ("long-fork", [done("txn", [["r", 1, None]] * 2, [["r", 1, None]] * 2, 0)], "names each key once"),
        ("total-queue", [done("drain", None, 5, 0)], "must be a list, not 5"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_in_a_sentence(workload: str, history: list[Op], message: str) -> None:
    with pytest.raises(HistoryError, match=message):
        check(workload, history)


@pytest.mark.parametrize(
    ("workload", "history", "reason"),
    [
        ("comments", [done("write", 1, None, 0), done("write", 1, None, 9)], "value 1 was written twice"),
        ("set-full", [done("add", 1, None, 0), done("add", 1, None, 9)], "1 was added twice"),
        ("set-full", [done("add", 1, None, 0)], "no element is known to be stable"),
        ("long-fork", [TO_AND_FRO[0], TO_AND_FRO[0]], "key 1 was written twice"),
        ("long-fork", [SEES_1, done("txn", SEES_1.argument, [["r", 1, 2], ["r", 2, None]], 20)], "read as 1 and as 2"),
        ("total-queue", [done("enqueue", 1, None, 0), done("drain", None, None, 9, None, "info")], "that crashed"),
    ],
)  # fmt: skip
def test_what_is_not_decided_is_said(workload: str, history: list[Op], reason: str) -> None:
    judged = check(workload, history)
    assert word(judged) == "unknown" and reason in verdict(judged, {})["reason"]


LARGE = 100_000


def _large(workload: str) -> list[Op]:
    rng, history, there = random.Random(1), list[Op](), list[int]()
    held = {str(account): 100 for account in range(8)}
    for number in range(LARGE):
        at, end = 10 * number, 10 * number + rng.randint(1, 300)
        adds = rng.random() < 0.5
        if workload == "bank":
            one, other = rng.sample(sorted(held), 2)
            held[one], held[other] = held[one] - 1, held[other] + 1
            history.append(done("transfer", {}, None, at, end) if adds else done("read", None, dict(held), at, end))
        elif workload == "long-fork":
            key = number // 20
            asked = [["r", 2 * (key // 2) + each, None] for each in range(2)]
            seen = [["r", of, 1 if of < key or (of == key and number % 20) else None] for _, of, _ in asked]
            writes = number % 20 == 0
            history.append(done("txn", [["w", key, 1]] if writes else asked, None if writes else seen, at, end))
        elif workload in ("comments", "set-full"):
            few = rng.random() < 0.999
            if few:
                there.append(number)
            kind = "write" if workload == "comments" else "add"
            history.append(done(kind, number, None, at, end) if few else done("read", None, list(there), at, end))
        elif workload == "sequential":
            history.append(done("write", number, None, at, end) if adds else done("read", 1, [1, [None, "a"]], at, end))
        else:
            history.append(done("enqueue", number, None, at, end) if number % 2 == 0
                           else done("dequeue", None, number - 1, at, end))  # fmt: skip
    return history


@pytest.mark.parametrize("workload", invariants.JUDGES)
def test_a_large_history_takes_a_few_seconds(workload: str) -> None:
    calls = {"calls": table(_large(workload))}
    started = monotonic()
    judged = invariants.check_tables({"run": "r", "workload": workload, "negative_balances": True}, calls)
    assert not found(judged) and not judged.undecided
    assert monotonic() - started < 20


def test_what_takes_more_than_its_bounds_is_unknown() -> None:
    history = _large("comments")
    judged = check("comments", history, bounds={"memory_mb": 1})
    assert word(judged) == "unknown" and "not decided within 1 MB of memory" in judged.undecided[0]
    judged = check("comments", history, bounds={"seconds": 0})
    assert word(judged) == "unknown" and "not decided within 0 s" in judged.undecided[0]


@pytest.mark.parametrize("workload", invariants.JUDGES)
def test_histories_on_disk_are_judged_as_in_memory(workload: str, tmp_path: Path) -> None:
    plan = {"run": "r", "workload": workload, "source": "imported"}
    for seed in range(20):
        history, more = draw(random.Random(seed), workload)
        try:
            whole = check(workload, history, **more)
        except HistoryError:
            continue
        invariants.write_history(tmp_path / str(seed), {**plan, **more}, {"calls": table(history)})
        (again,) = invariants.check_directories([tmp_path / str(seed)])
        assert (again.tally, again.counts, again.measured) == (whole.tally, whole.counts, whole.measured)
