"""A run on hosts whose clocks do not agree: everything lies on the harness' time line."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests import ROOT
from tests.clusters.ssh_hosts import Kind, SshHosts

pytestmark = pytest.mark.docker

SKEW_S = 5_000


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshHosts]:
    with SshHosts(tmp_path_factory.mktemp("hosts"), 3, kinds={"host-2": Kind(skew_s=SKEW_S)}) as made:
        yield made


def test_what_skewed_hosts_tell_lies_on_the_time_line_of_the_operations(hosts: SshHosts, tmp_path: Path) -> None:
    asked = [
        "--on", "ssh", "--hosts", str(hosts.file), "--combined", "--nemesis", "kill,power-outage", "--time-limit", "12",
        "--seed", "3", "--results", str(tmp_path), "--run-name", "skewed", "--allow-vacuous", "--quiet", "--json",
    ]  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-m", "harness", "run", *asked], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    record = json.loads((tmp_path / "skewed" / "run.json").read_text())
    offsets = {name: each["offset_ns"] / 1e9 for name, each in record["host_clocks"].items()}
    assert sorted(round(abs(offset)) for offset in offsets.values()) == [0, 0, SKEW_S]
    assert max(each["uncertainty_ns"] for each in record["host_clocks"].values()) < 0.5e9
    began, ended = record["workload_start_ns"], record["healed_ns"]
    trace = pq.read_table(tmp_path / "skewed" / "history" / "trace", columns=["node", "time"]).to_pandas()
    for _, times in trace.groupby("node", observed=True).time:
        assert began - 60e9 < times.min() and times.max() < ended + 60e9
        assert ((began < times) & (times < ended)).any()
    faults = json.loads(done.stdout.splitlines()[-1])["faults"]
    assert sum(each["effective"] for each in faults.values()), faults
