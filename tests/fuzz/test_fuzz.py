"""The fuzzer's targets: on inputs that were findings once, on a few new ones, and whether a finding is noticed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from tests import ROOT
from tests.fuzz.__main__ import SHARES
from tests.fuzz.mutation import mutated
from tests.fuzz.target import Finding, only
from tests.fuzz.targets import TARGETS

INPUTS = ROOT / "tests" / "fuzz" / "inputs"


@pytest.mark.parametrize("path", sorted(INPUTS.glob("*/*")), ids=lambda path: f"{path.parent.name}-{path.name}")
def test_what_was_found_once_is_mended(path: Path) -> None:
    TARGETS[path.parent.name].run(path.read_bytes())


@pytest.mark.parametrize("name", sorted(TARGETS))
def test_seeds_and_damaged_seeds_are_no_findings(name: str) -> None:
    target, random = TARGETS[name], Random(7)
    seeds = list(target.seeds(random))
    for data in [*seeds, *(mutated(random, seeds) for _ in range(200))]:
        target.run(data)


def test_every_target_gets_its_share() -> None:
    assert set(SHARES) == set(TARGETS)


#: A target that is seen by the child in place of `frames`, and what its finding looks like.
FAULTS = {
    "bytearray(1 << 30)": "MemoryError",
    "import os; os.abort()": "exit code -6",
    "from time import thread_time as t; end = t() + 1.1; any(iter(lambda: t() > end, True))": "have taken",
}


@pytest.mark.parametrize("fault", FAULTS, ids=("memory", "abort", "time"))
def test_a_finding_is_noticed_and_its_input_kept(fault: str, tmp_path: Path) -> None:
    """Without coverage, so that it needs nothing that is not there."""
    (tmp_path / "sitecustomize.py").write_text(
        "import importlib.util, sys\n"
        "find_spec = importlib.util.find_spec\n"
        "importlib.util.find_spec = lambda name, *a: None if name == 'atheris' else find_spec(name, *a)\n"
        "import tests.fuzz.messages as messages\n"
        "def run(data):\n"
        "    if data[:3] == b'bad':\n"
        f"        {fault}\n"
        "messages.FRAMES = messages.Target('frames', run, lambda random: [b'good', b'baf', b'bae', b'bal'])\n"
    )
    paths = f"{tmp_path}{os.pathsep}{ROOT}"
    ended = subprocess.run(
        [sys.executable, "-m", "tests.fuzz", "frames", "--seconds", "20", "--seed", "1"],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert ended.returncode == 1, ended.stdout + ended.stderr
    assert FAULTS[fault] in ended.stdout
    (kept,) = (tmp_path / ".fuzz" / "frames" / "findings").iterdir()
    assert kept.read_bytes().startswith(b"bad")
    assert f"again: python -m tests.fuzz --input .fuzz/frames/findings/{kept.name} frames" in ended.stdout


def test_a_hidden_lack_of_memory_is_a_finding() -> None:
    try:
        try:
            raise MemoryError
        except MemoryError as error:
            raise ValueError("it looks harmless") from error
    except ValueError as error:
        with pytest.raises(Finding, match="ValueError hides a MemoryError"):
            only(error)
