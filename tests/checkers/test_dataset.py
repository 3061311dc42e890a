"""Many runs in one dataset: judged there, in memory and in a directory of their own, each run gets one verdict."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import checkers
from checkers.dataset import check_dataset, check_part, check_tables
from checkers.verdict.keeping import without_stamps
from harness.record.history import MemoryRecorder, load_journal
from spark_history.dataset import DatasetWriter, list_parts, read_part
from spark_history.errors import HistoryError
from tests.checkers.histories.histories import SECOND, LongHistory, Op, random_history, tables
from tests.checkers.log.test_log_linearizability import BROKEN
from tests.checkers.verdict.test_check import (
    acknowledge_an_offset_twice,
    acknowledge_out_of_order,
    drop_a_record_on_one_replica,
    stale_end,
)
from tests.spark_history.test_ingest import journal

PLAN = {"nemesis": [], "acks": "all", "min_insync_replicas": 2}
VIOLATION = {
    "property": "LeaderCompleteness", "message": "broker-2 leads without offset 17, which is committed.",
    "where": "chaos-2", "nodes": ["broker-2"], "time_ns": 13 * SECOND, "step": 8_841, "event": "role",
}  # fmt: skip
FAULT = {
    "run": "any", "fault": 0, "nemesis": "kill", "targets": ["broker-1"], "start": 2 * SECOND, "end": None,
    "effective": True, "evidence": json.dumps({"exit_status": 137}),
}  # fmt: skip


def lose_the_end(history: LongHistory) -> None:
    history.in_final[np.flatnonzero(history.partition == 1)[-150:]] = False


def never_answer(history: LongHistory) -> None:
    history.outcome[np.arange(40, 60)] = "info"


def end_before_the_final_reads(history: LongHistory) -> None:
    history.final_reads = False


WAYS: dict[str, Callable[[LongHistory], None]] = {
    way.__name__: way
    for way in (
        lose_the_end, never_answer, end_before_the_final_reads, drop_a_record_on_one_replica, acknowledge_out_of_order,
        stale_end, acknowledge_an_offset_twice,
    )
}  # fmt: skip


def diverged(directory: Path) -> None:
    """One replica holds another value of the same epoch."""
    LongHistory(400, partitions=2, seconds=1).write(directory)
    (path,) = (directory / "journal").glob("replica_logs-*.parquet")
    rows = pq.ParquetFile(path).read()
    values = rows["value"].to_pylist()
    values[-7] += 1
    column = rows.column_names.index("value")
    pq.write_table(rows.set_column(column, rows.schema.field(column), pa.array(values)), path)


class Runs:
    """Runs as directories, and what check_tables() is given of them."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.given: dict[str, tuple[dict[str, Any], dict[str, pa.Table], list[str], dict[str, Any] | None]] = {}

    def add(
        self,
        run: str,
        write: Callable[[Path], Any],
        doubts: list[str] | None = None,
        violation: dict[str, Any] | None = None,
        **plan: Any,
    ) -> None:
        directory = self.directory / run
        write(directory)
        (directory / "plan.json").write_text(json.dumps(PLAN | {"run": run} | plan))
        (directory / "run.json").write_text(json.dumps({"doubts": doubts or []}))
        if violation is not None:
            (directory / "violation.json").write_text(json.dumps(violation))
        loaded = load_journal(directory / "journal")
        self.given[run] = (PLAN | {"run": run} | plan, loaded, doubts or [], violation)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """A run broken in each way, runs that say more than their history, and random histories."""
    runs = Runs(tmp_path_factory.mktemp("runs"))
    simulation: dict[str, Any] = {"on": "simulation"}

    def long(break_it: Callable[[LongHistory], None] = lambda _: None) -> LongHistory:
        history = LongHistory(4_000, partitions=3, seconds=4)
        break_it(history)
        return history

    for number, (name, way) in enumerate(WAYS.items()):
        runs.add(f"{number:02}-{name}", long(way).write)
    runs.add("20-good", long().write)
    runs.add("21-doubtful", long().write, doubts=["not recovered"])
    runs.add("22-struck", lambda to: long().write(to, faults=[FAULT]), nemesis=["kill"], acks="1")
    runs.add("23-vacuous", long().write, nemesis=["kill"])
    runs.add("24-stopped", long(end_before_the_final_reads).write, violation=VIOLATION, **simulation)
    runs.add("25-stopped and broken", long(lose_the_end).write, violation=VIOLATION, **simulation)
    runs.add("26-nothing happened", lambda to: journal(to, []), violation=VIOLATION | {"time_ns": 1}, **simulation)
    runs.add("27-diverged", diverged)
    short = {name: history for name, (history, _) in BROKEN.items()}
    short |= {f"random {seed}": random_history(Random(seed)) for seed in range(3)}
    for number, (name, ops) in enumerate(short.items()):
        runs.add(f"{30 + number}-{name}", partial(_journal, ops))
    return runs


def _journal(ops: list[Op], directory: Path) -> None:
    journal(directory, sorted(ops, key=lambda op: op.invoke))


@pytest.fixture(scope="module")
def in_memory(runs: Runs) -> dict[str, dict[str, Any]]:
    return {run: check_tables(*given) for run, given in runs.given.items()}


def test_every_way_of_breaking_a_run_is_seen(in_memory: dict[str, dict[str, Any]]) -> None:
    verdicts = {run.partition("-")[2]: verdict["verdict"] for run, verdict in in_memory.items() if run < "3"}
    assert verdicts == {
        "lose_the_end": "fail", "diverged": "fail", "never_answer": "pass",
        "end_before_the_final_reads": "unknown", "drop_a_record_on_one_replica": "fail",
        "acknowledge_out_of_order": "fail", "stale_end": "fail", "acknowledge_an_offset_twice": "fail",
        "good": "pass", "doubtful": "unknown", "struck": "pass", "vacuous": "unknown",
        "stopped": "fail", "stopped and broken": "fail", "nothing happened": "fail",
    }  # fmt: skip
    for case, (_, anomalies) in BROKEN.items():
        (found,) = [verdict for run, verdict in in_memory.items() if run.partition("-")[2] == case]
        assert set(found["anomalies"]["log linearizability"]["anomalies"]) == anomalies, case


@pytest.mark.spark
def test_a_directory_and_its_tables_get_the_same_verdict(
    spark: Any, runs: Runs, in_memory: dict[str, dict[str, Any]]
) -> None:
    for number, (run, verdict) in enumerate(in_memory.items()):
        if run < "3" or number % 4 == 0:  # a job or two each
            judged = without_stamps(checkers.check(runs.directory / run, spark))
            judged.pop("attribution", None)  # made where the record of a run is read again, not of many runs at once
            assert judged == verdict, run


@pytest.mark.spark
def test_a_dataset_gets_the_verdicts_of_its_runs(
    spark: Any, runs: Runs, in_memory: dict[str, dict[str, Any]], tmp_path: Path
) -> None:
    with DatasetWriter(tmp_path, 1, runs_per_file=4) as one, DatasetWriter(tmp_path, 2, runs_per_file=3) as two:
        for number, (plan, history, doubts, violation) in enumerate(runs.given.values()):
            (one, two)[number % 2].add(plan, history, doubts=doubts, violation=violation)
    assert len(list_parts(tmp_path)) > 5
    verdicts = check_dataset(tmp_path, spark)
    assert [verdict["run"] for verdict in verdicts] == sorted(runs.given)
    assert verdicts == [in_memory[run] for run in sorted(runs.given)]


def check_parts(dataset: Path) -> dict[str, dict[str, Any]]:
    """What check_dataset() gives, by run, without Spark."""
    parts = [check_part({"dataset": str(dataset), "part": name}) for name in list_parts(dataset)]
    return {row["run"]: row for part in parts for row in map(json.loads, part["verdict"].to_pylist())}


def test_a_run_that_cannot_be_judged_is_named_and_the_others_are_judged(runs: Runs, tmp_path: Path) -> None:
    recorder = MemoryRecorder("seed-3")
    recorder.complete(recorder.invoke_append(0, "chaos", 0, 1, 10), 5, "ok", offset=0)
    plan, history, _, _ = runs.given["00-lose_the_end"]
    with DatasetWriter(tmp_path, 1) as writer:
        writer.add(plan | {"run": "seed-1"}, history)
        writer.add({"run": "seed-3"}, recorder.tables())
        writer.add({"run": "seed-4", "log_start": "x"}, history, violation=VIOLATION)
    verdicts = check_parts(tmp_path)
    assert {run: verdict["verdict"] for run, verdict in verdicts.items()} == {
        "seed-1": "fail", "seed-3": "unknown", "seed-4": "fail",
    }  # fmt: skip
    assert verdicts["seed-3"]["reason"].startswith("nothing could be judged: operation 0 of chaos-0 completed before")
    assert "LeaderCompleteness violated" in verdicts["seed-4"]["reason"]


@pytest.mark.parametrize("table", ["reads", "runs"])
def test_a_damaged_part_of_a_file_leaves_its_run_unknown(runs: Runs, tmp_path: Path, table: str) -> None:
    plan, history, _, _ = runs.given["00-lose_the_end"]
    with DatasetWriter(tmp_path, 1, runs_per_file=2) as writer:
        for number in range(4):
            writer.add(plan | {"run": f"seed-{number}"}, history, violation=VIOLATION if number == 1 else None)
    path = tmp_path / table / "001-00000.parquet"
    content = bytearray(path.read_bytes())
    content[4:40] = bytes(36)  # the first page
    path.write_bytes(content)
    verdicts = check_parts(tmp_path)
    damaged = "seed-0" if table == "reads" else "long"  # as operations say
    words = {run: verdict["verdict"] for run, verdict in verdicts.items()}
    assert words == {damaged: "unknown", "seed-1": "fail", "seed-2": "fail", "seed-3": "fail"}
    assert verdicts[damaged]["reason"].startswith(f"{table}/001-00000.parquet is damaged (")
    assert verdicts["seed-1"]["lost"] == verdicts["seed-2"]["lost"] > 0
    path.write_bytes(b"nothing")
    verdicts = check_parts(tmp_path)
    words = {run: verdict["verdict"] for run, verdict in verdicts.items()}
    rest = {"seed-2": "fail", "seed-3": "fail"}
    assert words == rest | ({"seed-0": "unknown", "seed-1": "fail"} if table == "reads" else {"long": "unknown"})


@pytest.mark.spark
def test_an_empty_dataset_has_no_verdicts(spark: Any, tmp_path: Path) -> None:
    DatasetWriter(tmp_path, 1).close()
    assert check_dataset(tmp_path, spark) == []


def test_the_reason_of_a_stopped_run_is_the_invariant_and_no_false_anomaly(
    in_memory: dict[str, dict[str, Any]],
) -> None:
    verdict = in_memory["24-stopped"]
    said = "LeaderCompleteness violated on chaos-2 at 12.000 s: broker-2 leads without offset 17, which is committed"
    assert verdict["reason"] == said
    assert (verdict["exit_code"], verdict["complete"]) == (1, False)
    counts = {name: entry["count"] for name, entry in verdict["anomalies"].items() if entry["count"]}
    assert counts == {"LeaderCompleteness": 1}
    assert verdict["anomalies"]["LeaderCompleteness"]["example"] == said
    assert verdict["anomalies"]["ElectionSafety"]["count"] == 0
    both = in_memory["25-stopped and broken"]
    assert both["reason"].startswith(said + "; besides, 150 lost appends")
    assert "at the start, before any operation" not in both["reason"]


def test_each_violated_property_has_an_example(in_memory: dict[str, dict[str, Any]]) -> None:
    for run, verdict in in_memory.items():
        for name, entry in verdict["anomalies"].items():
            assert bool(entry["example"]) == bool(entry["count"]), (run, name)
    lost = in_memory["00-lose_the_end"]["anomalies"]["log linearizability"]["example"]
    assert "was acknowledged at" in lost


def test_runs_come_back_as_they_were_written(runs: Runs, tmp_path: Path) -> None:
    with DatasetWriter(tmp_path, 7) as writer:
        for plan, history, doubts, violation in runs.given.values():
            writer.add(plan, history, doubts=doubts, violation=violation)
    (part,) = list_parts(tmp_path)
    read_back = list(read_part(tmp_path, part))
    assert len(read_back) == len(runs.given)
    for run, (plan, history, doubts, violation) in zip(read_back, runs.given.values(), strict=True):
        assert (run.plan, run.doubts, run.violation) == (plan, doubts, violation)
        for name, table in run.tables.items():
            assert table.cast(history[name].schema).equals(history[name]), (plan["run"], name)


def test_a_worker_that_is_killed_leaves_whole_runs(runs: Runs, tmp_path: Path) -> None:
    plan, history, _, _ = runs.given["20-good"]
    writer = DatasetWriter(tmp_path, 1, runs_per_file=2)
    for number in range(5):
        writer.add(plan | {"run": f"seed-{number}"}, history)
    # Never closed. And one killed between the renames of its files:
    (tmp_path / "runs" / "001-00001.parquet").rename(tmp_path / "runs" / ".001-00001.parquet.tmp")
    left = [run.plan["run"] for part in list_parts(tmp_path) for run in read_part(tmp_path, part)]
    assert left == ["seed-0", "seed-1"]


def test_a_disk_that_is_full_leaves_no_part_of_a_file(
    runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, history, _, _ = runs.given["20-good"]
    told: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", told.append)
    with DatasetWriter(tmp_path, 0, runs_per_file=1) as writer:
        writer.add(plan, history)

        def full(self: pq.ParquetWriter) -> None:
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patched, pytest.raises(OSError, match="No space left"):
            patched.setattr(pq.ParquetWriter, "close", full)
            writer.add(plan, history)
    assert (list_parts(tmp_path), list(tmp_path.rglob("*.tmp")), told) == (["000-00000.parquet"], [], [])


def test_a_damaged_file_is_named(runs: Runs, tmp_path: Path) -> None:
    plan, history, _, _ = runs.given["20-good"]
    with DatasetWriter(tmp_path, 1) as writer:
        writer.add(plan, history)
    path = tmp_path / "reads" / "001-00000.parquet"
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(HistoryError, match=r"reads/001-00000\.parquet is damaged"):
        list(read_part(tmp_path, "001-00000.parquet"))


def test_what_was_recorded_in_memory_is_judged() -> None:
    recorder = MemoryRecorder("seed-9")
    batch = recorder.invoke_append(0, "chaos", 0, 3, 10)
    recorder.complete(batch, 20, "ok", offset=0, leader_epoch=1)
    recorder.invoke_append(0, "chaos", 0, 2, 25)
    final = recorder.invoke(1, "final_read", "chaos", 0, 30)
    recorder.complete(final, 40, "ok", offset=0, high_watermark=2, records=([0, 1], [0, 1]))
    recorder.add_replica_log("broker-1", "chaos", 0, [0, 1], [1, 1], [0, 1])
    recorder.record_fault(0, "kill", ["broker-1"], 12, 15, effective=True, evidence="{}")
    verdict = check_tables({"run": "seed-9", "nemesis": ["kill"]}, recorder.tables())
    assert (verdict["verdict"], verdict["lost"]) == ("fail", 1)
    assert verdict["operations"]["append info"] == 2


def test_judging_a_run_in_memory_loads_no_spark(tmp_path: Path) -> None:
    """Workers are many, and the shrinker judges hundreds of runs."""
    modules = "checkers.dataset, spark_history.dataset, harness.record.history"
    program = f"import {modules}, sys; sys.exit('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_operations_of_several_logs_are_kept_apart() -> None:
    logs = []
    for partition in range(4):
        both = tables(random_history(Random(20 + partition)), partition=partition)
        logs.append([_with_ops_from(table, 100 * partition) for table in both])
    run = MemoryRecorder("r").tables()
    run["operations"] = pa.concat_tables([log[0] for log in logs])
    run["reads"] = pa.concat_tables([log[1] for log in logs])
    together = check_tables(PLAN, run)["operations"]
    alone = [check_tables(PLAN, run | {"operations": log[0], "reads": log[1]})["operations"] for log in logs]
    assert min(together["append ok"], together["read ok"], together["records read"]) > 1
    assert together == {name: sum(counts.get(name, 0) for counts in alone) for name in together}


def _with_ops_from(table: pa.Table, first: int) -> pa.Table:
    ops = pa.array([op + first for op in table["op"].to_pylist()], pa.int64())
    return table.set_column(table.column_names.index("op"), "op", ops)
