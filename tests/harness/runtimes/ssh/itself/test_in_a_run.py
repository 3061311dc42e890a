"""One run on hosts that may be rebooted and whose clocks may be set: what each of these comes to. A file stands for the
kernel's trigger, and a restart of the container for what that does; a file stands for the host's clock."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet as pq
import pytest

from tests import ROOT
from tests.clusters.ssh_hosts import SshHosts

from ..on_hosts import differences_soon, state
from .stand_ins import CLOCK, NEAR_S, PROGRAM, TRIGGER, clocks_shown

pytestmark = [pytest.mark.docker, pytest.mark.nightly]

FAULTS = """
[[fault]]
nemesis = "power:node"
targets = ["broker-3"]
at = 2.0
duration = 3.0
into_outages = true

[[fault]]
nemesis = "clock:jump"
targets = ["broker-1"]
at = 9.0
duration = 3.0
into_outages = true
"""


class Ran(NamedTuple):
    """differences: of hosts that were not rebooted, before and after. ahead: how far clocks were set, while it ran."""

    hosts: SshHosts
    directory: Path
    record: Mapping[str, Any]
    summary: Mapping[str, Any]
    rebooted: list[str]
    ahead: list[float]
    differences: list[str]

    def evidence(self, nemesis: str) -> list[Mapping[str, Any]]:
        faults = pq.read_table(self.directory / "history" / "faults").to_pylist()
        return [json.loads(fault["evidence"]) for fault in faults if fault["nemesis"] == nemesis]


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ran]:
    folder = tmp_path_factory.mktemp("hosts")
    with SshHosts(folder, 3) as hosts:
        text = hosts.file.read_text()
        hosts.file.write_text(text.replace("[defaults]", "[defaults]\nmay_reboot = true\nmay_set_clock = true", 1))
        (folder / "faults.toml").write_text(FAULTS)
        untouched = ["host-1", "host-2"]
        before, over = state(hosts, untouched), threading.Event()
        rebooted: list[str] = []
        ahead: list[float] = []

        def stand_for_the_kernel() -> None:
            while not over.wait(0.2):
                ahead.extend(clocks_shown(hosts).values())
                for name in hosts.names:
                    with suppress(OSError):
                        hosts.inside(name, TRIGGER).unlink()
                        rebooted.append(name)
                        hosts.kill(name)
                        hosts.start(name)

        kernel = threading.Thread(target=stand_for_the_kernel)
        kernel.start()
        try:
            done = subprocess.run(
                [sys.executable, "-c", PROGRAM, TRIGGER, CLOCK, "run", "--on", "ssh", "--hosts", str(hosts.file),
                 "--combined", "--schedule", str(folder / "faults.toml"), "--time-limit", "16", "--rate", "100",
                 "--seed", "1", "--results", str(folder), "--run-name", "it", "--allow-vacuous", "--quiet", "--json"],
                cwd=ROOT, capture_output=True, text=True, check=False,
            )  # fmt: skip
        finally:
            over.set()
            kernel.join()
        assert done.returncode == 0, done.stdout + done.stderr
        directory = folder / "it"
        record = json.loads((directory / "run.json").read_text())
        assert not record["problems"], record["problems"]
        summary = json.loads(done.stdout.splitlines()[-1])
        yield Ran(hosts, directory, record, summary, rebooted, ahead, differences_soon(hosts, before))


def test_a_power_cut_reboots_a_host_that_may_be_and_it_goes_on_with_its_disk(ran: Ran) -> None:
    assert ran.rebooted == ["host-3"]
    struck = [own for each in ran.evidence("power:node") for own in each.get("nodes", {}).values()]
    assert struck and all(own["rebooted"] == "host-3" and own["exit_status"] == 137 for own in struck), struck
    # A container's end writes everything out: its kernel lives on.
    assert all(own["unsynced_records"] == 0 for own in struck)
    for name in ran.hosts.names:
        assert ran.hosts.execute(name, "sh", "-c", "ls -d /run/chaos /var/lib/chaos/run-* 2>/dev/null")[1] == ""


def test_clocks_are_set_and_put_right_and_times_stay_on_ours(ran: Ran) -> None:
    assert max(map(abs, ran.ahead)) > 1, "or it was never set away"
    assert all(abs(each) < NEAR_S for each in clocks_shown(ran.hosts).values()), clocks_shown(ran.hosts)
    assert ran.summary["faults"]["clock:jump"]["effective"], ran.summary
    assert ran.differences == []
