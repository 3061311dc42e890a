"""`chaos logs` on a simulated run that lost records to a power cut; and that cut is what the verdict names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from harness.cli import app as cli
from harness.record.results import list_runs, read_faults

ASKED = "run --on simulation --nemesis power-outage-cluster --seed 2 --time-limit 12 --rate 100 --partitions 2"


def chaos(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments)
    return int(ended.value.code or 0)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    results = tmp_path_factory.mktemp("results")
    assert chaos(*ASKED.split(), "--results", str(results)) == 1
    (directory,) = list_runs(results)
    return directory


def test_every_lost_record_was_taken_by_the_cut_that_measured_it(run: Path) -> None:
    (fault,) = read_faults(run)
    measured = {
        node: {log: [range(first, end) for first, end, _ in ranges] for log, ranges in own["lost_offsets"].items()}
        for node, own in fault["evidence"]["nodes"].items()
    }
    lost = pq.read_table(run / "lost.parquet").to_pylist()
    assert len(lost) > 20
    for record in lost:
        log = f"{record['topic']}-{record['partition']}"
        assert record["fault"] == 0 and record["takers"] == [0]
        assert any(record["offset"] in each for each in measured[record["node"]][log])
    (group,) = json.loads((run / "verdict.json").read_text())["attribution"]
    assert group["records"] == len(lost) and group["fault"] == 0


def test_around_a_violation_come_its_operations_and_the_fault(run: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert chaos("logs", str(run), "--around", "V1") == 0
    told = capfd.readouterr().out
    (first, *lines) = told.splitlines()
    assert first.startswith("around V1: ") and "was acknowledged" in first
    assert any(
        "FAULT" in line and "F0 power-outage-cluster strikes broker-1, broker-2, broker-3" in line for line in lines
    )
    assert any("  op  " in line and "append" in line for line in lines)
    seconds = [float(line.split(" s ")[0]) for line in lines if " s  " in line]
    assert seconds == sorted(seconds) and len(seconds) > 20


def test_json_is_one_object_of_the_same_lines(run: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert chaos("logs", str(run), "--around", "F0", "--node", "broker-2", "--json") == 0
    told: dict[str, Any] = json.loads(capfd.readouterr().out)
    assert told["run"] == run.name and told["around"] == "fault F0, power-outage-cluster" and len(told["spans_s"]) >= 1
    assert {line["node"] for line in told["lines"]} == {"broker-2", None}
    assert {line["kind"] for line in told["lines"]} <= {"log", "trace", "fault"}
    assert set(told["lines"][0]) == {"at_s", "kind", "node", "where", "level", "text"}


def test_what_there_is_not_is_one_sentence(run: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for more, why in (
        (("--around", "V999999"), "there is no violation 999999"),
        (("--around", "soon"), "give a violation (V3), a fault (F2) or a time in seconds"),
        (("--node", "broker-9"), "no node 'broker-9' left a log or a trace"),
    ):
        assert chaos("logs", str(run), *more) == 254
        told = capfd.readouterr().err
        assert why in told and told.count("\n") == 1
