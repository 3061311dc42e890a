"""Faults of a node's disk and page cache in Docker, as its process sees them. Its nodes run docker_stand_in."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from harness.runtimes.docker import cleanup, engine
from harness.runtimes.docker.node import DockerNode
from harness.runtimes.docker.runtime import DockerCluster, DockerRuntime
from tests.clusters.stand_in import STAND_IN
from tests.harness.runtimes.docker.test_docker_runtime import ask, plan, quiet, removed_soon

pytestmark = pytest.mark.docker

SLOW = 200_000  # bytes a second
WRITTEN = 100_000  # bytes: half a second's worth
FLIP = {"what": ["segment"], "how": "flip", "which": 0.0, "where": 0.5, "bit": 0.0}


@pytest.fixture(scope="module")
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as made:
        yield made


@pytest.fixture(scope="module", params=["ext4", "xfs"])
def cluster(
    request: pytest.FixtureRequest, runner: asyncio.Runner, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[DockerCluster]:
    wanted = plan(f"disk-{request.param}", request.param, brokers=1)
    try:
        started = runner.run(DockerRuntime(STAND_IN).start(wanted, tmp_path_factory.mktemp("run"), quiet))
        yield started
        runner.run(started.stop())
        assert removed_soon(wanted.run)
    finally:
        cleanup.remove_run(engine.connect(), wanted.run)


async def write_s(node: DockerNode) -> float:
    return float(await ask(node, "write_s", WRITTEN, timeout=20))


async def peek(node: DockerNode, path: str, position: int = 0, size: int = 1) -> tuple[int, str]:
    length, content = (await ask(node, "peek", path, position, size)).split()
    return int(length), content


def test_only_clean_pages_are_dropped(runner: asyncio.Runner, cluster: DockerCluster) -> None:
    async def scenario() -> None:
        node = cluster.brokers[0]
        await ask(node, "append", "cache-0/0.log", 2000, 1, "sync")
        await ask(node, "append", "cache-0/1.log", 2000, 1, "unsynced")
        clean, dirty = [int(await ask(node, "resident", f"cache-0/{name}.log")) for name in (0, 1)]
        assert clean == dirty == 34  # 2000 batches of 69 bytes

        evidence = await node.drop_clean_pages()

        assert evidence["dropped_bytes"] == evidence["resident_before"] - evidence["resident_after"] >= clean * 4096
        assert int(await ask(node, "resident", "cache-0/0.log")) == 0
        assert int(await ask(node, "resident", "cache-0/1.log")) == dirty
        assert (await node.cut_power())["lost_by_partition"] == {"cache-0": 2000}, "what was dirty was not written"
        await node.restore_power()
        assert (await peek(node, "cache-0/0.log"))[0] == 2000 * 69

    runner.run(scenario())


def test_a_slow_disk_is_slow_for_whoever_runs_on_it(runner: asyncio.Runner, cluster: DockerCluster) -> None:
    async def scenario() -> None:
        node = cluster.brokers[0]
        assert await write_s(node) < 0.2

        evidence = await node.slow_disk(SLOW, 1000)

        try:
            assert evidence["write_ms_while"] > 2 * evidence["write_ms_before"] and evidence["write_ms_while"] > 100
            assert await write_s(node) > 0.3
            assert await cluster.leftovers() == ["broker-1 has a slow disk"]
            await node.kill()
            await node.start()
            assert await write_s(node) > 0.3, "its cgroup is new, the limit is not gone"
            await node.cut_power()
            await node.restore_power()
            assert await write_s(node) > 0.3
        finally:
            await node.hasten_disk()
        assert await write_s(node) < 0.2
        assert await cluster.leftovers() == []
        await node.hasten_disk()

    runner.run(scenario())


def test_operations_are_limited_too_and_a_slow_node_dies_at_once(
    runner: asyncio.Runner, cluster: DockerCluster
) -> None:
    async def scenario() -> None:
        node = cluster.brokers[0]
        evidence = await node.slow_disk(1 << 30, 10)
        assert evidence["write_ms_while"] > 100
        await node.slow_disk(1 << 12, 1000)
        waiting = asyncio.create_task(ask(node, "write_s", 1 << 20, timeout=30))
        await asyncio.sleep(0.3)
        async with asyncio.timeout(5):  # at this rate its write would take minutes
            assert (await node.kill())["exit_status"] == 137
        await waiting
        await node.hasten_disk()
        await node.start()
        assert await write_s(node) < 0.2

    runner.run(scenario())


def test_a_disk_that_fails_is_seen(runner: asyncio.Runner, cluster: DockerCluster) -> None:
    async def scenario() -> None:
        node = cluster.brokers[0]
        await node.fail_disk()
        try:
            (found,) = await cluster.leftovers()
            assert "refuses writes (EIO)" in found or "cannot read its disk" in found
        finally:
            await ask(node, "exit", 1)
            await node.repair_disk()
            await node.start()
        await ask(node, "uid")
        assert await cluster.leftovers() == []

    runner.run(scenario())


def test_a_read_only_disk_refuses_writes_and_costs_nothing(runner: asyncio.Runner, cluster: DockerCluster) -> None:
    async def scenario() -> None:
        node = cluster.brokers[0]
        await ask(node, "append", "ro-0/0.log", 5, 1, "unsynced")

        assert (await node.make_disk_read_only())["write_error"] == "EROFS"

        assert await ask(node, "try_to_write", "x", 10) == "EROFS"
        assert await cluster.leftovers() == ["broker-1 has a read-only disk"]
        await ask(node, "exit", 3)  # as a node does
        assert await node.make_disk_writable() == {"refused_writes": 1, "exit_status": 3}
        assert await node.make_disk_writable() == {"refused_writes": 0}
        await node.start()
        assert await ask(node, "try_to_write", "x", 10) == "written"
        assert await cluster.leftovers() == []
        assert (await peek(node, "ro-0/0.log"))[0] == 5 * 69, "not even what was not synced is lost"
        assert (await node.cut_power())["lost_by_partition"] == {}
        await node.restore_power()

    runner.run(scenario())


@pytest.mark.parametrize(
    ("broken", "mended", "counted"),
    [
        ("fill_disk", "free_disk", "refused_writes"),
        ("fail_disk", "repair_disk", "failed_operations"),
        ("make_disk_read_only", "make_disk_writable", "refused_writes"),
    ],
)
def test_a_process_that_had_ended_before_has_met_no_error(
    runner: asyncio.Runner, cluster: DockerCluster, broken: str, mended: str, counted: str
) -> None:
    async def scenario() -> None:
        node = cluster.brokers[0]
        await node.kill()
        await getattr(node, broken)()
        assert (await getattr(node, mended)())[counted] == 0
        await node.start()
        assert await ask(node, "try_to_write", "new", 8192) == "written"

    runner.run(scenario())


@pytest.mark.parametrize("again", ["kill", "cut_power"])
def test_a_read_only_disk_is_mended_whatever_came_between(
    runner: asyncio.Runner, cluster: DockerCluster, again: str
) -> None:
    async def scenario() -> None:
        node = cluster.brokers[0]
        await node.make_disk_read_only()
        await getattr(node, again)()
        await node.make_disk_writable()
        await (node.restore_power() if again == "cut_power" else node.start())
        assert await ask(node, "try_to_write", "x", 10) == "written"
        assert await cluster.leftovers() == []

    runner.run(scenario())


@pytest.mark.parametrize(("how", "directory"), [("flip", "ab-0"), ("truncate", "aa-0")])  # each then sorts first
def test_a_closed_segment_is_damaged_for_good_and_put_back(
    runner: asyncio.Runner, cluster: DockerCluster, how: str, directory: str
) -> None:
    async def scenario() -> None:
        node = cluster.brokers[0]
        for name in (0, 1):
            await ask(node, "append", f"{directory}/{name}.log", 4, 1, "sync")
        whole = await peek(node, f"{directory}/0.log", 0, 1 << 12)

        evidence = await node.damage_file({**FLIP, "how": how})

        assert not await node.is_running()
        await node.start()
        assert evidence["file"] == f"{directory}/0.log" and evidence["exit_status"] == 137
        size, content = await peek(node, f"{directory}/0.log", 0, 1 << 12)
        if how == "flip":
            changed = int(whole[1], 16) ^ int(content, 16)
            assert changed.bit_count() == 1 and size == whole[0]
            assert int(evidence["before"], 16) ^ int(evidence["after"], 16) == 1
        else:
            assert whole[1].startswith(content) and whole[0] - size == evidence["truncated_bytes"] > 0
        await node.cut_power()
        await node.restore_power()
        assert await peek(node, f"{directory}/0.log", 0, 1 << 12) == (size, content), "the disk has it so"

        mended: dict[str, Any] = await node.restore_file()
        assert mended["restored_bytes"] == evidence["damaged_bytes"]
        assert await peek(node, f"{directory}/0.log", 0, 1 << 12) == whole
        assert await node.restore_file() == {}

    runner.run(scenario())


def test_without_a_closed_segment_nothing_is_done(runner: asyncio.Runner, cluster: DockerCluster) -> None:
    async def scenario() -> None:
        node = cluster.brokers[0]
        evidence = await node.damage_file({**FLIP, "what": ["index"]})
        assert "no index files" in evidence["nothing_to_damage"] and "file" not in evidence
        assert await node.is_running() and await node.restore_file() == {}

    runner.run(scenario())
