"""Hosts that are not as one would like them: each is told in a sentence, and costs no more than it must."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.cluster import CLIENTS, NotAvailable, RuntimeUnavailable
from harness.runtimes.nodes.asking import AgentError
from harness.runtimes.ssh import agents, runtime
from harness.runtimes.ssh.connection import connecting
from harness.runtimes.ssh.connection.sessions import Session, together
from harness.runtimes.ssh.hosts_file import read
from tests.clusters.ssh_hosts import Kind, SshHosts

from .on_hosts import ask, differences_soon, plan, started, state

pytestmark = pytest.mark.docker

GOOD = [f"host-{number}" for number in range(1, 7)]
KINDS = {
    "host-7": Kind(no_sudo=True), "host-8": Kind(no_python=True), "host-9": Kind(other_key=True),
    "host-10": Kind(disk_bytes=1 << 20), "host-11": Kind(disk_bytes=96 << 20),
}  # fmt: skip


@pytest.fixture(scope="module")
def containers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshHosts]:
    with SshHosts(tmp_path_factory.mktemp("hosts"), 11, KINDS) as running:
        yield running


@pytest.fixture
def whole(containers: SshHosts) -> Iterator[None]:
    """Whatever happens in a test, its hosts are afterwards as they were before."""
    before = state(containers, GOOD)
    yield
    assert differences_soon(containers, before) == []


def only(containers: SshHosts, folder: Path, *names: str, key: Path | None = None) -> Path:
    """A file with these hosts."""
    head, *tables = containers.file.read_text().split("[hosts.")
    by_name = {each.split("]")[0]: each for each in tables}
    if key is not None:
        head = f'[defaults]\nuser = "admin"\nkey = "{key}"\n'
    file = folder / f"{'-'.join(names)}.toml"
    file.write_text("[hosts.".join([head, *map(by_name.__getitem__, names)]))
    return file


def refused(file: Path, folder: Path, brokers: int = 2) -> str:
    async def scenario() -> None:
        async with started(plan("refused", file, brokers), folder):
            raise AssertionError("it was started")

    with pytest.raises(RuntimeUnavailable) as error:
        asyncio.run(scenario())
    return str(error.value)


def test_hosts_that_cannot_be_used_are_each_told_in_a_sentence(
    containers: SshHosts, tmp_path: Path, whole: None
) -> None:
    names = ["host-1", "host-2", "host-7", "host-8", "host-9"]
    told = refused(only(containers, tmp_path, *names), tmp_path, brokers=4)
    assert "host-8: there is no Python" in told and "the key of" in told and "has changed" in told, told
    assert "host-1" not in told and "host-2" not in told, told
    told = refused(only(containers, tmp_path, "host-1", "host-2", "host-7"), tmp_path)
    assert told.count("host-7") == 1 and "there is no sudo" in told, told
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / "other")], check=True)
    told = refused(only(containers, tmp_path, "host-1", "host-2", "host-3", key=tmp_path / "other"), tmp_path)
    assert "host host-1" in told and "does not let user admin in" in told, told


def test_a_disk_that_is_full_at_the_start(containers: SshHosts, tmp_path: Path, whole: None) -> None:
    told = refused(only(containers, tmp_path, "host-1", "host-2", "host-10"), tmp_path)
    assert told.startswith("host host-10: the agent could not be started: "), told
    assert "No space left" in told or "mkfs.ext4 failed" in told, told
    assert containers.execute("host-10", "bash", "-c", "ls -A /var/lib/chaos; ls -d /run/chaos")[1].count("\n") == 1


def test_half_of_the_hosts_are_down_at_the_start(
    containers: SshHosts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connecting, "CONNECT_TIMEOUT_S", 3.0)
    monkeypatch.setattr(runtime, "PATIENCE_S", 3.0)
    down = GOOD[3:]
    before = state(containers, GOOD[:3])
    for name in down:
        containers.kill(name)
    try:
        began = time.monotonic()
        told = refused(only(containers, tmp_path, *GOOD), tmp_path, brokers=5)
        assert time.monotonic() - began < 12, "all are waited for at a time"
        assert all(f"host {name}" in told for name in down), told
        assert not any(f"host {name}" in told for name in GOOD[:3]), told
    finally:
        for name in down:
            containers.start(name)
    assert differences_soon(containers, before) == []


def test_a_second_harness_is_refused_and_touches_nothing(containers: SshHosts, tmp_path: Path, whole: None) -> None:
    async def scenario() -> None:
        async with started(plan("first", only(containers, tmp_path, *GOOD[:2]), 1), tmp_path) as first:
            await ask(first.brokers[0], "uid")
            await first.block("x", [(CLIENTS, first.brokers[0].name)])
            before = state(containers, GOOD)
            second = plan("second", only(containers, tmp_path, *GOOD[:3]), 2)
            with pytest.raises(RuntimeUnavailable) as error:
                async with started(second, tmp_path):
                    pass
            told = str(error.value)
            assert told.startswith("host host-1 is held by run test-first-"), told
            assert " since " in told and "process " in told and "host-3" not in told, told
            assert differences_soon(containers, before) == []
            assert await first.leftovers() == ["broker-1 has rules that drop packets"]
            await first.unblock("x")

    asyncio.run(scenario())


def test_a_host_that_is_slow_at_the_start_costs_no_more_than_it_is_slow(
    containers: SshHosts, tmp_path: Path, whole: None
) -> None:
    file = only(containers, tmp_path, *GOOD[:4])

    async def start_s(slow_s: float) -> float:
        began = time.monotonic()
        if slow_s:
            containers.pause("host-3")
            threading.Timer(slow_s, containers.unpause, ["host-3"]).start()
        async with started(plan("slow", file, 3), tmp_path):
            return time.monotonic() - began

    alone = asyncio.run(start_s(0.0))
    assert asyncio.run(start_s(3.0)) < 3.0 + 2 * alone + 2.0


def test_connections_that_are_lost_lose_nothing_and_do_nothing_twice(
    containers: SshHosts, tmp_path: Path, whole: None
) -> None:
    async def scenario() -> None:
        async with started(plan("lost", only(containers, tmp_path, *GOOD[:3]), 2), tmp_path) as cluster:
            broker = cluster.brokers[0]
            session = cluster._sessions["host-1"]
            await ask(broker, "append", "topic-0/0.log", 2, 5, "sync")
            # In the midst of one that takes five seconds. Whoever repairs a second time finds nothing to repair.
            await broker.fail_disk()
            threading.Timer(1.0, _hang_up, [containers]).start()
            evidence = await broker.repair_disk()
            assert (evidence["exit_status"], evidence["failed_operations"]) == (137, 0)
            assert session.connections == 2
            # Again and again, beside short ones.
            starts = 0
            words = await broker.last_words()
            while session.connections <= 4 and starts < 200:
                hanging_up = threading.Timer(0.02 * session.connections, _hang_up, [containers])
                hanging_up.start()
                while hanging_up.is_alive():
                    starts += 1
                    await broker.start()
                    await ask(broker, "uid")
                    assert (await broker.kill())["exit_status"] == 137
            await broker.start()
            await ask(broker, "uid")
            listened = (await broker.last_words()).count("listens") - words.count("listens")
            assert listened == starts + 1
            assert session.connections > 4
            assert await cluster.leftovers() == []
            assert await ask(broker, "peek", "topic-0/0.log", 0, 0) == f"{2 * 69} -"

    asyncio.run(scenario())


def _hang_up(containers: SshHosts) -> None:
    """What sshd has of all sessions, as it goes with a network that is gone."""
    containers.execute("host-1", "pkill", "-9", "-f", "sshd: admin")


def test_a_host_that_is_gone_and_one_that_was_rebooted_cost_a_run_its_patience_once(
    containers: SshHosts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agents, "RETRY_S", 8.0)  # longer than it takes to boot
    monkeypatch.setattr(connecting, "CONNECT_TIMEOUT_S", 3.0)
    before, before_boot = state(containers, GOOD[2:]), ours(containers)

    async def scenario() -> None:
        try:
            async with started(plan("gone", only(containers, tmp_path, *GOOD[:4]), 3), tmp_path) as cluster:
                gone, rebooted, well = cluster.brokers
                for broker in cluster.brokers:
                    await ask(broker, "uid")
                await cluster.block("x", [(other, well.name) for other in (gone.name, rebooted.name)])
                containers.kill("host-1")
                containers.kill("host-2")
                containers.start("host-2")
                with pytest.raises(AgentError, match="host host-2 was rebooted"):
                    await rebooted.kill()
                began = time.monotonic()
                with pytest.raises(AgentError, match="host host-1"):
                    await gone.kill()
                assert time.monotonic() - began < 16, "an attempt to connect, beyond the patience"
                began = time.monotonic()
                for _ in range(20):
                    with pytest.raises(AgentError, match="host host-1"):
                        await gone.pause()
                    with pytest.raises(AgentError):
                        await cluster.heal()
                left = await cluster.leftovers()
                assert [line.split(":")[0] for line in left] == [
                    "broker-1 cannot be looked at", "broker-2 cannot be looked at",
                ], left  # fmt: skip
                problems = await cluster.collect(tmp_path)
                assert set(problems) == {"broker-1", "broker-2"}
                assert (tmp_path / "logs" / "broker-2.log").exists(), "its files are there"
                assert time.monotonic() - began < 4
                assert await well.is_running()
                lost = cluster.facts()["lost_hosts"]
                assert {name: [times[1] for times in each] for name, each in lost.items()} == {
                    "broker-1": [None], "broker-2": [None],
                }  # fmt: skip
                began = time.monotonic()
        except RuntimeUnavailable as error:
            assert "host host-1" in str(error) and "host-2" not in str(error)
            assert time.monotonic() - began < 15
        else:
            raise AssertionError("of host-1 it cannot be known that nothing is left")

    try:
        asyncio.run(scenario())
    finally:
        containers.start("host-1")
    assert differences_soon(containers, before) == []
    told = subprocess.run(
        [sys.executable, "-m", "harness", "clean", "--on", "ssh", "--hosts", only(containers, tmp_path, *GOOD)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "removed from host-1: folders: /var/lib/chaos/run-test-gone-" in told.stdout, told
    assert "host-2" not in told.stdout
    assert ours(containers) == before_boot


def ours(containers: SshHosts) -> dict[str, list[str]]:
    """Of hosts that are booted: Docker's own rules and interfaces are others afterwards."""
    return {name: [line for line in each if "chaos" in line or "stand_in" in line]
            for name, each in state(containers, GOOD[:2]).items()}  # fmt: skip


def test_a_host_that_answers_again_is_asked_again(
    containers: SshHosts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole: None
) -> None:
    async def scenario() -> None:
        async with started(plan("away", only(containers, tmp_path, *GOOD[:2]), 1), tmp_path) as cluster:
            broker = cluster.brokers[0]
            monkeypatch.setattr(agents, "RETRY_S", 1.0)  # shorter than it may take to boot
            containers.pause("host-1")
            try:
                with pytest.raises(AgentError, match="has not answered for 1 s"):
                    await broker.is_running()
            finally:
                containers.unpause("host-1")
                monkeypatch.undo()
            async with asyncio.timeout(15):
                while cluster._agents.why_not(broker.name):
                    await asyncio.sleep(0.1)
            assert await broker.is_running()
            assert await cluster.leftovers() == []
            ((since, until, why),) = cluster.facts()["lost_hosts"]["broker-1"]
            assert until is not None and until > since and why

    asyncio.run(scenario())


def test_a_disk_that_is_full_in_the_midst_is_seen_and_the_host_is_healed(
    containers: SshHosts, tmp_path: Path, whole: None
) -> None:
    async def scenario() -> None:
        file = only(containers, tmp_path, "host-11", "host-1")
        async with started(plan("full", file, 1), tmp_path) as cluster:
            broker = cluster.brokers[0]
            await ask(broker, "append", "topic-0/0.log", 1, 1, "sync")
            containers.execute("host-11", "dd", "if=/dev/zero", "of=/var/lib/chaos/others", "bs=1M")
            assert await ask(broker, "try_to_write", "f", 8 << 20) in ("EIO", "EROFS", "ENOSPC")
            assert await broker.kill()  # what it is asked needs no room
            containers.execute("host-11", "rm", "/var/lib/chaos/others")
            if "has a read-only disk" in await broker.leftovers():  # its file system trusts the disk no more
                await broker.make_disk_writable()
            await broker.start()
            assert await ask(broker, "peek", "topic-0/0.log", 0, 0) == "69 -"
            assert await cluster.leftovers() == []
        assert containers.execute("host-11", "bash", "-c", "ls -A /var/lib/chaos; ls -d /run/chaos")[1].count("\n") == 1

    asyncio.run(scenario())


def test_a_host_whose_cgroups_may_not_be_written(containers: SshHosts, tmp_path: Path, whole: None) -> None:
    mounts = ("/sys/fs/cgroup/freezer", "/sys/fs/cgroup/blkio")
    if containers.execute("host-2", "test", "-e", mounts[0])[0]:
        pytest.skip("cgroups of this machine are of version 2")
    for mount in mounts:
        assert containers.execute("host-2", "mount", "-o", "remount,bind,ro", mount) == (0, "")

    async def scenario() -> None:
        wanted = plan("limits", only(containers, tmp_path, *GOOD[:3]), 2)
        async with started(wanted, tmp_path, needs=("io-limit",)) as cluster:
            assert cluster.lacks["io-limit"].startswith("host host-2: "), cluster.lacks
            free, bound = cluster.brokers
            await ask(bound, "uid")
            assert await free.pause() == {"frozen_state": "FROZEN"}
            assert await bound.pause() == {"frozen_state": "STOPPED"}
            assert await cluster.leftovers() == ["broker-1 is frozen", "broker-2 is stopped"]
            for broker in cluster.brokers:
                assert (await broker.resume())["frozen_ns"] > 0
                await ask(broker, "uid")
            with pytest.raises(NotAvailable, match="not available here: "):
                await bound.slow_disk(1 << 20, 100)
            assert (await free.slow_disk(1 << 20, 100))["write_ms_while"] > 300
            await free.hasten_disk()
            assert await cluster.leftovers() == []

    try:
        asyncio.run(scenario())
    finally:
        for mount in mounts:
            containers.execute("host-2", "mount", "-o", "remount,bind,rw", mount)


def test_hosts_are_connected_to_at_the_same_time(containers: SshHosts) -> None:
    sessions = [Session(host) for host in read(containers.file).hosts if host.name in GOOD]
    found = together(sessions, lambda session: session.run(["hostname"]).text.strip())
    assert found == dict(zip(GOOD, GOOD, strict=True))
    for session in sessions:
        session.close()
