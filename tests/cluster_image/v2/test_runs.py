"""Whole simulated runs of this generation: right where it should be, and wrong where 004 says so."""

from __future__ import annotations

import re
from typing import Any

import pytest

from harness.explore.simulate import Simulated, simulate
from harness.explore.story import tell
from harness.explore.swarm import Swarm
from harness.plan.plan import Plan
from harness.record.timeline.story import Event

MENDED = {"v2.leader.epochs": "true"}


def plan(nemesis: tuple[str, ...], seed: int, time_limit: float = 30.0, **fields: Any) -> Plan:
    fields = {"target": "v2", "rate": 100.0, "partitions": 4, "concurrency": 4, **fields}
    return Plan(run=f"s{seed}", on="simulation", nemesis=nemesis, seed=seed, time_limit=time_limit, **fields)


def anomalies(done: Simulated) -> dict[str, set[str]]:
    """By property."""
    return {name: set(found["anomalies"]) for name, found in done.judge()["anomalies"].items()}


def test_without_faults_everything_is_acknowledged_and_there() -> None:
    done = simulate(plan((), 1))
    verdict = done.judge()
    assert verdict["verdict"] == "pass" and not done.problems, verdict["reason"]


@pytest.mark.nightly
def test_encoding_every_message_changes_nothing() -> None:
    passed_on, encoded = (simulate(plan(("kill",), 5, 15.0, encode_messages=each)) for each in (False, True))
    assert passed_on.steps > 5_000 and encoded.trace_hash == passed_on.trace_hash


def test_the_same_seed_runs_the_same_way() -> None:
    faults = ("kill", "pause", "partition")
    assert simulate(plan(faults, 3)).trace_hash == simulate(plan(faults, 3)).trace_hash


@pytest.mark.parametrize("nemesis", ["kill:controller", "pause:controller"])
def test_zookeepers_leader_may_fail(nemesis: str) -> None:
    """It stands in the controllers' place, and faults of controllers strike it. A leader whose server is frozen may not
    hear that its session is over; nothing is lost by that."""
    done = simulate(plan((nemesis,), 2))
    struck = {each for fault in done.tables["faults"].to_pylist() for each in fault["targets"]}
    assert struck and all(name.startswith("zookeeper") for name in struck)
    assert {name for name, found in anomalies(done).items() if found} <= {"OneLeader"}


def test_truncation_to_the_high_watermark_loses_what_was_acknowledged_and_logs_diverge() -> None:
    """004, both scenarios; within what 003 promises. The story says who truncated what."""
    trace: list[Event] = []
    done = simulate(plan(("hw-truncation",), 1, 45.0), observe=lambda *told: trace.append(Event(*told)))
    found = anomalies(done)
    assert "lost append" in found["log linearizability"] and "replica divergence" in found["log matching"]
    assert "the faults stayed within the contract" in done.judge()["reason"]
    story = tell(done, done.judge(), trace)
    lost = next(line for line in story if "is acknowledged in leader epoch" in line)
    offset, where = re.findall(r"at offset (\d+) of (chaos-\d)", lost)[0]
    dropped = f"and drops what was acknowledged at offset {offset}; its high watermark was"
    assert any("truncates its log of " + where in line and dropped in line for line in story), story
    assert "restart out of reach of broker-" in "".join(story) and "MinISR" not in story[0]


@pytest.mark.parametrize("fields", [{"settings": MENDED}, {"target": "kraft"}], ids=["leader epochs", "kraft"])
def test_leader_epochs_mend_that(fields: dict[str, Any]) -> None:
    verdict = simulate(plan(("hw-truncation",), 1, 45.0, **fields)).judge()
    assert verdict["verdict"] == "pass", verdict["reason"]


def test_two_leaders_are_found_where_one_is_paused_past_its_session() -> None:
    found = anomalies(simulate(plan(("pause:leader",), 2, 60.0)))
    assert found["OneLeader"] == {"two leaders"}


def test_faults_lead_to_states_that_calm_does_not() -> None:
    calm, struck, again = (simulate(plan(nemesis, 1, 20.0)) for nemesis in ((), ("kill",), ("kill",)))
    assert calm.states and calm.under_faults
    assert len(struck.states) > 1.5 * len(calm.states) and len(struck.under_faults) > 1.5 * len(calm.under_faults)
    assert (again.states, again.under_faults) == (struck.states, struck.under_faults)


@pytest.mark.parametrize("settings", [
    {"replica.lag.time.max.ms": "500"},  # a fetch waits so long by default
    {"replica.fetch.wait.max.ms": "4000"},
    {"replica.lag.time.max.ms": "1000", "replica.fetch.wait.max.ms": "1500"},
])  # fmt: skip
def test_followers_of_idle_partitions_must_not_seem_to_have_stopped(settings: dict[str, str]) -> None:
    """Seed 800 of an exploration: no ISR ever had all of them at once."""
    with pytest.raises(ValueError, match=r"replica\.fetch\.wait\.max\.ms=\d+ must be less than replica\.lag\.time"):
        Plan(run="r", on="simulation", target="v2", settings={**settings, "v2.idle.checks": "true"})
    assert Plan(run="r", on="simulation", target="v2", settings=settings).settings == settings


def test_no_seed_draws_settings_that_contradict_each_other() -> None:
    plan = Plan(run="r", on="simulation", target="v2", settings={"v2.idle.checks": "true"})
    for seed in range(300):
        drawn = Swarm("settings")(plan, seed)
        Plan(run="r", on="simulation", target="v2", settings=drawn.settings)
