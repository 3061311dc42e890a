"""On a real standalone cluster and a real Connect server, runs get the verdicts that they get in this process."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.record.history import load_journal
from spark_history import ingest
from spark_history.dataset import DatasetWriter
from spark_history.spark.tasks import Here
from tests import ROOT
from tests.checkers.histories.histories import LongHistory
from tests.checkers.verdict.test_check import acknowledge_out_of_order, drop_a_record_on_one_replica, stale_end
from tests.spark_history.spark.spark_elsewhere import SEGMENT_OFFSETS, judge_all
from tests.spark_history.spark.spark_pages import LOOPBACK
from tests.spark_history.spark.spark_processes import EXECUTOR_MEMORY, connect_server, standalone

pytestmark = pytest.mark.spark

BREAKS = (acknowledge_out_of_order, drop_a_record_on_one_replica, stale_end)


def lose_the_end(history: LongHistory) -> None:
    history.in_final[np.flatnonzero(history.partition == 1)[-150:]] = False


@pytest.fixture(scope="module")
def histories(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What judge_all() and look_around() expect, not judged yet."""
    directory = tmp_path_factory.mktemp("histories")
    good = LongHistory(3_000, partitions=3, seconds=2, run="good")
    broken = LongHistory(3_000, partitions=3, seconds=2, run="broken")
    for break_it in (*BREAKS, lose_the_end):
        break_it(broken)
    for history in (good, broken):
        history.write(directory / "runs" / history.run)
    shutil.copytree(directory / "runs", directory / "segments")
    with DatasetWriter(directory / "dataset", 0, runs_per_file=2) as dataset:
        for number in range(6):
            history = LongHistory(400, partitions=2, seconds=1, run=f"s{number}", seed=number)
            if number % 2:
                drop_a_record_on_one_replica(history)
            run = history.write(directory / "short" / history.run)
            dataset.add(json.loads((run / "plan.json").read_text()), load_journal(run / "journal"))
    shutil.copytree(directory / "runs" / "good", directory / "damaged")
    (directory / "damaged" / "journal" / "reads-00001.parquet").write_bytes(b"PAR1 no more")
    return directory


@pytest.fixture(scope="module")
def expected(histories: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What is found without Spark."""
    directory = shutil.copytree(histories, tmp_path_factory.mktemp("here") / "all")
    return json.loads(json.dumps(judge_all(directory, Here(1))))


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """Both kinds of cluster, started at the same time. Their Python has NumPy and PyArrow, and nothing of ours."""
    directory = tmp_path_factory.mktemp("spark")
    python = str(bare_python(directory / "bare", "numpy", "pyarrow"))
    with ExitStack() as stack:
        server = stack.enter_context(connect_server(directory / "connect", PYSPARK_PYTHON=python))
        cluster = stack.enter_context(standalone(directory / "standalone", workers=1, cores=2))
        yield {"connect": server, "standalone": cluster, "python": python, "directory": directory}


def bare_python(directory: Path, *packages: str, pretend: str = "") -> Path:
    """A Python of this version with these packages alone. pretend: a statement that it begins with."""
    directory.mkdir()
    for package in packages:
        home = Path(sys.modules[package].__file__ or "").parent
        for folder in (home, home.with_name(f"{package}.libs")):
            if folder.is_dir():
                (directory / folder.name).symlink_to(folder)
    python = directory / "python"
    program = f'"{sys.executable}" -S'
    if pretend:
        start = "sys.argv = sys.argv[2:]; runpy.run_module(sys.argv[0], run_name='__main__')"
        program += f' -c "import runpy, sys; {pretend}; {start}"'
    python.write_text(f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:{directory}" exec {program} "$@"\n')
    python.chmod(0o755)
    return python


def judge(master: str, histories: Path, directory: Path, *pythons: Path, **variables: str) -> Any:
    copy = shutil.copytree(histories, directory / "all")
    # Relative, as a user types it: tasks run in directories of their own.
    program = "tests.spark_history.spark.spark_elsewhere"
    command = [sys.executable, "-m", program, master, os.path.relpath(copy, ROOT), *map(str, pythons)]
    environment = os.environ | {"SPARK_EXECUTOR_MEMORY": EXECUTOR_MEMORY} | variables
    run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=240)
    assert run.returncode == 0, run.stderr[-4_000:]
    return json.loads(run.stdout)


def check_elsewhere(found: Any, expected: Any) -> None:
    assert found["found"] == {name: expected[name] for name in found["found"]}
    assert {"runs/broken", "runs/good", "dataset"} <= found["found"].keys()
    assert expected["runs/broken"]["verdict"]["verdict"] == "fail"
    assert expected["segments/broken"]["anomalies"] == expected["runs/broken"]["anomalies"] != []
    assert expected["runs/broken"]["lost"] != []
    assert expected["runs/good"]["segments"] == 3 < expected["segments/good"]["segments"]
    assert [run["verdict"] for run in expected["dataset"]] == ["pass", "fail"] * 3
    assert all("chaos-checkers.zip" in path for path in found["code"])  # shipped, not found there
    assert found["parallelism"] == 2
    said = found["said"]
    assert said["stumble"] == "TaskFailed: ValueError: no such luck"
    assert said["die"].startswith("SparkUnavailable: ") and "Python of a task died" in said["die"]
    assert "reads-00001.parquet" in said["damaged"]
    assert "is not there for Spark's executors" in said["unshared"] and "/all" in said["unshared"]
    assert "local[1] takes another" in said["second"]
    assert not any("\n" in sentence for sentence in said.values())


@pytest.mark.nightly
def test_a_standalone_cluster_judges_as_this_process_does(
    histories: Path, expected: Any, elsewhere: dict[str, Any], tmp_path: Path
) -> None:
    cluster = elsewhere["standalone"]
    numpy_alone = bare_python(tmp_path / "numpy-alone", "numpy")
    pyarrow_alone = bare_python(tmp_path / "pyarrow-alone", "pyarrow")
    newer = bare_python(tmp_path / "newer", "numpy", "pyarrow", pretend=NEWER)
    pythons = (numpy_alone, pyarrow_alone, newer, tmp_path / "none")
    found = judge(cluster.master, histories, tmp_path, *pythons, PYSPARK_PYTHON=elsewhere["python"])
    assert found["found"].keys() == expected.keys()
    check_elsewhere(found, expected)
    without_arrow, without_numpy, of_newer, none = found["pythons"]
    assert "pyarrow" in without_arrow and "numpy" in without_numpy
    assert f"run Python 3.99 and this is Python {sys.version_info[0]}.{sys.version_info[1]};" in of_newer
    assert f"the executors have no {tmp_path / 'none'}" in none
    assert not any("\n" in sentence or "no error" in sentence for sentence in found["pythons"])
    assert found["pages"] and set(map(bytes.fromhex, found["pages"])) <= LOOPBACK


NEWER = (
    "from collections import namedtuple; "
    "sys.version_info = namedtuple('V', 'major minor micro releaselevel serial')(3, 99, 0, 'final', 0)"
)


def test_a_connect_server_judges_as_this_process_does(
    histories: Path, expected: Any, elsewhere: dict[str, Any], tmp_path: Path
) -> None:
    check_elsewhere(judge(elsewhere["connect"], histories, tmp_path), expected)


def test_the_command_takes_a_master(histories: Path, elsewhere: dict[str, Any], tmp_path: Path) -> None:
    directory = shutil.copytree(histories / "runs" / "broken", tmp_path / "broken")
    command = [sys.executable, "-m", "harness", "check", str(directory), "--spark", elsewhere["connect"]]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240)
    assert done.returncode == 1, done.stderr
    assert json.loads((directory / "verdict.json").read_text())["exit_code"] == 1


def test_segments_are_small_enough_to_matter() -> None:
    assert SEGMENT_OFFSETS < 1_000 < ingest.SEGMENT_OFFSETS
