"""Logs, traces, faults and operations on one time line, of whatever clock and however hostile."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from checkers.anomalies import ANOMALIES
from harness.errors import BadArguments
from harness.record.timeline import violations
from harness.record.timeline.lines import ALL, RunTimeline
from harness.record.timeline.nodes import MOST_TEXT, log_lines, trace_lines
from spark_history.schema import FAULTS, OPERATIONS

S = 1_000_000_000
ORIGIN = 1000 * S
WALL = 1_800_000_000 * S  # when the monotonic clock showed 0


def stamp(second: float) -> str:
    """As Log4j writes a wall clock, `second` after the origin."""
    at = datetime.fromtimestamp((WALL + ORIGIN) / 1e9 + second, UTC)
    return at.strftime("%Y-%m-%dT%H:%M:%S,") + f"{at.microsecond // 1000:03}"


def fault(number: int, nemesis: str, start: float, end: float | None, evidence: dict[str, Any]) -> dict[str, Any]:
    return {
        "run": "r", "fault": number, "nemesis": nemesis, "targets": ["broker-1"], "start": ORIGIN + int(start * S),
        "end": None if end is None else ORIGIN + int(end * S), "effective": True, "evidence": json.dumps(evidence),
    }  # fmt: skip


def operation(op: int, at: float, outcome: str, offset: int | None) -> dict[str, Any]:
    return {
        "run": "r", "process": op % 4, "op": op, "kind": "append", "topic": "t", "partition": 0, "value": op,
        "invoke": ORIGIN + int(at * S), "complete": ORIGIN + int((at + 0.01) * S), "outcome": outcome, "offset": offset,
        "high_watermark": None, "leader_epoch": None, "error": None if outcome == "ok" else "NOT_LEADER",
    }  # fmt: skip


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """broker-1 logs as kraft does, broker-2 as Kafka; broker-2's clock is an hour ahead from second 5 to 6."""
    (tmp_path / "logs").mkdir()
    (tmp_path / "trace").mkdir()
    lines = [
        {"time": ORIGIN + n * S, "level": "INFO", "logger": "a.b", "message": f"line {n}", "end": n} for n in range(10)
    ]
    (tmp_path / "logs" / "broker-1.log").write_text("\n".join(map(json.dumps, lines)) + "\nnot json\n{half")
    kafka = [
        f"[{stamp(1.5)}] INFO KafkaConfig values: \n\tbroker.id = 2\n\tbroker.rack = x (kafka.server.KafkaConfig)",
        f"[{stamp(2.25)}] ERROR [Broker id=2] it broke (kafka.Log)\njava.lang.Boom: no\n\tat here",
        f"[{stamp(3605.5)}] WARN an hour ahead (kafka.Clock)",
        f"[{stamp(7.0)}] INFO \x1b[31mred\x1b[0m \u202etxt (kafka.Log)",
    ]
    (tmp_path / "logs" / "broker-2.log").write_text("\n".join(kafka) + "\n")
    trace = [{"time": ORIGIN + S, "node": 1, "event": "role", "where": "t-0", "fields": {"leader": 1, "isr": [1, 2]}}]
    trace.append({"time": ORIGIN + 2 * S, "node": 1, "event": "x" * 10_000, "where": "", "fields": {}})
    text = "\n".join(json.dumps(row, separators=(",", ":")) for row in trace)
    (tmp_path / "trace" / "broker-1.jsonl").write_text(f"{text}\nbroken\n")
    for name, rows, schema in (
        ("faults", [fault(0, "clock:jump", 5, 6, {"nodes": {"broker-2": {"clock_offset_ms": 3_600_000}}}),
                    fault(1, "power:node", 3, 4, {"in_sync_at": ORIGIN + int(4.5 * S)}),
                    fault(2, "choreography", 8, 9, {"steps": [{"step": "kill leader", "at_s": 0.25,
                                                               "struck": ["broker-1"]}]})], FAULTS),
        ("operations", [operation(n, n * 0.1, "fail" if n == 31 else "ok", n) for n in range(100)], OPERATIONS),
    ):  # fmt: skip
        folder = tmp_path / "history" / name / ("topic=t/partition=0" if name == "operations" else "")
        folder.mkdir(parents=True)
        pq.write_table(pa.Table.from_pylist(rows, schema=schema), folder / f"{name}.parquet")
    (tmp_path / "run.json").write_text(json.dumps({"clock": {"wall_ns": WALL + 5, "monotonic_ns": 5}}))
    (tmp_path / "verdict.json").write_text(json.dumps({"origin_ns": ORIGIN}))
    return tmp_path


def texts(run: Path, **options: Any) -> list[tuple[float, str, str]]:
    lines = RunTimeline(run).lines([ALL], operations=False, **options)
    return [((line.time - ORIGIN) / S, line.node, line.text) for line in lines]


def test_all_of_it_is_in_order_of_the_runs_own_seconds_whatever_the_clock(run: Path) -> None:
    told = texts(run)
    assert [at for at, _, _ in told] == sorted(at for at, _, _ in told)
    assert (2.25, "broker-2", "Log: [Broker id=2] it broke\njava.lang.Boom: no\n\tat here") in told
    assert (5.5, "broker-2", "Clock: an hour ahead") in told, "its clock was ahead"
    assert (1.5, "broker-2", "KafkaConfig values: \n(2 more lines)") in told
    assert (1.0, "broker-1", "role: leader 1, isr [1, 2]") in told
    assert (3.0, "", "F1 power:node strikes broker-1") in told
    assert (8.25, "", "F2 choreography: kill leader (broker-1)") in told
    assert (4.5, "", "after F1 power:node every replica is back in its ISR") in told
    assert all(len(text) <= MOST_TEXT for _, _, text in told)
    assert {node for _, node, _ in texts(run, nodes=["broker-2"])} == {"", "broker-2"}


def test_around_a_moment_come_the_operations_that_failed_and_the_nearest(run: Path) -> None:
    timeline = RunTimeline(run)
    around = timeline.around("3.1s", 0.2)
    lines = timeline.lines(around.spans, most_operations=2)
    shown = [line.text for line in lines if line.kind == "operation"]
    assert any("op 31: append of 31 at offset 31: failed (NOT_LEADER) after 10.0 ms" in text for text in shown)
    assert len(shown) == 3 and shown[-1].endswith("more operations of this time are not shown)")
    assert all(around.spans[0][0] <= line.time <= around.spans[0][1] + S for line in lines)


def test_what_cannot_be_looked_around_is_one_sentence(run: Path) -> None:
    timeline = RunTimeline(run)
    for what in ("V1", "F9", "soon", "1e400s", ""):
        with pytest.raises(BadArguments) as error:
            timeline.around(what)
        assert "\n" not in str(error.value)
    assert len(timeline.around("F1").spans) == 1 and timeline.around("2.5").spans[0][0] == ORIGIN + int(1.5 * S)


def test_violations_are_numbered_the_worst_first(run: Path) -> None:
    def row(anomaly: str, offset: int, property_: str = "log linearizability") -> dict[str, Any]:
        steps = [
            {"what": "append", "invoke": ORIGIN + 3 * S, "complete": None},
            {"what": "final read from 0", "invoke": ORIGIN + 90 * S, "complete": ORIGIN + 91 * S},
        ]
        return {
            "run": "r", "property": property_, "anomaly": anomaly, "topic": "t", "partition": 0, "offset": offset,
            "value": 1, "ops": [31], "count": 1, "message": anomaly, "witness": json.dumps({"operations": steps}),
        }  # fmt: skip

    rows = [row("lagging watermark", 1, "watermark freshness"), row("non-monotonic read", 1), row("lost append", 9),
            row("replica divergence", 1, "log matching"), row("lost append", 3)]  # fmt: skip
    pq.write_table(pa.Table.from_pylist(rows, schema=ANOMALIES), run / "anomalies.parquet")
    attribution = [{"fault": 1, "partitions": {"t-0": [[2, 5]]}}]
    (run / "verdict.json").write_text(json.dumps({"origin_ns": ORIGIN, "attribution": attribution}))
    timeline = RunTimeline(run)
    named = [(each.name, each.anomaly, each.offset) for each in timeline.violations]
    assert named[:2] == [("V1", "lost append", 3), ("V2", "lost append", 9)]
    assert [anomaly for _, anomaly, _ in named[2:]] == ["replica divergence", "non-monotonic read", "lagging watermark"]
    assert timeline.causes(timeline.violations[0]) == [1] and timeline.causes(timeline.violations[1]) == []
    around = timeline.around("V1", 0.5)
    assert around.ops == {31} and around.where == "t-0" and around.spans == [(ORIGIN + 5 * S // 2, ORIGIN + 7 * S // 2)]
    assert violations.read(run / "nowhere") == []


def test_of_a_large_file_only_what_is_wanted_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.record.timeline.nodes._AT_ONCE", 10_000)
    monkeypatch.setattr("harness.record.timeline.nodes._HELD_BYTES", 1_000)
    path = tmp_path / "broker-1.jsonl"
    path.write_text(
        "".join(f'{{"time":{n * S},"node":1,"event":"e{n}","where":"","fields":{{}}}}\n' for n in range(5000))
    )
    found = [line.text for line in trace_lines(path, (3000 * S, 3004 * S))]
    assert found == ["e3000", "e3001", "e3002", "e3003", "e3004"]


def test_nothing_there_or_no_file_is_no_line(tmp_path: Path) -> None:
    (tmp_path / "broker-1.log").mkdir()
    assert list(log_lines(tmp_path / "broker-1.log", ALL, None)) == []
    assert list(trace_lines(tmp_path / "broker-9.jsonl", ALL)) == []
    assert RunTimeline(tmp_path).lines([ALL]) == []
