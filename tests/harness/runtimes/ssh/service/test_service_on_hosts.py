"""A Kafka that is already there, on hosts in containers: tested, and then exactly as it was."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import pytest

from tests import ROOT
from tests.clusters.ssh_hosts import SshHosts
from tests.harness.runtimes.ssh.service import kafka_on_hosts
from tests.harness.runtimes.ssh.service.kafka_on_hosts import DATA, DISK, RECORDS, START, STOP, TOPIC, KafkaOnHosts
from tests.harness.targets.test_contract_of_targets import kafka_to_run

pytestmark = [pytest.mark.docker, pytest.mark.skipif(not kafka_to_run(), reason="no Kafka, and no Maven client")]

RESCUE_S = 5
SERVICE = f"""
[service]
start = "{START}"
stop = "{STOP}"
data_directory = "{DATA}"
controller_port = 9093
"""
#: At moments of our own, for a virtual machine may take long to start on a busy computer.
FAULTS = {
    "pause": ("broker-1", 3.0, 2.0), "partition:one": ("broker-2", 7.0, 4.0), "kill": ("broker-3", 12.0, 2.0),
    "network:rate": ("broker-1", 15.0, 3.0), "power:node": ("broker-2", 20.5, 2.0),
}  # fmt: skip
_LOOKS = {
    "processes": "ps -eo user:20,args --no-headers | grep -v -e 'ps -eo' -e grep -e sshd -e ' sort$' -e '\\[' | sort",
    "files": "find /opt /run /var/lib /tmp /etc /usr/local /root /home -printf '%p %y %m %u %g %s %l\\n' | sort",
    "contents": "find /etc /usr/local /home /root -type f -exec sha256sum {} + | sort",
    "rules": "nft -s list ruleset 2>/dev/null",
    "queues": "tc qdisc",
    "links": "ip -o link | sed 's/@.*//'",
    "mounts": "cut -d' ' -f4- /proc/mounts | sort",
    "data": f"findmnt -n {DISK}; dumpe2fs -h $(cat /srv/loop) 2>&1 | grep -e state -e error; ls -A {DATA} | grep ^[.]c",
    "stopped": "ps -eo stat,args --no-headers | grep ^T || true",
}


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshHosts]:
    with SshHosts(tmp_path_factory.mktemp("hosts"), 3, mounts=kafka_on_hosts.mounts()) as running:
        text = running.file.read_text()
        text = text.replace("[defaults]", "[defaults]\nmay_destroy_data = true")
        running.file.write_text(f"rescue_after_s = {RESCUE_S}\n{text}{SERVICE}")
        yield running


@pytest.fixture(scope="module")
def kafka(hosts: SshHosts) -> Iterator[KafkaOnHosts]:
    installed = KafkaOnHosts(hosts)
    try:
        installed.start()
        for name in hosts.names:  # which sudo notes in the user's home, when it is used for the first time
            hosts.execute(name, "runuser", "-u", "admin", "--", "sudo", "true")
        yield installed
    finally:
        installed.stop()


def state(hosts: SshHosts, kafka: KafkaOnHosts) -> dict[str, Any]:
    found: dict[str, Any] = {
        f"{what} of {name}": hosts.look(name, script).splitlines()
        for name in hosts.names
        for what, script in _LOOKS.items()
    }
    return {**found, "topics": kafka.topics}


def command(hosts: SshHosts, results: Path, *options: str) -> list[str]:
    return [
        sys.executable, "-m", "harness", "run", "--on", "ssh", "--hosts", str(hosts.file), "--target",
        f"kafka:{kafka_on_hosts.VERSION}", "--timeouts", "short", "--partitions", "4", "--rate", "300", "--results",
        str(results), *options,
    ]  # fmt: skip


def test_a_cluster_that_was_there_is_judged_and_then_as_it_was(
    hosts: SshHosts, kafka: KafkaOnHosts, tmp_path: Path
) -> None:
    before = state(hosts, kafka)
    assert before["topics"] == {TOPIC: RECORDS}
    schedule = tmp_path / "faults.toml"
    schedule.write_text("".join(
        f'[[fault]]\nnemesis = "{nemesis}"\ntargets = ["{node}"]\nat = {at}\nduration = {lasts}\ninto_outages = true\n'
        for nemesis, (node, at, lasts) in FAULTS.items()
    ))  # fmt: skip
    options = ("--schedule", str(schedule), "--time-limit", "25", "--seed", "1")
    run = command(hosts, tmp_path / "results", *options)
    ended = subprocess.run(run, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    (directory,) = (tmp_path / "results").iterdir()
    record = json.loads((directory / "run.json").read_text())
    plan = json.loads((directory / "plan.json").read_text())
    assert plan["topic"] == f"chaos-{directory.name}"
    assert (plan["brokers"], plan["controllers"], plan["combined"], plan["service"]) == (3, 3, True, True)
    assert record.get("problems", []) == []
    lost = json.loads((directory / "verdict.json").read_text())["faults"]["power:node"]
    assert (lost["effective"], lost["unsynced_bytes"] > 0, lost["unsynced_records"] > 0) == (1, True, True)
    # The logs of the run's topic, and nothing else of the data.
    copied = {path.name for path in (directory / "disks").glob("*/kafka/*")}
    assert copied == {f"{plan['topic']}-{partition}" for partition in range(4)}
    compare(before, hosts, kafka)


def compare(before: dict[str, Any], hosts: SshHosts, kafka: KafkaOnHosts, patience_s: float = 5.0) -> None:
    """Topics that are there because nobody could delete them are left out of `before` by whoever expects them."""
    deadline = time.monotonic() + patience_s
    while (now := state(hosts, kafka)) != before and time.monotonic() < deadline:
        time.sleep(0.3)
    different = {
        what: {line: ("new" if line in now[what] else "gone") for line in {*before[what]} ^ {*now[what]}}
        or (before[what], now[what])
        for what in before if before[what] != now[what]
    }  # fmt: skip
    assert different == {}, json.dumps(different, indent=1, default=repr)


def struck(hosts: SshHosts) -> list[str]:
    """Where Kafka's process is stopped, or does not run."""
    looks = "ps -u kafka -o stat= | grep -q ^T || ! ps -u kafka -o stat="
    return [name for name in hosts.names if hosts.execute(name, "bash", "-c", looks)[0] == 0]


@pytest.mark.parametrize(("nemesis", "agents_too"), [
    pytest.param("pause", True, marks=pytest.mark.nightly), ("power:node", False),
    pytest.param("disk:error", True, marks=pytest.mark.nightly),
])  # fmt: skip
def test_hosts_are_whole_soon_after_the_harness_is_killed(
    hosts: SshHosts, kafka: KafkaOnHosts, tmp_path: Path, nemesis: str, agents_too: bool
) -> None:
    """In the midst of a fault (what loses its power is killed as well): the service runs again, though nobody told
    anybody to start it. agents_too: where it is struck, agent and guard are killed as well, and only somebody's
    `remove` puts it right; a disk that failed is even unmounted by then, as where they were killed between umount and
    mount."""
    before = state(hosts, kafka)
    schedule = tmp_path / "fault.toml"
    schedule.write_text(f'[[fault]]\nnemesis = "{nemesis}"\ntargets = ["broker-2"]\nat = 0.5\nduration = 50\n')
    options = ("--schedule", str(schedule), "--time-limit", "60", "--no-check")
    harness = subprocess.Popen(
        command(hosts, tmp_path / "results", *options), cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        deadline = time.monotonic() + 60
        while not (found := struck(hosts)):
            assert harness.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
    finally:
        os.kill(harness.pid, signal.SIGKILL)
        harness.wait()
    if agents_too:
        for name in found:
            script = "import json, os\nof = json.load(open('/run/chaos/lock'))\nfor each in ('guard', 'worker'):"
            assert hosts.execute(name, "python3", "-c", f"{script} os.kill(of[each], 9)")[0] == 0
        time.sleep(RESCUE_S + 1)
        assert set(found) <= set(struck(hosts))
        for name in found:
            if nemesis == "disk:error":
                assert hosts.execute(name, "umount", DISK) == (0, "")
            remove = "cd / && PYTHONPATH=$(echo /opt/chaos-hosts/agent-*/) python3 -m agent.host remove /var/lib/chaos"
            status, said = hosts.execute(name, "bash", "-c", remove)
            assert status == 0, said
            assert "services: the service" in said
    (left,) = kafka.topics.keys() - before["topics"].keys()  # which only a harness deletes
    assert left.startswith("chaos-")
    before["topics"][left] = ANY
    compare(before, hosts, kafka, RESCUE_S + 20)


def test_a_data_disk_that_others_use_is_left_alone(hosts: SshHosts, kafka: KafkaOnHosts, tmp_path: Path) -> None:
    status, pid = hosts.execute("host-2", "bash", "-c", f"sleep 300 <{DATA}/meta.properties >/dev/null & echo $!")
    assert status == 0
    try:
        before = state(hosts, kafka)
        expected = (
            "the data directory of the service on host host-2 is on /srv/kafka, which others use too: process "
            f"{pid.strip()} (sleep: {DATA}/meta.properties); a power cut needs a file system of its own"
        )
        for only in (("--dry-run",), ()):
            run = command(hosts, tmp_path / "results", "--nemesis", "power", "--time-limit", "30", "--seed", "1", *only)
            ended = subprocess.run(run, cwd=ROOT, capture_output=True, text=True, check=False)
            assert ended.returncode == 254, ended.stdout + ended.stderr
            assert expected in " ".join((ended.stdout + ended.stderr).split())
        assert state(hosts, kafka) == before
    finally:
        hosts.execute("host-2", "kill", pid.strip())
