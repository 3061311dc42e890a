"""In containers: what took each lost record is what the power cuts measured on each node's disk."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from harness.cli import app as cli
from harness.record.results import list_runs, read_faults

pytestmark = [pytest.mark.docker, pytest.mark.timeout(240)]


@pytest.mark.nightly
def test_each_lost_record_names_a_cut_that_took_it_and_a_node_that_had_it(tmp_path: Path) -> None:
    asked = "run --on docker --nemesis power-outage-cluster --seed 1 --time-limit 14 --partitions 3"
    with pytest.raises(SystemExit) as ended:
        cli.main([*asked.split(), "--results", str(tmp_path)])
    assert ended.value.code == 1
    (run,) = list_runs(tmp_path)
    lost_by = {
        (fault["fault"], node, log): [(first, end, seen["shut_down_at"]) for first, end, _ in ranges]
        for fault in read_faults(run)
        for node, seen in (fault["evidence"].get("nodes") or {}).items()
        for log, ranges in seen.get("lost_offsets", {}).items()
    }
    lost = pq.read_table(run / "lost.parquet").to_pylist()
    assert lost and lost_by
    for record in lost:
        log = f"{record['topic']}-{record['partition']}"
        took = {
            (fault, node)
            for (fault, node, where), ranges in lost_by.items()
            for first, end, at in ranges
            if where == log and first <= record["offset"] < end and record["invoke"] <= at
        }
        assert (record["fault"], record["node"]) in took
    attribution = json.loads((run / "verdict.json").read_text())["attribution"]
    assert sum(group["records"] for group in attribution) == len(lost)
    report = (run / "report.html").read_text()
    assert "power cut F0" in report and "had them last" in report
