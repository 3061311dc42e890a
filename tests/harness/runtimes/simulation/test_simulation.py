"""Whole simulated runs: what the parts do together, and the command line around them."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from cluster_image.kraft.broker import rules
from harness.cli import app as cli
from harness.explore.simulate import Simulated, simulate
from harness.plan.plan import Plan
from harness.runtimes import choose_runtime


def plan(nemesis: tuple[str, ...], seed: int, time_limit: float = 20.0, **fields: Any) -> Plan:
    return Plan(
        run=f"s{seed}", on="simulation", nemesis=nemesis, seed=seed, time_limit=time_limit, rate=40.0, partitions=4,
        concurrency=2, **fields,
    )  # fmt: skip


def effective(done: Simulated) -> set[str]:
    return {fault["nemesis"] for fault in done.tables["faults"].to_pylist() if fault["effective"]}


@pytest.mark.parametrize(
    "nemesis",
    [("power-outage", "partition", "clock-jump"), ("kill", "pause", "disk-full"), ("disk-error", "partition", "kill")],
)
def test_every_fault_takes_effect_and_the_run_passes(nemesis: tuple[str, ...]) -> None:
    done = simulate(plan(nemesis, 1, time_limit=40.0))
    assert done.violation is None and not done.crash and not done.problems, done
    assert done.judge()["verdict"] == "pass"
    assert effective(done) == set(nemesis)


def test_encoding_every_message_changes_nothing() -> None:
    """The wire format says all that the entities say: the same callbacks run at the same times."""
    faults = ("power-outage", "kill", "partition")
    passed_on, encoded = (simulate(plan(faults, 5, encode_messages=encode)) for encode in (False, True))
    assert passed_on.steps > 10_000 and passed_on.violation is None
    assert encoded.trace_hash == passed_on.trace_hash


def test_the_end_of_the_workload_is_reached_where_the_clock_is_coarse() -> None:
    """Just below a power of two, what is left of the time limit can be less than the clock resolves."""
    done = simulate(plan(("kill",), 1, time_limit=31.5))
    assert done.violation is None and done.judge()["verdict"] == "pass"


def test_code_that_reads_a_real_clock_makes_the_run_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    enough_replicas = rules.enough_replicas

    def by_the_clock(*arguments: Any) -> bool:
        time.time()
        return enough_replicas(*arguments)

    monkeypatch.setattr(rules, "enough_replicas", by_the_clock)
    done = simulate(plan((), 1, time_limit=2.0))
    assert "time.time" in done.crash and "by_the_clock" in done.crash


def test_a_violation_stops_the_run_at_that_step_and_names_it() -> None:
    changes: list[float] = []
    faults = ("power-outage", "kill", "pause", "partition")
    done = simulate(plan(faults, 0, time_limit=60.0, bug="M15"), observe=lambda at, *change: changes.append(at))
    assert done.violation is not None
    assert done.violation.property == "LeaderCandidateCompleteness"
    assert round(changes[-1] * 1e9) == done.violation.time_ns < 60e9, "a node went on"
    assert done.violation.where.startswith("chaos-") and done.violation.nodes and done.violation.event
    verdict = done.judge()
    assert verdict["verdict"] == "fail" and verdict["reason"].startswith("LeaderCandidateCompleteness violated on")


def test_a_cluster_that_cannot_get_ready_breaks_liveness() -> None:
    """A follower that never joins an ISR: no fault, no acknowledged loss, and yet not right."""
    settings = {"broker.session.timeout.ms": "100", "broker.heartbeat.interval.ms": "99"}
    done = simulate(plan((), 1, time_limit=2.0, latency_ms=25.0, settings=settings))
    assert done.violation is not None and done.violation.property == "BrokerUnfenced", done


def test_without_docker_auto_simulates_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")
    place, why = choose_runtime()
    assert place == "simulation" and "/nowhere/docker.sock" in why


def chaos(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments)
    return int(ended.value.code or 0)  # type: ignore[arg-type]


def test_partitions_that_nobody_wrote_to_lack_no_evidence(tmp_path: Path) -> None:
    """Of their logs there are empty directories, which are saved, too."""
    options = ("--partitions", "20", "--rate", "2", "--time-limit", "8", "--nemesis", "kill", "--seed", "1")
    assert chaos("run", "--on", "simulation", *options, "--results", str(tmp_path)) == 0
    verdict = json.loads(next(tmp_path.glob("*/verdict.json")).read_text())
    assert verdict["verdict"] == "pass" and not verdict["evidence_missing"]


MOVES = ("membership:controlled-shutdown", "membership:reassign", "membership:preferred-election")


@pytest.mark.parametrize("seed", ["1", "3"])
def test_with_acks_1_planned_moves_of_leadership_lose_records_and_that_is_told(tmp_path: Path, seed: str) -> None:
    """On a network on which followers are always a little behind. Each loss is one that Kafka documents."""
    options = ("--latency-ms", "30", "--time-limit", "15", "--interval", "2s", "--rate", "200", "--partitions", "4")
    nemesis = ("--nemesis", ",".join(MOVES), "--acks", "1", "--seed", seed)
    assert chaos("run", "--on", "simulation", *nemesis, *options, "--results", str(tmp_path)) == 1
    (run,) = tmp_path.iterdir()
    verdict = json.loads((run / "verdict.json").read_text())
    assert verdict["lost"] > 0
    assert verdict["reason"].endswith(
        "they went when leadership moved on purpose: Kafka documents such a loss of acks=1 (KAFKA-20554), and no "
        "promise of acks=all is broken by it"
    )
    causes = [group["cause"] for group in verdict["attribution"]]
    assert all("no fault took it: leadership moved on purpose" in cause for cause in causes)
    assert any("by a preferred election, from broker-" in cause for cause in causes)
    assert "KAFKA-20554" in (run / "report.html").read_text()


@pytest.mark.spark
def test_a_run_without_docker_ends_in_a_report_and_repeats_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")
    monkeypatch.chdir(tmp_path)
    results = tmp_path / "results"
    arguments = ("--seed", "7", "--time-limit", "15", "--rate", "100", "--results", str(results))
    assert chaos("run", "--nemesis", "power-outage", *arguments) == 0
    shown = capfd.readouterr()
    assert "in simulation, as Docker does not answer" in shown.err and "pass: all" in shown.out
    (run,) = results.iterdir()
    assert (run / "report.html").stat().st_size > 10_000
    assert "power-outage" in (run / "report.html").read_text()
    assert any('"message": "started"' in line for line in (run / "logs" / "broker-1.log").read_text().splitlines())
    inside = json.loads((run / "verdict.json").read_text())["nodes"]
    assert inside["trace_rows"] > 500 and inside["metadata_records"] > 50 and not inside["not_checked"]
    assert "LeaderCompleteness" in inside["checked"]
    assert chaos("replay", str(run)) == 0
    assert json.loads((run / "run.json").read_text())["trace_hash"] in capfd.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("run --on simulation --keep", "--keep leaves containers up"),
        ("run --on docker --latency-ms 3", "--latency-ms is for simulated networks"),
        ("run --on simulation --latency-ms 0", "--latency-ms is 0; it must be a number of milliseconds above 0"),
        ("run --on simulation --bug M99", "unknown bug 'M99'; valid are L01"),
    ],
)
def test_what_makes_no_sense_in_a_runtime_is_refused(
    arguments: str, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert chaos(*arguments.split()) == 254
    assert sentence in capfd.readouterr().err
    assert not list(tmp_path.iterdir())
