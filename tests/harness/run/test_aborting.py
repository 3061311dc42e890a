"""A run that ends itself before it does more harm than its user wants (--abort-if)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from harness.cli import app as cli
from harness.errors import ExitCode
from harness.explore.simulate import simulate
from harness.plan import plan_file
from harness.plan.abort import parse
from harness.plan.plan import Plan, make_plan
from harness.report.console import Counts
from harness.run.aborting import Aborting
from harness.runtimes.simulation.loop import VirtualLoop
from harness.targets.view import ClusterView, PartitionState
from tests import ROOT

SMALL: dict[str, Any] = {
    "run": "r", "on": "simulation", "nemesis": ("majority-down",), "time_limit": 30.0, "rate": 50.0, "partitions": 2,
    "seed": 1,
}  # fmt: skip


def test_conditions_are_read_and_what_is_none_is_told_in_a_sentence() -> None:
    assert (parse(" unavailable>60s").bound, parse("under-replicated >= 2m").bound) == (60.0, 120.0)
    assert parse("errors > 50%").holds(50.1) and not parse("errors > 50%").holds(50.0)
    assert parse("errors >= 50%").holds(50.0) and parse("unavailable > 500ms").text == "unavailable > 500ms"
    for text, wrong in {
        "unavailable < 60s": "is no condition; there are unavailable, errors, under-replicated, for example",
        "latency > 5s": "is no condition", "unavailable > 60": "must name a time with its unit",
        "unavailable > 50%": "must name a time", "errors > 5s": "must name a share of at most 100%",
        "errors > 150%": "must name a share",
    }.items():  # fmt: skip
        with pytest.raises(ValueError, match=wrong):
            parse(text)


def test_a_plan_has_them_and_its_command_repeats_them(tmp_path: Path) -> None:
    plan = Plan(**SMALL, abort_if=("unavailable > 60s", "errors > 50%"))
    assert plan.command().endswith("--abort-if 'unavailable > 60s' --abort-if 'errors > 50%'")
    plan_file.save(plan, tmp_path)
    assert Plan(run="r", **plan_file.read(tmp_path / "plan.toml")) == plan
    (tmp_path / "one.toml").write_text('abort_if = "unavailable > 1m"\n')
    assert plan_file.read(tmp_path / "one.toml") == {"abort_if": ("unavailable > 1m",)}
    for abort_if, wrong in {
        "unavailable": "--abort-if 'unavailable' is no condition",
        "unavailable > 3s": "at --rate 1 each of 2 partitions is appended to once in 2 s; give a time of at least",
    }.items():
        with pytest.raises(Exception, match=wrong):
            make_plan(**{**SMALL, "rate": 1.0}, abort_if=(abort_if,))


def _over_time(aborting: Aborting, seconds: float, counts: Any, views: Any = None) -> tuple[float, str] | None:
    """When it is aborted, and why: looked at each 0.25 s, with counts(time) and views(time)."""

    async def look() -> tuple[float, str] | None:
        import asyncio

        loop = asyncio.get_running_loop()
        while loop.time() < seconds:
            if views is not None:
                aborting.saw(views(loop.time()))
            if (reason := aborting.reason(counts(loop.time()))) is not None:
                return round(loop.time(), 1), reason.told
            await asyncio.sleep(0.25)
        return None

    loop = VirtualLoop()
    try:
        return loop.run_until_complete(loop.create_task(look()))
    finally:
        loop.bury()


def test_what_each_condition_measures() -> None:
    def steady(at: float) -> Counts:
        return Counts(acknowledged=int(at * 100))

    served = {"chaos-0": (0.1, 1.0), "chaos-1": (7.0, 0.5)}
    of_partition = Aborting(("unavailable > 6s",), "chaos", lambda: served)
    assert _over_time(of_partition, 1, steady) == (0.0, "chaos-1 unavailable for 7.0 s (--abort-if 'unavailable > 6s')")
    in_all = Aborting(("unavailable > 6s",), "chaos", None)  # a workload that does not tell
    stops = _over_time(in_all, 20, lambda at: Counts(acknowledged=min(int(at), 5)))
    assert stops == (11.2, "the cluster unavailable for 6.2 s (--abort-if 'unavailable > 6s')")

    half = ("errors > 50%",)
    assert _over_time(Aborting(half, "chaos", None), 60, lambda at: Counts(acknowledged=100, failed=5)) is None

    def worse(at: float) -> Counts:
        return Counts(acknowledged=int(10 * min(at, 20)), failed=int(30 * max(at - 20, 0)))

    at, told = _over_time(failing := Aborting(half, "chaos", None), 60, worse) or (0, "")
    # Of 10 s until then 30 × (at − 20) of 100 + 20 × (at − 20) are in vain: more than half from 22.5 s on.
    assert 22.5 <= at < 23 and told.startswith("5") and told.endswith("in vain (--abort-if 'errors > 50%')")

    both, one = frozenset({1, 2}), frozenset({1})

    def view(at: float) -> ClusterView:
        isr = one if 5 <= at < 9 or at >= 10 else both
        of = {0: PartitionState(1, 1, both, isr), 1: PartitionState(1, 1, both, both)}
        return ClusterView({1: of} if at < 14 else {}, 101, None)  # nobody answers any more

    lagging = Aborting(("under-replicated > 5s",), "chaos", None)
    assert lagging.wants_views and not failing.wants_views
    stops = _over_time(lagging, 20, steady, view)
    assert stops == (15.2, "chaos-0 under-replicated for 5.2 s (--abort-if 'under-replicated > 5s')")


def test_a_simulated_run_is_aborted_and_repeats_exactly() -> None:
    for condition, what in {
        "unavailable > 3s": "unavailable for 3.", "under-replicated > 3s": "under-replicated for 3.",
        "errors > 20%": "% of the appends of 10 s in vain",
    }.items():  # fmt: skip
        first = simulate(Plan(**SMALL, abort_if=(condition,)))
        aborted = first.facts["aborted"]
        assert aborted["condition"] == condition and what in aborted["told"] and not first.crash
        verdict = first.judge()
        assert verdict["verdict"] == "unknown" and verdict["ended_early"] == first.facts["ended_early"]
        assert verdict["reason"].startswith(f"the run was aborted after {aborted['at_s']:.1f} s of 30 s: ")
        ends = [each for each in first.tables["faults"].to_pylist() if not json.loads(each["evidence"]).get("skipped")]
        assert ends and all(each["end"] is not None for each in ends), "healed"
    again = simulate(first.plan)
    assert (again.trace_hash, again.facts["aborted"]) == (first.trace_hash, first.facts["aborted"])


def test_looking_changes_no_trace_where_nothing_need_be_asked() -> None:
    plan = Plan(**{**SMALL, "time_limit": 9.0, "nemesis": ("kill",)})
    looked = plan.model_copy(update={"abort_if": ("unavailable > 1h", "errors > 100%")})
    assert simulate(plan).trace_hash == simulate(looked).trace_hash


def test_it_is_told_by_the_command_the_record_the_verdict_and_the_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    command = (
        "run --on simulation --nemesis majority-down --time-limit 30 --rate 50 --partitions 2 --seed 1 --run-name it"
    )
    with pytest.raises(SystemExit) as ended:
        cli.main([*command.split(), "--abort-if", "unavailable > 3s"])
    assert ended.value.code == ExitCode.UNKNOWN
    said = capsys.readouterr()
    told = "unavailable for 3.2 s (--abort-if 'unavailable > 3s')"
    assert f"aborted: chaos-1 {told}; healing, then judging what there is" in said.err.replace("\n", " ")
    assert "unknown: the run was aborted after 8.2 s of 30 s" in said.out and told in said.out
    record = json.loads(Path("results/it/run.json").read_text())
    assert record["status"] == "interrupted" and record["aborted"]["condition"] == "unavailable > 3s"
    assert record["ended_early"].endswith(told) and "stopped_by" not in record and "ended_at_s" not in record
    verdict = json.loads(Path("results/it/verdict.json").read_text())
    assert verdict["verdict"] == "unknown" and verdict["ended_early"].endswith(told)
    assert "the run was aborted after 8.2 s" in Path("results/it/report.html").read_text()
    replayed = subprocess.run(
        [sys.executable, "-m", "harness", "replay", "it"], cwd=tmp_path, env={"PYTHONPATH": str(ROOT)},
        capture_output=True, text=True,
    )  # fmt: skip
    assert "same trace hash" in replayed.stdout and "the run was aborted" in replayed.stdout, replayed
