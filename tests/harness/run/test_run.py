"""The lifecycle of a run, with components that take no time and break on demand."""

from __future__ import annotations

import asyncio
import io
import json
import os
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import harness.run.run
from harness.cluster import ClusterLost, RuntimeUnavailable
from harness.errors import HarnessFailure, HistoryLost, Stopped
from harness.plan import schedule_file
from harness.plan.plan import Plan
from harness.report.console import Progress
from harness.runtimes.nodes.asking import AgentError
from nemesis.kill import Kill
from nemesis.pause import Pause
from nemesis.power import PowerOutage
from tests.harness.run.fakes import FakeCluster, FakeComponents, FakeNode, FakeRuntime, FakeWorkload

FAIL = {"verdict": "fail", "reason": "2 lost appends", "exit_code": 1}


class Case:
    """One run in `directory`; run.json is read as `record` afterwards."""

    def __init__(self, directory: Path, components: FakeComponents, time_limit: float = 3.0, **plan: Any) -> None:
        self.directory = directory
        self.parts = components
        self.plan = Plan(run="r", nemesis=("pause",), time_limit=time_limit, **plan)
        self.output = io.StringIO()

    def run(self, *, keep: bool = False, meanwhile: Callable[[], Any] | None = None) -> Any:
        progress = Progress(Console(file=self.output))

        async def both() -> Any:
            helper = asyncio.ensure_future(meanwhile()) if meanwhile else None
            try:
                return await harness.run.run.run(
                    self.plan, {"pause": _QuickPause()}, self.directory, self.parts, progress, keep=keep
                )  # type: ignore[arg-type]
            finally:
                if helper:
                    await helper

        return asyncio.run(both())

    @property
    def record(self) -> dict[str, Any]:
        content: dict[str, Any] = json.loads((self.directory / "run.json").read_text())
        return content


class _QuickPause(Pause):
    def draw(self, random: Any) -> Any:
        from nemesis import Draw

        return Draw(gap=0.1, duration=0.1, choice={"role": "broker", "node": random.random()})


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.plan.schedule.FIRST_FAULT_S", 0.1)
    monkeypatch.setattr("harness.plan.schedule.CALM_AT_END_S", 0.1)
    monkeypatch.setattr("harness.run.injector.CALM_AT_END_S", 0.1)


@pytest.mark.usefixtures("quick")
def test_a_whole_run(tmp_path: Path) -> None:
    case = Case(tmp_path, FakeComponents(), time_limit=0.6)
    assert case.run()["verdict"] == "pass"
    components = case.parts
    assert components.workload.calls == ["set_up", "run", "final_read", "close"]
    assert components.cluster.stopped == 1
    assert Plan.load(tmp_path) == case.plan
    assert schedule_file.load(tmp_path)
    assert components.recorder.rows and all(row["effective"] for row in components.recorder.rows.values())
    record = case.record
    assert record["status"] == "done" and record["problems"] == []
    command = "chaos run --on docker --nemesis pause --strike random --time-limit 0.6 --seed 0"
    assert record["command"].startswith(command)
    assert list(record["phases"]) == [
        "start", "ready", "workload", "heal", "recover", "final reads", "collect", "close workload", "close journal",
        "check", "report", "tear down",
    ]  # fmt: skip
    assert 0.6 <= record["phases"]["workload"] < 1.5 and record["ready_s"] >= 0 and record["after_time_limit_s"] >= 0
    assert "2 acknowledged" in case.output.getvalue()


@pytest.mark.usefixtures("quick")
def test_settings_that_no_node_knows_are_problems_and_no_more(tmp_path: Path) -> None:
    async def ignored(cluster: object, plan: Plan) -> Sequence[str]:
        return ["replica.lag.time.max"]

    case = Case(tmp_path, FakeComponents(ignored_settings=ignored), time_limit=0.3)
    assert case.run()["verdict"] == "pass"
    (problem,) = case.record["problems"]
    assert "--set replica.lag.time.max changes nothing" in problem


@pytest.mark.parametrize(
    ("what", "phase"),
    [
        ("workload.final_read", "final reads"),
        ("cluster.collect", "collect"),
        ("workload.close", "close workload"),
        ("cluster.stop", "tear down"),
        ("build_report", "report"),
    ],
)
def test_what_fails_after_the_workload_does_not_cost_the_verdict(tmp_path: Path, what: str, phase: str) -> None:
    components = FakeComponents(verdict=FAIL)
    owner: Any = components
    *path, name = what.split(".")
    for step in path:
        owner = getattr(owner, step)

    def broken(*_: Any) -> Any:
        raise OSError("disk gone")

    setattr(owner, name, broken)
    case = Case(tmp_path, components, time_limit=0.2)
    assert case.run() == FAIL
    doubts = ["what the nodes left (logs, traces, disks) was not collected as a whole"] if phase == "collect" else []
    assert case.record["problems"] == [f"{phase} failed: OSError: disk gone", *doubts]
    assert case.record.get("doubts", []) == doubts, "what says that it passed must have seen what the nodes left"
    assert components.recorder.closed
    assert components.cluster.stopped == (0 if phase == "tear down" else 1)


@pytest.mark.parametrize("asked", ["heal", "leftovers"])
def test_what_cannot_be_healed_is_a_failure_of_the_harness_once_the_history_is_judged(
    tmp_path: Path, asked: str
) -> None:
    components = FakeComponents()

    async def gone() -> Any:
        raise OSError("agent gone")

    setattr(components.cluster, asked, gone)
    case = Case(tmp_path, components, time_limit=0.2)
    with pytest.raises(HarnessFailure, match="not everything could be healed: OSError: agent gone; the history up to"):
        case.run()
    assert case.record["doubts"] == ["not everything could be healed: OSError: agent gone"]
    assert components.recorder.closed and components.cluster.stopped == 1


def test_a_healing_that_hangs_keeps_nothing_else_from_being_healed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harness.run.phases.DRAIN_TIMEOUT_S", 0.5)
    for module in ("harness.run.phases", "harness.run.injector"):
        monkeypatch.setattr(f"{module}.HEAL_TIMEOUT_S", 0.3)
    healed = []

    async def hang(self: Pause, cluster: Any, nodes: Any) -> Any:
        await asyncio.Event().wait()

    async def heal() -> None:
        healed.append("network")
        if len(healed) == 1:
            await asyncio.Event().wait()

    async def leftovers() -> list[str]:
        healed.append("looked")
        return []

    monkeypatch.setattr(Pause, "heal", hang)
    components = FakeComponents()
    monkeypatch.setattr(components.cluster, "heal", heal)
    monkeypatch.setattr(components.cluster, "leftovers", leftovers)
    case = Case(tmp_path, components)
    with pytest.raises(HarnessFailure, match=r"did not end within 0\.5 s of their time"):
        case.run()
    assert healed == ["network", "looked"] * 2
    (left,) = [line for line in case.record["doubts"] if line.startswith("not everything could be healed")]
    assert "pause on " in left and "it did not end within 0.3 s" in left


def test_a_violation_stands_whatever_could_not_be_healed(tmp_path: Path) -> None:
    components = FakeComponents(verdict=FAIL)

    async def left() -> list[str]:
        return ["broker-1 is frozen"]

    components.cluster.leftovers = left  # type: ignore[method-assign]
    assert Case(tmp_path, components, time_limit=0.2).run() == FAIL


def test_what_is_left_of_a_fault_is_healed_a_second_time(tmp_path: Path) -> None:
    components = FakeComponents()
    asked = 0

    async def leftovers() -> list[str]:
        nonlocal asked
        asked += 1
        return ["broker-1 is frozen"] if asked == 1 else []

    components.cluster.leftovers = leftovers  # type: ignore[method-assign]
    case = Case(tmp_path, components, time_limit=0.6)
    case.run()
    assert asked == 2 and case.record["problems"] == []
    assert all(row["evidence"]["frozen_ns"] == 5 for row in components.recorder.rows.values()), (
        "evidence of the first time"
    )


def test_a_run_whose_agent_is_gone_ends_early(tmp_path: Path) -> None:
    components = FakeComponents()

    async def lost(*_: Any) -> Any:
        raise ClusterLost("pause on broker-1: the agent is gone; run it again")

    for node in components.cluster.nodes:
        node.pause = lost  # type: ignore[method-assign]
    case = Case(tmp_path, components, time_limit=60)
    with pytest.raises(HarnessFailure, match=r"the fault schedule failed: .*the agent is gone; run it again; the his"):
        case.run()
    assert case.record["phases"]["workload"] < 30
    assert [row["end"] for row in components.recorder.rows.values()] != [], "the fault is on record"


def test_a_start_that_fails_tears_down_and_says_why(tmp_path: Path) -> None:
    components = FakeComponents()
    components.runtime = FakeRuntime(
        components.cluster, RuntimeUnavailable("no permission for Docker: join group docker")
    )
    case = Case(tmp_path, components)
    with pytest.raises(RuntimeUnavailable, match="join group docker"):
        case.run()
    assert components.cluster.stopped == 1
    assert case.record["status"] == "failed" and not components.judged


def test_a_cluster_that_does_not_get_ready_is_torn_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.run.starting.READY_TIMEOUT_S", 0.3)
    components = FakeComponents()
    components.cluster.missing.add("broker-3")
    with pytest.raises(HarnessFailure, match=r"not ready after 0\.3 s: broker 3 is not in the ISR.*logs"):
        Case(tmp_path, components).run()
    assert components.cluster.stopped == 1 and not components.judged


def test_a_host_that_is_lost_while_the_cluster_gets_ready_is_no_internal_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def lost(node: Any) -> bool:
        raise AgentError("running on broker-1: host a: its agent has not answered for 20 s")

    monkeypatch.setattr(FakeNode, "is_running", lost)
    components = FakeComponents(watches_start=True)
    components.cluster.missing.add("broker-3")
    with pytest.raises(HarnessFailure, match=r"^running on broker-1: host a: its agent has not answered for 20 s$"):
        Case(tmp_path, components).run()
    assert components.cluster.stopped == 1


def test_a_crash_of_the_workload_is_no_pass_but_a_violation_stands(tmp_path: Path) -> None:
    began = time.monotonic()
    case = Case(tmp_path, FakeComponents(workload=FakeWorkload(crash=0.1)), time_limit=30)
    with pytest.raises(
        HarnessFailure, match="the workload failed: RuntimeError: client bug; the history up to then: pass"
    ):
        case.run()
    assert time.monotonic() - began < 5
    assert case.parts.judged and case.parts.cluster.stopped == 1
    assert Case(tmp_path, FakeComponents(workload=FakeWorkload(crash=0.1), verdict=FAIL)).run() == FAIL


def test_checks_that_fail_leave_the_history_and_tear_down(tmp_path: Path) -> None:
    components = FakeComponents(verdict=HarnessFailure("part.parquet is damaged"))
    case = Case(tmp_path, components, time_limit=0.2)
    with pytest.raises(HarnessFailure, match=r"part\.parquet is damaged"):
        case.run()
    assert components.cluster.stopped == 1 and components.recorder.closed and case.record["status"] == "failed"


def test_keep_leaves_the_cluster_up(tmp_path: Path) -> None:
    case = Case(tmp_path, FakeComponents(), time_limit=0.2)
    case.run(keep=True)
    assert case.parts.cluster.stopped == 0 and "chaos clean" in case.output.getvalue()


def test_an_unhealthy_cluster_is_not_struck(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.run.starting.HEALTHY_PATIENCE_S", 0.3)
    components = FakeComponents()
    wrong = "3 of 120 partitions have a replica out of the ISR (orders-3, orders-7, orders-9)"
    components.cluster.wrong = [wrong]
    case = Case(tmp_path, components, time_limit=30)
    with pytest.raises(HarnessFailure, match="the cluster is not healthy, and was not struck: 3 of 120 partitions"):
        case.run()
    assert not components.recorder.rows and components.workload.calls == ["set_up"] and components.cluster.log == []
    assert case.record["status"] == "failed" and wrong in case.record["problems"][0]
    assert components.cluster.stopped == 1 and 2 <= components.cluster.looked <= 4


@pytest.mark.usefixtures("quick")
def test_what_passes_soon_is_waited_for(tmp_path: Path) -> None:
    components = FakeComponents()
    components.cluster.wrong = ["there is no active controller", "broker-1 does not answer", None]
    assert Case(tmp_path, components, time_limit=0.3).run()["verdict"] == "pass"
    assert components.cluster.looked == 3


def test_a_cluster_that_was_there_is_looked_at_before_anything_is_asked_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harness.run.starting.HEALTHY_PATIENCE_S", 0.0)
    components = FakeComponents()
    components.cluster.was_there = True
    components.cluster.wrong = ["broker-2 does not answer"]
    with pytest.raises(HarnessFailure, match="was not struck: broker-2 does not answer"):
        Case(tmp_path, components, time_limit=0.3).run()
    assert components.workload.calls == []


def _signal_after(*delays: float) -> Callable[[], Any]:
    async def send() -> None:
        for delay in delays:
            await asyncio.sleep(delay)
            os.kill(os.getpid(), signal.SIGINT)

    return send


@pytest.mark.usefixtures("quick")
def test_the_first_ctrl_c_heals_and_judges_what_there_is(tmp_path: Path) -> None:
    case = Case(tmp_path, FakeComponents(), time_limit=30)
    began = time.monotonic()
    assert case.run(meanwhile=_signal_after(0.4))["verdict"] == "pass"
    assert time.monotonic() - began < 5
    assert case.record["status"] == "interrupted"
    assert case.record["ended_early"].startswith("the run was cut short by SIGINT after 0.")
    assert case.record["ended_early"].endswith(" s of 30 s")
    assert case.parts.workload.calls[-2:] == ["final_read", "close"]
    assert all(row["end"] is not None for row in case.parts.recorder.rows.values())
    assert case.parts.cluster.stopped == 1


@pytest.mark.usefixtures("quick")
def test_a_run_that_was_cut_short_is_marked_so_before_it_is_judged(tmp_path: Path) -> None:
    """The verdict and the report are made from run.json."""
    components = FakeComponents()
    seen: list[Any] = []
    judge = components.judge

    def look() -> Any:
        seen.append(json.loads((components.directory / "run.json").read_text()))
        return judge()

    components.judge = look  # type: ignore[method-assign]
    Case(tmp_path, components, time_limit=30).run(meanwhile=_signal_after(0.4))
    assert seen[0]["status"] == "interrupted" and "cut short by SIGINT" in seen[0]["ended_early"]


@pytest.mark.usefixtures("quick")
def test_a_recorder_that_cannot_write_ends_the_run_in_order(tmp_path: Path) -> None:
    components = FakeComponents()

    async def work(stop: asyncio.Event) -> None:
        await asyncio.sleep(0.2)
        raise HistoryLost("the history cannot be written to results/r/journal: no space left")

    def close() -> None:
        components.recorder.closed = True
        raise HistoryLost("the history cannot be written to results/r/journal: no space left")

    components.workload.run = work  # type: ignore[method-assign]
    components.recorder.close = close  # type: ignore[method-assign]
    case = Case(tmp_path, components, time_limit=30)
    assert case.run()["verdict"] == "pass"  # what the fake checkers say of what there is
    assert "no space left" in case.record["ended_early"] and "close journal" not in case.record["phases"]
    assert components.cluster.stopped == 1


@pytest.mark.usefixtures("quick")
def test_a_run_ends_before_its_volume_is_full(tmp_path: Path) -> None:
    components = FakeComponents()
    components.free_room = lambda _: 1_000_000  # type: ignore[method-assign]
    case = Case(tmp_path, components, time_limit=30)
    began = time.monotonic()
    case.run()
    assert time.monotonic() - began < 5 and components.cluster.stopped == 1
    assert "has 1 MB left and needs" in case.record["ended_early"]


def test_the_cluster_is_removed_though_nothing_can_be_said_or_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    components = FakeComponents()
    case = Case(tmp_path, components, time_limit=0.2)

    class Gone(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError("nobody reads")

    def full(self: Any, text: str) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("harness.record.results.RunRecord._write", full)
    case.output = Gone()
    case.run()
    assert components.cluster.stopped == 1


def test_the_second_ctrl_c_stops_at_once_but_removes_the_cluster(tmp_path: Path) -> None:
    components = FakeComponents()

    async def never() -> None:
        await asyncio.sleep(60)

    components.workload.final_read = never  # type: ignore[method-assign]
    case = Case(tmp_path, components, time_limit=30)
    began = time.monotonic()
    with pytest.raises(Stopped, match="stopped at once"):
        case.run(meanwhile=_signal_after(0.3, 0.3, 0.1))
    assert time.monotonic() - began < 5
    assert components.cluster.stopped == 1 and case.record["status"] == "failed" and not components.judged


def test_the_second_ctrl_c_does_not_wait_for_a_check_that_computes(tmp_path: Path) -> None:
    components = FakeComponents()
    components.judge = lambda: time.sleep(20)  # type: ignore[method-assign]
    began = time.monotonic()
    with pytest.raises(Stopped):
        Case(tmp_path, components, time_limit=0.1).run(meanwhile=_signal_after(0.5, 0.2))
    assert time.monotonic() - began < 5
    assert components.cluster.stopped == 1


def test_ctrl_c_while_the_cluster_starts(tmp_path: Path) -> None:
    components = FakeComponents()
    components.runtime = FakeRuntime(components.cluster, start_s=60)
    with pytest.raises(Stopped, match="nothing to judge"):
        Case(tmp_path, components).run(meanwhile=_signal_after(0.2, 0.05))
    assert components.cluster.stopped == 1


def test_a_node_that_died_by_itself_is_named_and_started_again(tmp_path: Path) -> None:
    components = FakeComponents()

    async def die() -> None:
        await asyncio.sleep(0.1)
        components.cluster.nodes[4].state = "killed"

    case = Case(tmp_path, components, time_limit=0.3)
    case.run(meanwhile=die)
    assert case.record["problems"] == [
        "controller-2 was not running though no fault held it down (out of memory); started it again"
    ]
    assert components.cluster.nodes[4].state == "running"


def test_a_cluster_that_does_not_recover_is_judged_and_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.run.phases.RECOVERY_TIMEOUT_S", 0.3)
    cluster = FakeCluster()
    components = FakeComponents(cluster=cluster, runtime=FakeRuntime(cluster))

    async def lose() -> None:
        await asyncio.sleep(0.1)
        cluster.missing.add("broker-1")

    case = Case(tmp_path, components, time_limit=0.3)
    assert case.run(meanwhile=lose)["verdict"] == "pass"
    assert "broker 1 is not in the ISR of partition 0" in case.record["problems"][0]
    assert case.record["doubts"] == case.record["problems"], "which forbids the real checkers to pass it"


def test_each_nemesis_says_what_it_does() -> None:
    for nemesis in (PowerOutage(), Kill(), Pause()):
        assert nemesis.name and "\n" not in nemesis.summary
