"""Every kind of generated history, with every defect: exported and read again, it gets its verdict, counts and
anomalies; and the export is what Jepsen writes, an invocation and a completion for each operation."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from checkers import transactions
from checkers.dataset import check_tables
from checkers.verdict import judged
from harness.cli.histories.generate import WORKLOADS, defects_of, maker_of
from harness.record.history import load_journal
from harness.record.judging import family_of
from spark_history.jepsen import read_history
from spark_history.jepsen.export import (
    export,
)
from spark_history.jepsen.export import (
    log as export_log,
)
from spark_history.jepsen.export import (
    tables as export_tables,
)
from spark_history.jepsen.export import (
    transactions as export_transactions,
)
from spark_history.jepsen.export.lanes import Lanes
from spark_history.jepsen.export.notation import NOTATIONS
from spark_history.jepsen.export.run import write_run
from spark_history.jepsen.export.tables import load
from tests.checkers.histories import kafka_histories
from tests.checkers.histories.random_histories import HISTORIES
from tests.spark_history.jepsen.test_export import chaos, reported

CASES = [(workload, defect) for workload in WORKLOADS for defect in (None, *defects_of(workload))]


def generated(directory: Path, workload: str, defect: str | None) -> dict[str, Any]:
    options = {"journal": True} if workload == "append" else {}
    label: dict[str, Any] = maker_of(workload).generate(
        directory, operations=600, processes=5, seed=7, defect=defect, **options, **WORKLOADS[workload].options
    )
    return label


def verdict_of(directory: Path, plan: dict[str, Any]) -> dict[str, Any]:
    if plan["workload"] == "append":
        return reported(check_tables(plan, load_journal(directory / "journal")))
    return _verdict(plan, load(directory))


def _verdict(plan: dict[str, Any], tables: Any) -> dict[str, Any]:
    found = family_of(plan["workload"]).check_tables(plan, tables)
    verdict = judged.verdict(found, plan)
    names = ("verdict", "operations", "undecided_reasons")
    anomalies = {name: each["anomalies"] for name, each in verdict["anomalies"].items()}
    return {name: verdict[name] for name in names} | {"anomalies": anomalies}


@pytest.mark.parametrize(("workload", "defect"), CASES)
def test_an_export_gets_the_verdict_of_the_run(tmp_path: Path, workload: str, defect: str | None) -> None:
    generated(tmp_path / "run", workload, defect)
    plan = {"workload": "append", **json.loads((tmp_path / "run" / "plan.json").read_text())}
    mine = verdict_of(tmp_path / "run", plan)
    for format_ in ("edn", "jsonl"):
        path = tmp_path / f"history.{format_}"
        assert chaos("export", tmp_path / "run", "--format", format_, "--output", path) == 0
        imported = read_history(path)
        assert imported.plan["workload"] == plan["workload"]
        if workload == "append":
            assert reported(check_tables(imported.plan, imported.tables, imported.doubts)) == mine
        else:
            assert _verdict(dict(imported.plan), imported.tables) == mine
    as_jepsen_writes(tmp_path / "history.jsonl")
    assert chaos("export", tmp_path / "run", "--format", "parquet", "--output", tmp_path / "tables") == 0
    if workload != "append":
        again = {path.stem: pq.read_table(path) for path in (tmp_path / "tables").glob("*.parquet")}
        assert _verdict(plan, again) == mine


def as_jepsen_writes(path: Path) -> dict[str, int]:
    """How many completions of each type there are. A process does one thing at a time, completes it, and after an
    :info is never heard of again."""
    open_: dict[int, str] = {}
    ended = set()
    types: dict[str, int] = {}
    time = -(1 << 63)
    for line in path.read_text().splitlines():
        event = json.loads(line)
        process, type_ = event["process"], event["type"]
        assert event["time"] >= time
        time = event["time"]
        if process == "nemesis":
            continue
        assert process not in ended
        if type_ == "invoke":
            assert process not in open_
            open_[process] = event["f"]
            continue
        assert open_.pop(process) == event["f"]
        types[type_] = types.get(type_, 0) + 1
        if type_ == "info":
            ended.add(process)
    assert not open_, "every operation is completed"
    return types


@pytest.mark.parametrize("workload", WORKLOADS)
def test_the_export_of_a_large_run_in_parts_is_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workload: str
) -> None:
    generated(tmp_path / "run", workload, None)
    assert chaos("export", tmp_path / "run", "--format", "jsonl", "--output", tmp_path / "whole.jsonl") == 0
    assert as_jepsen_writes(tmp_path / "whole.jsonl")["info"] > 0
    monkeypatch.setattr(export, "EVENTS_IN_MEMORY", 64)
    monkeypatch.setattr(export, "EVENTS_AT_ONCE", 7)
    for module in (export_log, export_tables):
        monkeypatch.setattr(module, "OPERATIONS_AT_ONCE", 50)
    monkeypatch.setattr(export_transactions, "NUMBERS", 30)
    assert chaos("export", tmp_path / "run", "--format", "jsonl", "--output", tmp_path / "parts.jsonl") == 0
    assert (tmp_path / "parts.jsonl").read_text() == (tmp_path / "whole.jsonl").read_text()


def test_what_is_laid_out_is_exported_as_its_journal_is(tmp_path: Path) -> None:
    for name, journal in (("journal", True), ("laid_out", False)):
        maker_of("append").generate(
            tmp_path / name / "run", operations=3000, processes=5, seed=7, defect=None, journal=journal
        )
        assert chaos("export", tmp_path / name / "run", "--output", tmp_path / f"{name}.edn") == 0
    assert (tmp_path / "journal.edn").read_text() == (tmp_path / "laid_out.edn").read_text()


def test_random_histories_of_kafka_come_back(tmp_path: Path) -> None:
    """With what failed and indeterminate transactions polled, assignments and crashes. Not those in which a process
    goes on after an :info, which Jepsen's do not: in the export another one goes on."""
    seen = {"pass": 0, "fail": 0, "unknown": 0, "assigned": 0}
    for number in range(HISTORIES // 40):
        ops = kafka_histories.draw(Random(number))
        crashed = {op.process: op.invoke for op in ops if op.outcome == "info"}
        if any(op.invoke > crashed.get(op.process, op.invoke) for op in ops):
            continue
        (tmp_path / "history.edn").write_text(kafka_histories.edn(ops))
        one = read_history(tmp_path / "history.edn", workload="kafka")
        transactions.write_history(tmp_path / "run", one.plan, one.tables)
        verdict = _verdict(dict(one.plan), one.tables)
        seen[verdict["verdict"]] += 1
        seen["assigned"] += "assignments" in one.tables
        for format_ in ("edn", "jsonl"):
            write_run(tmp_path / "run", one.plan, tmp_path / f"again.{format_}", NOTATIONS[format_]())
            two = read_history(tmp_path / f"again.{format_}")
            assert _verdict(dict(two.plan), two.tables) == verdict, f"{number} {format_}"
        as_jepsen_writes(tmp_path / "again.jsonl")
    assert min(seen.values()) > HISTORIES // 1000, seen


def test_lanes_are_those_of_one_event_after_the_other() -> None:
    for number in range(HISTORIES // 5):
        random = Random(number)
        size = random.randint(1, 12)
        invoke = [random.randint(0, 30) for _ in range(size)]
        length = random.choice([1, 3, 20])
        ends = [time + random.randint(0, length) for time in invoke]
        process = [random.randint(-1, 2) for _ in range(size)]
        done = [random.random() < 0.7 for _ in range(size)]
        ends = [40 if not free and random.random() < 0.5 else end for end, free in zip(ends, done, strict=True)]
        events = sorted([(time, False, op) for op, time in enumerate(invoke)]
                        + [(time, True, op) for op, time in enumerate(ends)])  # fmt: skip
        lanes, found = Lanes(3), []
        cuts = sorted(random.sample(range(len(events) + 1), min(random.randint(0, 3), len(events))))
        for low, high in pairwise([0, *cuts, len(events)]):
            part = events[low:high]
            ops = sorted({op for _, _, op in part})
            found += lanes.processes(
                np.array(ops, np.int64),
                np.array([process[op] for op in ops], np.int64),
                np.array([done[op] for op in ops], bool),
                np.array([ops.index(op) for _, _, op in part], np.int64),
                np.array([end for _, end, _ in part], bool),
            ).tolist()
        assert found == _one_after_the_other(events, process, done), number


def _one_after_the_other(events: list[tuple[int, bool, int]], process: list[int], done: list[bool]) -> list[int]:
    taken: dict[int, set[int]] = {}
    of: dict[int, int] = {}
    found = []
    for _, end, op in events:
        mine = taken.setdefault(process[op], set())
        if process[op] < 0:
            of[op] = 0
        elif not end:
            of[op] = next(lane for lane in range(len(events)) if lane not in mine)
            mine.add(of[op])
        elif done[op]:
            mine.remove(of[op])
        found.append(process[op] + 3 * of[op] if process[op] >= 0 else -1)
    return found
