"""`chaos replay`: a saved run is repeated to the same trace hash, in any process."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from harness.cli import app as cli
from harness.errors import ExitCode, HarnessFailure
from harness.explore.failures import save
from harness.explore.replaying import exactly
from harness.explore.shrinking.shrink import Shrunk
from harness.explore.simulate import simulate
from harness.explore.workers import Outcome
from harness.plan.plan import Plan
from harness.plan.schedule import Fault
from tests import ROOT
from tests.clusters.determinism import trace_hashes

KILL = Fault(fault=0, nemesis="kill", at=1.5, duration=1.0, choice={"role": "broker", "node": 0.5})


def plan(run: str, **changes: Any) -> Plan:
    fields: dict[str, Any] = {
        "run": run, "on": "simulation", "nemesis": ("kill",), "seed": 3, "time_limit": 5.0, "rate": 20.0,
        "concurrency": 1, "partitions": 1, "controllers": 1, "strike": "leaders",
    }  # fmt: skip
    return Plan(**fields | changes)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With one run, `held`, which passed."""
    directory: Path = tmp_path_factory.mktemp("results")
    simulated = simulate(plan("held"), (KILL,))
    save(Outcome(simulated.plan, "judged", simulated=simulated, verdict=simulated.judge()), directory / "held")
    return directory


def chaos(results: Path, *words: str) -> int:
    with pytest.raises(SystemExit) as end:
        cli.main([*words, "--results", str(results)])
    return int(end.value.code or 0)


def test_a_run_is_the_same_in_every_process() -> None:
    first, second = trace_hashes(2, 6.0)
    assert first == second and len(set(first)) == 2


def test_the_plan_says_what_kind_of_producers_there_were(tmp_path: Path) -> None:
    """And one from before there was a choice means plain ones."""
    simulated = simulate(plan("fenced", producers="fenced"), (KILL,))
    simulated.plan.save(tmp_path)
    assert simulate(Plan.load(tmp_path), (KILL,)).trace_hash == simulated.trace_hash
    saved = json.loads((tmp_path / "plan.json").read_text())
    del saved["producers"]
    (tmp_path / "plan.json").write_text(json.dumps(saved))
    assert Plan.load(tmp_path) == plan("fenced")


def test_a_replay_says_that_it_is_the_same_run(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace_hash = json.loads((results / "held" / "run.json").read_text())["trace_hash"]
    assert chaos(results, "replay", "held") == ExitCode.PASS
    said = capsys.readouterr().out.splitlines()
    assert said[0] == f"same trace hash {trace_hash}"
    assert said[1].startswith("pass: all ")


def test_a_replay_that_differs_shows_both_hashes(
    results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "held").mkdir()
    for name in ("plan.json", "schedule.toml"):
        (tmp_path / "held" / name).write_text((results / "held" / name).read_text())
    (tmp_path / "held" / "run.json").write_text('{"trace_hash": "abc"}')
    assert chaos(tmp_path, "replay", "held") == ExitCode.HARNESS_FAILURE
    again = json.loads((results / "held" / "run.json").read_text())["trace_hash"]
    assert capsys.readouterr().out.startswith(f"another trace hash: abc then, {again} now; the code, Python or")


def test_the_trace_and_the_story_tell_of_the_same_fault(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert chaos(results, "replay", "held", "--trace", "--story") == ExitCode.PASS
    said = capsys.readouterr().out.splitlines()
    trace = [line for line in said if " chaos-0 " in line and "role: leader " in line]
    assert any("leader_epoch 1" in line for line in trace), "the kill of the leader made another lead"
    times = [float(line.split()[0]) for line in said if "role: leader " in line]
    assert times == sorted(times)
    story = [line for line in said if line[2:3] == "."]
    assert any("FAULT broker-" in line and line.endswith(" is killed") for line in story)
    assert any(" leads chaos-0 in leader epoch 1" in line for line in story)
    assert len(story) <= 40


def test_only_a_simulated_run_can_be_shrunk(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "real").mkdir()
    plan("real", on="docker").save(tmp_path / "real")
    assert chaos(tmp_path, "shrink", "real") == ExitCode.BAD_ARGUMENTS
    message = capsys.readouterr().err
    assert "real ran on docker, and only simulated runs repeat exactly; `chaos replay real` says how often" in message


def test_a_replay_as_json(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert chaos(results, "replay", "held", "--json", "--story") == ExitCode.PASS
    told = json.loads(capsys.readouterr().out)
    jsonschema.validate(told, json.loads((ROOT / "docs" / "schemas" / "replay.json").read_text()))
    assert told["is_same"] and told["trace_hash"] == told["recorded"] and told["story"] and "trace" not in told
    assert chaos(results, "replay", "held", "--times", "3") == ExitCode.BAD_ARGUMENTS
    told = "--times is for runs in containers and on hosts; held was simulated, and repeats exactly"
    assert told in capsys.readouterr().err


def test_a_run_that_was_cut_short_is_not_repeated(
    results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """When that was, the seed does not tell."""
    shutil.copytree(results / "held", tmp_path / "held")
    how = "the run was cut short by SIGINT after 1.0 s of 5 s"
    record = {"trace_hash": "abc", "ended_early": how, "ended_at_s": 1.0}
    (tmp_path / "held" / "run.json").write_text(json.dumps(record))
    assert chaos(tmp_path, "replay", "held") == ExitCode.BAD_ARGUMENTS
    reported = capsys.readouterr().err
    assert f"held cannot be repeated: {how}, and the seed does not tell when; its planned end" in reported


def test_a_run_without_its_faults_cannot_be_replayed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "half").mkdir()
    plan("half").save(tmp_path / "half")
    assert chaos(tmp_path, "replay", "half") == ExitCode.BAD_ARGUMENTS
    assert "schedule.toml" in capsys.readouterr().err


def test_a_smaller_run_on_a_full_disk_is_no_half_run(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(outcome: Outcome, directory: Path) -> None:
        directory.mkdir()
        (directory / "plan.json").write_text("{}")
        raise OSError(28, "No space left on device")

    broken: Any = None  # what nobody asks here
    shrunk = Shrunk(plan("held"), (KILL,), broken, minimal=True, runs=1, faults_before=1)
    monkeypatch.setattr(exactly, "shrink", lambda *_, **__: shrunk)
    monkeypatch.setattr(exactly, "save", full)
    with pytest.raises(HarnessFailure, match="held-shrunk cannot be written: No space left on device"):
        exactly.shrink_run(results / "held", budget=1, workers=1, say=lambda _: None)
    assert not (results / "held-shrunk").exists()


def test_a_run_that_holds_cannot_be_shrunk(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert chaos(results, "shrink", "held") == ExitCode.BAD_ARGUMENTS
    assert "held breaks nothing when it is repeated (all " in capsys.readouterr().err
    assert not (results / "held-shrunk").exists()
