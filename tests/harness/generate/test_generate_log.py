"""Generated logs: nothing is wrong with the good ones, and each defect is found under its name."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import checkers
from checkers import registers
from checkers.dataset import check_dataset, check_tables
from checkers.log import quick as log_quick
from checkers.log.scope import Options
from checkers.verdict import judged
from harness.cli import app as cli
from harness.errors import BadArguments
from harness.generate import log, log_model
from harness.record.history import load_journal
from spark_history.errors import HistoryError
from spark_history.files import compact
from spark_history.schema import OPERATIONS, READS, TABLES
from tests.checkers.histories.histories import mutate, random_history, tables

PLAN = {"run": "r", "nemesis": [], "acks": "all", "replica_logs": False}


def found(verdict: dict[str, Any]) -> set[str]:
    return {anomaly for each in verdict["anomalies"].values() for anomaly in each["anomalies"]}


def judge(directory: Path, **options: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """(label, verdict) of one generated as a journal."""
    label = log.generate(directory, processes=8, seed=3, journal=True, **options)
    plan = json.loads((directory / "plan.json").read_text())
    assert plan["label"] == label
    return label, check_tables(plan, load_journal(directory / "journal"))


@pytest.mark.parametrize("operations", [1, 10, 1_000, 30_000])
def test_a_good_log_has_as_many_operations_as_asked_for_and_no_anomaly(tmp_path: Path, operations: int) -> None:
    label, verdict = judge(tmp_path / "run", operations=operations, partitions=3)
    assert label["verdict"] == ("pass" if operations > 1 else "unknown"), "a single one is no acknowledged append"
    assert not found(verdict)
    assert load_journal(tmp_path / "run" / "journal")["operations"].num_rows == operations
    assert operations < 1_000 or verdict["verdict"] == "pass"


@pytest.mark.parametrize("defect", log.DEFECTS_OF["append"])
@pytest.mark.parametrize("seed", [1, 2])
def test_each_defect_is_found_under_its_name(tmp_path: Path, defect: str, seed: int) -> None:
    label = log.generate(
        tmp_path / "run", operations=1_000, processes=8, seed=seed, defect=defect, partitions=2, journal=True
    )
    plan = json.loads((tmp_path / "run" / "plan.json").read_text())
    rows: list[dict[str, Any]] = []
    verdict = check_tables(plan, load_journal(tmp_path / "run" / "journal"), rows=rows)
    assert verdict["verdict"] == label["verdict"]
    assert label["anomaly"] in found(verdict)
    places = [(row["partition"], row["offset"]) for row in rows if row["anomaly"] == label["anomaly"]]
    at = label["at"]
    near = [abs(offset - at["offset"]) for partition, offset in places if partition == at["partition"]]
    assert min(near, default=99) <= 1
    assert all(row["witness"] for row in rows)


@pytest.fixture
def short_chunks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(log_model, "CHUNK_OFFSETS", 3_000)
    yield


@pytest.mark.spark
@pytest.mark.usefixtures("short_chunks")
@pytest.mark.parametrize("defect", [None, "stale-end", "torn-prefix"])
def test_a_hot_partition_of_many_segments_laid_out(tmp_path: Path, spark: Any, defect: str | None) -> None:
    directory = tmp_path / "run"
    label = log.generate(directory, operations=30_000, processes=30, seed=1, partitions=1, defect=defect)
    verdict = checkers.check(directory, spark)
    assert verdict["verdict"] == label["verdict"]
    assert found(verdict) == ({label["anomaly"]} if defect else set())
    assert verdict["operations"]["append ok"] > 27_000
    rows = pq.read_table(directory / "anomalies.parquet").to_pylist()
    assert len(rows) == len(label["places"])
    for row in rows:
        steps = json.loads(row["witness"])["operations"]
        assert {step["op"] for step in steps} == set(row["ops"])
        assert len(steps) == 2


@pytest.mark.spark
def test_many_runs_are_one_dataset(tmp_path: Path, spark: Any) -> None:
    labels = log.generate_runs(tmp_path / "d", runs=20, operations=600, processes=5, seed=1, defect="phantom")
    verdicts = check_dataset(tmp_path / "d", spark)
    assert labels == {"pass": 18, "fail": 2}
    assert [number for number, each in enumerate(verdicts) if each["verdict"] == "fail"] == [0, 10]
    assert {each["verdict"] for each in verdicts} == {"pass", "fail"}


def test_runs_counted_at_once_have_the_verdict_that_each_has_by_itself() -> None:
    runs = [_random_run(seed) for seed in range(300)]
    operations, reads = (
        pa.concat_tables([run[table].cast(compact(schema)) for run in runs])
        for table, schema in (("operations", OPERATIONS), ("reads", READS))
    )
    lengths = tuple(np.array([run[table].num_rows for run in runs]) for table in ("operations", "reads"))
    clean = log_quick.count_clean(operations, reads, (lengths[0], lengths[1]), [Options()] * len(runs))
    for run, counts in zip(runs, clean, strict=True):
        try:
            alone = check_tables(PLAN, run)
        except HistoryError:
            assert counts is None
            continue
        if counts is not None:
            assert check_tables(PLAN, run, counts=counts) == alone
        else:
            assert alone["verdict"] != "pass" or found(alone)
    assert 50 < sum(counts is not None for counts in clean) < 250


def _random_run(seed: int) -> dict[str, pa.Table]:
    random = Random(seed)
    parts, first = [], 0
    for partition in range(random.choice([1, 2])):
        history = random_history(random)
        if random.random() < 0.4:
            history = mutate(history, random)
        parts.append([_shifted(table, first) for table in tables(history, f"r{seed}", partition)])
        first += len(history)
    return {name: schema.empty_table() for name, schema in TABLES.items()} | {
        name: pa.concat_tables([part[number] for part in parts]) for number, name in enumerate(("operations", "reads"))
    }


def _shifted(table: pa.Table, by: int) -> pa.Table:
    shifted = pa.array([op + by for op in table["op"].to_pylist()], pa.int64())
    return table.set_column(table.column_names.index("op"), table.schema.field("op"), shifted)


def test_the_same_seed_gives_the_same_history(tmp_path: Path) -> None:
    for name in ("a", "b"):
        log.generate(tmp_path / name, operations=2_000, processes=5, seed=9, journal=True)
    first, second = (load_journal(tmp_path / name / "journal")["operations"].drop_columns(["run"]) for name in "ab")
    assert first.equals(second)


def test_a_defect_for_which_there_is_no_room_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadArguments, match="leaves no place for --defect phantom"):
        log.generate(tmp_path / "run", operations=2, processes=5, seed=9, defect="phantom")


def test_the_command_writes_a_run_and_says_its_label(tmp_path: Path, capsys: Any) -> None:
    words = ["generate", "--operations", "2e3", "--defect", "stale-read", "--results", str(tmp_path)]
    with pytest.raises(SystemExit) as ended:
        cli.main(words)
    assert ended.value.code == 0
    assert "labelled fail: stale end of log" in capsys.readouterr().out
    (run,) = tmp_path.iterdir()
    assert json.loads((run / "plan.json").read_text())["operations"] == 2_000


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError(28, "No space left on device")])
def test_what_is_interrupted_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Any) -> None:
    """Half a dataset would be judged as if it were all of it."""
    written = 0

    def add(*_: object) -> None:
        nonlocal written
        written += 1
        assert list(tmp_path.rglob("generated-*")) and not list(tmp_path.glob("generated-*"))
        if written > 3:
            raise error

    monkeypatch.setattr(log.DatasetWriter, "add", add)
    with pytest.raises(SystemExit) as ended:
        cli.main(["generate", "--results", str(tmp_path), "--runs", "10", "--operations", "50"])
    assert ended.value.code == 255 and written == 4 and not list(tmp_path.iterdir())


@pytest.mark.parametrize("words", [["--list"], ["--runs", "20000"]])
def test_ctrl_c_is_one_sentence_also_while_modules_are_imported(tmp_path: Path, words: list[str]) -> None:
    slow = "import sys, threading, _thread; threading.Timer({}, _thread.interrupt_main).start()\n"
    slow += "from harness.__main__ import main; sys.argv[1:] = {}; main()"
    for seconds in (0.02, 0.2):
        code = slow.format(seconds, ["generate", *words, "--results", str(tmp_path)])
        ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert ended.returncode in (0, 255) and "Traceback" not in ended.stderr
        assert ended.returncode == 0 or ended.stderr == "chaos: stopped\n"
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("operations", [1, 2, 3])
@pytest.mark.parametrize("workload", ["append", "register"])
def test_labels_of_a_few_operations_are_true(tmp_path: Path, operations: int, workload: str) -> None:
    for seed in range(60 if workload == "register" else 3):
        words = ["--workload", workload, "--operations", str(operations), "--seed", str(seed), "--results"]
        with pytest.raises(SystemExit):
            cli.main(["generate", *words, str(tmp_path), *(["--journal"] if workload == "append" else [])])
    for run in tmp_path.iterdir():
        plan = json.loads((run / "plan.json").read_text())
        if workload == "append":
            verdict = check_tables(plan, load_journal(run / "journal"))
        else:
            verdict = judged.verdict(registers.check_directories([run])[0], plan)
        assert verdict["verdict"] == plan["label"]["verdict"], run


def test_the_list_of_defects_says_what_is_found(tmp_path: Path, capsys: Any) -> None:
    with pytest.raises(SystemExit):
        cli.main(["generate", "--list"])
    for line in capsys.readouterr().out.splitlines():
        workload, defect, what = line.split("\t")
        if workload == "cas-register":
            words = ["--workload", workload, "--defect", defect, "--results", str(tmp_path)]
            with pytest.raises(SystemExit):
                cli.main(["generate", *words])
            assert capsys.readouterr().out.strip().rpartition(": ")[2] == what.rpartition(": ")[2]


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--operations", "many"], "--operations is many"),
        (["--operations", "0.5"], "--operations is 0.5"),
        (["--defect", "bad-luck"], "--defect bad-luck is none of workload append; there are lost-append"),
        (["--workload", "poetry"], "--workload poetry is not known; there are append"),
        (["--processes", "0"], "--processes is 0"),
        (["--name", "../x"], "--name '../x' is no name"),
        (["--name", "a\nb"], "--name 'a\\nb' is no name"),
    ],
)
def test_bad_arguments_of_the_command_are_one_sentence(
    tmp_path: Path, capsys: Any, words: list[str], problem: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["generate", "--results", str(tmp_path), *words])
    assert ended.value.code == 254
    assert problem in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
