"""`chaos run` over several seeds and from a plan's file; `chaos inspect`. In simulation, where a run takes a second."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness.cli import app as cli
from harness.plan.plan import Plan
from harness.record.results import list_runs, read_json

SHORT = ("--on", "simulation", "--nemesis", "kill", "--time-limit", "8", "--rate", "50", "--partitions", "2")


def chaos(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments)
    return int(ended.value.code or 0)  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def _apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_run_for_each_seed_and_one_table(capfd: pytest.CaptureFixture[str]) -> None:
    assert chaos("run", *SHORT, "--seeds", "1..2") == 0
    rows = [line.split("\t") for line in capfd.readouterr().out.splitlines() if line.count("\t") == 5]
    assert [row[:2] for row in rows] == [["1", "pass"], ["2", "pass"]] and all(row[4] == "1 of 1" for row in rows)
    assert [Plan.load(run).seed for run in list_runs(Path("results"))] == [1, 2]


def test_the_worst_of_them_is_the_exit_code(capfd: pytest.CaptureFixture[str]) -> None:
    assert chaos("run", *SHORT[:-2], "--nemesis", "power-outage-cluster", "--time-limit", "20", "--seeds", "1..2") == 1
    assert "\tfail\t" in capfd.readouterr().out


def test_what_is_wrong_is_told_before_the_first_begins(capfd: pytest.CaptureFixture[str]) -> None:
    assert chaos("run", *SHORT, "--seeds", "2..1") == 254
    assert "runs backwards" in capfd.readouterr().err
    assert chaos("run", *SHORT, "--seeds", "1..2", "--seed", "3") == 254
    assert "--seeds makes a run for each; leave out --seed" in capfd.readouterr().err
    assert chaos("run", *SHORT, "--brokers", "0", "--seeds", "1..2") == 254
    assert not Path("results").exists()


def test_a_plan_is_repeated_and_what_is_given_beside_it_counts(capfd: pytest.CaptureFixture[str]) -> None:
    assert chaos("run", *SHORT, "--seed", "5", "--set", "replica.lag.time.max.ms=5000") == 0
    (first,) = list_runs(Path("results"))
    assert chaos("run", "--plan", str(first / "plan.toml"), "--results", "again") == 0
    (second,) = list_runs(Path("again"))
    assert Plan.load(second) == Plan.load(first).model_copy(update={"run": second.name})
    edited = (first / "plan.toml").read_text().replace("seed = 5", "seed = 6")
    Path("mine.toml").write_text(edited)
    assert chaos("run", "--plan", "mine.toml", "--rate", "20", "--set", "log.segment.bytes=1048576",
                 "--results", "mine") == 0  # fmt: skip
    plan = Plan.load(list_runs(Path("mine"))[0])
    assert (plan.seed, plan.rate, plan.partitions) == (6, 20.0, 2)
    assert plan.settings == {"replica.lag.time.max.ms": "5000", "log.segment.bytes": "1048576"}


def test_a_verdict_as_json_and_nothing_besides(capfd: pytest.CaptureFixture[str]) -> None:
    assert chaos("run", *SHORT, "--seeds", "1..2", "--json", "--quiet") == 0
    output = capfd.readouterr()
    verdicts = [json.loads(line) for line in output.out.splitlines()]
    assert [each["verdict"] for each in verdicts] == ["pass", "pass"]
    assert output.err.splitlines() == ["seed 1, 1 of 2", "seed 2, 2 of 2"]
    assert [Path(each["path"]) for each in verdicts] == list_runs(Path("results"))
    assert chaos("run", *SHORT, "--json", "--quiet", "--no-check", "--run-name", "mine") == 0
    output = capfd.readouterr()
    assert json.loads(output.out) == {
        "path": "results/mine", "verdict": "not judged", "reason": "recorded, to be judged later",
    }  # fmt: skip
    assert output.err == "" and not Path("results/mine/verdict.json").exists()
    assert chaos("run", *SHORT, "--run-name", "mine") == 254
    assert "results/mine is there already" in capfd.readouterr().err
    assert chaos("run", *SHORT, "--run-name", "../mine") == 254
    assert chaos("check", "mine", "--json") == 0
    assert json.loads(capfd.readouterr().out)["verdict"] == "pass"


def test_a_threshold_that_is_broken_fails_and_is_told_apart_from_a_violation(
    capfd: pytest.CaptureFixture[str],
) -> None:
    expected = ("--expect", "p99<1us", "--expect", "recovery < 10s")
    assert chaos("run", *SHORT, "--seed", "1", *expected) == 254
    assert "--expect 'p99 < 1us' must name a time with its unit" in capfd.readouterr().err
    assert not Path("results").exists()
    assert chaos("run", *SHORT, "--seed", "1", "--expect", "p99<1ms", "--expect", "recovery < 10s") == 1
    output = capfd.readouterr()
    assert "p99 < 1ms: broken, " in output.out and "recovery < 10s: held, " in output.out
    (run,) = list_runs(Path("results"))
    verdict = read_json(run / "verdict.json")
    assert (verdict["verdict"], verdict["safety"]) == ("fail", "pass")
    assert "safety: pass" in verdict["reason"] and verdict["lost"] == 0
    assert chaos("check", str(run)) == 1  # the plan has them
    assert chaos("shrink", str(run)) == 254
    assert "p99 < 1ms was expected" in capfd.readouterr().err  # nothing to make smaller: no property is broken
    assert Plan.load(run).command().endswith("--expect 'p99<1ms' --expect 'recovery < 10s'")


def test_disks_are_judged_as_they_lie_there_now(capfd: pytest.CaptureFixture[str]) -> None:
    assert chaos("run", *SHORT, "--seed", "5") == 0
    capfd.readouterr()
    assert chaos("inspect", "latest") == 0
    table = dict(line.split("\t")[:2] for line in capfd.readouterr().out.splitlines() if line.count("\t") == 2)
    assert set(table.values()) == {"0"} and {"log matching", "MetadataLogMatching", "ElectionSafety"} <= table.keys()
    (run,) = list_runs(Path("results"))
    log = next(run.glob("disks/broker-1/chaos-0/*.log"))
    log.write_bytes(log.read_bytes()[:-400])
    assert chaos("inspect", "latest") in (1, 2)
    assert "broker-1" in capfd.readouterr().out
