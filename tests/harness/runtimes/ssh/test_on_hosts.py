"""Sessions with OpenSSH's server and a real sudo, and `chaos doctor --on ssh`, on hosts in containers."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from harness.runtimes.ssh.connection.sessions import HostError, HostUnreachable, Session, together
from harness.runtimes.ssh.doctor import clocks, ports
from harness.runtimes.ssh.doctor import hosts as doctor
from harness.runtimes.ssh.hosts_file import Hosts
from tests.clusters.ssh_hosts import Kind, SshHosts

pytestmark = pytest.mark.docker

SKEW_S = 5000
GOOD = ("host-1", "host-2", "host-3")
KINDS = {
    "host-2": Kind(skew_s=SKEW_S),
    "host-3": Kind(password="s3cret"),
    "host-4": Kind(no_sudo=True),
    "host-5": Kind(no_python=True),
    "host-6": Kind(disk_bytes=64 << 20),
    "host-7": Kind(other_key=True),
}


@pytest.fixture(scope="module")
def containers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshHosts]:
    with SshHosts(tmp_path_factory.mktemp("hosts"), 7, KINDS) as running:
        yield running


@pytest.fixture
def hosts(containers: SshHosts, monkeypatch: pytest.MonkeyPatch) -> Hosts:
    monkeypatch.setenv("OF_SUDO", "s3cret")
    found = containers.hosts
    return replace(
        found, hosts=tuple(replace(each, sudo_password="env:OF_SUDO" * (each.name == "host-3")) for each in found.hosts)
    )


def only(hosts: Hosts, *names: str) -> Hosts:
    return replace(hosts, hosts=tuple(each for each in hosts.hosts if each.name in names))


def said(hosts: Hosts) -> dict[str, tuple[str, str, str]]:
    return {each.name: (each.status, each.detail, each.remedy) for each in doctor.checks(hosts)}


def test_good_hosts_can_do_all_that_is_needed_and_are_left_as_they_were(containers: SshHosts, hosts: Hosts) -> None:
    def state() -> dict[str, list[str]]:
        files = "find / -xdev -newer /start.sh ! -path '/proc/*' ! -path '/run/*' ! -path '/var/log/*'"
        looks = f"{files}; find /var/lib/chaos; mount; nft list tables; ip -o link; tc qdisc; ls /sys/fs/cgroup/*/"
        command = ["bash", "-c", f"({looks}) 2>/dev/null | sort"]
        return {name: containers.execute(name, *command)[1].splitlines() for name in GOOD}

    for host in only(hosts, *GOOD).hosts:  # Debian's sudo leaves a mark where it was used once
        with Session(host) as session:
            session.run(["true"], sudo=True)
    before, started = state(), time.monotonic()
    found = doctor.checks(only(hosts, *GOOD))
    assert time.monotonic() - started < 15
    assert [(each.name, each.detail) for each in found if not each.ok] == []
    assert {each.name for each in found} >= {"root", "power cut on ext4", "freezer of cgroups", "ports between hosts"}
    # How well clocks are known is a matter of how busy this machine is.
    assert [each.name for each in found if ", on host" in each.name and not each.name.startswith("clock")] == []
    after = state()
    assert {name: sorted(set(after[name]) ^ set(before[name])) for name in GOOD} == {name: [] for name in GOOD}


def test_what_a_host_lacks_is_said_of_that_host_with_what_to_do(hosts: Hosts) -> None:
    found = said(hosts)
    assert found["root, on host-4"][:2] == ("missing", "there is no sudo")
    assert "install it" in found["root, on host-4"][2]
    assert found["Python, on host-5"][:2] == ("missing", "there is no python3")
    assert "Debian: python3" in found["Python, on host-5"][2]
    assert found["disk, on host-6"][:2] == ("missing", "0.1 GiB free for /var/lib/chaos")
    assert found["connection, on host-7"][0] == "missing"
    assert "the key of" in found["connection, on host-7"][1]
    assert found["ports between hosts"][0] == "ok"


def test_sudo_wants_a_password_that_was_not_given(hosts: Hosts) -> None:
    without = only(hosts, "host-3")
    host = replace(without.hosts[0], sudo_password="")
    found = said(replace(without, hosts=(host,)))
    assert found["root"][0] == "missing"
    assert found["root"][1].startswith("sudo wants a password of user admin")
    with Session(without.hosts[0]) as session:
        assert session.run(["cat"], input=b"mine", sudo=True).out == b"mine"


def test_names_of_one_machine_are_told(hosts: Hosts) -> None:
    one = only(hosts, "host-1").hosts[0]
    found = said(replace(hosts, hosts=(one, replace(one, name="other"))))
    assert found["machines"][1].startswith("host-1 and other are one machine")


def test_ports_that_are_taken_or_closed_are_told(containers: SshHosts, hosts: Hosts) -> None:
    sessions = [Session(each) for each in only(hosts, *GOOD).hosts]
    try:
        containers.execute(
            "host-1", "nft", "add table inet t; add chain inet t c { type filter hook input priority 0; }"
        )
        containers.execute(
            "host-1", "nft", f"add rule inet t c ip saddr {containers.addresses['host-2']} tcp dport 9092 drop"
        )
        started = time.monotonic()
        found = ports.between(sessions, [9092, 22])
        assert time.monotonic() - started < 5
        assert [each[:3] for each in found.failed] == [("host-2", "host-1", 9092)]
        assert found.taken == {name: [22] for name in GOOD}
        assert found.errors == {}
    finally:
        containers.execute("host-1", "nft", "delete table inet t")
        for session in sessions:
            session.close()


def test_clocks_are_measured_with_their_uncertainty(hosts: Hosts) -> None:
    for host in only(hosts, "host-1", "host-2").hosts:
        with Session(host) as session:
            found = clocks.measure(session)
        # Containers have this machine's clock of the day.
        assert abs(found.wall.ns) <= found.wall.uncertainty_ns < 1e9
        skew_ns = SKEW_S * 10**9 * (host.name == "host-2")
        assert abs(found.monotonic.ns - skew_ns) <= found.monotonic.uncertainty_ns


def test_one_that_does_not_answer_and_one_that_is_gone_hold_nobody_up(containers: SshHosts, hosts: Hosts) -> None:
    sessions = [Session(each) for each in only(hosts, *GOOD).hosts]
    ended: dict[str, float] = {}

    def work(session: Session) -> str:
        try:
            return session.run(["hostname"], timeout_s=2).text.strip()
        finally:
            ended[session.name] = time.monotonic() - started

    started = time.monotonic()
    assert together(sessions, work) == {name: name for name in GOOD}
    containers.pause("host-1")
    containers.kill("host-2")
    try:
        started = time.monotonic()
        found = together(sessions, work)
        assert [isinstance(found[name], HostError) for name in GOOD] == [True, True, False]
        assert isinstance(found["host-1"], HostUnreachable)
        assert ended["host-3"] < 1
    finally:
        containers.unpause("host-1")
        containers.start("host-2")
    assert together(sessions, work) == {name: name for name in GOOD}
    assert sessions[1].connections == 2
    for session in sessions:
        session.close()
