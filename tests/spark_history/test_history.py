"""The journal: what it says, and that a harness killed at any moment leaves one that can be judged."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from harness.errors import HarnessFailure
from harness.record.history import MemoryRecorder, Recorder, load_journal
from spark_history.errors import HistoryError
from spark_history.files import compact, read_parquet
from spark_history.schema import REPLICA_LOGS, TABLES


def rows(journal: dict[str, Any], table: str = "operations") -> list[dict[str, Any]]:
    return journal[table].to_pylist()


def make(tmp_path: Path) -> Recorder:
    return Recorder(tmp_path, "run-1", flush_interval=None)


def test_a_batch_becomes_one_row_a_record(tmp_path: Path) -> None:
    recorder = make(tmp_path)
    read = recorder.invoke(4, "read", "chaos", 1, 90)
    batch = recorder.invoke_append(2, "chaos", 5, 3, 100)
    recorder.complete(batch, 200, "ok", offset=40, leader_epoch=7)
    recorder.complete(read, 210, "ok", offset=38, high_watermark=41, records=([38, 39, 40], [8, 9, 1]))
    recorder.close()
    journal = load_journal(tmp_path / "journal")
    common = {"run": "run-1", "topic": "chaos", "invoke": 100, "complete": 200, "outcome": "ok", "error": None}
    common |= {"process": 2, "kind": "append", "partition": 5, "leader_epoch": 7, "high_watermark": None}
    assert rows(journal)[:3] == [{**common, "op": n, "value": n, "offset": 39 + n} for n in (1, 2, 3)]
    assert rows(journal)[3] == {
        **common, "process": 4, "op": 0, "kind": "read", "partition": 1, "value": None, "invoke": 90, "complete": 210,
        "offset": 38, "high_watermark": 41, "leader_epoch": None,
    }  # fmt: skip
    assert rows(journal, "reads") == [
        {"run": "run-1", "op": 0, "topic": "chaos", "partition": 1, "offset": offset, "value": value}
        for offset, value in ((38, 8), (39, 9), (40, 1))
    ]


def test_values_are_unique_over_all_processes_and_threads(tmp_path: Path) -> None:
    recorder = make(tmp_path)

    def work(process: int) -> None:
        for _ in range(200):
            recorder.complete(recorder.invoke_append(process, "chaos", 0, 3, 1), 2, "ok", offset=0)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    recorder.close()
    operations = load_journal(tmp_path / "journal")["operations"]
    values = operations["value"].to_numpy()
    assert len(np.unique(values)) == len(values) == 4 * 200 * 3
    assert operations["op"].to_pylist() == operations["value"].to_pylist()


def test_an_append_that_never_completes_is_info_without_completion(tmp_path: Path) -> None:
    recorder = make(tmp_path)
    recorder.invoke_append(0, "chaos", 1, 2, 10)
    recorder.invoke(5, "read", "chaos", 1, 11)  # changes nothing: not kept
    done = recorder.invoke_append(0, "chaos", 1, 1, 12)
    recorder.complete(done, 13, "fail", error="NOT_ENOUGH_REPLICAS")
    recorder.close()
    found = {(r["op"], r["outcome"], r["complete"], r["error"]) for r in rows(load_journal(tmp_path / "journal"))}
    assert found == {(0, "info", None, None), (1, "info", None, None), (3, "fail", 13, "NOT_ENOUGH_REPLICAS")}


def test_a_pending_append_moves_to_operations_once_it_completes(tmp_path: Path) -> None:
    recorder = make(tmp_path)
    batch = recorder.invoke_append(0, "chaos", 1, 2, 10)
    recorder.flush()
    assert [r["outcome"] for r in rows(load_journal(tmp_path / "journal"))] == ["info", "info"]
    recorder.complete(batch, 20, "ok", offset=0)
    recorder.flush()
    assert [r["outcome"] for r in rows(load_journal(tmp_path / "journal"))] == ["ok", "ok"]
    assert len(list((tmp_path / "journal").glob("pending-*"))) == 1


def test_part_files_that_no_pending_file_commits_do_not_count(tmp_path: Path) -> None:
    """As a harness leaves them that is killed in the middle of a flush."""
    recorder = make(tmp_path)
    recorder.complete(recorder.invoke_append(0, "chaos", 1, 1, 10), 11, "ok", offset=0)
    recorder.flush()
    read = recorder.invoke(4, "read", "chaos", 1, 20)
    recorder.complete(read, 21, "ok", offset=0, high_watermark=2, records=([0, 1], [0, 2]))
    recorder.invoke_append(0, "chaos", 1, 1, 22)
    recorder.flush()
    journal = tmp_path / "journal"
    (journal / "pending-000002.parquet").rename(journal / "pending-000001.parquet")
    loaded = load_journal(journal)
    assert loaded["reads"].num_rows == 0  # value 2 would have come from nowhere
    assert {r["kind"] for r in rows(loaded)} == {"append"}


def test_a_fault_is_one_row_that_tells_what_is_known_last(tmp_path: Path) -> None:
    recorder = make(tmp_path)
    recorder.record_fault(0, "kill", ["broker-1"], 5, None, effective=False, evidence="{}")
    recorder.flush()
    (fault,) = rows(load_journal(tmp_path / "journal"), "faults")
    assert (fault["end"], fault["effective"]) == (None, False)
    recorder.record_fault(0, "kill", ["broker-1"], 5, 9, effective=True, evidence='{"pid": 3}')
    recorder.record_fault(1, "pause", ["broker-2", "broker-3"], 7, None, effective=True, evidence="{}")
    recorder.close()
    faults = rows(load_journal(tmp_path / "journal"), "faults")
    assert [(f["fault"], f["end"], f["targets"]) for f in faults] == [
        (0, 9, ["broker-1"]),
        (1, None, ["broker-2", "broker-3"]),
    ]


def test_all_tables_have_their_schema_even_when_empty(tmp_path: Path) -> None:
    make(tmp_path).close()
    loaded = load_journal(tmp_path / "journal")
    assert {name: table.schema for name, table in loaded.items()} == TABLES
    assert load_journal(tmp_path / "nothing")["operations"].num_rows == 0


def test_replica_logs(tmp_path: Path) -> None:
    recorder = make(tmp_path)
    recorder.add_replica_log("broker-1", "chaos", 3, [7, 8], [0, 1], np.array([70, 80]))
    recorder.close()
    common = {"run": "run-1", "node": "broker-1", "topic": "chaos", "partition": 3}
    assert rows(load_journal(tmp_path / "journal"), "replica_logs") == [
        common | {"offset": 7, "leader_epoch": 0, "value": 70},
        common | {"offset": 8, "leader_epoch": 1, "value": 80},
    ]


def test_in_memory_are_the_tables_of_the_journal(tmp_path: Path) -> None:
    memory = MemoryRecorder("run-1")
    assert {name: table.schema.names for name, table in memory.tables().items()} == {
        name: schema.names for name, schema in TABLES.items()
    }
    on_disk = make(tmp_path)
    for recorder in (memory, on_disk):
        batch = recorder.invoke_append(2, "chaos", 5, 3, 100)
        recorder.record_fault(1, "kill", ["broker-1"], 5, 9, effective=True, evidence="{}")
        recorder.invoke_append(2, "chaos", 5, 2, 110)
        recorder.record_fault(0, "pause", [], 4, None, effective=False, evidence="{}")
        recorder.complete(batch, 200, "ok", offset=40, leader_epoch=7)
        read = recorder.invoke(4, "read", "chaos", 1, 90)
        recorder.complete(read, 210, "ok", offset=38, high_watermark=41, records=([38, 39], np.array([8, 9])))
        failed = recorder.invoke_append(3, "chaos", 5, 1, 220)
        recorder.complete(failed, 230, "fail", error="NOT_ENOUGH_REPLICAS")
        recorder.add_replica_log("broker-1", "chaos", 3, [7, 8], [0, 1], [70, 80])
        recorder.record_fault(0, "pause", ["broker-2"], 4, 6, effective=True, evidence="{}")
        call = recorder.invoke_call(1, "put", 240, key=["a", 1], argument={"to": None})
        recorder.invoke_call(2, "get", 245)
        recorder.complete_call(call, 250, "ok", result=False)
        recorder.close()
    tables, journal = memory.tables(), load_journal(tmp_path / "journal")
    for name, schema in TABLES.items():
        if name == "faults":
            journal[name] = journal[name].sort_by("fault")
        assert tables[name].schema == compact(schema)
        assert tables[name].cast(schema).equals(journal[name]), name


def test_an_operation_of_ones_own_is_indeterminate_until_it_completes(tmp_path: Path) -> None:
    """Whenever the harness is killed: what others saw of it cannot have come from nowhere."""
    recorder = make(tmp_path)
    first, second, third = (recorder.invoke_call(n, "add", 10 + n, key="s", argument=n) for n in range(3))
    recorder.flush()

    def told() -> list[tuple[Any, ...]]:
        names = ("op", "kind", "key", "argument", "result", "complete", "outcome", "error")
        return [tuple(row[name] for name in names) for row in rows(load_journal(tmp_path / "journal"), "calls")]

    assert told() == [(n, "add", '"s"', str(n), None, None, "info", None) for n in range(3)]
    recorder.complete_call(second, 30, "ok", result={"seen": [1]})
    recorder.complete_call(third, 31, "fail", error="NO_LEADER")
    assert [row[6] for row in told()] == ["info"] * 3
    recorder.close()
    recorder.complete_call(first, 40, "ok")
    recorder.close()
    assert told() == [
        (0, "add", '"s"', "0", None, None, "info", None),
        (1, "add", '"s"', "1", '{"seen": [1]}', 30, "ok", None),
        (2, "add", '"s"', "2", None, 31, "fail", "NO_LEADER"),
    ]


def test_tables_in_memory_leave_what_is_pending_to_complete() -> None:
    memory = MemoryRecorder("run-1")
    batch = memory.invoke_append(0, "chaos", 1, 2, 10)
    assert [row["outcome"] for row in rows(memory.tables())] == ["info", "info"]
    memory.complete(batch, 20, "ok", offset=0)
    assert [(row["outcome"], row["offset"]) for row in rows(memory.tables())] == [("ok", 0), ("ok", 1)]


def test_the_thread_flushes_by_itself_and_close_is_idempotent(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, "run-1", flush_interval=0.02)
    recorder.complete(recorder.invoke_append(0, "chaos", 1, 1, 10), 11, "ok", offset=0)
    deadline = time.monotonic() + 10
    # One file, which stays: the thread replaces others while they are looked at.
    while not (written := list((tmp_path / "journal").glob("operations-*.parquet"))):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert pq.read_metadata(written[0]).num_rows == 1
    recorder.close()
    recorder.close()
    assert rows(load_journal(tmp_path / "journal"))


def test_a_journal_that_cannot_be_written_is_a_harness_failure(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, "run-1", flush_interval=0.01)
    (tmp_path / "journal").rename(tmp_path / "gone")
    deadline = time.monotonic() + 10
    with pytest.raises(HarnessFailure, match="cannot be written"):
        while time.monotonic() < deadline:
            recorder.complete(recorder.invoke_append(0, "chaos", 1, 1, 10), 11, "ok", offset=0)
            time.sleep(0.01)


def test_a_flush_that_fails_in_any_way_ends_the_journal(tmp_path: Path) -> None:
    """Its rows are gone: appends would be missing that reads have returned."""
    recorder = Recorder(tmp_path, "run-1", flush_interval=0.01)
    with pytest.raises(HarnessFailure, match="cannot be written"):
        recorder.complete(recorder.invoke(0, "read", "chaos", 1, 10), 11, "ok", leader_epoch=1 << 40)
        time.sleep(1)
        recorder.close()


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    recorder = make(tmp_path)
    recorder.complete(recorder.invoke_append(0, "chaos", 1, 1, 10), 11, "ok", offset=0)
    recorder.close()
    path = tmp_path / "journal" / "operations-000001.parquet"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(HarnessFailure, match=r"operations-000001\.parquet is damaged"):
        load_journal(tmp_path / "journal")


_WRITER = """
import sys, time
from pathlib import Path
from harness.record.history import Recorder
recorder = Recorder(Path(sys.argv[1]), "run-1", flush_interval=0.01)
offset = 0
while True:
    batch = recorder.invoke_append(0, "chaos", 0, 5, time.monotonic_ns())
    read = recorder.invoke(1, "read", "chaos", 0, time.monotonic_ns())
    values = list(batch.values)
    recorder.complete(read, 0, "ok", offset=offset, high_watermark=0, records=(range(offset, offset + 5), values))
    time.sleep(0.001)
    recorder.complete(batch, time.monotonic_ns(), "ok", offset=offset)
    offset += 5
"""


def test_a_killed_harness_leaves_no_value_that_was_read_and_never_appended(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": "."}
    process = subprocess.Popen([sys.executable, "-c", _WRITER, str(tmp_path)], env=environment)
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob("journal/reads-*.parquet")):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    time.sleep(0.2)
    process.send_signal(signal.SIGKILL)
    process.wait()
    journal = load_journal(tmp_path / "journal")
    operations = journal["operations"].to_pandas()
    appends = operations[operations.kind == "append"]
    assert appends.op.is_unique
    read = set(journal["reads"]["value"].to_pylist())
    assert read, "nothing was flushed"
    assert read <= set(appends.value)
    assert set(appends[appends.outcome == "info"].complete.isna()) <= {True}
    for path in (tmp_path / "journal").glob("*.parquet"):
        pq.read_table(path)


def test_a_page_that_was_damaged_but_still_decodes_is_noticed(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, "r", flush_interval=None)
    offsets = np.arange(20_000)
    recorder.add_replica_log(
        "broker-1", "t", 0, offsets, np.zeros_like(offsets), np.random.default_rng(1).permutation(offsets)
    )
    recorder.close()
    (part,) = (tmp_path / "journal").glob("replica_logs-*.parquet")
    content = bytearray(part.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 50] = bytes(byte ^ 0xFF for byte in content[middle : middle + 50])
    part.write_bytes(content)
    with pytest.raises(HistoryError, match="damaged"):
        read_parquet(part, REPLICA_LOGS)


def test_a_batch_may_end_in_parts(tmp_path: Path) -> None:
    """As a client that splits it does: each part is a row of its own, what is left stays pending, and nothing ends
    twice."""
    recorder = Recorder(tmp_path, "run-1", flush_interval=None)
    batch = recorder.invoke_append(0, "chaos", 0, 10, 5)
    recorder.complete_part(batch, 3, 4, 7, "ok", offset=100)
    recorder.complete_part(batch, 0, 1, 8, "fail", error="MSG_SIZE_TOO_LARGE")
    with pytest.raises(ValueError, match="are not left"):
        recorder.complete_part(batch, 2, 2, 9, "ok", offset=1)
    recorder.flush()
    rows = load_journal(tmp_path / "journal")["operations"].sort_by("op").to_pylist()
    assert [row["op"] for row in rows] == list(range(10)) == [row["value"] for row in rows]
    assert [row["outcome"] for row in rows] == ["fail", "info", "info", *["ok"] * 4, *["info"] * 3]
    assert [row["offset"] for row in rows] == [None] * 3 + [100, 101, 102, 103] + [None] * 3
    assert [row["complete"] for row in rows] == [8, None, None, 7, 7, 7, 7, None, None, None]
    recorder.complete_part(batch, 1, 2, 10, "info", error="CLIENT_CRASHED")
    recorder.complete_part(batch, 7, 3, 11, "ok")
    recorder.close()
    rows = load_journal(tmp_path / "journal")["operations"].sort_by("op").to_pylist()
    assert [row["op"] for row in rows] == list(range(10)), "none twice"
    assert [row["error"] for row in rows][:3] == ["MSG_SIZE_TOO_LARGE", "CLIENT_CRASHED", "CLIENT_CRASHED"]
