"""Generated histories of transactions on disk: labels are right, in one part and in several, alone and many at once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from checkers.transactions import check_directories, check_tables, history, write_history
from checkers.verdict.judged import Judged, verdict
from harness.errors import BadArguments
from harness.generate.transactions import DEFECTS_OF, generate
from tests.checkers.histories.transaction_histories import Txn, tables

CASES = [(workload, defect) for workload, defects in DEFECTS_OF.items() for defect in (None, *defects)]


def _judge(directory: Path) -> Judged:
    (judged,) = check_directories([directory])
    return judged


def _agrees(judged: Judged, label: dict[str, Any]) -> bool:
    word = verdict(judged, {})["verdict"]
    return word == label["verdict"] and (
        label["anomaly"] is None or label["anomaly"] in {anomaly for _, anomaly, _, _ in judged.tally}
    )


@pytest.mark.parametrize(("workload", "defect"), CASES)
def test_every_defect_is_found_and_good_histories_pass(
    workload: str, defect: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    label = generate(tmp_path / "run", operations=3000, processes=7, seed=11, defect=defect, workload=workload)
    assert label == json.loads((tmp_path / "run" / "plan.json").read_text())["label"]
    whole = _judge(tmp_path / "run")
    assert _agrees(whole, label), whole.tally
    # The same in parts of few rows.
    monkeypatch.setattr(history, "PART_ROWS", 1000)
    assert label == generate(tmp_path / "run", operations=3000, processes=7, seed=11, defect=defect, workload=workload)
    assert len(list((tmp_path / "run" / "history" / "micro_operations").iterdir())) > 1
    parts = _judge(tmp_path / "run")
    assert sorted(parts.tally) == sorted(whole.tally)
    assert sorted(row["message"] for row in parts.rows) == sorted(row["message"] for row in whole.rows)
    assert parts.counts["dependencies"] == whole.counts["dependencies"]
    assert not (tmp_path / "run" / "candidates").exists()


def test_a_label_says_where(tmp_path: Path) -> None:
    label = generate(tmp_path / "run", operations=1000, processes=5, seed=3, defect="g-single-realtime", places=4)
    judged = _judge(tmp_path / "run")
    assert judged.tally == [("transactions", "G-single-realtime", 4, 4)]
    assert label["at"] == label["places"][0]
    assert sorted(sorted(row["ops"]) for row in judged.rows) == sorted(
        sorted(place["ops"][:2]) for place in label["places"]
    )


def test_generated_transactions_overlap_and_lists_are_short(tmp_path: Path) -> None:
    generate(tmp_path / "run", operations=5000, processes=10, seed=1)
    table = pq.read_table(tmp_path / "run" / "history" / "transactions").to_pandas()
    assert table["invoke"].is_monotonic_increasing and (table["op"] == range(len(table))).all()
    assert (table["complete"].dropna() > table["invoke"][table["complete"].notna()]).all()
    for _, mine in table[table["outcome"] == "ok"].groupby("process"):
        assert (mine["invoke"].to_numpy()[1:] > mine["complete"].to_numpy()[:-1]).all()
    assert (table["complete"].iloc[:-1].to_numpy() > table["invoke"].iloc[1:].to_numpy()).mean() > 0.8
    micro = pq.read_table(tmp_path / "run" / "history" / "micro_operations").to_pandas()
    assert micro["offset"].max() == 31
    assert {"append", "read"} == set(micro["kind"])
    operations = len(micro.groupby(["op", "position"]))
    assert 4900 < operations < 5400


def test_tables_written_are_judged_as_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    txns = [
        Txn([("append", 5, 1), ("append", 2, 1)], 10, 20),
        Txn([("read", 5, []), ("read", 2, [1])], 0, 30),
        Txn([("append", 3, 1)], 40, 50),
    ]
    plan = {"run": "run", "workload": "list-append", "source": "imported"}
    for rows in (history.PART_ROWS, 1):
        monkeypatch.setattr(history, "PART_ROWS", rows)
        write_history(tmp_path / str(rows) / "run", plan, tables(txns))
        judged = _judge(tmp_path / str(rows) / "run")
        assert judged == check_tables(plan, tables(txns))
    manifest = json.loads((tmp_path / "1" / "run" / "history" / "manifest.json").read_text())
    assert len(manifest["tables"]["micro_operations"]) == 3
    assert manifest["origin"] == 0 and manifest["workload"] == "list-append"


def test_an_empty_history_on_disk_is_vacuous(tmp_path: Path) -> None:
    write_history(tmp_path, {"run": "run", "workload": "kafka"}, tables([]))
    assert verdict(_judge(tmp_path), {})["verdict"] == "unknown"


def test_a_damaged_file_is_named_and_undecided(tmp_path: Path) -> None:
    generate(tmp_path / "run", operations=100, processes=3, seed=1)
    path = tmp_path / "run" / "history" / "micro_operations" / "000000.parquet"
    path.write_bytes(path.read_bytes()[:-100])
    judged = _judge(tmp_path / "run")
    assert verdict(judged, {})["verdict"] == "unknown" and str(path) in judged.undecided[0]
    (tmp_path / "run" / "plan.json").unlink()
    assert "plan.json cannot be read" in _judge(tmp_path / "run").undecided[0]


def test_what_the_other_parts_show_stands_though_one_is_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / "run"
    for parts, rows in ((False, 10**9), (True, 500)):
        for defect in ("g1a", "g1c"):
            monkeypatch.setattr(history, "PART_ROWS", 500)
            generate(directory, operations=2000, processes=5, seed=1, defect=defect)
            monkeypatch.setattr(history, "PART_ROWS", rows)
            first, *others = sorted((directory / "history" / "micro_operations").iterdir())
            first.write_bytes(first.read_bytes()[:-100])
            assert len(others) > 1
            judged = _judge(directory)
            assert verdict(judged, {})["verdict"] == "fail", (parts, defect)
            assert str(first) in judged.undecided[0]
            assert not (directory / "candidates").exists()
            for path in others:
                path.write_bytes(b"")
            judged = _judge(directory)
            assert verdict(judged, {})["verdict"] == "unknown" and not (directory / "candidates").exists()


def test_a_run_that_is_named_twice_is_judged_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "PART_ROWS", 200)
    generate(tmp_path / "run", operations=1000, processes=5, seed=1, defect="g1c")
    one, other = check_directories([tmp_path / "run"] * 2)
    assert one == other and one.tally


def test_a_plan_that_cannot_be_is_undecided(tmp_path: Path) -> None:
    generate(tmp_path / "run", operations=100, processes=5, seed=1)
    (judged,) = check_directories([tmp_path / "run"], asked={"consistency": 5})
    assert "consistency must be the name of a model, or a list of these, not 5" in judged.undecided[0]
    (tmp_path / "run" / "history" / "manifest.json").write_text(
        '{"tables": {"transactions": [], "micro_operations": 5}}'
    )
    assert "'micro_operations' is no list of files" in _judge(tmp_path / "run").undecided[0]


def test_bad_arguments_are_named(tmp_path: Path) -> None:
    with pytest.raises(BadArguments, match="--defect stale is none of workload list-append; there are"):
        generate(tmp_path, operations=10, processes=1, seed=0, defect="stale")
    with pytest.raises(BadArguments, match="--workload bank is none of list-append, kafka"):
        generate(tmp_path, operations=10, processes=1, seed=0, workload="bank")
    with pytest.raises(BadArguments, match="at least one operation"):
        generate(tmp_path, operations=0, processes=1, seed=0)


@pytest.mark.spark
def test_many_runs_in_one_job_and_one_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark: Any) -> None:
    labels = {}
    for number, (workload, defect) in enumerate(CASES):
        if number == 2:
            monkeypatch.setattr(history, "PART_ROWS", 200)
        directory = tmp_path / f"run-{number:03}"
        labels[directory.name] = generate(
            directory, operations=300, processes=4, seed=number, defect=defect, workload=workload
        )
    judged = check_directories(sorted(tmp_path.iterdir()), spark)
    assert [each.run for each in judged] == sorted(labels)
    assert all(_agrees(each, labels[each.run]) for each in judged)
