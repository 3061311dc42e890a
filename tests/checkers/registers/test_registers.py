"""Registers: the verdict is that of brute force, and what is wrong has the right name and a small witness."""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from checkers import registers, stored
from checkers.verdict.judged import Judged, verdict
from harness.generate import registers as generator
from spark_history.errors import HistoryError
from tests.checkers.histories.random_histories import HISTORIES
from tests.checkers.histories.register_histories import Op, is_linearizable, mutate, random_history, table


def check(history: list[Op], **plan: Any) -> Judged:
    return registers.check_tables({"run": "r", **plan}, {"registers": table(history)})


def ok(kind: str, value: int | None, invoke: int, complete: int, **more: Any) -> Op:
    return Op(kind, value, invoke, complete, "ok", **more)


def names(judged: Judged) -> list[str]:
    return sorted(anomaly for _, anomaly, _, _ in judged.tally)


@pytest.mark.parametrize("mode", ["distinct writes", "distinct writes and cas", "repeated values", "all"])
@pytest.mark.timeout(3600)
def test_agrees_with_brute_force(mode: str) -> None:
    verdicts: Counter[bool] = Counter()
    for seed in range(HISTORIES):
        rng = random.Random(f"{mode} {seed}")
        initial = rng.choice([None, 0])
        history = random_history(
            rng,
            initial=initial,
            unique=mode.startswith("distinct"),
            cas=mode in ("distinct writes and cas", "all"),
            keys=rng.choice([1, 1, 3]),
        )
        good = seed % 3 == 0
        if not good:
            history = mutate(rng, history)
        expected = is_linearizable(history, initial)
        assert expected or not good
        judged = check(history, initial=initial)
        assert not judged.undecided
        assert (not judged.tally) == expected, (seed, initial, history, judged.rows)
        verdicts[expected] += 1
    assert min(verdicts.values()) > HISTORIES // 50, "both verdicts are put to the test"


WRITE_READ = [ok("write", 1, 0, 10), ok("read", 1, 20, 30)]


@pytest.mark.parametrize(
    ("anomaly", "ops", "history"),
    [
        ("stale read", [0, 1, 2], [ok("write", 1, 0, 9), ok("write", 2, 10, 19), ok("read", 1, 20, 29)]),
        ("stale read", [0, 1], [ok("write", 1, 0, 9), ok("read", None, 10, 19)]),
        (
            "lost write",
            [0, 1, 3],
            [ok("write", 1, 0, 9), ok("write", 2, 10, 19), ok("read", 1, 20, 29), ok("read", 1, 30, 39)],
        ),
        (
            "split brain",
            [2, 3, 4, 5],
            [ok("write", 1, 0, 99), ok("write", 2, 0, 99), ok("read", 1, 10, 20), ok("read", 2, 10, 20),
             ok("read", 2, 30, 40), ok("read", 1, 30, 40)],
        ),
        ("future read", [0, 1], [ok("read", 1, 0, 9), ok("write", 1, 10, 19)]),
        ("phantom", [0], [ok("read", 7, 0, 9)]),
        ("failed but visible", [0, 1], [Op("write", 1, 0, 9, "fail"), ok("read", 1, 10, 19)]),
        (
            "lost update",
            [1, 2],
            [ok("write", 1, 0, 9), ok("cas", 2, 10, 19, expected=1), ok("cas", 3, 20, 29, expected=1)],
        ),
        (
            "stale read",
            [0, 1, 2],
            [ok("write", 1, 0, 9), ok("write", 2, 10, 19), ok("read", 1, 20, 29), ok("write", 1, 30, 39)],
        ),
    ],
)  # fmt: skip
def test_anomaly_has_its_name_and_its_witness(anomaly: str, ops: list[int], history: list[Op]) -> None:
    # Around it, what has nothing to do with it.
    others = [Op("write", 100, 0, None, "info", key=1), ok("read", 100, 5, 9, key=1), ok("write", 50, 200, 210)]
    judged = check(history + others)
    assert names(judged) == [anomaly]
    (row,) = judged.rows
    assert sorted(row["ops"]) == ops
    witness = json.loads(row["witness"])
    assert [step["op"] for step in witness["operations"]] == sorted(ops, key=lambda op: (history[op].invoke, op))
    assert row["message"].startswith("key 0: ")
    assert verdict(judged, {})["verdict"] == "fail"


def test_operations_that_touch_are_concurrent() -> None:
    assert not check([ok("write", 1, 0, 10), ok("write", 2, 10, 20), ok("read", 1, 20, 30)]).tally
    assert names(check([ok("write", 1, 0, 9), ok("write", 2, 10, 19), ok("read", 1, 20, 30)])) == ["stale read"]


def test_write_of_unknown_outcome_may_take_effect_late_or_never() -> None:
    late = [Op("write", 1, 0, 5, "info"), ok("write", 2, 10, 20), ok("read", 2, 30, 40), ok("read", 1, 50, 60)]
    assert not check(late).tally
    assert not check(late[:3]).tally
    assert names(check([*late, ok("read", 2, 70, 80)])) == ["stale read"]


def test_read_of_unknown_outcome_and_failed_operations_prove_nothing() -> None:
    history = [Op("read", 7, 0, 9, "info"), Op("read", 7, 0, 9, "fail"), Op("cas", 3, 0, 9, "fail", expected=8)]
    assert not check([*history, *WRITE_READ]).tally


def test_initial_value() -> None:
    assert not check([ok("read", None, 0, 9)]).tally
    assert not check([ok("read", 0, 0, 9)], initial=0).tally
    assert names(check([ok("read", None, 0, 9)], initial=0)) == ["phantom"]
    assert names(check([ok("read", 0, 0, 9)])) == ["phantom"]


def test_plan_says_how_nil_and_failed_cas_are_to_be_read() -> None:
    nil = [ok("write", 1, 0, 9), ok("read", None, 10, 19)]
    assert check(nil).tally
    assert not check(nil, nil_reads="anything").tally
    refused = [ok("write", 1, 0, 9), Op("cas", 2, 10, 19, "fail", expected=1), ok("read", 1, 20, 29)]
    assert not check(refused).tally
    assert check(refused, failed_cas="evidence").tally


def test_independent_violations_are_counted_apart() -> None:
    history: list[Op] = []
    for i in range(300):
        at = 1000 * i
        history += [
            ok("write", 3 * i, at, at + 9),
            ok("write", 3 * i + 1, at + 10, at + 19),
            ok("read", 3 * i + 1, at + 20, at + 29),
            ok("read", 3 * i, at + 30, at + 39),
            ok("write", 3 * i + 2, at + 40, at + 49),
        ]
    judged = check(history, initial=-1)
    assert judged.tally == [(registers.REGISTER_LINEARIZABILITY, "stale read", 300, 300)]
    assert len(judged.rows) == 100


def test_one_stale_read_across_many_writes_is_one_violation() -> None:
    history = [ok("write", i, 10 * i, 10 * i + 5) for i in range(500)]
    judged = check([*history, ok("read", 3, 6000, 6010)])
    assert judged.tally == [(registers.REGISTER_LINEARIZABILITY, "stale read", 1, 1)]
    assert len(judged.rows[0]["ops"]) == 3


def test_names_of_values_and_keys() -> None:
    judged = check([ok("read", 7, 0, 9)], names={"7": "seven"}, key_names={"0": "alpha"})
    assert judged.rows[0]["message"].startswith("key alpha: read seven ")


@pytest.mark.parametrize(
    ("history", "message"),
    [
        ([Op("write", 1, 10, 5, "ok")], "operation 0 completed before it was invoked"),
        ([Op("write", 1, 10, None, "ok")], "operation 0 is ok but has no completion"),
        ([Op("frob", 1, 0, 9, "ok")], "kind 'frob': there are read, write, cas"),
        ([Op("read", 1, 0, 9, "maybe")], "outcome 'maybe'"),
    ],
)
def test_bad_history_is_named(history: list[Op], message: str) -> None:
    with pytest.raises(HistoryError, match=message):
        check(history)


def test_empty_history_is_vacuous() -> None:
    assert verdict(check([]), {})["reason"].startswith("vacuous")


def test_a_history_in_which_nothing_was_ok_is_vacuous() -> None:
    nothing = [Op("write", 1, 0, None, "info"), Op("write", 2, 1, None, "info"), Op("read", None, 3, 5, "fail")]
    said = verdict(check(nothing), {})
    assert (said["verdict"], said["reason"]) == ("unknown", "vacuous: none of the 3 operations was ok")


def test_times_of_many_keys_that_do_not_fit_side_by_side() -> None:
    year = 365 * 24 * 3600 * 10**9
    history = []
    for key in range(100):
        history += [ok("write", 1, 0, year, key=key), ok("write", 2, 2 * year, 3 * year, key=key),
                    ok("read", 1 if key == 70 else 2, 9 * year, 10 * year, key=key)]  # fmt: skip
    judged = check(history)
    assert names(judged) == ["stale read"]
    assert judged.rows[0]["message"].startswith("key 70: ")


@pytest.mark.spark
def test_on_disk_as_in_memory(tmp_path: Path, spark: Any) -> None:
    rng = random.Random(1)
    runs, expected = [], []
    for number in range(4):
        history = [
            replace(op, key=key)
            for key in range(40)
            for op in mutate(rng, random_history(rng, initial=None, unique=True, cas=number > 1))
        ]
        plan = {"run": f"run-{number}", "workload": "register"}
        expected.append(registers.check_tables(plan, {"registers": table(history)}))
        runs.append(tmp_path / f"run-{number}")
        registers.write_history(runs[-1], plan, {"registers": table(history)})
    found = registers.check_directories(runs, spark)
    assert found == registers.check_directories(runs)
    assert [sorted(judged.tally) for judged in found] == [sorted(judged.tally) for judged in expected]
    assert [judged.counts for judged in found] == [judged.counts for judged in expected]
    assert [judged.origin for judged in found] == [judged.origin for judged in expected]


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        ({"initial": "a"}, "initial value of a register must be an integer or nil, not 'a'"),
        ({"initial": 1.5}, "must be an integer or nil, not 1.5"),
        ({"initial": 1 << 80}, "must be an integer or nil"),
        ({"names": 5}, "the plan's names must be a map of numbers to names"),
        ({"bounds": [1]}, "bounds must be seconds and memory_mb"),
    ],
)
def test_bad_plan_is_named(plan: dict[str, Any], message: str) -> None:
    with pytest.raises(HistoryError, match=message):
        check(WRITE_READ, **plan)


def test_what_is_asked_otherwise_overrides_the_plan(tmp_path: Path) -> None:
    registers.write_history(tmp_path / "run", {"run": "run"}, {"registers": table([ok("read", 0, 0, 9)])})
    assert names(registers.check_directories([tmp_path / "run"])[0]) == ["phantom"]
    (judged,) = registers.check_directories([tmp_path / "run"], asked={"initial": 0})
    assert not judged.tally and judged.run == "run"
    (judged,) = registers.check_directories([tmp_path / "run"], asked={"initial": "a"})
    assert len(judged.undecided) == 1 and "not 'a'" in judged.undecided[0]


def test_runs_are_given_to_executors_by_names_that_they_can_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registers.write_history(tmp_path / "run", {"run": "run"}, {"registers": table(WRITE_READ)})
    asked = []
    monkeypatch.setattr(stored, "shared", lambda spark, runs: asked.append((spark, runs)) or [tmp_path / "run"])
    monkeypatch.setattr(stored, "run_tasks", lambda spark, work, units: [work(unit) for unit in units])
    spark: Any = object()
    (judged,) = registers.check_directories([Path("run")], spark)
    assert judged.counts["operations"] == 2 and asked == [(spark, [Path("run")])]


def test_a_file_that_cannot_be_written_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pyarrow.parquet.ParquetWriter.write_table", fail)
    with pytest.raises(OSError, match="No space left"):
        generator.generate(tmp_path / "run", operations=100, processes=5, seed=1, defect=None)
    assert not list((tmp_path / "run" / "history" / "registers").iterdir())


@pytest.mark.spark
def test_damaged_file_is_named_and_the_rest_judged(tmp_path: Path, spark: Any) -> None:
    generator.generate(tmp_path / "run", operations=20_000, processes=5, seed=1, defect=None, keys=100)
    files = sorted((tmp_path / "run" / "history" / "registers").iterdir())
    files[1].write_bytes(files[1].read_bytes()[:100])
    (judged,) = registers.check_directories([tmp_path / "run"], spark)
    assert verdict(judged, {})["verdict"] == "unknown"
    assert str(files[1]) in judged.undecided[0]
    assert 0 < judged.counts["operations"] < 20_000
