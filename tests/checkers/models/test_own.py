"""A model of the user's own is judged as one of ours would be, on the same histories."""

from __future__ import annotations

import json
from collections.abc import Iterable
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from checkers.anomalies import Anomalies
from checkers.models import check_tables
from checkers.models.bounds import Bounds
from checkers.models.objects import UNKNOWN, Model
from checkers.models.own import judge_by
from spark_history.errors import HistoryError
from spark_history.schema import CALLS


def step(state: int, action: tuple[str, Any, Any]) -> Iterable[int]:
    """A counter, as checkers.models has it, which tells whoever adds that it was done."""
    kind, argument, result = action
    if kind == "add":
        return (state + argument,) if result in (UNKNOWN, None) else ()
    return (state,) if result in (UNKNOWN, state) else ()


MINE = Model(0, frozenset({"add", "read"}), frozenset({"read"}), step, always=frozenset({"add"}))


def history(random: Random) -> list[dict[str, Any]]:
    """Of three clients of two counters, most of whose operations overlap; some read what never was."""
    rows, truth = [], {"0": 0, "1": 0}
    free = [0, 0, 0]
    for op in range(random.randint(1, 12)):
        process = random.randrange(3)
        invoke = free[process] = free[process] + random.randint(1, 6)
        complete = free[process] = invoke + random.randint(0, 8)
        key, kind = random.choice("01"), random.choice(("add", "read"))
        outcome = random.choices(("ok", "info", "fail"), (7, 2, 1))[0]
        argument = random.randint(1, 2) if kind == "add" else None
        if argument is not None and outcome != "fail":
            truth[key] += argument
        seen = max(truth[key] - random.choice((0, 0, 1, 2)), 0)
        rows.append({
            "run": "r", "process": process, "op": op, "kind": kind, "key": key, "argument": json.dumps(argument),
            "result": json.dumps(seen) if (kind, outcome) == ("read", "ok") else None, "invoke": invoke,
            "complete": complete if outcome != "info" else None, "outcome": outcome, "error": None,
        })  # fmt: skip
    return rows


def test_on_the_same_histories_it_comes_to_what_ours_does() -> None:
    found = {True: 0, False: 0}
    for seed in range(600):
        calls = pa.Table.from_pylist(history(Random(seed)), schema=CALLS)
        theirs = check_tables({"run": "r", "workload": "counter"}, {"calls": calls})
        anomalies = Anomalies("r", None, None)
        assert judge_by("my counter", MINE, calls, anomalies, 0) == []
        assert {row["property"] for row in anomalies.rows} <= {"my counter linearizability"}
        broken = {entry[0] for entry in theirs.tally} != set()
        assert bool(anomalies.rows) == broken, seed
        assert [row["ops"] for row in anomalies.rows] == [row["ops"] for row in theirs.rows], seed
        found[broken] += 1
    assert min(found.values()) > 100, found


def table(**changes: Any) -> pa.Table:
    row = {
        "run": "r", "process": 1, "op": 0, "kind": "read", "key": None, "argument": None, "result": "3", "invoke": 1,
        "complete": 2, "outcome": "ok", "error": None,
    }  # fmt: skip
    return pa.Table.from_pylist([row | changes], schema=CALLS)


def test_a_witness_says_what_was_asked_and_answered() -> None:
    anomalies = Anomalies("r", None, None)
    assert judge_by("tally", MINE, table(argument='"all"'), anomalies, 0) == []
    assert json.loads(anomalies.rows[0]["witness"])["operations"][0]["what"] == 'read "all" -> 3'


def test_what_makes_no_sense_is_refused() -> None:
    anomalies = Anomalies("r", None, None)
    with pytest.raises(HistoryError, match="operation 0 is a 'pop'; a tally has add, read"):
        judge_by("tally", MINE, table(kind="pop"), anomalies, 0)
    with pytest.raises(HistoryError, match="the result of operation 0 is not JSON: "):
        judge_by("tally", MINE, table(result="{"), anomalies, 0)
    with pytest.raises(ValueError, match="there is a model 'counter' already"):
        judge_by("counter", MINE, table(), anomalies, 0)


def test_what_is_not_decided_in_time_is_told() -> None:
    (why,) = judge_by("tally", MINE, table(key='"k"'), Anomalies("r", None, None), 0, Bounds(0.0, 100.0))
    assert why.startswith('tally "k": not decided within ')
