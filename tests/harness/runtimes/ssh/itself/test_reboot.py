"""A host that loses its power: another file stands for the kernel's trigger, and a restart of the container for what
that does. Nothing here touches the trigger itself."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from harness.runtimes.agent.host.itself import reboot
from tests import ROOT
from tests.clusters.ssh_hosts import SshHosts

pytestmark = pytest.mark.docker

TRIGGER = "/var/lib/chaos/trigger"


def test_a_container_is_never_rebooted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reboot, "in_container", lambda: True)
    monkeypatch.setattr(reboot, "_now", lambda trigger: pytest.fail("it was pulled"))
    with pytest.raises(OSError, match="this host is a container"):
        reboot.soon(reboot.TRIGGER)


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshHosts]:
    with SshHosts(tmp_path_factory.mktemp("hosts"), 3) as made:
        made.file.write_text(made.file.read_text().replace("[defaults]", "[defaults]\nmay_reboot = true", 1))
        yield made


PROGRAM = """
import sys
from harness.__main__ import main
from harness.runtimes.ssh.cluster import SshCluster
SshCluster.trigger = sys.argv.pop(1)
sys.exit(main())
"""


def test_a_power_cut_reboots_a_host_that_may_be_and_it_goes_on_with_its_disk(hosts: SshHosts, tmp_path: Path) -> None:
    over, rebooted = threading.Event(), []

    def stand_for_the_kernel() -> None:
        while not over.wait(0.2):
            for name in hosts.addresses:
                if hosts.execute(name, "rm", TRIGGER)[0] == 0:
                    rebooted.append(name)
                    hosts.kill(name)
                    hosts.start(name)

    kernel = threading.Thread(target=stand_for_the_kernel)
    kernel.start()
    try:
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, TRIGGER, "run", "--on", "ssh", "--hosts", str(hosts.file), "--combined",
             "--nemesis", "power-outage", "--time-limit", "15", "--seed", "1", "--results", str(tmp_path),
             "--run-name", "rebooted", "--allow-vacuous", "--quiet", "--json"],
            cwd=ROOT, capture_output=True, text=True, check=False,
        )  # fmt: skip
    finally:
        over.set()
        kernel.join()
    assert done.returncode == 0, done.stdout + done.stderr
    assert rebooted
    faults = pq.read_table(tmp_path / "rebooted" / "history" / "faults").to_pylist()
    evidence = [json.loads(fault["evidence"]) for fault in faults]
    struck = [own for each in evidence for own in each.get("nodes", {}).values()]
    assert struck and all(own["rebooted"] in rebooted and own["exit_status"] == 137 for own in struck), evidence
    # A container's end writes everything out: its kernel lives on.
    assert all(own["unsynced_records"] == 0 for own in struck)
    record = json.loads((tmp_path / "rebooted" / "run.json").read_text())
    assert not record["problems"], record["problems"]
    for name in hosts.addresses:
        assert hosts.execute(name, "sh", "-c", "ls -d /run/chaos /var/lib/chaos/run-* 2>/dev/null")[1] == ""
