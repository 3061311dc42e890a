"""The Docker runtime breaks nodes as it says, and leaves nothing behind. Its nodes run docker_stand_in."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from harness.cluster import RuntimeUnavailable
from harness.errors import BadArguments
from harness.plan.plan import Plan
from harness.runtimes.clean import Wish, clean
from harness.runtimes.docker import cleanup, engine
from harness.runtimes.docker.node import DockerNode
from harness.runtimes.docker.runtime import DockerCluster, DockerRuntime
from harness.runtimes.doctor import checks
from harness.runtimes.nodes import sizes
from tests.clusters.stand_in import STAND_IN

pytestmark = pytest.mark.docker

BATCH = 61 + 8  # bytes of a stand-in's record batch


def plan(name: str, file_system: str = "ext4", brokers: int = 2) -> Plan:
    return Plan(
        run=f"test-{name}-{os.getpid()}", brokers=brokers, controllers=1, replication_factor=1, min_insync_replicas=1,
        file_system=file_system,
    )  # fmt: skip


def quiet(_: str) -> None:
    pass


async def ask(node: DockerNode, *command: object, timeout: float = 10) -> str:
    """The stand-in's answer, once it listens."""
    async with asyncio.timeout(timeout):
        while True:
            try:
                async with connected(node) as (reader, writer):
                    writer.write(" ".join(map(str, command)).encode() + b"\n")
                    return (await reader.readline()).decode().strip()
            except ConnectionRefusedError:
                await asyncio.sleep(0.02)


@asynccontextmanager
async def connected(node: DockerNode) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection(*node.address)
    try:
        yield reader, writer
    finally:
        writer.close()


def leftovers(run: str) -> list[str]:
    api = engine.connect()
    labelled = {"label": f"{engine.RUN_LABEL}={run}"}
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    loops = [path for path in Path("/sys/block").glob("loop*/loop/backing_file") if run in _read(path)]
    return [
        *(container["Id"] for container in api.containers(all=True, filters=labelled)),
        *(network["Name"] for network in api.networks(filters=labelled)),
        *(mount for mount in mounts if run in mount),
        *map(str, loops),
        *map(str, engine.VOLUMES.glob(f"{run}*")),
    ]


def _read(path: Path) -> str:
    with suppress(OSError):  # just detached
        return path.read_text()
    return ""


def removed_soon(run: str) -> bool:
    """The kernel detaches loop devices, and Docker network interfaces, a moment after it was told."""
    deadline = time.monotonic() + 5
    while leftovers(run) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not leftovers(run)


@pytest.fixture(scope="module")
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as made:
        yield made


@pytest.fixture(scope="module")
def cluster(runner: asyncio.Runner, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DockerCluster]:
    """Two brokers and a controller, shared: every test leaves it whole."""
    wanted = plan("shared")
    try:
        started = runner.run(DockerRuntime(STAND_IN).start(wanted, tmp_path_factory.mktemp("run"), quiet))
        yield started
        runner.run(started.stop())
        runner.run(started.stop())  # safe to call twice
        assert removed_soon(wanted.run), leftovers(wanted.run)
    finally:
        cleanup.remove_run(engine.connect(), wanted.run)


def test_power_cut_loses_what_was_not_synced_and_nothing_else(runner: asyncio.Runner, cluster: DockerCluster) -> None:
    async def scenario() -> None:
        node = cluster.brokers[0]
        await ask(node, "append", "cut-0/0.log", 3, 5, "sync")
        await ask(node, "append", "cut-0/0.log", 4, 5, "unsynced")
        await ask(node, "append", "cut-1/0.log", 2, 7, "unsynced")
        await ask(node, "write", "checkpoint", "hello", "unsynced")

        evidence = await node.cut_power()

        assert evidence["lost_by_partition"] == {"cut-0": 20, "cut-1": 14}
        assert evidence["unsynced_records"] == 34
        assert evidence["unsynced_bytes"] == 6 * BATCH + 5
        assert evidence["unsynced_files"] == 3
        assert evidence["exit_status"] == 128 + signal.SIGKILL
        order = [evidence[f"{step}_at"] for step in ("cut", "network_off", "killed", "shut_down", "remounted")]
        assert order == sorted(order)
        assert evidence["cut_ns"] < 1e9
        assert not await node.is_running()
        await node.restore_power()
        assert int(await ask(node, "append", "cut-0/0.log", 1, 1, "sync")) == 4 * BATCH
        assert int(await ask(node, "write", "checkpoint", "x", "sync")) == 1

        again = await node.cut_power()
        assert again["unsynced_bytes"] == again["unsynced_files"] == 0
        assert again["lost_by_partition"] == {}
        await node.restore_power()
        await ask(node, "uid")

    runner.run(scenario())


def test_machine_without_power_says_nothing(runner: asyncio.Runner, cluster: DockerCluster) -> None:
    """A killed process' connections end; those of a machine without power fall silent, even when it is back."""

    async def silence_after(node: DockerNode, broken: str, patience: float) -> str:
        async with connected(node) as (reader, _):
            await getattr(node, broken)()
            try:
                return "ended" if await asyncio.wait_for(reader.read(), patience) == b"" else "spoke"
            except ConnectionResetError:  # it had not come to accept it
                return "ended"
            except TimeoutError:
                return "silent"

    async def scenario() -> None:
        node = cluster.brokers[0]
        assert await silence_after(node, "kill", 5.0) == "ended"
        await node.start()
        await ask(node, "uid")
        assert await silence_after(node, "cut_power", 0.5) == "silent"
        await node.restore_power()
        await ask(node, "uid")

    runner.run(scenario())


def test_kill_keeps_the_page_cache(runner: asyncio.Runner, cluster: DockerCluster) -> None:
    async def scenario() -> None:
        node = cluster.brokers[0]
        await ask(node, "append", "kill-0/0.log", 2, 1, "unsynced")
        evidence = await node.kill()
        assert evidence["exit_status"] == 128 + signal.SIGKILL
        assert evidence["pid"] > 0
        assert not await node.is_running()
        assert (await node.kill())["exit_status"] is None, "there was nothing left to kill"
        await node.start()
        assert await node.is_running()
        assert int(await ask(node, "append", "kill-0/0.log", 1, 1, "unsynced")) == 3 * BATCH

    runner.run(scenario())


def test_paused_node_stands_still_and_goes_on(runner: asyncio.Runner, cluster: DockerCluster) -> None:
    async def scenario() -> None:
        node = cluster.brokers[0]
        assert (await node.pause())["frozen_state"] == "FROZEN"
        with pytest.raises(TimeoutError):
            await ask(node, "uid", timeout=0.3)
        assert (await node.resume())["frozen_ns"] >= 300_000_000
        assert await ask(node, "uid") == "10001"
        assert (await node.resume())["frozen_ns"] == 0, "it was not paused"

    runner.run(scenario())


@pytest.mark.parametrize(("broken", "mended"), [("kill", "start"), ("cut_power", "restore_power")])
def test_paused_node_can_be_broken(runner: asyncio.Runner, cluster: DockerCluster, broken: str, mended: str) -> None:
    async def scenario() -> None:
        node = cluster.brokers[0]
        await node.pause()
        assert (await getattr(node, broken)())["exit_status"] == 128 + signal.SIGKILL
        await getattr(node, mended)()
        await ask(node, "uid")

    runner.run(scenario())


def test_partition_divides_nodes_but_not_from_clients(runner: asyncio.Runner, cluster: DockerCluster) -> None:
    async def scenario() -> None:
        one, other = cluster.brokers
        controller = cluster.controllers[0]

        async def reachable(source: DockerNode, target: DockerNode) -> bool:
            return await ask(source, "reach", *target.address) == "yes"

        async def assert_divided() -> None:
            assert not await reachable(one, other)
            assert not await reachable(other, one)
            assert await reachable(controller, one), "a node in no group talks to everyone"
            assert await reachable(other, controller)

        assert await reachable(one, other)
        await cluster.block("cut", [(one.name, other.name), (other.name, one.name)])
        await assert_divided()
        await one.kill()
        await one.start()
        await assert_divided()
        await one.cut_power()
        await one.restore_power()
        await assert_divided()
        evidence = await cluster.unblock("cut")
        dropped = evidence["packets_dropped_by_link"]
        assert evidence["packets_dropped"] == sum(dropped.values())
        assert set(dropped) == {"broker-1 > broker-2", "broker-2 > broker-1"}
        assert dropped["broker-2 > broker-1"] >= 3, "those before the power cut count, too"
        assert dropped["broker-1 > broker-2"] >= 3
        assert await reachable(one, other)
        assert (await cluster.unblock("cut"))["packets_dropped"] == 0

    runner.run(scenario())


def cpu_ns(node: DockerNode) -> int:
    """As the host's kernel counts it, thread by thread."""
    pid = engine.connect().inspect_container(node.process)["State"]["Pid"]
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks)


@pytest.mark.parametrize("how", ["freezer", "sigstop"])
def test_a_paused_process_does_not_advance(runner: asyncio.Runner, cluster: DockerCluster, how: Any) -> None:
    async def scenario() -> None:
        node = cluster.brokers[0]
        await ask(node, "spin")
        before = cpu_ns(node)
        await asyncio.sleep(0.2)
        assert cpu_ns(node) > before
        assert (await node.pause(how))["frozen_state"] in ("FROZEN", "STOPPED")
        frozen = cpu_ns(node)
        await asyncio.sleep(0.5)
        assert cpu_ns(node) == frozen
        evidence = await node.resume()
        assert evidence["frozen_ns"] > 5e8 and evidence["cpu_ns_while_frozen"] == 0
        assert await ask(node, "uid") == "10001" and cpu_ns(node) > frozen
        assert (await node.resume())["frozen_ns"] == 0
        await node.pause(how)
        assert (await node.kill())["exit_status"] == 128 + signal.SIGKILL, "a paused process can be killed"
        await node.start()
        assert await ask(node, "uid") == "10001"

    runner.run(scenario())


def test_a_process_that_is_asked_to_stop_ends_by_itself(runner: asyncio.Runner, cluster: DockerCluster) -> None:
    async def scenario() -> None:
        node = cluster.brokers[0]
        await ask(node, "uid")
        evidence = await node.terminate()
        assert (evidence["exit_status"], evidence["stopped"]) == (0, True) and not await node.is_running()
        assert (await node.terminate())["exit_status"] is None, "nothing runs"
        await node.start()
        assert await ask(node, "uid") == "10001"

    runner.run(scenario())


def test_a_lost_page_cache_takes_the_process_and_leaves_the_machine(
    runner: asyncio.Runner, cluster: DockerCluster
) -> None:
    async def scenario() -> None:
        node = cluster.brokers[0]
        await ask(node, "append", "cache-0/0.log", 2, 5, "sync")
        await ask(node, "append", "cache-0/0.log", 3, 5, "unsynced")
        async with connected(node) as (reader, _):
            evidence = await node.lose_page_cache()
            with suppress(ConnectionResetError):  # or so: either way its host ends the connections
                assert await asyncio.wait_for(reader.read(), 5.0) == b""
        assert evidence["lost_by_partition"] == {"cache-0": 15}
        assert evidence["exit_status"] == 128 + signal.SIGKILL
        await node.start()
        assert int(await ask(node, "append", "cache-0/0.log", 0, 0, "sync")) == 2 * BATCH

    runner.run(scenario())


def test_a_full_disk_refuses_writes_until_it_is_freed(runner: asyncio.Runner, cluster: DockerCluster) -> None:
    async def scenario() -> None:
        node = cluster.brokers[0]
        await ask(node, "write", "before", "kept", "sync")
        evidence = await node.fill_disk()
        assert evidence["free_bytes"] == 0 < evidence["taken_bytes"]
        assert await ask(node, "try_to_write", "new", 8192) == "ENOSPC"
        assert (await node.free_disk())["refused_writes"] == 0, "the stand-in outlives it"
        assert await ask(node, "try_to_write", "new", 8192) == "written"
        assert (await node.free_disk())["free_bytes"] > 1 << 30, "safe to repeat"
        await node.fill_disk()
        await ask(node, "exit", 1)
        evidence = await node.free_disk()
        assert (evidence["refused_writes"], evidence["exit_status"]) == (1, 1)
        await node.start()
        assert await ask(node, "write", "before", "x", "sync") == "5"

    runner.run(scenario())


def test_a_failing_disk_fails_everything_and_keeps_what_was_synced(
    runner: asyncio.Runner, cluster: DockerCluster
) -> None:
    async def scenario() -> None:
        node = cluster.brokers[0]
        await ask(node, "append", "eio-0/0.log", 2, 5, "sync")
        await ask(node, "append", "eio-0/0.log", 3, 5, "unsynced")
        await node.fail_disk()
        assert await ask(node, "try_to_write", "new", 1) == "EIO"
        await ask(node, "exit", 1)
        evidence = await node.repair_disk()
        assert (evidence["failed_operations"], evidence["exit_status"]) == (1, 1)
        assert evidence["lost_by_partition"] == {"eio-0": 15} and evidence["unsynced_bytes"] >= 3 * BATCH
        assert (await node.repair_disk())["failed_operations"] == 0, "safe to repeat"
        await node.start()
        assert int(await ask(node, "append", "eio-0/0.log", 0, 0, "sync")) == 2 * BATCH

    runner.run(scenario())


def test_cancelled_power_cut_is_finished_before_power_returns(runner: asyncio.Runner, cluster: DockerCluster) -> None:
    async def scenario() -> None:
        node = cluster.brokers[0]
        for delay in (0, 0.005, 0.03, 0.1):
            cut = asyncio.ensure_future(node.cut_power())
            await asyncio.sleep(delay)
            cut.cancel()
            await node.restore_power()
            assert await ask(node, "uid") == "10001"

    runner.run(scenario())


def test_collect_brings_logs_and_disks(runner: asyncio.Runner, cluster: DockerCluster, tmp_path: Path) -> None:
    async def scenario() -> None:
        node = cluster.brokers[1]
        await ask(node, "append", "collect-0/0.log", 2, 1, "unsynced")
        await cluster.brokers[0].kill()
        await cluster.collect(tmp_path)
        await cluster.brokers[0].start()
        await ask(cluster.brokers[0], "uid")

    runner.run(scenario())
    assert (tmp_path / "disks/broker-2/collect-0/0.log").stat().st_size == 2 * BATCH
    assert (tmp_path / "disks/broker-2/collect-0/0.log").stat().st_uid == os.getuid()
    assert (tmp_path / "disks/broker-1").is_dir()
    assert sorted(path.name for path in (tmp_path / "logs").iterdir()) == [
        "broker-1.log", "broker-2.log", "controller-1.log",
    ]  # fmt: skip
    assert "stand-in 101 listens" in (tmp_path / "logs/controller-1.log").read_text()


def test_power_cut_on_xfs(tmp_path: Path) -> None:
    wanted = plan("xfs", "xfs", brokers=1)

    async def scenario() -> None:
        cluster = await DockerRuntime(STAND_IN).start(wanted, tmp_path, quiet)
        node = cluster.brokers[0]
        await ask(node, "append", "cut-0/0.log", 3, 5, "sync")
        await ask(node, "append", "cut-0/0.log", 4, 5, "unsynced")
        assert (await node.cut_power())["unsynced_records"] == 20
        await node.restore_power()
        assert int(await ask(node, "append", "cut-0/0.log", 1, 1, "sync")) == 4 * BATCH
        await cluster.stop()

    try:
        asyncio.run(scenario())
        assert removed_soon(wanted.run), leftovers(wanted.run)
    finally:
        cleanup.remove_run(engine.connect(), wanted.run)


def test_start_that_fails_says_why_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sizes, "VOLUME", 1 << 20)
    wanted = plan("small", "xfs")
    with pytest.raises(RuntimeUnavailable, match=r"mkfs\.xfs failed"):
        asyncio.run(DockerRuntime(STAND_IN).start(wanted, tmp_path, quiet))
    assert removed_soon(wanted.run), leftovers(wanted.run)


@pytest.mark.parametrize("delay", [0.3, 1.2])
def test_start_that_is_cancelled_leaves_nothing(tmp_path: Path, delay: float, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = plan("cancelled")
    boot = DockerNode.boot

    async def boot_and_go_on(node: DockerNode) -> None:
        await boot(node)
        await asyncio.Event().wait()  # else a fast machine has started the cluster before it is cancelled

    async def scenario() -> None:
        monkeypatch.setattr(DockerNode, "boot", boot_and_go_on)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(delay):
                await DockerRuntime(STAND_IN).start(wanted, tmp_path, quiet)

    asyncio.run(scenario())
    assert removed_soon(wanted.run), leftovers(wanted.run)


def test_what_a_killed_harness_left_is_found_and_removed(tmp_path: Path) -> None:
    wanted = plan("killed", brokers=1)
    program = f"""
import asyncio
from pathlib import Path
from harness.plan.plan import Plan
from harness.runtimes.docker.runtime import DockerRuntime
from tests.clusters.stand_in import STAND_IN

async def main():
    plan = Plan.model_validate_json({wanted.model_dump_json()!r})
    cluster = await DockerRuntime(STAND_IN).start(plan, Path({str(tmp_path)!r}), str)
    await cluster.brokers[0].pause()
    print("up", flush=True)
    await asyncio.sleep(100)

asyncio.run(main())
"""
    api = engine.connect()
    try:
        with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as harness:
            assert harness.stdout is not None
            assert harness.stdout.readline() == "up\n"
            assert cleanup.runs(api)[wanted.run].alive, "its harness is alive"
            harness.kill()
        assert not cleanup.runs(api)[wanted.run].alive
        removed = clean(Wish(wanted.run))
        assert any(f"{wanted.run}-broker-1" in line for line in removed)
        assert removed_soon(wanted.run), leftovers(wanted.run)
        with pytest.raises(BadArguments, match="nothing of a run"):
            clean(Wish(wanted.run))
    finally:
        cleanup.remove_run(api, wanted.run)


def test_volumes_are_removed_after_every_container_is_gone(tmp_path: Path) -> None:
    """Someone removed the containers by hand: what stays are mounts and loop devices, which no label names."""
    wanted = plan("bare", brokers=1)
    api = engine.connect()

    async def scenario() -> None:
        cluster = await DockerRuntime(STAND_IN).start(wanted, tmp_path, quiet)
        for container in api.containers(all=True, filters={"label": f"{engine.RUN_LABEL}={wanted.run}"}):
            api.remove_container(container["Id"], force=True)
        await cluster.stop()

    try:
        asyncio.run(scenario())
        assert removed_soon(wanted.run), leftovers(wanted.run)
    finally:
        cleanup.remove_run(api, wanted.run)


def test_doctor_tries_what_runs_need() -> None:
    found = {check.name: check for check in checks()}
    assert [check for check in found.values() if not check.ok] == []
    assert found["power cut on ext4"].status == "ok"
    assert found["network partitions (nftables)"].status == "ok"
    assert removed_soon(f"doctor-{os.getpid()}")
