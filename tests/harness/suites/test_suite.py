"""`chaos suite`, end to end in simulation: outcomes, exit codes, what is written, and all the ways it may end early."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from junitparser import JUnitXml

from harness.cli import app as cli
from harness.record.results import read_json

SHORT = """
[all]
on = "simulation"
time_limit = "8s"
rate = 50
partitions = 2
"""
KILL = '[plans.kill]\nnemesis = "kill"\n'
CONTROL = '[plans.control]\nnemesis = "power-outage-cluster"\ntime_limit = "20s"\nexpect = "fail"\n'
#: In virtual time an hour takes minutes.
LONG = '[plans.long]\nnemesis = "kill"\ntime_limit = "2h"\n'


def chaos(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments)
    return int(ended.value.code or 0)  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def _apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)


def written(*parts: str) -> str:
    Path("mine.toml").write_text(SHORT + "".join(parts))
    return "mine.toml"


def only_suite() -> tuple[Path, dict[str, Any]]:
    (directory,) = Path("results").iterdir()
    return directory, read_json(directory / "suite.json")


def test_a_suite_with_a_planted_bug_fails_and_its_controls_count_both_ways(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "step.md")
    planted = '[plans.planted]\nnemesis = "power-outage"\nbug = "M01"\nseeds = "3"\ntime_limit = "20s"\n'
    tame = '[plans.tame]\nnemesis = "kill"\nexpect = "fail"\n'
    assert chaos("suite", written(KILL, CONTROL, tame, planted), "--jobs", "2", "--artifacts", "failed") == 1
    directory, suite = only_suite()
    outcomes = {run["name"]: (run["outcome"], run["verdict"]) for run in suite["runs"]}
    assert outcomes == {
        "kill": ("passed", "pass"), "control": ("passed", "fail"), "tame": ("failed", "pass"),
        "planted": ("failed", "fail"),
    }  # fmt: skip
    assert (suite["suite"], suite["exit_code"]) == ("mine", 1) and suite["finished_at"] >= suite["started_at"]
    for run in suite["runs"]:
        assert (directory / run["directory"] / "report.html").is_file()
        assert (directory / run["directory"] / "history").is_dir() == (run["outcome"] == "failed")
    (cases,) = list(JUnitXml.fromfile(str(directory / "junit.xml")))
    assert (cases.tests, cases.failures, cases.errors) == (4, 2, 0)
    summary = (directory / "summary.md").read_text()
    assert "❌ failed | planted" in summary and summary == Path("step.md").read_text()
    output = capfd.readouterr()
    assert "4 runs: 2 passed, 2 failed" in output.out and "planted, seed 3: failed after" in output.err
    # What failed is run again, and nothing else; a plan is as it was.
    assert chaos("suite", "mine.toml", "--only-failed", "latest", "--dry-run") == 0
    assert [line.split("\t")[0] for line in capfd.readouterr().out.splitlines()[:-1]] == ["tame", "planted"]
    (plan,) = (directory / "plans").glob("planted-*.toml")
    assert chaos("run", "--plan", str(plan), "--results", "again") == 1


def test_a_suite_that_passes_says_so_in_json_too(capfd: pytest.CaptureFixture[str]) -> None:
    assert chaos("suite", written(KILL), "--json", "--junit", "out/junit.xml") == 0
    events = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert [event["event"] for event in events] == ["started", "finished", "ended"]
    assert events[1]["outcome"] == "passed" and events[1]["verdict"] == "pass" and events[2]["exit_code"] == 0
    assert Path("out/junit.xml").is_file() and not (Path(events[2]["directory"]) / "junit.xml").exists()
    assert chaos("suite", "mine.toml", "--only-failed", "latest") == 0
    assert "nothing of latest is left to run" in capfd.readouterr().out
    assert chaos("suite", written(CONTROL).replace("mine", "other"), "--only-failed", "latest") == 254


def test_after_the_first_that_fails_no_more_begin(capfd: pytest.CaptureFixture[str]) -> None:
    tame = '[plans.tame]\nnemesis = "kill"\nexpect = "fail"\n'
    assert chaos("suite", written(tame, KILL), "--fail-fast") == 1
    _, suite = only_suite()
    assert [run["outcome"] for run in suite["runs"]] == ["failed", "not run"]
    assert suite["runs"][1]["reason"] == "not run: tame, seed 1 failed"


def test_a_suite_whose_time_is_over_ends_what_runs_and_says_what_did_not(capfd: pytest.CaptureFixture[str]) -> None:
    began = time.monotonic()
    assert chaos("suite", written(LONG, KILL), "--time-limit", "8s") == 255
    assert time.monotonic() - began < 60
    directory, suite = only_suite()
    long, kill = suite["runs"]
    assert long["outcome"] == "error" and kill["outcome"] == "not run"
    assert kill["reason"] == "not run: its time limit of 8 s was over"
    (cases,) = list(JUnitXml.fromfile(str(directory / "junit.xml")))
    assert (cases.errors, cases.skipped) == (2, 0)


def test_a_suite_that_is_stopped_or_killed_leaves_no_run_behind(tmp_path: Path) -> None:
    for number in (signal.SIGINT, signal.SIGKILL):
        suite = subprocess.Popen(
            [sys.executable, "-m", "harness", "suite", written(LONG), "--results", f"{number.name}"],
            stderr=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        log = _wait_for(lambda number=number: [*tmp_path.glob(f"{number.name}/*/runs/*.log")])[0]
        run = log.with_suffix("")
        record = _wait_for(lambda run=run: _working(run))
        suite.send_signal(number)
        suite.communicate(timeout=60)
        assert suite.returncode == (2 if number == signal.SIGINT else -number)  # the run ended early: unknown
        process = str(record["harness"]["process"]).partition(":")[0]
        _wait_for(lambda process=process: not Path(f"/proc/{process}").exists())
        if number == signal.SIGINT:
            (saved,) = read_json(log.parents[1] / "suite.json")["runs"]
            assert saved["outcome"] == "error" and saved["verdict"] != "not judged"


def _working(run: Path) -> dict[str, Any]:
    """Its run.json, once clients work."""
    record = read_json(run / "run.json")
    return record if record.get("phase") == "workload" else {}


def _wait_for(condition: Any, limit_s: float = 60.0) -> Any:
    deadline = time.monotonic() + limit_s
    while not (found := condition()):
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.05)
    return found


def test_a_run_whose_process_dies_is_an_error_and_costs_the_others_nothing(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    plugin = Path("plugin")
    plugin.mkdir()
    (plugin / "sitecustomize.py").write_text(
        "import os, sys\nif any('dies' in word for word in sys.argv) and 'harness.suites.child' in sys.orig_argv:\n"
        "    os.kill(os.getpid(), 9)\n"
    )
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(plugin.absolute()), *sys.path]))
    assert chaos("suite", written('[plans.dies]\nnemesis = "kill"\n', KILL)) == 255
    _, suite = only_suite()
    dies, kill = suite["runs"]
    assert (dies["outcome"], dies["reason"]) == ("error", "its process was ended by SIGKILL")
    assert kill["outcome"] == "passed"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--jobs", "0"), "--jobs is 0; valid is 1 to 64"),
        (("--time-limit", "0"), "--time-limit is 0; it must be"),
        (("--artifacts-limit", "much"), "--artifacts-limit 'much' is no size"),
        (("--only-failed", "last"), "there is no suite 'last' under results"),
        (("--only-failed", "latest"), "the suite 'mine' was not carried out under results yet"),
        (("--results", "mine.toml"), "no suite can be saved under mine.toml"),
    ],
)
def test_mistakes(arguments: tuple[str, ...], message: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert chaos("suite", written(KILL), *arguments) == 254
    assert message in capfd.readouterr().err and not Path("results").exists()


def test_what_is_wrong_with_the_last_plan_is_told_before_the_first_begins(capfd: pytest.CaptureFixture[str]) -> None:
    assert chaos("suite", written(KILL, "[plans.small]\nbrokers = 2\n")) == 254
    assert capfd.readouterr().err.startswith("chaos: small: --replication-factor 3 needs as many brokers")
    assert not Path("results").exists()
