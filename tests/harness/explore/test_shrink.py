"""Shrinking keeps the property, and leaves nothing that could go."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.cli.app import main
from harness.explore.failures import save
from harness.explore.replaying.exactly import replay
from harness.explore.shrinking import shrink as shrinking
from harness.explore.shrinking import witness as witnesses
from harness.explore.shrinking.candidates import Candidate
from harness.explore.shrinking.shrink import shrink
from harness.explore.shrinking.witness import Broken, Strike, Witness, attempt, witness_of
from harness.explore.simulate import Simulated, simulate
from harness.explore.workers import Outcome
from harness.plan.plan import Plan
from harness.plan.schedule import Fault, Schedule
from nemesis import Situation
from nemesis.kill import Kill
from nemesis.partition import Partition
from nemesis.power import PowerOutage, PowerOutageCluster
from tests.harness.run.fakes import FakeCluster

BROKEN = Broken("LeaderCompleteness", "violation", within=True)
Rule = Callable[[Candidate], Witness | None]


def plan(**changes: Any) -> Plan:
    fields: dict[str, Any] = {"run": "r", "on": "simulation", "nemesis": ("kill",), "time_limit": 40.0, "brokers": 5}
    return Plan(**fields | changes)


def kills(number: int) -> Schedule:
    return tuple(
        Fault(fault=n, nemesis="kill", at=2.0 * n + 1, duration=1.0, choice={"role": "broker", "node": 0.1 * n})
        for n in range(number)
    )


def strikes(schedule: Schedule) -> dict[int, Strike]:
    return {fault.fault: Strike((f"broker-{fault.fault % 5 + 1}",), 0.0, skipped=False) for fault in schedule}


def needs(*faults: int, violated_s: float | None = None, **least: float) -> Rule:
    """Fails with these faults, and with at least so much of the plan."""

    def rule(candidate: Candidate) -> Witness | None:
        there = {fault.fault for fault in candidate.schedule}
        if not there.issuperset(faults) or any(getattr(candidate.plan, name) < n for name, n in least.items()):
            return None
        return Witness(BROKEN, violated_s, strikes(candidate.schedule))

    return rule


@pytest.fixture
def obey(monkeypatch: pytest.MonkeyPatch) -> Callable[[Rule], list[Candidate]]:
    """Runs fail by a rule instead of being simulated. The list fills with those that are tried."""

    def use(rule: Rule) -> list[Candidate]:
        tried: list[Candidate] = []

        def attempt(candidate: Candidate, sought: Broken, needs_bug: bool, at_work: bool) -> Witness | None:
            tried.append(candidate)
            return rule(candidate)

        monkeypatch.setattr(shrinking, "attempt", attempt)
        monkeypatch.setattr(shrinking, "simulate", Candidate)
        monkeypatch.setattr(shrinking, "witness_of", rule)
        return tried

    return use


@pytest.mark.parametrize("needed", [(), (0,), (11,), (2, 3), (1, 6, 10)])
def test_the_faults_that_are_needed_remain(obey: Any, needed: tuple[int, ...]) -> None:
    obey(needs(*needed))
    shrunk = shrink(plan(), kills(12), budget=2000)
    assert shrunk.minimal
    assert tuple(fault.fault for fault in shrunk.schedule) == needed


def test_everything_else_shrinks_as_far_as_it_may(obey: Any) -> None:
    obey(needs(1, partitions=3, concurrency=2, rate=100, brokers=4, controllers=3))
    left = shrink(plan(), kills(3), budget=2000).plan
    assert (left.partitions, left.concurrency, left.brokers, left.controllers) == (3, 2, 4, 3)
    assert 100 <= left.rate < 200
    assert (left.replication_factor, left.min_insync_replicas) == (3, 2)


def test_settings_latency_and_all_else_that_was_given_become_the_defaults(obey: Any) -> None:
    wanted = {"replica.lag.time.max.ms": "500"}
    given = wanted | {"log.segment.bytes": "2048", "replica.fetch.wait.max.ms": "50", "num.replica.fetchers": "2"}

    def rule(candidate: Candidate) -> Witness | None:
        return needs(1)(candidate) if wanted.items() <= candidate.plan.settings.items() else None

    obey(rule)
    left = shrink(plan(settings=given, latency_ms=25.0, delete_records=2.0, racks=2), kills(3), budget=2000).plan
    assert left.settings == wanted
    assert (left.latency_ms, left.delete_records, left.racks) == (0.5, None, None)
    obey(needs(1))
    assert shrink(plan(settings=given, latency_ms=25.0), kills(3), budget=2000).plan.settings == {}


def test_settings_that_need_each_other_go_together(obey: Any) -> None:
    """A session that is shorter than the heartbeats of brokers by default is no plan."""
    together = {"broker.session.timeout.ms": "400", "broker.heartbeat.interval.ms": "100"}

    def rule(candidate: Candidate) -> Witness | None:
        return needs(1)(candidate) if "log.segment.bytes" in candidate.plan.settings else None

    obey(rule)
    left = shrink(plan(settings=together | {"log.segment.bytes": "2048"}), kills(3), budget=2000).plan
    assert left.settings == {"log.segment.bytes": "2048"}


@pytest.mark.parametrize("shorter_than_s", [60.0, 1.0])
def test_what_the_code_does_without_its_bug_is_not_exchanged_for_it(
    shorter_than_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With this setting the code is right, and without it the same is broken, bug or no bug; with all faults, or with
    such as have become short enough since the setting has gone."""
    setting = {"v2.preferred.replica.time.ms": "100"}

    def same(candidate: Candidate, sought: Broken, until_s: float | None = None) -> Witness | None:
        is_flawed = not candidate.plan.settings and all(each.duration < shorter_than_s for each in candidate.schedule)
        broken = candidate.schedule and (candidate.plan.bug is not None or is_flawed)
        return Witness(BROKEN, None, strikes(candidate.schedule)) if broken else None

    monkeypatch.setattr(witnesses, "_same", same)
    monkeypatch.setattr(shrinking, "simulate", Candidate)
    monkeypatch.setattr(shrinking, "witness_of", lambda candidate: same(candidate, BROKEN))
    shrunk = shrink(plan(target="v2", bug="V01", settings=setting), kills(2), budget=2000)
    sound = shrunk.plan.model_copy(update={"bug": None})
    assert len(shrunk.schedule) == 1 and same(Candidate(sound, shrunk.schedule), BROKEN) is None
    assert (shrunk.plan.settings == setting) == (shorter_than_s > 1.0)


def test_settings_that_mend_a_target_stay(obey: Any) -> None:
    """Without them a run of that target breaks its promises in any case."""
    obey(needs(1))
    mends = {"v2.leader.epochs": "true", "v2.idle.checks": "true"}
    shrunk = shrink(
        plan(target="v2", settings={"v2.preferred.replica.time.ms": "100", **mends}), kills(2), budget=2000
    )
    assert shrunk.plan.settings == mends


@pytest.mark.parametrize(("needed", "left"), [(("idempotent", "fenced"), "idempotent"), (("fenced",), "fenced")])
def test_producers_are_of_the_simplest_kind_that_fails(obey: Any, needed: tuple[str, ...], left: str) -> None:
    def rule(candidate: Candidate) -> Witness | None:
        return needs(1)(candidate) if candidate.plan.producers in needed else None

    obey(rule)
    assert shrink(plan(producers="fenced"), kills(3), budget=2000).plan.producers == left


def test_time_ends_just_after_the_violation_and_faults_move_to_the_start(obey: Any) -> None:
    obey(needs(2, violated_s=7.03))
    shrunk = shrink(plan(), kills(12), budget=2000)
    (fault,) = shrunk.schedule
    assert (fault.at, fault.duration) == (0.1, 0.1)
    assert shrunk.plan.time_limit == 7.3


def test_a_fault_goes_with_the_nodes_that_it_struck(obey: Any) -> None:
    obey(needs())
    tried = obey(needs(1))
    shrink(plan(), kills(5), budget=2000)
    assert [fault.choice["targets"] for fault in tried[0].schedule] == [[f"broker-{n}"] for n in range(1, 6)]
    for candidate in tried:
        nodes = {name for fault in candidate.schedule for name in fault.choice["targets"]}
        assert nodes <= {f"broker-{n}" for n in range(1, candidate.plan.brokers + 1)}


def test_skipped_faults_go_first_and_deferred_ones_strike_when_they_did(obey: Any) -> None:
    schedule = kills(3)

    def rule(candidate: Candidate) -> Witness | None:
        seen = strikes(candidate.schedule)
        if candidate.schedule == schedule:
            seen[1] = Strike((), 0.0, skipped=True)
            seen[2] = replace(seen[2], deferred_s=1.25)
        return Witness(BROKEN, None, seen)

    tried = obey(rule)
    shrink(plan(), schedule, budget=2000)
    assert [(fault.fault, fault.at) for fault in tried[0].schedule] == [(0, 1.0), (2, 6.25)]


def test_the_budget_bounds_the_runs_and_the_rest_is_said_to_be_open(obey: Any) -> None:
    tried = obey(needs(1, 6, 10))
    shrunk = shrink(plan(), kills(12), budget=10)
    assert not shrunk.minimal
    assert shrunk.runs == 10 == len(tried) + 1
    assert {1, 6, 10} <= {fault.fault for fault in shrunk.schedule}


def test_nothing_is_tried_twice(obey: Any) -> None:
    tried = obey(needs(1, 6, 10, rate=7))
    shrink(plan(), kills(12), budget=2000)
    assert len({candidate.key for candidate in tried}) == len(tried)


@pytest.mark.parametrize("nemesis", [Kill(), Partition(), PowerOutage(), PowerOutageCluster()], ids=lambda n: n.name)
def test_a_choice_that_names_its_nodes_means_them_and_no_others(nemesis: Any) -> None:
    cluster = FakeCluster()
    everyone = frozenset(node.name for node in cluster.nodes)
    situation = Situation(cluster, free=everyone, targets="leaders", leaders={1: 9}, active_controller=101)
    choice = {"variant": "active-controller", "node": 0.0, "rack": 0.0, "role": "broker", "in_write": 0}
    choice |= {"targets": ["controller-2", "broker-3"]}
    assert [node.name for node in nemesis.choose(choice, situation)] == ["broker-3", "controller-2"]
    assert not nemesis.choose(choice, replace(situation, free=everyone - {"broker-3"}))
    assert not nemesis.choose(choice | {"targets": ["broker-9"]}, situation)


@pytest.fixture(scope="module")
def failing(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a run with bug M01, which truncates logs to the high watermark."""
    directory: Path = tmp_path_factory.mktemp("results")
    bug = plan(run="m01", bug="M01", seed=SEED, brokers=3, controllers=1, partitions=2, rate=8.0, concurrency=1,
               time_limit=9.0)  # fmt: skip
    simulated = simulate(bug, FAULTS)
    verdict = simulated.judge()
    assert verdict["verdict"] == "fail", verdict["reason"]
    save(Outcome(bug, "judged", simulated=simulated, verdict=verdict), directory / "m01")
    return directory / "m01"


SEED = 0
#: Those of a kill every second and a half.
FAULTS = tuple(
    Fault(fault=n, nemesis="kill", at=1.0 + 1.5 * n, duration=1.0, choice={"role": "broker", "node": 0.4 * n % 1})
    for n in range(5)
)


def test_a_run_with_a_bug_shrinks_to_a_story(failing: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = replay(failing)
    assert before.simulated.violation is not None
    with pytest.raises(SystemExit) as end:
        main(["shrink", str(failing)])
    assert end.value.code == 1

    after = replay(failing.with_name("m01-shrunk"))
    plan, schedule, violation = after.simulated.plan, after.simulated.schedule, after.simulated.violation
    assert violation is not None and violation.property == before.simulated.violation.property
    assert after.simulated.trace_hash == after.recorded
    assert json.loads((failing.with_name("m01-shrunk") / "violation.json").read_text()) == violation.as_dict()
    assert len(schedule) <= 3
    for fault in schedule:
        less = witness_of(simulate(plan, tuple(other for other in schedule if other != fault)))
        assert less is None or less.broken.property != violation.property

    said = capsys.readouterr().out
    for fault in schedule:
        assert f"FAULT {fault.choice['targets'][0]} is killed" in said
    story = [line for line in said.splitlines() if line[2:3] == "."]
    assert f"{violation.property} is violated: {violation.message}" in story[-1]
    assert len(story) <= 40


def test_how_many_workers_there_are_changes_nothing() -> None:
    bug = plan(run="m01", bug="M01", seed=SEED, brokers=3, controllers=1, partitions=2, rate=8.0, concurrency=1,
               time_limit=9.0)  # fmt: skip
    assert shrink(bug, FAULTS, budget=15) == shrink(bug, FAULTS, budget=15, workers=2)


def test_a_candidate_is_judged_only_if_it_broke_what_is_sought(monkeypatch: pytest.MonkeyPatch) -> None:
    """What comes of it is the same: a run that no invariant stopped, or another one, is not exchanged for it."""
    bug = plan(run="m01", bug="M01", seed=SEED, brokers=3, controllers=1, partitions=2, rate=8.0, concurrency=1,
               time_limit=9.0)  # fmt: skip
    failing, passing = Candidate(bug, FAULTS), Candidate(bug, ())
    sought = witness_of(simulate(bug, FAULTS))
    assert sought is not None and sought.violated_s is not None
    judged: list[Plan] = []
    judge = Simulated.judge
    monkeypatch.setattr(Simulated, "judge", lambda run: judged.append(run.plan) or judge(run))
    assert attempt(failing, sought.broken) == sought and len(judged) == 1
    assert attempt(passing, sought.broken) is None and len(judged) == 1
    assert attempt(failing, replace(sought.broken, property="ElectionSafety")) is None and len(judged) == 1
    assert attempt(failing, Broken("log linearizability", "lost append", True)) is None and len(judged) == 1
    assert attempt(passing, Broken("log linearizability", "lost append", True)) is None and len(judged) == 2


def test_a_run_that_can_no_longer_break_what_is_sought_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    bug = plan(run="m01", bug="M01", seed=SEED, brokers=3, controllers=1, partitions=2, rate=8.0, concurrency=1,
               time_limit=9.0)  # fmt: skip
    failing, whole = simulate(bug, FAULTS), simulate(bug, ())
    sought = witness_of(failing)
    assert sought is not None and failing.violation is not None and whole.violation is None
    ended = simulate(bug, (), until_s=bug.time_limit)
    assert ended.crash and ended.virtual_s < whole.virtual_s and witness_of(ended) is None
    assert simulate(bug, FAULTS, until_s=bug.time_limit).trace_hash == failing.trace_hash
    took: list[Simulated] = []
    monkeypatch.setattr(witnesses, "_LATE_S", 0.0)
    monkeypatch.setattr(witnesses, "simulate", lambda *run, **how: took.append(simulate(*run, **how)) or took[-1])
    assert attempt(Candidate(bug, FAULTS), sought.broken, at_work=True) == sought
    assert attempt(Candidate(bug, ()), sought.broken, at_work=True) is None
    assert took[-1].virtual_s == ended.virtual_s


def test_a_candidate_that_never_ends_breaks_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def endless(*_: object, **how: object) -> Simulated:
        async def spin() -> None:
            while True:
                pass

        asyncio.run(spin())
        raise AssertionError

    monkeypatch.setattr(witnesses, "simulate", endless)
    before = signal.getsignal(signal.SIGALRM)
    assert attempt(Candidate(plan(), ()), BROKEN, limit_s=0.2) is None
    assert signal.getsignal(signal.SIGALRM) == before and signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
