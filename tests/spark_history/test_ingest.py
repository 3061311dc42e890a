"""From journals of every kind to a history, on Spark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spark_history.errors import HistoryError
from spark_history.ingest import History, ingest
from spark_history.schema import OPERATIONS
from tests.checkers.histories.histories import LongHistory, Op, tables

pytestmark = pytest.mark.spark


def journal(directory: Path, *flushes: list[Op], pending: list[Op] | None = None) -> Path:
    """A run directory whose journal holds these operations, ids in the order of all of them."""
    folder = directory / "journal"
    folder.mkdir(parents=True)
    number, next_op = 0, 0
    for number, ops in enumerate(flushes):
        operations, reads = (_shifted(table, next_op) for table in tables(ops))
        next_op += len(ops)
        pq.write_table(operations, folder / f"operations-{number:06}.parquet")
        pq.write_table(reads, folder / f"reads-{number:06}.parquet")
    waiting = _shifted(tables(pending or [])[0], next_op)
    pq.write_table(waiting, folder / f"pending-{number:06}.parquet")
    return directory


def _shifted(table: pa.Table, by: int) -> pa.Table:
    shifted = pa.array([op + by for op in table["op"].to_pylist()], pa.int64())
    return table.set_column(table.column_names.index("op"), table.schema.field("op"), shifted)


def operations(history: History) -> list[dict[str, Any]]:
    files = [history.path / segment.paths["operations"] for log in history.logs for segment in log.segments]
    return [row for file in files for row in pq.ParquetFile(file).read().to_pylist()]


def append(value: int, offset: int | None, invoke: int, outcome: str = "ok") -> Op:
    return Op("append", invoke, invoke + 5 if outcome == "ok" else None, outcome, value, offset)


def read(kind: str, invoke: int, watermark: int, *records: tuple[int, int]) -> Op:
    return Op(kind, invoke, invoke + 5, offset=0, records=records, high_watermark=watermark)


def test_operations_stand_where_they_belong_in_the_log(spark: Any, tmp_path: Path) -> None:
    first = [append(10, 0, 1), append(12, 2, 2), append(11, None, 3, "info"), append(99, None, 4, "info")]
    second = [read("read", 20, 3, (0, 10), (1, 11), (2, 12)), Op("list_offsets", 30, 31, offset=3)]
    history = ingest(journal(tmp_path / "run", first, second), spark)
    rows = [(row["kind"], row["value"], row["position"], row["observed"]) for row in operations(history)]
    assert rows == [
        ("append", 99, None, None),
        ("append", 10, 0, None),
        ("append", 11, 1, 25),
        ("append", 12, 2, None),
        ("read", None, 3, None),
        ("list_offsets", None, 3, None),
    ]
    (found,) = [row for row in operations(history) if row["kind"] == "read"]
    assert (found["first"], found["last"], found["records"]) == (0, 2, 3)
    assert (history.origin, history.until) == (1, 31)


def test_final_reads_are_complete_only_if_they_reach_the_watermark(spark: Any, tmp_path: Path) -> None:
    ops = [append(10, 0, 1), append(11, 1, 2)]
    whole = ingest(journal(tmp_path / "a", [*ops, read("final_read", 50, 2, (0, 10), (1, 11))]), spark)
    partial = ingest(journal(tmp_path / "b", [*ops, read("final_read", 50, 2, (0, 10))]), spark)
    none = ingest(journal(tmp_path / "c", ops), spark)
    assert [history.logs[0].final_reads.complete for history in (whole, partial, none)] == [True, False, False]
    assert whole.logs[0].final_reads.end == 2


def test_pending_appends_count_unless_they_completed(spark: Any, tmp_path: Path) -> None:
    directory = journal(tmp_path / "run", [append(10, 0, 1)], pending=[append(11, None, 2, "info")])
    both = pq.read_table(directory / "journal" / "pending-000000.parquet")
    done = pq.read_table(directory / "journal" / "operations-000000.parquet").cast(OPERATIONS)
    pq.write_table(pa.concat_tables([both, done]), directory / "journal" / "pending-000000.parquet")
    rows = operations(ingest(directory, spark))
    assert sorted((row["value"], row["outcome"]) for row in rows) == [(10, "ok"), (11, "info")]


def test_a_flush_that_was_cut_off_does_not_count(spark: Any, tmp_path: Path) -> None:
    directory = journal(tmp_path / "run", [append(10, 0, 1)], [append(11, 1, 2)])
    newest = directory / "journal" / "pending-000001.parquet"
    newest.rename(directory / "journal" / "pending-000000.parquet")
    (directory / "journal" / ".operations-000002.parquet.tmp").write_bytes(b"half")
    assert [row["value"] for row in operations(ingest(directory, spark))] == [10]


def test_records_of_a_read_that_is_not_on_record_are_left_out(spark: Any, tmp_path: Path) -> None:
    directory = journal(tmp_path / "run", [append(10, 0, 1), read("read", 20, 1, (0, 10))])
    path = directory / "journal" / "operations-000000.parquet"
    rows = pq.read_table(path)
    pq.write_table(rows.filter(pa.array([kind == "append" for kind in rows["kind"].to_pylist()])), path)
    history = ingest(directory, spark)
    assert history.orphans == 1


def test_ingests_once_and_again_when_the_journal_grew(spark: Any, tmp_path: Path) -> None:
    directory = journal(tmp_path / "run", [append(10, 0, 1)])
    ingest(directory, spark)
    manifest = directory / "history" / "manifest.json"
    before = manifest.stat().st_mtime_ns
    ingest(directory, spark)
    assert manifest.stat().st_mtime_ns == before
    grown = _shifted(tables([append(11, 1, 2)])[0], 7)
    pq.write_table(grown, directory / "journal" / "operations-000001.parquet")
    (directory / "journal" / "pending-000000.parquet").rename(directory / "journal" / "pending-000001.parquet")
    assert len(operations(ingest(directory, spark))) == 2


def test_a_long_log_is_cut_into_segments(spark: Any, tmp_path: Path) -> None:
    directory = LongHistory(3_000, partitions=2, seconds=3).write(tmp_path / "run")
    history = ingest(directory, spark, segment_offsets=400)
    for log in history.logs:
        assert len(log.segments) > 3
        assert log.final_reads.complete
        assert log.segments[-1].high is None
    files = [history.path / segment.paths["reads"] for log in history.logs for segment in log.segments]
    assert sum(pq.read_metadata(file).num_rows for file in files) == 3_000  # read three times, alike: a row each
    assert len([row for row in operations(history) if row["kind"] == "append"]) == 3_000


@pytest.mark.parametrize("name", ["operations-000000.parquet", "reads-000000.parquet", "pending-000000.parquet"])
def test_a_damaged_file_is_named_in_one_sentence(spark: Any, tmp_path: Path, name: str) -> None:
    directory = journal(tmp_path / "run", [append(10, 0, 1), read("read", 20, 1, (0, 10))])
    (directory / "journal" / name).write_bytes(b"PAR1 no more")
    ((damaged, why),) = ingest(directory, spark).damaged
    assert damaged == f"journal/{name}" and why and "\n" not in why


def test_a_file_of_another_kind_is_left_out(spark: Any, tmp_path: Path) -> None:
    directory = journal(tmp_path / "run", [append(10, 0, 1)])
    pq.write_table(pa.table({"a": [1]}), directory / "journal" / "operations-000000.parquet")
    assert ingest(directory, spark).damaged == (
        ("journal/operations-000000.parquet", "it lacks the column 'complete'"),
    )


@pytest.mark.parametrize(
    ("ops", "problem"),
    [
        ([append(10, 0, 1), append(10, 1, 2)], "value 10 of chaos-0 was appended twice"),
        ([Op("append", 9, 3, "ok", 10, 0)], "operation 0 of chaos-0 completed before it was invoked"),
        ([Op("append", 9, None, "ok", 10, 0)], "operation 0 of chaos-0 is ok but has no completion"),
    ],
)
def test_a_history_that_contradicts_itself_is_no_verdict_on_the_cluster(
    spark: Any, tmp_path: Path, ops: list[Op], problem: str
) -> None:
    with pytest.raises(HistoryError, match=problem):
        ingest(journal(tmp_path / "run", ops), spark)


def test_an_operation_on_record_twice_is_refused(spark: Any, tmp_path: Path) -> None:
    directory = journal(tmp_path / "run", [append(10, 0, 1)], [append(11, 1, 2)])
    path = directory / "journal" / "operations-000001.parquet"
    pq.write_table(_shifted(pq.read_table(path), -1), path)
    with pytest.raises(HistoryError, match="operation 0 of chaos-0 is on record twice"):
        ingest(directory, spark)


def test_a_topic_that_would_leave_the_directory_is_refused(spark: Any, tmp_path: Path) -> None:
    directory = journal(tmp_path / "run", [append(10, 0, 1)])
    path = directory / "journal" / "operations-000000.parquet"
    rows = pq.read_table(path)
    pq.write_table(rows.set_column(4, rows.schema.field("topic"), pa.array(["../../x"])), path)
    with pytest.raises(HistoryError, match="topic"):
        ingest(directory, spark)


def test_an_empty_directory_is_no_history(spark: Any, tmp_path: Path) -> None:
    with pytest.raises(HistoryError, match="nothing in its journal"):
        ingest(tmp_path, spark)


def test_faults_come_with_their_evidence(spark: Any, tmp_path: Path) -> None:
    fault = {"run": "long", "fault": 0, "nemesis": "kill", "targets": ["broker-1"], "start": 1, "end": 2}
    fault |= {"effective": True, "evidence": json.dumps({"exit_status": 137})}
    directory = LongHistory(200, seconds=1).write(tmp_path / "run", faults=[fault])
    (read_back,) = ingest(directory, spark).faults()
    assert read_back == fault | {"evidence": {"exit_status": 137}}
