from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from harness.record.history import Recorder
from harness.report.browse.live import Live
from tests.harness.record.catalog import made

SECOND = 10**9
GOING = {"status": "running", "phase": "heal", "workload_start_ns": 5 * SECOND, "phases": {"ready": 2, "workload": 6.0}}


def append(recorder: Recorder, count: int, at_s: int, outcome: Any = "ok") -> None:
    operation = recorder.invoke_append(0, "chaos", 0, count, at_s * SECOND)
    recorder.complete(operation, at_s * SECOND + 1, outcome, offset=0)


def test_what_is_flushed_is_counted_once(tmp_path: Path) -> None:
    run = made.run(tmp_path, "a", None, record=GOING)
    recorder, live = Recorder(run, "a", flush_interval=None), Live()
    append(recorder, 10, 5)
    append(recorder, 3, 7)
    append(recorder, 2, 7, "info")
    recorder.invoke_append(1, "chaos", 1, 4, 8 * SECOND)
    assert live.look(run).counts == {}
    recorder.flush()
    standing = live.look(run)
    assert standing.counts == {("append", "ok"): 13, ("append", "info"): 2} and standing.in_flight == 4
    assert standing.a_second == [10, 0, 3, 0, 0, 0]  # as long as clients worked
    assert (standing.phase, standing.time_limit_s, standing.phases) == (
        "heal",
        60.0,
        [("ready", 2.0), ("workload", 6.0)],
    )
    append(recorder, 1, 8)
    recorder.flush()
    assert live.look(run).counts["append", "ok"] == Live().look(run).counts["append", "ok"] == 14
    recorder.close()


def test_faults_in_force_come_first(tmp_path: Path) -> None:
    run = made.run(tmp_path, "a", None, record=GOING)
    recorder = Recorder(run, "a", flush_interval=None)
    recorder.record_fault(0, "kill", ["broker-1"], 6 * SECOND, 7 * SECOND, effective=True, evidence="{}")
    recorder.record_fault(1, "pause", ["broker-2"], 8 * SECOND, None, effective=False, evidence="{}")
    recorder.record_fault(2, "clock", [], 9 * SECOND, None, effective=False, evidence='{"skipped": "no time left"}')
    recorder.flush()
    standing = Live().look(run)
    assert [fault["nemesis"] for fault in standing.in_force] == ["pause"] and standing.faults[-1]["nemesis"] == "kill"
    assert standing.in_force[0]["start_s"] == 3.0
    recorder.close()


def test_damaged_parts_are_told_and_the_rest_is_counted(tmp_path: Path) -> None:
    run = made.run(
        tmp_path, "a", None, record={**GOING, "workload_start_ns": "soon", "phases": 3, "problems": [1, "old"]}
    )
    recorder = Recorder(run, "a", flush_interval=None)
    for second in (5, 6):
        append(recorder, 10, second)
        recorder.record_fault(0, "kill", ["broker-1"], 6 * SECOND, None, effective=True, evidence="{")
        recorder.flush()
    parts = sorted((run / "journal").glob("operations-*.parquet"))
    parts[0].write_bytes(b"no parquet")
    standing = Live().look(run)
    assert standing.counts == {("append", "ok"): 10} and standing.faults == []
    assert len(standing.problems) == 3 and standing.problems[0] == "old" and parts[0].name in standing.problems[1]
    recorder.close()
    (run / "run.json").write_text(json.dumps([]))
    assert Live().look(run).status == "" and Live().look(tmp_path / "nothing").counts == {}


def test_the_time_is_that_of_its_own_clock(tmp_path: Path) -> None:
    def worked(**said: Any) -> float | None:
        on = said.pop("on", "docker")
        name = f"run-{len(list(tmp_path.iterdir()))}"
        record = {
            "status": "running",
            "phase": "workload",
            "workload_start_ns": time.monotonic_ns() - 3 * SECOND,
            **said,
        }
        return Live().look(made.run(tmp_path, name, None, record=record, on=on)).worked_s

    assert 3 <= (worked() or 0) < 60
    assert worked(phase="check") is None and worked(on="simulation") is None
    assert worked(workload_start_ns=2**62) is None and worked(workload_start_ns=-(2**62)) is None
