"""Export, then check: a run's own verdict, in both notations, whatever the workload and however it is broken."""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from checkers import models, registers, transactions
from checkers.dataset import check_tables
from harness.cli import app as cli
from harness.explore.simulate import simulate
from harness.plan.plan import Plan
from harness.record.history import Recorder, load_journal
from spark_history.jepsen import read_history
from spark_history.jepsen.events.plain import unspell
from spark_history.jepsen.export import export
from spark_history.schema import CALLS, REGISTERS, TABLES
from tests.checkers.histories.histories import SECOND, LongHistory, mutate, random_history
from tests.checkers.verdict.test_check import acknowledge_out_of_order
from tests.checkers.verdict.test_damaged_runs import recorded
from tests.spark_history.test_ingest import journal

BREAKAGES: dict[str, Callable[[LongHistory], None]] = {
    "good": lambda history: None,
    "lost": lambda history: history.in_final.__setitem__(slice(-5, None), False),
    "info and fail": lambda history: history.outcome.__setitem__(slice(40, 80), ["info"] * 20 + ["fail"] * 20),
    "killed": lambda history: setattr(history, "final_reads", False),
    "inverted": acknowledge_out_of_order,
}
FAULT = {
    "run": "long", "fault": 3, "nemesis": "kill", "targets": ["broker-1"], "start": 2 * SECOND, "end": 3 * SECOND,
    "effective": True, "evidence": '{"exit": -9, "say": "\\"x\\""}',
}  # fmt: skip


def run_of(history: LongHistory, directory: Path) -> tuple[dict[str, Any], dict[str, pa.Table]]:
    history.write(directory, {"replica_logs": False, "workload": "append", "nemesis": ["kill"]}, faults=[FAULT])
    return json.loads((directory / "plan.json").read_text()), load_journal(directory / "journal")


def reported(verdict: dict[str, Any]) -> dict[str, Any]:
    """What of a verdict a client's history determines."""
    counts = {name: each["anomalies"] for name, each in verdict["anomalies"].items()}
    names = ("verdict", "reason", "operations", "faults", "lost", "complete", "contract", "judged_until_s")
    return {name: verdict[name] for name in names} | {"anomalies": counts}


def chaos(*arguments: object) -> int:
    with pytest.raises(SystemExit) as ended:
        cli.main([str(each) for each in arguments])
    return int(ended.value.code or 0)  # type: ignore[arg-type]


@pytest.mark.parametrize("breakage", BREAKAGES)
@pytest.mark.parametrize("name", ["history.edn", "history.jsonl.gz"])
def test_a_log_gets_the_same_verdict_back(tmp_path: Path, breakage: str, name: str) -> None:
    history = LongHistory(1_200, partitions=3, seconds=4)
    BREAKAGES[breakage](history)
    plan, tables = run_of(history, tmp_path / "run")
    format_ = "edn" if "edn" in name else "jsonl"
    assert chaos("export", tmp_path / "run", "--format", format_, "--output", tmp_path / name) == 0
    imported = read_history(tmp_path / name)
    assert imported.tables["faults"].to_pylist() == [FAULT | {"run": "long"}]
    # As far as clients saw it: what lay on the replicas is not exported.
    seen_by_clients = tables | {"replica_logs": tables["replica_logs"].slice(0, 0)}
    assert reported(check_tables(imported.plan, imported.tables)) == reported(
        check_tables(plan | {"replica_logs": False}, seen_by_clients)
    )  # fmt: skip


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A simulated run with brokers killed: operations fail, and then have no leader epoch."""
    plan = Plan(run="run", on="simulation", seed=7, time_limit=8, rate=60, partitions=2, nemesis=("kill",))
    return recorded(tmp_path_factory.mktemp("real") / "run", plan, simulate(plan, traced=True).tables)


@pytest.mark.parametrize("name", ["history.edn", "history.jsonl"])
def test_a_real_run_gets_the_same_verdict_back(real: Path, tmp_path: Path, name: str) -> None:
    plan, tables = json.loads((real / "plan.json").read_text()), load_journal(real / "journal")
    verdict = check_tables(plan, tables)
    assert verdict["verdict"] == "pass" and verdict["operations"]["append fail"], "what it is about"
    assert tables["operations"]["leader_epoch"].null_count
    assert chaos("export", real, "--format", name.partition(".")[2], "--output", tmp_path / name) == 0
    imported = read_history(tmp_path / name)
    again = check_tables(imported.plan, imported.tables, imported.doubts)
    rest = {"anomalies": None, "contract": None}  # which rest on the nodes' traces too, and these are not exported
    assert reported(again) | rest == reported(verdict) | rest


def test_an_export_of_a_run_that_was_cut_short_is_not_decided_either(real: Path, tmp_path: Path) -> None:
    run = shutil.copytree(real, tmp_path / "run")
    how = "the run was cut short by SIGINT after 3.0 s of 8 s"
    (run / "run.json").write_text(json.dumps({"status": "interrupted", "ended_early": how}))
    assert chaos("export", run, "--output", tmp_path / "cut.edn") == 0
    assert chaos("check", tmp_path / "cut.edn") == 2
    assert read_history(tmp_path / "cut.edn").doubts == [how]


def test_tables_of_a_real_run_get_the_same_verdict(real: Path, tmp_path: Path) -> None:
    assert chaos("export", real, "--format", "parquet", "--output", tmp_path / "tables") == 0
    tables = {table: pq.read_table(tmp_path / "tables" / f"{table}.parquet") for table in TABLES}
    plan = json.loads((tmp_path / "tables" / "plan.json").read_text())
    assert check_tables(plan, tables) == check_tables(plan, load_journal(real / "journal"))


def test_operations_of_ones_own_are_exported_once(tmp_path: Path) -> None:
    """The journal has them when they begin and when they end."""
    recorder = Recorder(tmp_path / "run", "run", flush_interval=None)
    recorder.complete(recorder.invoke_append(0, "chaos", 0, 1, 5), 6, "ok", offset=0)
    calls = [recorder.invoke_call(1, "put", 10 + number, argument=number) for number in range(3)]
    recorder.flush()
    recorder.complete_call(calls[1], 20, "ok", result="done")
    recorder.close()
    (tmp_path / "run" / "plan.json").write_text(json.dumps({"run": "run"}))
    assert chaos("export", tmp_path / "run", "--format", "parquet", "--output", tmp_path / "tables") == 0
    exported = pq.read_table(tmp_path / "tables" / "calls.parquet")
    assert exported.num_rows == 3
    assert exported.cast(CALLS).equals(load_journal(tmp_path / "run" / "journal")["calls"])


def test_small_logs_broken_at_random_get_the_same_verdict_back(tmp_path: Path) -> None:
    verdicts = set()
    for seed in range(12):
        random = Random(seed)
        ops = random_history(random)
        if seed % 3:
            ops = mutate(ops, random)
        directory = journal(tmp_path / str(seed), sorted(ops, key=lambda op: op.invoke))
        plan = {"run": "r", "acks": "all", "replica_logs": False}
        (directory / "plan.json").write_text(json.dumps(plan))
        assert chaos("export", directory) == 0
        imported = read_history(directory / "history.edn")
        verdict = reported(check_tables(imported.plan, imported.tables))
        assert verdict == reported(check_tables(plan, load_journal(directory / "journal"))), seed
        verdicts.add(verdict["verdict"])
    assert verdicts >= {"pass", "fail"}


def test_a_history_that_does_not_fit_into_memory_is_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_of(LongHistory(1_200, partitions=3, seconds=4), tmp_path / "run")
    assert chaos("export", tmp_path / "run", "--output", tmp_path / "whole.edn") == 0
    monkeypatch.setattr(export, "EVENTS_IN_MEMORY", 64)
    monkeypatch.setattr("spark_history.jepsen.export.log._WHOLE", 100)
    assert chaos("export", tmp_path / "run", "--output", tmp_path / "parts.edn") == 0
    assert (tmp_path / "parts.edn").read_text() == (tmp_path / "whole.edn").read_text()


def test_processes_have_one_operation_at_a_time_and_end_with_an_info(tmp_path: Path) -> None:
    history = LongHistory(600, partitions=3, seconds=1)
    history.invoke[:] = SECOND  # all of a process at the same time
    history.outcome[:20] = "info"
    run_of(history, tmp_path / "run")
    assert chaos("export", tmp_path / "run", "--format", "jsonl") == 0
    busy: dict[int, str] = {}
    times = []
    for line in (tmp_path / "run" / "history.jsonl").read_text().splitlines():
        event = json.loads(line)
        times.append(event["time"])
        process = event["process"]
        if process != "nemesis":
            assert busy.get(process, "ok") == ("ok" if event["type"] == "invoke" else "invoke")
            busy[process] = event["type"] if event["type"] != "fail" else "ok"
    assert times == sorted(times) and "info" in busy.values()


def test_tables(tmp_path: Path) -> None:
    _, tables = run_of(LongHistory(1_200, partitions=3, seconds=4), tmp_path / "run")
    assert chaos("export", tmp_path / "run", "--format", "parquet", "--output", tmp_path / "tables") == 0
    for table in ("operations", "reads", "faults", "replica_logs"):
        written = pq.read_table(tmp_path / "tables" / f"{table}.parquet")
        assert written.cast(tables[table].schema).equals(tables[table]), table


def test_what_cannot_be_exported(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert chaos("export", tmp_path / "nothing") == 254
    run_of(LongHistory(100, partitions=1, seconds=1), tmp_path / "run")
    assert chaos("export", tmp_path / "run", "--output", tmp_path) == 254
    assert "is a directory" in capfd.readouterr().err
    part = tmp_path / "run" / "journal" / "operations-000000.parquet"
    part.write_bytes(part.read_bytes()[:50])
    assert chaos("export", tmp_path / "run") == 255
    assert "operations-000000.parquet is damaged" in capfd.readouterr().err
    assert not (tmp_path / "run" / "history.edn").exists()


HISTORIES = {
    "register": """{:process 0, :type :invoke, :f :write, :value [:x "a"], :time 1}
{:process 1, :type :invoke, :f :cas, :value [:x ["a" 2]], :time 2}
{:process 0, :type :ok, :f :write, :value [:x "a"], :time 3}
{:process 1, :type :info, :f :cas, :value [:x ["a" 2]], :time 4, :error :timeout}
{:process 2, :type :invoke, :f :read, :value [:y nil], :time 5}
{:process 2, :type :ok, :f :read, :value [:y 9], :time 6}
""",
    "list-append": """{:process 0, :type :invoke, :f :txn, :value [[:append :x 1] [:r :x nil]], :time 1}
{:process 0, :type :ok, :f :txn, :value [[:append :x 1] [:r :x [2 1]]], :time 2}
{:process 1, :type :invoke, :f :txn, :value [[:append 4 2]], :time 3}
{:process 1, :type :fail, :f :txn, :value [[:append 4 2]], :time 4}
""",
    "kafka": """{:process 0, :type :invoke, :f :txn, :value [[:send 0 7] [:poll]], :time 1}
{:process 0, :type :ok, :f :txn, :value [[:send 0 [3 7]] [:poll {0 [[2 6] [3 7]], 1 [[0 5]]}]], :time 2}
{:process 1, :type :invoke, :f :send, :value [[:send 1 8]], :time 3}
{:process 1, :type :info, :f :send, :value [[:send 1 8]], :time 4}
""",
    "mutex": """{:process 0, :type :invoke, :f :acquire, :time 1}
{:process 0, :type :ok, :f :acquire, :time 2}
{:process 1, :type :invoke, :f :acquire, :time 3}
{:process 1, :type :ok, :f :acquire, :time 4}
""",
    "queue": """{:process 0, :type :invoke, :f :enqueue, :value :a, :key :k, :time 1}
{:process 0, :type :ok, :f :enqueue, :value :a, :key :k, :time 2}
{:process 1, :type :invoke, :f :dequeue, :value nil, :key :k, :time 3}
{:process 1, :type :ok, :f :dequeue, :value "a", :key :k, :time 4}
""",
}
FAMILIES = {"register": registers, "list-append": transactions, "kafka": transactions, "mutex": models, "queue": models}


@pytest.mark.parametrize("workload", HISTORIES)
@pytest.mark.parametrize("format_", ["edn", "jsonl"])
def test_other_workloads_come_back_as_they_were(tmp_path: Path, workload: str, format_: str) -> None:
    (tmp_path / "one.edn").write_text(HISTORIES[workload])
    one = read_history(tmp_path / "one.edn", workload=workload)
    family: Any = FAMILIES[workload]
    family.write_history(tmp_path / "run", one.plan, one.tables)
    assert chaos("export", tmp_path / "run", "--format", format_) == 0
    two = read_history(tmp_path / "run" / f"history.{format_}")
    assert two.plan["workload"] == workload
    for table in set(one.tables) - {"faults"}:
        same = [
            [{name: value for name, value in row.items() if name not in ("run", "error", "complete")} for row in rows]
            for rows in (_by_name(each.tables[table], each.plan) for each in (one, two))
        ]
        assert same[0] == same[1]
    verdicts = [family.check_tables(each.plan, each.tables).tally for each in (one, two)]
    assert verdicts[0] == verdicts[1]
    assert bool(verdicts[0]) == (workload != "kafka" or bool(verdicts[1]))


def _by_name(table: pa.Table, plan: dict[str, Any]) -> list[dict[str, Any]]:
    """Rows with the names of values, which differ in quotes where JSON has no keywords."""
    rows = table.to_pylist()
    for row in rows:
        for column in {"key", "argument", "result"} & set(row if "argument" in row else ()):
            row[column] = str(unspell(json.loads(row[column] or "null"))).removeprefix(":")
        for column, names in (("key", "key_names"), ("value", "names"), ("expected", "names")):
            if column in row and "argument" not in row:
                row[column] = str(plan.get(names, {}).get(str(row[column]), row[column])).strip(':"')
    return rows


def exported(tmp_path: Path, text: str, format_: str) -> tuple[Any, Any]:
    """A foreign history, and what comes back of the run that it is made into."""
    (tmp_path / "one.edn").write_text(text)
    one = read_history(tmp_path / "one.edn")
    transactions.write_history(tmp_path / "run", one.plan, one.tables)
    assert chaos("export", tmp_path / "run", "--format", format_) == 0
    return one, read_history(tmp_path / "run" / f"history.{format_}")


@pytest.mark.parametrize("format_", ["edn", "jsonl"])
@pytest.mark.parametrize("outcome", ["info", "fail"])
def test_an_offset_of_a_send_that_is_not_ok_is_evidence(tmp_path: Path, format_: str, outcome: str) -> None:
    text = f"""{{:process 0, :type :invoke, :f :send, :value [[:send 0 7]]}}
{{:process 0, :type :{outcome}, :f :send, :value [[:send 0 [3 7]]]}}
{{:process 1, :type :invoke, :f :poll, :value [[:poll]]}}
{{:process 1, :type :ok, :f :poll, :value [[:poll {{0 [[4 7]]}}]]}}
"""
    one, two = exported(tmp_path, text, format_)
    assert two.tables["micro_operations"]["offset"].to_pylist() == [3, 4]
    tallies = [transactions.check_tables(each.plan, each.tables).tally for each in (one, two)]
    assert tallies[0] == tallies[1] and tallies[0]


@pytest.mark.parametrize("format_", ["edn", "jsonl"])
def test_a_rebalance_comes_back(tmp_path: Path, format_: str) -> None:
    text = """{:process 1, :type :invoke, :f :poll, :value [[:poll] [:poll]]}
{:process 1, :type :ok, :f :poll, :value [[:poll {:x [[4 7]]}] [:poll {:x [[4 7]]}]], :rebalance-log [{:keys [:x]}]}
"""
    one, two = exported(tmp_path, text, format_)
    assert one.plan["rebalanced"] == two.plan["rebalanced"] and one.plan["rebalanced"]["0"]


def test_a_keyword_and_a_text_stay_apart_in_json(tmp_path: Path) -> None:
    text = """{:process 0, :type :invoke, :f :txn, :value [[:append :x 1] [:r "x" nil]]}
{:process 0, :type :ok, :f :txn, :value [[:append :x 1] [:r "x" nil]]}
"""
    _, two = exported(tmp_path, text, "jsonl")
    assert len(set(two.tables["micro_operations"]["key"].to_pylist())) == 2


def test_tables_of_a_generated_run_of_registers(tmp_path: Path) -> None:
    """Its layout lacks what says nothing of one run."""
    assert chaos("generate", "--workload", "register", "--results", tmp_path, "--name", "run") == 0
    assert chaos("export", tmp_path / "run", "--format", "parquet") == 0
    written = pq.read_table(tmp_path / "run" / "tables" / "registers.parquet")
    assert written.column_names == REGISTERS.names and written.num_rows == 1000


def test_tables_all_or_none(tmp_path: Path) -> None:
    run_of(LongHistory(1_200, partitions=3, seconds=4), tmp_path / "run")
    part = tmp_path / "run" / "journal" / "reads-000000.parquet"
    part.write_bytes(part.read_bytes()[:50])
    before = sorted((tmp_path / "run").iterdir())
    assert chaos("export", tmp_path / "run", "--format", "parquet") == 255
    assert sorted((tmp_path / "run").iterdir()) == before


def test_gzipped_by_name(tmp_path: Path) -> None:
    run_of(LongHistory(100, partitions=1, seconds=1), tmp_path / "run")
    assert chaos("export", tmp_path / "run", "--output", tmp_path / "h.edn.gz") == 0
    assert gzip.decompress((tmp_path / "h.edn.gz").read_bytes()).startswith(b"{:index 0, :time ")
    assert np.array(read_history(tmp_path / "h.edn.gz").operations) > 100
