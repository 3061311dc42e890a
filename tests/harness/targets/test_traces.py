"""From what a node tells to rows of a history: few lines, in an order that stays true, and nothing invented."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster_image.kraft.metadata.records import PartitionChangeRecord, TopicRecord, encode
from cluster_image.storage.disk import LocalDisk
from cluster_image.storage.records import build_batch, with_offset_and_epoch
from cluster_image.telemetry.trace import HOLD_NS, TraceLines
from cluster_image.telemetry.trace_file import TraceFile
from harness.record.history import MemoryRecorder, Recorder, load_journal
from harness.targets.kafka_api.trace_files import read_traces, record_traces
from harness.targets.kraft.metadata_logs import record_metadata_logs
from spark_history.schema import METADATA_LOG, TRACE
from tests.harness.targets.test_replica_logs import _write


class Reported:
    """A trace with a clock of its own."""

    def __init__(self) -> None:
        self.now = 0
        self.lines: list[str] = []
        self.timers: list[Any] = []
        later = lambda seconds, work: self.timers.append((self.now + round(seconds * 1e9), work))  # noqa: E731
        self.trace = TraceLines(7, self.lines.append, lambda: self.now, later)

    @property
    def events(self) -> list[tuple[Any, ...]]:
        parsed = [json.loads(line) for line in self.lines]
        return [(line["time"], line["event"], line["where"], *line["fields"].values()) for line in parsed]


def test_of_many_appends_the_latest_is_told_before_anything_else_of_the_partition() -> None:
    reported = Reported()
    for now in range(5):
        reported.now = now
        reported.trace("append", "t-0", end=10 * now)
        reported.trace("high watermark", "t-0", offset=9 * now)
    reported.trace("append", "t-1", end=3)
    assert reported.lines == []
    reported.trace("role", "t-0", leader=1, isr=(1, 2))
    assert reported.events == [
        (4, "append", "t-0", 40), (4, "high watermark", "t-0", 36), (4, "role", "t-0", 1, [1, 2]),
    ]  # fmt: skip
    reported.trace.flush()
    assert reported.events[3:] == [(4, "append", "t-1", 3)]


def test_what_falls_is_told_after_what_it_falls_from() -> None:
    reported = Reported()
    reported.trace("high watermark", "t-0", offset=5)
    reported.trace("high watermark", "t-0", offset=3)
    reported.trace("high watermark", "t-0", offset=4)
    reported.trace.flush()
    assert [event[-1] for event in reported.events] == [5, 4]


def test_nothing_is_held_for_long() -> None:
    reported = Reported()
    reported.trace("append", "t-0", end=1)
    ((due, flush),) = reported.timers
    assert due == HOLD_NS
    flush()
    assert reported.events == [(0, "append", "t-0", 1)]
    reported.trace("append", "t-0", end=2)
    reported.now = HOLD_NS
    reported.trace("append", "t-1", end=5)
    assert reported.events[1:] == [(0, "append", "t-0", 2)], "also where no timer has come in time"


_EVENTS = st.tuples(
    st.sampled_from(["append", "high watermark", "truncate", "role"]), st.sampled_from(["t-0", "t-1"]),
    st.integers(0, 30), st.integers(0, HOLD_NS // 3),
)  # fmt: skip


@given(st.lists(_EVENTS, max_size=60))
def test_every_line_was_told_and_none_is_missing_that_matters(events: list[tuple[str, str, int, int]]) -> None:
    """Per partition: the lines that are not held are all there, in order; before each, the last value of either held
    event; each fall and the value before it."""
    reported, wanted = Reported(), {"t-0": list[Any](), "t-1": list[Any]()}
    everything: list[tuple[Any, ...]] = []
    for event, where, value, pause in events:
        reported.now += pause
        field = {"append": "end", "high watermark": "offset"}.get(event, "end")
        reported.trace(event, where, **{field: value})
        everything.append((reported.now, event, where, value))
        wanted[where].append((event, value))
    reported.trace.flush()
    assert set(reported.events) <= set(everything)
    for where, all_of_it in wanted.items():
        lines = [(event[1], event[3]) for event in reported.events if event[2] == where]
        plain = [entry for entry in all_of_it if entry[0] in ("truncate", "role")]
        assert [entry for entry in lines if entry[0] in ("truncate", "role")] == plain
        for held in ("append", "high watermark"):
            known: int | None = None
            complete: list[int] = []
            for event, value in [*all_of_it, ("end", 0)]:
                if known is not None and (event in ("truncate", "role", "end") or (event == held and value < known)):
                    complete.append(known)
                    known = None
                if event == held:
                    known = value
            kept = iter([value for event, value in lines if event == held])
            assert all(value in kept for value in complete), "a subsequence"


def test_a_file_takes_whole_lines_and_none_after_an_error(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "broker-1.jsonl"
    for _ in range(2):  # a process, and the next
        file = TraceFile(str(path))
        TraceLines(1, file.write, lambda: 5)("start", node_id=1, voters=(101,))
        file.close()
    assert len(path.read_text().splitlines()) == 2
    broken = TraceFile(str(path))
    read_only = os.open(path, os.O_RDONLY)
    os.dup2(read_only, broken._descriptor)
    broken.write("lost\n")
    broken.write("lost\n")
    assert caplog.text.count("the trace ends here") == 1
    os.close(read_only)
    with pytest.raises(OSError, match="No such file"):
        TraceFile(str(tmp_path / "none" / "x"))


LINE = '{"time":%d,"node":1,"event":"role","where":"my-topic-3","fields":{"leader":1,"isr":[1,2]}}\n'


def test_lines_become_rows_in_their_order(tmp_path: Path) -> None:
    (tmp_path / "broker-1.jsonl").write_text(
        LINE % 8 + '{"time":7,"node":1,"event":"quorum","where":"","fields":{"role":"follower"}}\n' + LINE[:20]
    )
    traces = read_traces(tmp_path)
    assert [(each.records, each.problem) for each in traces.pieces] == [(2, None)], "the last line is being written"
    assert traces.rows.to_pylist() == [
        {"node": "broker-1", "number": 0, "time": 8, "event": "role", "topic": "my-topic", "partition": 3,
         "fields": '{"leader":1,"isr":[1,2]}'},
        {"node": "broker-1", "number": 1, "time": 7, "event": "quorum", "topic": None, "partition": None,
         "fields": '{"role":"follower"}'},
    ]  # fmt: skip
    assert read_traces(tmp_path / "none").rows.num_rows == 0


def test_a_trace_is_taken_up_to_its_first_gap() -> None:
    traces = read_traces({"broker-2": LINE % 1 + LINE[:30] + "\n" + LINE % 3, "broker-1": LINE % 4})
    assert [(row["node"], row["time"]) for row in traces.rows.to_pylist()] == [("broker-1", 4), ("broker-2", 1)]
    assert [(each.node, each.records, each.problem) for each in traces.pieces] == [
        ("broker-1", 1, None), ("broker-2", 1, "the trace of broker-2 is damaged at line 2; what follows is left out"),
    ]  # fmt: skip


def test_traces_and_metadata_logs_are_part_of_the_history(tmp_path: Path) -> None:
    traces = read_traces({"broker-1": LINE % 4})
    memory, journal = MemoryRecorder("run-1"), Recorder(tmp_path, "run-1", flush_interval=None)
    for recorder in (memory, journal):
        assert [each.problem for each in record_traces(traces, recorder)] == [None]
    journal.close()
    loaded = load_journal(tmp_path / "journal")
    assert loaded["trace"].schema == TRACE and loaded["trace"]["run"].to_pylist() == ["run-1"]
    assert memory.tables()["trace"].cast(TRACE).equals(loaded["trace"])
    assert memory.tables()["metadata_log"].num_rows == 0


# -- metadata logs --------------------------------------------------------------------------------------------------


class Rows:
    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []

    def add_rows(self, table: str, rows: pa.Table) -> None:
        assert table == "metadata_log" and rows.schema.names == METADATA_LOG.names[1:]
        self.rows += rows.to_pylist()


def batch(offset: int, *values: bytes, control: bytes | None = None) -> bytes:
    keys = None if control is None else [control]
    plain = build_batch(list(values), timestamp_ms=1, keys=keys, control=control is not None)
    return with_offset_and_epoch(plain, offset, 3)


def test_every_metadata_record_with_its_fields_and_its_batch(tmp_path: Path) -> None:
    change = encode(PartitionChangeRecord(partition_id=4, topic_id=None, isr=(2, 1)))
    leader_change = batch(0, b"x", control=b"\0\0\0\2")
    _write(
        tmp_path, "controller-1/__cluster_metadata-0", leader_change + batch(1, change, change), batch(3, b"\1\77\0")
    )
    snapshot = batch(0, encode(TopicRecord(name="t", topic_id=None)))  # type: ignore[arg-type]
    directory = tmp_path / "controller-1" / "__cluster_metadata-0"
    (directory / f"{9:020d}-{3:010d}.checkpoint").write_bytes(snapshot)
    (tmp_path / "broker-1" / "chaos-0").mkdir(parents=True)
    found = Rows()
    pieces = record_metadata_logs(tmp_path, found)
    assert [(each.node, each.records, each.problem) for each in pieces] == [("controller-1", 5, None)]
    of_log = [row for row in found.rows if row["snapshot"] is None]
    assert [(row["offset"], row["batch"], row["epoch"], row["type"]) for row in of_log] == [
        (0, 0, 3, "LeaderChange"), (1, 1, 3, "PartitionChangeRecord"), (2, 1, 3, "PartitionChangeRecord"),
        (3, 3, 3, "Unknown"),
    ]  # fmt: skip
    fields = json.loads(of_log[1]["fields"])
    assert (fields["partition_id"], fields["isr"], fields["leader"], fields["replicas"]) == (4, [2, 1], -2, None)
    (of_snapshot,) = [row for row in found.rows if row["snapshot"] is not None]
    assert (of_snapshot["snapshot"], of_snapshot["type"]) == (9, "TopicRecord")
    assert {row["node"] for row in found.rows} == {"controller-1"}


def test_a_damaged_metadata_log_is_named_and_kept_up_to_the_damage(tmp_path: Path) -> None:
    change = encode(PartitionChangeRecord(partition_id=4, topic_id=None))
    _write(tmp_path, "controller-1/__cluster_metadata-0", batch(0, change) + batch(1, change)[:-3])
    found = Rows()
    (piece,) = record_metadata_logs({"controller-1": LocalDisk(tmp_path / "controller-1")}, found)
    assert piece.problem and "metadata log on controller-1" in piece.problem and "cut off" in piece.problem
    assert [row["offset"] for row in found.rows] == [0]


def test_a_metadata_record_at_an_offset_that_there_cannot_be_costs_its_own_log_alone(tmp_path: Path) -> None:
    change = encode(PartitionChangeRecord(partition_id=4, topic_id=None))
    for node, offset in (("controller-1", (1 << 63) - 1), ("controller-2", 1)):
        _write(tmp_path, f"{node}/__cluster_metadata-0", batch(0, change), batch(offset, change, change))
    found = Rows()
    one, other = record_metadata_logs(tmp_path, found)
    assert one.problem and "could not be read to its end" in one.problem and other.problem is None
    assert [row["offset"] for row in found.rows if row["node"] == "controller-2"] == [0, 1, 2]


@pytest.mark.parametrize("odd", ['"time":99999999999999999999,', '"time":1,"where":"x-99999999999",', "\n\n"])
def test_an_odd_line_of_one_trace_costs_no_other(tmp_path: Path, odd: str) -> None:
    line = '{"time":5,"node":1,"event":"role","where":"t-0","fields":{}}\n'
    (tmp_path / "broker-1.jsonl").write_text(line + "{" + odd + '"node":1,"event":"e","where":"","fields":{}}\n')
    (tmp_path / "broker-2.jsonl").write_text(line * 3)
    traces = read_traces(tmp_path)
    (one, other) = traces.pieces
    assert (one.records, other.records, other.problem) == (1, 3, None)
    assert one.problem == "the trace of broker-1 is damaged at line 2; what follows is left out"


def test_a_trace_read_in_blocks_is_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [f'{{"time":{n},"node":1,"event":"role","where":"t-{n}","fields":{{"n":{n}}}}}\n' for n in range(50)]
    (tmp_path / "broker-1.jsonl").write_text("".join(lines) + '{"time":')
    whole = read_traces(tmp_path)
    for size in (1, 7, 64, 1000):
        monkeypatch.setattr("harness.targets.kafka_api.trace_files._BLOCK_BYTES", size)
        in_blocks = read_traces(tmp_path)
        assert in_blocks.rows.equals(whole.rows) and in_blocks.pieces == whole.pieces
    assert whole.rows["number"].to_pylist() == list(range(50)) and whole.pieces[0].problem is None
    monkeypatch.setattr("harness.targets.kafka_api.trace_files._BLOCK_BYTES", 8)
    monkeypatch.setattr("harness.targets.kafka_api.trace_files._LONGEST_LINE", 30)
    (piece,) = read_traces(tmp_path).pieces
    assert piece.problem == "the trace of broker-1 has a line of more than 30 bytes"
