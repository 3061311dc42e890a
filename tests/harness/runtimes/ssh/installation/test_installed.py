"""Hosts before an installation, after it, after another, and after its removal: their whole file trees, compared."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from harness.runtimes.ssh.installation.installing import install_on, package_of, remove_from
from harness.targets.kafka.target import Kafka
from tests.clusters.ssh_hosts import SshHosts
from tests.harness.targets.test_contract_of_targets import kafka_to_run

pytestmark = pytest.mark.docker

INSTALLED = "/opt/chaos-hosts"
#: What changes by itself, and why.
LEFT_OUT = {
    "/proc": "the kernel's",
    "/sys": "the kernel's",
    "/dev": "the kernel's, and terminals of sessions",
    "/run/sudo": "sudo notes here whom it has seen",
    "/var/lib/sudo": "sudo has told a user for the first time what it is about",
}
#: What else may differ, and why.
TOUCHED = {
    "/tmp": "its time: the agent was asked what there is of runs, from a folder in it of which nothing stays",
    "/opt": "its time: a folder was made in it, and removed",
    "/home/admin/.sudo_as_admin_successful": "sudo's own, made the first time that this user has used it",
    "/home/admin": "its time: by that file",
}
_LOOK = """
import json, os, stat, sys
found = {}
for folder, folders, files in os.walk("/"):
    folders[:] = [each for each in folders if os.path.join(folder, each) not in sys.argv[1:]]
    for path in [folder, *(os.path.join(folder, each) for each in [*files, *folders])]:
        of = os.lstat(path)
        what = ""
        if stat.S_ISLNK(of.st_mode):
            what = os.readlink(path)
        elif stat.S_ISREG(of.st_mode):
            what = of.st_ctime_ns  # nobody who changes a file can keep it
        found[path] = [of.st_mode, of.st_uid, of.st_gid, of.st_size, of.st_mtime_ns, what]
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshHosts]:
    with SshHosts(tmp_path_factory.mktemp("hosts"), 2) as made:
        yield made


Tree = dict[str, list[object]]


def trees(hosts: SshHosts) -> dict[str, Tree]:
    found = {}
    for name in hosts.names:
        status, told = hosts.execute(name, "python3", "-c", _LOOK, *LEFT_OUT)
        assert status == 0, told
        found[name] = json.loads(told)
    return found


def differing(before: dict[str, Tree], now: dict[str, Tree]) -> dict[str, set[str]]:
    """By host, paths."""
    return {
        name: {path for path in before[name].keys() | now[name].keys() if before[name].get(path) != now[name].get(path)}
        for name in before
    }


@pytest.mark.parametrize("target", [
    "kraft",
    pytest.param(
        f"kafka:{Kafka.example}",
        marks=[pytest.mark.nightly, pytest.mark.skipif(not kafka_to_run(), reason="no Kafka, and no Maven client")],
    ),
])  # fmt: skip
def test_an_installation_changes_its_own_folder_once_and_goes_without_a_trace(hosts: SshHosts, target: str) -> None:
    package = package_of(target, str)
    before = trees(hosts)
    try:
        install_on(hosts.hosts, package, str)
        installed = trees(hosts)
        for changed in differing(before, installed).values():
            assert any(path.startswith(f"{INSTALLED}/") for path in changed)
            assert {path for path in changed if not path.startswith(INSTALLED)} <= TOUCHED.keys()
        assert all(line.endswith(": nothing was missing") for line in install_on(hosts.hosts, package, str))
        assert differing(installed, trees(hosts)) == {name: set() for name in hosts.names}
        for name, damage in zip(hosts.names, ("truncate -s -1", "sed -i 1s/./x/"), strict=True):
            hosts.execute(name, "sh", "-c", f"{damage} {INSTALLED}/agent-*/agent/host/__main__.py")
            hosts.execute(name, "sh", "-c", f"mkdir {INSTALLED}/agent-0123456789abcdef.7.new")
        for line in install_on(hosts.hosts, package, str):
            assert line.split(": ")[1].startswith("agent-") and "," not in line, line
        for name, changed in differing(installed, trees(hosts)).items():
            assert not any(path.endswith(".new") for path in changed)
            assert all(path == INSTALLED or path.startswith(f"{INSTALLED}/agent-") for path in changed), name
        assert all(line.endswith(": nothing was missing") for line in install_on(hosts.hosts, package, str))
    finally:
        remove_from(hosts.hosts)
    gone = trees(hosts)
    for name, changed in differing(before, gone).items():
        assert changed <= TOUCHED.keys()
        assert before[name]["/opt"][:3] == gone[name]["/opt"][:3]
