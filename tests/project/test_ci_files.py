"""What CI of others copies from here: valid by its makers' schemas, and the steps of the action run as they stand."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from junitparser import JUnitXml
from ruamel.yaml import YAML

from tests import ROOT


@pytest.mark.parametrize(
    ("file", "schema"),
    [
        ("action.yml", "vendor.github-actions"),
        ("docs/ci/github-workflow.yml", "vendor.github-workflows"),
        ("docs/ci/gitlab-ci.yml", "vendor.gitlab-ci"),
    ],
)
def test_each_is_valid_by_its_schema(file: str, schema: str) -> None:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, str(ROOT / file)]
    checked = subprocess.run(command, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr


SUITE = """
[all]
on = "simulation"
time_limit = "8s"
rate = 50
partitions = 2
[plans.kill]
nemesis = "kill"
"""


def test_the_steps_of_the_action_run_in_order(tmp_path: Path) -> None:
    """But for the making of the environment, which takes minutes and `make run` in CI has done: the one that there is
    stands where it would be."""
    action = YAML(typ="safe").load(ROOT / "action.yml")
    (tmp_path / "mine.toml").write_text(SUITE)
    temporary = tmp_path / "temporary"
    (temporary / "chaos" / "bin").mkdir(parents=True)
    (temporary / "chaos" / "bin" / "chaos").write_text(f'#!/bin/sh\nexec {sys.executable} -m harness "$@"\n')
    (temporary / "chaos" / "bin" / "chaos").chmod(0o755)
    given = {name: str(of["default"]) for name, of in action["inputs"].items()} | {"suite": "mine.toml"}
    github = {
        "GITHUB_ACTION_PATH": str(ROOT), "RUNNER_TEMP": str(temporary), "GITHUB_OUTPUT": str(tmp_path / "output"),
        "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md"), "PYTHONPATH": str(ROOT),
    }  # fmt: skip
    ran = []
    for step in action["runs"]["steps"]:
        if step["name"] == "Install chaos" or ("if" in step and not given["images"]):
            continue
        variables = {name: _filled(value, given) for name, value in step.get("env", {}).items()}
        done = subprocess.run(
            ["bash", "-e", "-o", "pipefail", "-c", step["run"]], cwd=tmp_path, env=os.environ | github | variables,
            capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        ran.append(step["name"])
    assert ran == ["Run the suite"]
    assert (tmp_path / "output").read_text() == "junit=chaos-results/junit.xml\n"
    (suite,) = list(JUnitXml.fromfile(str(tmp_path / "chaos-results" / "junit.xml")))
    assert (suite.name, suite.tests, suite.failures, suite.errors) == ("mine", 1, 0, 0)
    assert "✅ passed | kill" in (tmp_path / "summary.md").read_text()


def _filled(text: str, given: dict[str, str]) -> str:
    return re.sub(r"\$\{\{ inputs\.([a-z-]+) \}\}", lambda found: given[found[1]], text)


def test_the_suites_that_come_along_are_well_formed(tmp_path: Path) -> None:
    for suite in ("short", "nightly"):
        command = [sys.executable, "-m", "harness", "suite", str(ROOT / "suites" / f"{suite}.toml"), "--dry-run"]
        listed = subprocess.run(command, cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT)},
                                capture_output=True, text=True)  # fmt: skip
        assert listed.returncode == 0, listed.stderr
        assert f"runs of the suite {suite}; none was started" in listed.stdout and not list(tmp_path.iterdir())


def documented() -> list[Any]:
    """Suites in the docs."""
    return re.findall(r"```toml\n(.*?)```", (ROOT / "docs" / "ci.md").read_text(), re.S)


@pytest.mark.parametrize("text", documented())
def test_suites_in_the_docs_are_read(text: str, tmp_path: Path) -> None:
    from harness.suites.suite_file import read

    (tmp_path / "mine.toml").write_text(text)
    suite = read(tmp_path / "mine.toml")
    assert [run.expect for run in suite.runs].count("fail") == 2 and len(suite.runs) == 12
