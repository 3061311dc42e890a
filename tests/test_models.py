"""Mutex, queues, set and others: the verdict is that of brute force."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from checkers import models
from checkers.judged import Judged
from spark_history.files import HistoryError
from tests.model_histories import INITIAL, Op, mutate, random_history, step, table
from tests.random_histories import HISTORIES
from tests.register_histories import linearizable


def check(workload: str, history: list[Op], **plan: Any) -> Judged:
    return models.check_tables({"run": "r", "workload": workload, **plan}, {"calls": table(history)})


def ok(kind: str, argument: Any, result: Any, invoke: int, complete: int) -> Op:
    return Op(kind, argument, result, invoke, complete, "ok")


@pytest.mark.parametrize("workload", INITIAL)
@pytest.mark.timeout(3600)
def test_agrees_with_brute_force(workload: str) -> None:
    verdicts: Counter[bool] = Counter()
    for seed in range(HISTORIES):
        rng = random.Random(f"{workload} {seed}")
        history = random_history(rng, workload)
        good = seed % 3 == 0
        if not good:
            history = mutate(rng, history)
        operations = [
            (op, op.invoke, op.complete if op.outcome == "ok" else None) for op in history if op.outcome != "fail"
        ]
        expected = linearizable(operations, INITIAL[workload], lambda state, op: step(workload, state, op))
        assert expected or not good
        judged = check(workload, history)
        assert not judged.undecided
        assert (not judged.tally) == expected, (seed, history, judged.rows)
        verdicts[expected] += 1
    assert min(verdicts.values()) > HISTORIES // 100, "both verdicts are put to the test"


@pytest.mark.parametrize(
    ("workload", "anomaly", "ops", "history"),
    [
        ("mutex", "not linearizable", [0, 1], [ok("acquire", None, None, 0, 9), ok("acquire", None, None, 10, 19)]),
        (
            "owned-mutex",
            "not linearizable",
            [1],
            [ok("acquire", 1, None, 0, 9), ok("release", 2, None, 10, 19)],
        ),
        ("queue", "duplicate", [1, 2], [ok("enqueue", 5, None, 0, 9), ok("dequeue", None, 5, 10, 19),
                                        ok("dequeue", None, 5, 20, 29)]),
        ("fifo-queue", "phantom", [0], [ok("dequeue", None, 5, 0, 9)]),
        (
            "fifo-queue",
            "not linearizable",
            [0, 1, 2],
            [ok("enqueue", 1, None, 0, 9), ok("enqueue", 2, None, 10, 19), ok("dequeue", None, 2, 20, 29)],
        ),
        ("set", "not linearizable", [0, 1], [ok("add", 1, None, 0, 9), ok("read", None, [], 10, 19)]),
        ("kv", "not linearizable", [0, 1], [ok("append", "x", None, 0, 9), ok("get", None, "", 10, 19)]),
    ],
)  # fmt: skip
def test_anomaly_has_its_name_and_its_witness(workload: str, anomaly: str, ops: list[int], history: list[Op]) -> None:
    (row,) = check(workload, history).rows
    assert row["anomaly"] == anomaly
    assert row["ops"] == ops
    assert row["property"] == f"{workload} linearizability"


def test_kv_of_many_clients_is_judged_without_a_search() -> None:
    rng = random.Random(1)
    state, history = "", []
    for number in range(3000):
        at = 10 * number
        invoke, complete = at - rng.randrange(400), at + rng.randrange(400)
        text = f"x {number} y"
        kind = rng.choice(["get", "append", "append", "put"])
        if kind == "get":
            history.append(ok("get", None, state, invoke, complete))
        else:
            state = text if kind == "put" and number % 50 == 0 else state + text
            history.append(ok("put" if state == text else "append", text, None, invoke, complete))
    assert check("kv", history, bounds={"seconds": 0}) == check("kv", history)
    assert not check("kv", history).tally
    broken = [*history, ok("get", None, history[0].result or "", 10**6, 10**6 + 1)]
    assert check("kv", broken).tally


def test_values_of_any_kind() -> None:
    map_ = {"a": [1]}
    history = [ok("write", map_, None, 0, 9), ok("read", None, map_, 10, 19), ok("cas", [map_, "b"], None, 20, 29)]
    assert not check("cas-register", history).tally
    assert check("cas-register", [*history, ok("read", None, map_, 30, 39)]).tally
    assert check("register", [ok("write", True, None, 0, 9), ok("read", None, 1, 10, 19)]).tally


def test_one_initial_value_for_all_of_several_registers() -> None:
    read = [["r", "x", 0]]
    history = [ok("txn", [["w", "y", 2]], [["w", "y", 2]], 0, 9), ok("txn", [["r", "x", None]], read, 10, 19)]
    assert not check("multi-register", history, initial=0).tally
    assert check("multi-register", history, initial=1).tally
    assert check("multi-register", history).tally


@pytest.mark.parametrize(
    ("workload", "op", "message"),
    [
        ("frob", ok("add", 1, None, 0, 9), "no model of a 'frob'"),
        ("set", ok("enqueue", 1, None, 0, 9), "which a set does not have: it has add, read"),
        ("counter", ok("add", "x", None, 0, 9), "operation 0 has a value that a add cannot have"),
        ("set", ok("add", 1, None, 10, 9), "completed before it was invoked"),
    ],
)
def test_bad_history_is_named(workload: str, op: Op, message: str) -> None:
    with pytest.raises(HistoryError, match=message):
        check(workload, [op])


@pytest.mark.spark
def test_on_disk_as_in_memory(tmp_path: Path, spark: Any) -> None:
    runs, expected = [], []
    for number, workload in enumerate(("mutex", "kv", "set")):
        rng = random.Random(number)
        plan = {"run": workload, "workload": workload}
        tables = {"calls": table(mutate(rng, random_history(rng, workload)), key='"k"')}
        expected.append(models.check_tables(plan, tables))
        runs.append(tmp_path / workload)
        models.write_history(runs[-1], plan, tables)
    assert models.check_directories(runs, spark) == expected
