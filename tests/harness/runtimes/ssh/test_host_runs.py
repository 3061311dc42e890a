"""`chaos run --on ssh`: what runs in containers show, runs on hosts do as well."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.clusters.ssh_hosts import Kind, SshHosts

from .on_hosts import differences_soon, state

pytestmark = pytest.mark.docker

#: As `chaos`, but that a host that is gone costs less of its patience (agents.RETRY_S).
_PROGRAM = """
import sys
from harness.__main__ import main
from harness.runtimes.ssh import agents
agents.RETRY_S = 8.0
sys.exit(main())
"""
SKEW_S = 5_000
_UNDER_WAY = re.compile(r"[1-9]\d* s of \d+ s ")


@pytest.fixture(scope="module")
def containers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshHosts]:
    """One of which has another CLOCK_MONOTONIC."""
    with SshHosts(tmp_path_factory.mktemp("hosts"), 6, kinds={"host-2": Kind(skew_s=SKEW_S)}) as running:
        yield running


def run(
    containers: SshHosts, results: Path, *options: str, in_the_midst: Callable[[], object] = lambda: None
) -> tuple[int, str, dict[str, Any]]:
    """Exit code, what it said, and run.json."""
    command = [
        sys.executable, "-c", _PROGRAM, "run", "--on", "ssh", "--hosts", str(containers.file), "--rate", "150",
        "--results", str(results), "--run-name", "it", "--seed", "1", *options,
    ]  # fmt: skip
    said, began = [], False
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as harness:
        assert harness.stdout is not None
        for line in harness.stdout:
            said.append(line)
            if not began and _UNDER_WAY.search(line):
                began = True
                threading.Thread(target=in_the_midst).start()
    return harness.returncode, "".join(said), json.loads((results / "it" / "run.json").read_text())


def test_faults_that_replication_survives(containers: SshHosts, tmp_path: Path) -> None:
    before = state(containers)
    code, said, record = run(
        containers, tmp_path, "--nemesis", "power-outage,kill,pause,partition", "--time-limit", "20"
    )
    assert code == 0, said
    assert "\npass: " in said
    for evidence in (r"lost [\d,]+ unsynced records", r"exit status 137", r"frozen for", r"dropped \d+ packets"):
        assert re.search(evidence, said), f"{evidence}: {said}"
    assert differences_soon(containers, before) == []
    _check_times(tmp_path / "it", record)


def _check_times(directory: Path, record: Mapping[str, Any]) -> None:
    """What hosts tell, the skewed one too, lies on the time line of the operations."""
    clocks = record["host_clocks"]
    assert sorted(round(abs(each["offset_ns"]) / 1e9) for each in clocks.values()) == [0, 0, 0, 0, 0, SKEW_S]
    assert max(each["uncertainty_ns"] for each in clocks.values()) < 50e6
    began, ended = record["workload_start_ns"], record["healed_ns"]
    trace = pq.read_table(directory / "history" / "trace", columns=["node", "time"]).to_pandas()
    by_node = dict(list(trace.groupby("node", observed=True).time))
    assert len(by_node) == 6
    for times in by_node.values():
        assert began - 60e9 < times.min() and times.max() < ended + 60e9
        assert ((began < times) & (times < ended)).any()


def test_an_outage_of_all_brokers_loses_records_which_are_named(containers: SshHosts, tmp_path: Path) -> None:
    before = state(containers)
    code, said, _ = run(containers, tmp_path, "--nemesis", "power-outage-cluster", "--time-limit", "12")
    assert code == 1, said
    assert "\nfail: " in said
    assert re.search(r"lost append: .*chaos-\d", said), said
    assert differences_soon(containers, before) == []


@pytest.mark.nightly
def test_a_choreography_takes_each_step_by_what_it_sees(containers: SshHosts, tmp_path: Path) -> None:
    steps = (
        "cut leader from follower", "pause leader", "until new-leader", "kill new-leader", "heal", "resume", "start",
        "until in-isr leader",
    )  # fmt: skip
    before = state(containers)
    nemesis = f"choreography:text={'; '.join(steps)}"
    code, said, _ = run(containers, tmp_path, "--nemesis", nemesis, "--time-limit", "30")
    assert code == 0, said
    faults = pq.read_table(tmp_path / "it" / "history" / "faults", columns=["evidence"]).to_pylist()
    taken = json.loads(faults[0]["evidence"])["steps"]
    assert [step["step"] for step in taken] == list(steps)
    assert not [step for step in taken if step.keys() & {"skipped", "failed", "gave_up"}], taken
    assert differences_soon(containers, before) == []


@pytest.mark.nightly
def test_a_run_goes_on_without_a_host_and_is_judged(containers: SshHosts, tmp_path: Path) -> None:
    others = [name for name in containers.names if name != "host-3"]
    before = state(containers, others)
    try:
        code, said, record = run(
            containers, tmp_path, "--nemesis", "pause", "--time-limit", "12",
            in_the_midst=lambda: containers.kill("host-3"),
        )  # fmt: skip
        assert code == 255, said
        assert "not everything could be healed: " in said
        assert "host host-3: " in said
        assert "the history up to then: " in said
        assert "lost append" not in said
        assert differences_soon(containers, before) == []
        assert record["phases"]["heal"] < 30
    finally:
        containers.start("host-3")
