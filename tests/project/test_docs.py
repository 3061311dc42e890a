"""The documentation: its links lead somewhere, its site is built, and the tutorial's commands do what it says."""

from __future__ import annotations

import ast
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests import ROOT

MACHINE = (
    "HarnessFailure", "HistoryLost", "RuntimeUnavailable", "SparkUnavailable", "HostRefused", "HostUnreachable",
)  # fmt: skip


def test_the_readme_is_read_in_five_minutes_and_its_links_lead_somewhere() -> None:
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) <= 150
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", text)
    assert len(links) > 20 and not [link for link in links if not (ROOT / link).exists()]


def test_the_site_is_built_and_all_its_links_lead_somewhere(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")]
    built = subprocess.run(
        command, cwd=ROOT, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True
    )
    assert built.returncode == 0, built.stdout + built.stderr
    page = (tmp_path / "site" / "tutorial" / "index.html").read_text()
    assert "chaos shrink second" in page and "fonts.googleapis" not in page


def test_every_failure_of_the_machine_is_explained() -> None:
    """By the longest piece of its sentence that does not depend on where it happens."""
    page = " ".join((ROOT / "docs" / "errors.md").read_text().split())
    said = set()
    for path in (*ROOT.glob("harness/**/*.py"), *ROOT.glob("spark_history/**/*.py")):
        if "bench" in path.parts:
            continue
        for call in ast.walk(ast.parse(path.read_text())):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in MACHINE and call.args:
                text = call.args[0]
                parts = text.values if isinstance(text, ast.JoinedStr) else [text]
                words = [str(part.value) for part in parts if isinstance(part, ast.Constant)]
                said.add(max(words, key=len, default="").strip(" ;:.()'"))
    assert len(said) > 40 and not [text for text in said if len(text) > 4 and text not in page]


@pytest.mark.nightly
def test_the_commands_of_the_tutorial_do_what_it_says(tmp_path: Path) -> None:
    blocks = re.findall(r"```sh\n(.*?)```", (ROOT / "docs" / "tutorial.md").read_text(), re.S)
    commands = [shlex.split(line) for block in blocks for line in block.splitlines()]
    assert [words[:2] for words in commands] == [
        ["chaos", "run"], ["chaos", "run"], ["chaos", "check"], ["chaos", "inspect"], ["chaos", "replay"],
        ["chaos", "explore"], ["chaos", "run"],
    ]  # fmt: skip
    said = {}
    for words in commands:
        done = subprocess.run([sys.executable, "-m", "harness", *words[1:]], cwd=tmp_path,
                              env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True)  # fmt: skip
        failing = "second" in words and words[1] != "shrink"
        assert done.returncode == int(failing), (words, done.stdout, done.stderr)
        said[words[1], words[-1]] = done.stdout
    assert "beyond the contract" in said["run", "second"] and "power-outage-cluster" in said["replay", "--story"]
    assert (tmp_path / "results" / "second" / "report.html").exists()
