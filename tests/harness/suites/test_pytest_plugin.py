"""The plugin for pytest, in the example project of the docs, and what goes wrong."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from junitparser import JUnitXml

from harness.suites.pytest_plugin import Result
from tests import ROOT


def pytest_in(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """As a user of the installed package has it, whatever runs this test."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "COV"))}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--junitxml=junit.xml", *arguments],
        cwd=directory, env=environment | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=280,
    )  # fmt: skip


@pytest.mark.nightly
def test_the_example_project_under_xdist(tmp_path: Path) -> None:
    project = shutil.copytree(ROOT / "docs" / "example-project", tmp_path / "project")
    done = pytest_in(project, "-n", "2", "--chaos-results", "kept")
    assert done.returncode == 1 and "3 passed" in done.stdout and "1 failed" in done.stdout, done.stdout
    told = re.search(r"AssertionError: (fail: of the thresholds p99 < 0.001ms was expected .*)", done.stdout)
    report = re.search(r"report: (\S+/kept/test-what-a-failure-looks-like-\w+/report\.html)", done.stdout)
    again = re.search(r"again: (chaos run .*--expect 'p99 < 0.001ms')", done.stdout)
    assert told and again and report and "pass" in Path(report[1]).read_text(), done.stdout
    (suite,) = list(JUnitXml.fromfile(str(project / "junit.xml")))
    assert (suite.tests, suite.failures, suite.errors) == (4, 1, 0)
    kept = project / "kept"
    assert len([*kept.glob("*/verdict.json")]) == 3 and len([*kept.glob("*/explore.json")]) == 1


PROJECT = """
import pytest

@pytest.mark.chaos(on="simulation", nemesis="earthquake")
def test_unknown_nemesis(chaos):
    chaos.run()

@pytest.mark.chaos(on="simulation", nemesis="earthquake", time_limit="8s", rate=50, partitions=1)
class TestMarks:
    @pytest.mark.chaos(nemesis="kill")
    def test_closest_counts(self, chaos):
        result = chaos.run(time_limit="9s")
        assert result.document["verdict"] == result.verdict == "pass"
        assert "--time-limit 9" in result.again and "--nemesis kill" in result.again and "--rate 50" in result.again
        with pytest.raises(AssertionError, match="pass: all"):
            result.assert_failed()

def test_unknown_field(chaos):
    chaos.run(colour="red")

def test_exploration_in_containers(chaos):
    chaos.explore(seeds=[1], on="docker")

def test_threshold_of_an_exploration(chaos):
    chaos.explore(seeds=[1], nemesis="kill", expect=["p99 < 1s"])

def test_nobody_acknowledges(chaos):
    chaos.explore(seeds=[1], nemesis="kill", brokers=2)
"""


def test_what_goes_wrong_is_said_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(PROJECT)
    done = pytest_in(tmp_path, "--strict-markers", "-q")
    assert "5 failed, 1 passed" in done.stdout, done.stdout
    for sentence in (
        "NotJudged: there is no nemesis 'earthquake'",
        "NotJudged: the plan of test_unknown_field has 'colour', which no plan has",
        "NotJudged: an exploration is of simulated runs",
        "NotJudged: an exploration has no expect: leave it out",
        "NotJudged: --replication-factor 3 needs as many brokers",
    ):
        assert sentence in done.stdout, (sentence, done.stdout)


def test_a_control_that_only_breaks_thresholds_has_not_failed() -> None:
    document = {"verdict": "fail", "safety": "pass"}
    result = Result("fail", "too slow", Path("x"), None, document, "chaos run")
    with pytest.raises(AssertionError, match="only thresholds were"):
        result.assert_failed()
    Result("fail", "lost", Path("x"), None, {"verdict": "fail"}, "chaos run").assert_failed()
