"""Whatever JSON lies in the files of a run or a group, there are pages of it."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from harness.record.catalog.filters import Filter
from harness.record.catalog.groups import FILES, SYSTEMATIC
from harness.record.catalog.index import Index
from harness.report.browse import exploration, systematic
from harness.report.browse.pages import Pages
from harness.report.browse.rendering import Served
from tests.harness.record.catalog import made
from tests.harness.report.browse.serving import alive

NAMES = (
    "verdict", "reason", "lost", "operations", "availability", "latency_ms", "p50", "p99", "windows", "recovery",
    "sustained_from_heal_ms", "longest_gap_ms", "gaps", "longest_ms", "outside", "seconds", "in_force",
    "acknowledged", "append ok", "faults", "anomalies", "contract", "within", "checkers", "nemesis", "settings",
    "features", "seed", "target", "workload", "on", "time_limit", "status", "phase", "phases", "problems",
    "started_at", "finished_at", "command", "harness", "workload_start_ns", "suite", "runs", "name", "expect",
    "outcome", "directory", "took_s", "exit_code", "totals", "asked", "passed", "failing", "property", "anomaly",
    "result", "message", "unknown", "seeds", "coverage", "checked", "plan", "passed_seeds", "without_effect", "cells",
    "kill", "until_s", "injected", "ran", "struck", "operation", "path", "results", "counted", "failure", "node",
)  # fmt: skip
LEAVES = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
    | st.sampled_from(["pass", "fail", "running", "done", "2026-01-31T12:00:00", "runs/x", "../x", "\ud800"])
)  # fmt: skip
OBJECTS = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=6),
    max_leaves=25,
)
FILE = st.dictionaries(st.sampled_from(NAMES), OBJECTS, max_size=12)


@example({}, {"problems": True}, {}, {})
@given(FILE, FILE, FILE, FILE)
@settings(max_examples=40, deadline=None)
def test_there_are_pages(plan: Any, record: Any, verdict: Any, group: Any) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        results = Path(scratch)
        made.run(results, "sound")
        for name, content in (("plan", plan), ("run", record), ("verdict", verdict)):
            for run in ("damaged", "suite/runs/x"):
                (results / run).mkdir(parents=True, exist_ok=True)
                (results / run / f"{name}.json").write_text(json.dumps(content))
        for kind, file in FILES.items():
            (results / kind).mkdir(exist_ok=True)
            (results / kind / file).write_text(json.dumps(group))
        index = Index(results, alive)
        index.refresh()
        pages = Pages(index, Served(), "made")
        pages.list_page(Filter(), 1)
        for path in ("damaged", "suite/runs/x", *FILES):
            pages.entry_page(path)
        pages.live_part("damaged")
        pages.compare_page(["damaged", "sound"])
        for suite in index.choices()["suite"]:
            for plan_name in ("", *(each.name for each in index.members("suite"))):
                pages.trends_page(suite, plan_name)
        exploration.write_page(results / "exploration")
        systematic.write_page(results / SYSTEMATIC)
        index.close()
