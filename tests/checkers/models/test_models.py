"""Mutex, queues, set and others: the verdict is that of brute force."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from checkers import models
from checkers.verdict.judged import Judged
from checkers.witness import draw
from spark_history.errors import HistoryError
from tests.checkers.histories.model_histories import INITIAL, Op, mutate, random_history, step, table
from tests.checkers.histories.random_histories import HISTORIES
from tests.checkers.histories.register_histories import linearizable


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


def test_kv_of_many_clients_is_judged_without_a_search(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "search", None)
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
    assert not check("kv", history).tally
    broken = [*history, ok("get", None, history[0].result or "", 10**6, 10**6 + 1)]
    assert check("kv", broken).tally


def test_a_queue_that_was_found_empty_is_judged_without_a_search(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "search", None)
    history = []
    for number in range(2000):  # two values that overlap, and then nothing
        at = 100 * number
        history += [ok("enqueue", 2 * number, None, at, at + 5), ok("enqueue", 2 * number + 1, None, at + 20, at + 25)]
        history += [ok("dequeue", None, 2 * number, at + 40, at + 45), ok("dequeue", None, None, at + 80, at + 90)]
        history += [ok("dequeue", None, 2 * number + 1, at + 60, at + 65)]
    assert not check("queue", history).tally
    first, second, taken, _, after = history[:5]
    while_full = ok("dequeue", None, None, 10, 50)
    (row,) = check("queue", [first, second, taken, while_full, after]).rows
    assert row["anomaly"] == "not linearizable" and len(row["ops"]) == 5, "neither value is in the queue all the time"
    assert check("queue", [op for op in history if op is not after]).rows[0]["ops"] == [1, 3]
    touching = [first, ok("dequeue", None, None, 5, 40), ok("dequeue", None, 0, 40, 45)]
    assert not check("queue", touching).tally


def test_values_of_any_kind() -> None:
    map_ = {"a": [1]}
    history = [ok("enqueue", map_, None, 0, 9), ok("enqueue", True, None, 0, 9), ok("dequeue", None, map_, 10, 19)]
    assert not check("queue", history).tally
    assert check("queue", [*history, ok("dequeue", None, map_, 30, 39)]).tally
    assert check("queue", [*history, ok("dequeue", None, 1, 30, 39)]).tally, "1 is not true"


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
        ("set", ok("add", 1, None, 10, 9), "completed before it was invoked"),
        ("counter", ok("add", "x", None, 0, 9), "operation 0: the argument of a add of a counter must be an integer"),
        ("counter", ok("add", True, None, 0, 9), "must be an integer, not true"),
        ("set", ok("read", None, 5, 0, 9), "the result of a read of a set must be a list or nil, not 5"),
        ("kv", ok("get", None, 5, 0, 9), "the result of a get of a kv must be a text or nil, not 5"),
        ("kv", ok("put", 5, None, 0, 9), "the argument of a put of a kv must be a text, not 5"),
        ("multi-register", ok("txn", [["w", 1]], None, 0, 9), r"must be a list of \[r key value\]"),
        ("multi-register", ok("txn", 5, None, 0, 9), r"must be a list of \[r key value\]"),
        ("multi-register", ok("write", 5, None, 0, 9), "must be a map of keys to values, not 5"),
    ],
)
def test_bad_history_is_named(workload: str, op: Op, message: str) -> None:
    with pytest.raises(HistoryError, match=message):
        check(workload, [op])


@pytest.mark.parametrize(
    ("workload", "plan", "message"),
    [
        ("kv", {"initial": 5}, "initial value of a kv must be a text, not 5"),
        ("counter", {"initial": "5"}, "initial value of a counter must be an integer"),
        ("kv", {"bounds": 5}, "bounds must be seconds and memory_mb, not 5"),
        ("kv", {"bounds": {"seconds": "many"}}, "bound of seconds must be a number from 0, not 'many'"),
        (["kv"], {}, "there is no model of"),
    ],
)
def test_bad_plan_is_named(workload: Any, plan: dict[str, Any], message: str) -> None:
    with pytest.raises(HistoryError, match=message):
        check(workload, [], **plan)


def test_the_keys_of_maps_are_those_of_micro_operations() -> None:
    """JSON has none but texts for the keys of a map."""
    read = ok("txn", [["r", 1, None]], [["r", 1, 5]], 10, 19)
    assert not check("multi-register", [read], initial={"1": 5}).tally
    assert check("multi-register", [read], initial={"1": 6}).tally
    write = ok("write", {1: 5}, {1: 5}, 0, 9)
    assert not check("multi-register", [write, read]).tally
    assert check("multi-register", [write, ok("read", None, {1: 4}, 10, 19), read]).tally
    text = ok("txn", [["r", "1", None]], [["r", "1", None]], 20, 29)
    assert not check("multi-register", [ok("txn", [["w", 1, 5]], [["w", 1, 5]], 0, 9), read, text]).tally
    with pytest.raises(HistoryError, match='the keys 1 and "1" are both in use'):
        check("multi-register", [write, read, text])


def test_a_run_that_cannot_be_read_is_undecided_and_the_others_are_judged(tmp_path: Path) -> None:
    plan = {"run": "r", "workload": "set"}
    histories = {"good": [ok("add", 1, None, 0, 9)], "odd": [ok("read", None, 5, 0, 9)]}
    for name in ("a", "b", "c", "d", "e"):
        models.write_history(tmp_path / name, plan, {"calls": table(histories["odd" if name == "e" else "good"])})
    (tmp_path / "a" / "history" / "manifest.json").write_text('{"tables": 5}')
    (tmp_path / "b" / "history" / "manifest.json").write_text('{"tables": {"calls": 5}}')
    (tmp_path / "c" / "plan.json").write_text('["set"]')
    a, b, c, d, e = models.check_directories(sorted(tmp_path.iterdir()))
    assert "names no calls" in a.undecided[0] and "'calls' is no list of files" in b.undecided[0]
    assert "plan.json is damaged: it does not hold a JSON object" in c.undecided[0]
    assert d == models.check_tables(plan, {"calls": table(histories["good"])})
    assert "must be a list or nil, not 5: its operations are not judged" in e.undecided[0]


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
    assert models.check_directories(runs, spark) == expected == models.check_directories(runs)


def test_transactions_on_keys_of_their_own_are_searched_apart() -> None:
    """Together, what ten registers may hold at a time is more than any bound has room for."""
    rng = random.Random(3)
    history = []
    for key in "abcdefghij":
        for value in (1, 2, 1, 2, 3, 4):
            written = [["w", key, value]]
            history.append(ok("txn", written, written, rng.randrange(10), 100 + rng.randrange(9)))
        history.append(ok("txn", [["r", key, None]], [["r", key, rng.choice([1, 2, 3])]], 200, 205))
    judged = check("multi-register", history)
    assert not judged.tally and not judged.undecided
    stale = ok("txn", [["r", "j", None], ["r", "a", None]], [["r", "j", 9], ["r", "a", 1]], 300, 305)
    (row,) = check("multi-register", [*history, stale]).rows
    assert row["ops"] == [len(history)]


def test_no_witness_grows_with_its_history() -> None:
    """Of two that take turns with a mutex, one releases once too often at the end: all before matter."""
    history = []
    for number in range(150):
        history += [ok("acquire", None, None, 0, 1000 + 2 * number), ok("release", None, None, 0, 1001 + 2 * number)]
    history += [ok("release", None, None, 2000, 2001)]
    (row,) = check("mutex", history).rows
    assert len(row["ops"]) > 12, "all of them, for other programs"
    assert len(row["message"]) < 2000 and f"{len(row['ops']) - 12:,} more" in row["message"]
    lines = draw(row["witness"], 0)
    assert len(lines) == 13 and f"{len(row['ops']) - 12:,} more operations" in lines[6]
    text = "x" * 100_000
    (row,) = check("kv", [ok("put", text, None, 0, 9), ok("get", None, text + "y", 10, 19)]).rows
    assert len(row["message"]) < 1000 and len(row["witness"]) < 2000
