"""A volume for results that runs full in the midst of a run: it ends in order, nothing is left, and what there is is
judged."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clusters.machine_state import differences_soon, machine_state

pytestmark = pytest.mark.docker

SIZE_MB = int(os.environ.get("CHAOS_SMALL_RESULTS_MB", "13"))  # `make nightly`: 20


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A file system of SIZE_MB."""
    if os.getuid() != 0:
        pytest.skip("mounting a file system takes root")
    path = tmp_path / "small"
    path.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SIZE_MB}m", "tmpfs", str(path)], check=True)
    try:
        yield path
    finally:
        subprocess.run(["umount", str(path)], check=True)


def chaos(results: Path, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "harness", "run", "--on", "docker", "--seed", "1", "--results", str(results)]
    return subprocess.Popen([*command, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def fill_once_it_works(results: Path) -> None:
    """Whatever room there is, a moment after clients began."""
    for _ in range(600):
        found = list(results.glob("*/run.json"))
        if found and '"workload_start_ns"' in found[0].read_text():
            break
        time.sleep(0.1)
    time.sleep(4)
    with (results / "others").open("wb", buffering=0) as file:
        try:
            while file.write(bytes(1 << 20)):
                pass
        except OSError:
            return


@pytest.mark.parametrize("how", [pytest.param("by its own run", marks=pytest.mark.nightly), "by others"])
def test_a_run_whose_results_volume_runs_full_ends_in_order_and_is_judged(small: Path, how: str) -> None:
    before = machine_state()
    # Batches of few records at a high rate fill it within the time limit; others fill it at once.
    rate = "8000" if how == "by its own run" else "500"
    run = chaos(small, "--nemesis", "kill", "--time-limit", "120", "--rate", rate)
    if how == "by others":
        threading.Thread(target=fill_once_it_works, args=(small,), daemon=True).start()
    said, _ = run.communicate(timeout=200)
    assert run.returncode == 2, said
    assert "ending early: " in said or "No space left on device" in said
    assert "unknown: the run was ended" in said and "no violation in the " in said
    (directory,) = small.glob("*-s1")
    verdict = json.loads((directory / "verdict.json").read_text())
    assert verdict["verdict"] == "unknown" and verdict["ended_early"].startswith("the run was ended")
    assert verdict["operations"]["acknowledged"] > 0
    assert differences_soon(before) == []
