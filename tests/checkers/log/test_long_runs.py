"""Runs with many flushes: what laying one out costs, and that it is judged the same with Spark and without."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import checkers
from checkers.verdict.keeping import without_stamps
from harness.generate.recorded import BROKERS, generate_recorded
from harness.report.html import operations as of_report
from harness.run.components import LogAnalysis
from spark_history import lane, layout
from spark_history.ingest import ingest
from spark_history.spark import tasks
from spark_history.spark.tasks import Here, run_tasks
from tests.checkers.histories.histories import LongHistory


@pytest.fixture
def rows_looked_at(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many elements each search, sort and comparison of sets that laying out does is given."""
    given: list[int] = []

    def counting(function: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arrays: Any, **options: Any) -> Any:
            given.append(sum(np.size(each) for each in arrays if isinstance(each, np.ndarray)))
            return function(*arrays, **options)

        return counted

    class Counting:
        def __getattr__(self, name: str) -> Any:
            found = getattr(np, name)
            return counting(found) if name in ("isin", "sort", "argsort", "unique", "lexsort") else found

    for module in (lane, layout):
        monkeypatch.setattr(module, "np", Counting())
    return given


def test_what_laying_out_looks_at_does_not_grow_with_the_flushes(
    tmp_path: Path, rows_looked_at: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lane, "BATCH_ROWS", 1)  # a file at a time
    looked_at = {}
    for flushes in (5, 100):
        run = tmp_path / f"run-{flushes}"
        generate_recorded(run, appends=20_000, flushes=flushes, partitions=4)
        rows_looked_at.clear()
        ingest(run, Here(1))
        looked_at[flushes] = sum(rows_looked_at)
    assert looked_at[100] < 1.5 * looked_at[5]


def test_files_are_shared_out_many_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    generate_recorded(tmp_path / "run", appends=10_000, flushes=100, partitions=4)
    added: list[int] = []
    add = layout.ReadIndex.add

    def counted(index: layout.ReadIndex, *columns: Any) -> None:
        added.append(len(columns[0]))
        add(index, *columns)

    monkeypatch.setattr(layout.ReadIndex, "add", counted)
    ingest(tmp_path / "run", Here(2))
    assert len(added) == 4


def test_batches_of_a_few_rows_find_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    generate_recorded(tmp_path / "run", appends=5_000, flushes=20, partitions=4)
    whole = _laid_out(tmp_path / "run", Here(2))
    monkeypatch.setattr(lane, "BATCH_ROWS", 100)  # less than a file, and less than a row group
    (tmp_path / "run" / "history" / "manifest.json").unlink()
    assert _laid_out(tmp_path / "run", Here(2)) == whole


@pytest.mark.spark
def test_a_long_run_is_laid_out_and_judged_the_same_on_spark(spark: Any, tmp_path: Path) -> None:
    run = tmp_path / "run"
    generate_recorded(run, appends=20_000, flushes=40, partitions=5)
    here, there = [], []
    for engine, found in ((Here(), here), (spark, there)):
        found += [_laid_out(run, engine), without_stamps(checkers.check(run, engine))]
        (run / "history" / "manifest.json").unlink()
    assert here == there
    assert here[1]["verdict"] == "pass"
    assert here[1]["replica_records"] == len(BROKERS) * here[1]["operations"]["records in final log"]


@pytest.mark.spark
def test_what_is_wrong_is_found_the_same_on_spark(spark: Any, tmp_path: Path) -> None:
    history = LongHistory(4_000, partitions=3, seconds=4)
    history.in_final[np.flatnonzero(history.partition == 1)[-50:]] = False
    history.on_replica["broker-2"][5] = False
    run = history.write(tmp_path / "run")
    verdicts = []
    for engine in (Here(), spark):
        verdict = without_stamps(checkers.check(run, engine))
        verdicts.append((verdict, pq.read_table(run / "anomalies.parquet"), pq.read_table(run / "lost.parquet")))
        (run / "history" / "manifest.json").unlink()
    assert verdicts[0] == verdicts[1]
    assert (verdicts[0][0]["verdict"], verdicts[0][2].num_rows) == ("fail", 50)


def test_a_run_that_fits_needs_no_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = LongHistory(1_000, partitions=2, seconds=2).write(tmp_path / "run")
    started = _spark_starts(monkeypatch)
    assert LogAnalysis(run, None).judge()["verdict"] == "pass"
    assert not started


@pytest.mark.parametrize("why", ["size", "master", "pages", "plan"])
def test_what_is_long_or_asked_for_goes_to_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, why: str) -> None:
    plan = {"rate": 10_000_000, "time_limit": 60} if why == "plan" else {}
    run = LongHistory(1_000, partitions=2, seconds=2).write(tmp_path / "run", plan)
    started = _spark_starts(monkeypatch)
    if why == "size":
        monkeypatch.setattr(tasks, "IN_PROCESS", 500)
    if why == "master":
        from spark_history.spark import master

        monkeypatch.setattr(master, "_chosen", master.parse("spark://host:7077"))
    analysis = LogAnalysis(run, 4040 if why == "pages" else None)
    assert len(started) == (why != "size")  # at once, unless it takes the history to know
    analysis.judge()
    assert len(started) == 1


def _spark_starts(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Starts of Spark, in the place of which tasks are run here."""
    from concurrent.futures import Future

    started: list[Any] = []

    def start(self: LogAnalysis) -> Future[Here]:
        started.append(self)
        future: Future[Here] = Future()
        future.set_result(Here())
        return future

    monkeypatch.setattr(LogAnalysis, "_start", start)
    return started


def test_tasks_here_get_what_they_would_get_on_spark() -> None:
    def work(unit: tasks.Unit) -> pa.Table:
        return pa.table({"of": [json.dumps(unit)]})

    found = run_tasks(Here(2), work, [{"pair": (number, 2)} for number in range(5)])
    assert [json.loads(table["of"][0].as_py()) for table in found] == [{"pair": [number, 2]} for number in range(5)]


def test_the_report_holds_no_more_of_an_append_than_it_needs(tmp_path: Path) -> None:
    generate_recorded(tmp_path / "run", appends=5_000, flushes=10, partitions=3)
    history = ingest(tmp_path / "run", Here())
    from harness.report.html.data import load

    data = load(tmp_path / "run")
    held = [part for parts in data.operations.appends.values() for part in parts]
    appends = sum(len(part.invoke) for part in held)
    assert appends >= 5_000 and len(data.operations.appends) == len(history.logs)
    assert sum(each.nbytes for part in held for each in vars(part).values()) == 17 * appends
    assert set(of_report.COLUMNS) < set(data.operations.find({0}).columns)


def _laid_out(run: Path, engine: Any) -> dict[str, Any]:
    history = ingest(run, engine)
    return {
        str(path): pq.ParquetFile(history.path / path).read().to_pydict()
        for log in history.logs
        for segment in log.segments
        for path in segment.paths.values()
    }
