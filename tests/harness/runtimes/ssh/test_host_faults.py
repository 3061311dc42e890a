"""What faults do to nodes on hosts: each shows evidence, is seen while it is in force, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from harness.cluster import CLIENTS, NotAvailable, Shape
from harness.runtimes.ssh.cluster import SshCluster
from tests.clusters.ssh_hosts import SshHosts

from .on_hosts import ask, differences_soon, plan, started, state

pytestmark = pytest.mark.docker

BATCH = 61 + 8  # bytes of a stand-in's record batch
LOG = "topic-0/00000000000000000000.log"
NEEDS = ("faketime", "io-limit", "netem", "proxy")


@pytest.fixture(scope="module")
def containers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshHosts]:
    with SshHosts(tmp_path_factory.mktemp("hosts"), 6) as running:
        yield running


@pytest.fixture(scope="module")
def cluster(
    containers: SshHosts, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[asyncio.Runner, SshCluster]]:
    """One for all of this file. All that it leaves are files of what is installed."""
    before = state(containers)
    with asyncio.Runner() as runner:
        entered = started(plan("faults", containers.file), tmp_path_factory.mktemp("run"), NEEDS)
        running = runner.run(entered.__aenter__())
        try:
            runner.run(_all_listen(running))
            yield runner, running
        finally:
            runner.run(entered.__aexit__(None, None, None))
    assert differences_soon(containers, before) == []


async def _all_listen(running: SshCluster) -> None:
    for broker in running.brokers:
        assert await ask(broker, "uid") == "10001"


Started = tuple[asyncio.Runner, SshCluster]


@asynccontextmanager
async def left_whole(running: SshCluster) -> AsyncIterator[None]:
    assert await running.leftovers() == [], "left by a test before this one, which failed"
    yield
    assert await running.leftovers() == []
    for broker in running.brokers:
        assert await broker.is_running(), broker
        await ask(broker, "uid")


def test_a_node_is_killed_terminated_and_paused(cluster: Started) -> None:
    runner, running = cluster
    broker = running.brokers[0]

    async def scenario() -> None:
        async with left_whole(running):
            assert (await broker.kill())["exit_status"] == 137
            assert not await broker.is_running()
            await broker.start()
            await ask(broker, "uid")
            assert (await broker.terminate())["exit_status"] == 0
            await broker.start()
            await ask(broker, "spin")
            for how, seen, left in (("freezer", "FROZEN", "is frozen"), ("sigstop", "STOPPED", "is stopped")):
                assert await broker.pause(how) == {"frozen_state": seen}  # type: ignore[arg-type]
                assert await running.leftovers() == [f"broker-1 {left}"]
                with pytest.raises(TimeoutError):
                    await ask(broker, "uid", timeout=0.3)
                evidence = await broker.resume()
                assert evidence["frozen_ns"] > 300_000_000
                assert evidence["cpu_ns_while_frozen"] < 20_000_000, "it spun before"
            for how in ("freezer", "sigstop"):  # SIGKILL ends what stands still, too
                await broker.pause(how)  # type: ignore[arg-type]
                assert (await broker.kill())["exit_status"] == 137
                await broker.start()
                await ask(broker, "uid")

    runner.run(scenario())


def test_what_was_not_synced_is_gone_with_the_power_and_with_the_page_cache(cluster: Started) -> None:
    runner, running = cluster
    broker, other = running.brokers[:2]

    async def scenario() -> None:
        async with left_whole(running):
            await ask(broker, "append", LOG, 3, 5, "sync")
            await ask(broker, "append", LOG, 2, 5, "unsynced")
            lost = await broker.cut_power()
            assert (lost["unsynced_bytes"], lost["unsynced_records"]) == (2 * BATCH, 10)
            assert lost["exit_status"] == 137
            assert 0 < lost["cut_ns"] < 5e9
            assert lost["cut_at"] < lost["killed_at"] < lost["shut_down_at"] < lost["remounted_at"]
            assert abs(lost["cut_at"] - time.monotonic_ns()) < 10e9, "on our clock"
            assert lost["clock_uncertainty_ns"] < 20e6
            assert await running.leftovers() == ["broker-1 is cut off from the network"]
            assert await ask(other, "reach", *broker.address) == "TimeoutError"
            await broker.restore_power()
            assert await ask(broker, "peek", LOG, 0, 0) == f"{3 * BATCH} -"
            assert await ask(other, "reach", *broker.address) == "yes"

            await ask(broker, "append", LOG, 1, 7, "unsynced")
            lost = await broker.lose_page_cache()
            assert (lost["unsynced_bytes"], lost["unsynced_records"]) == (BATCH, 7)
            await broker.start()
            assert await ask(broker, "peek", LOG, 0, 0) == f"{3 * BATCH} -"
            dropped = await broker.drop_clean_pages()
            assert dropped["resident_before"] - dropped["resident_after"] == dropped["dropped_bytes"] > 0

    runner.run(scenario())


def test_every_fault_of_a_disk(cluster: Started) -> None:
    runner, running = cluster
    full, failed, read_only, slow, damaged = running.brokers

    async def of_full() -> None:
        assert (await full.fill_disk())["taken_bytes"] > 1 << 30
        assert await full.leftovers() == ["has a disk that is full on purpose"]
        assert await ask(full, "try_to_write", "f", 100_000) == "ENOSPC"
        await full.free_disk()
        assert await ask(full, "try_to_write", "f", 100_000) == "written"

    async def of_failed() -> None:
        await failed.fail_disk()
        assert await failed.leftovers() == ["has a disk that refuses writes (EIO)"]
        assert await ask(failed, "try_to_write", "f", 100_000) == "EIO"
        await ask(failed, "exit", 3)
        evidence = await failed.repair_disk()
        assert (evidence["failed_operations"], evidence["exit_status"]) == (1, 3)
        await failed.start()

    async def of_read_only() -> None:
        assert (await read_only.make_disk_read_only())["write_error"] == "EROFS"
        assert await read_only.leftovers() == ["has a read-only disk"]
        assert await ask(read_only, "try_to_write", "f", 100_000) == "EROFS"
        await ask(read_only, "exit", 3)
        assert await read_only.make_disk_writable() == {"refused_writes": 1, "exit_status": 3}
        await read_only.start()

    async def of_slow() -> None:
        evidence = await slow.slow_disk(1 << 20, 100)
        assert evidence["write_ms_while"] > 300 > evidence["write_ms_before"], "half of what passes in a second"
        assert await slow.leftovers() == ["has a slow disk"]
        assert float(await ask(slow, "write_s", 1 << 20)) > 0.5
        await slow.kill()
        await slow.start()
        assert float(await ask(slow, "write_s", 1 << 20)) > 0.5, "the next process is no faster"
        await slow.hasten_disk()
        assert float(await ask(slow, "write_s", 1 << 20)) < 0.5

    async def of_damaged() -> None:
        for start in ("000", "100"):
            await ask(damaged, "append", f"topic-0/00000000000000000{start}.log", 2, 1, "sync")
        choice: dict[str, Any] = {"what": ["segment"], "how": "flip", "which": 0.1, "where": 0.5, "bit": 0.3}
        evidence = await damaged.damage_file(choice)
        assert evidence["file"] == LOG
        assert (evidence["damaged_bytes"], evidence["exit_status"]) == (1, 137)
        assert evidence["before"] != evidence["after"]
        assert await damaged.restore_file() == {"restored_bytes": 1, "mended_by_node": False}
        await damaged.start()

    async def scenario() -> None:
        async with left_whole(running):
            await asyncio.gather(of_full(), of_failed(), of_read_only(), of_slow(), of_damaged())

    runner.run(scenario())


def test_another_broker_takes_the_place_of_one_and_gives_it_back(cluster: Started) -> None:
    runner, running = cluster
    broker = running.brokers[0]

    async def scenario() -> None:
        async with left_whole(running):
            await ask(broker, "write", "mine", "x", "sync")
            await broker.kill()
            await broker.replace(77)
            await broker.start()
            await ask(broker, "uid")
            assert "stand-in 77 listens" in await broker.last_words()
            assert await broker.leftovers() == [
                "has the logs of another node on its disk", "is replaced by another broker",
            ]  # fmt: skip
            await broker.kill()
            await broker.put_back()
            await broker.start()
            assert await ask(broker, "peek", "mine", 0, 9) == "1 78"

    runner.run(scenario())


def test_a_clock_is_set_where_the_host_has_what_that_takes(cluster: Started) -> None:
    runner, running = cluster
    broker = running.brokers[0]

    async def scenario() -> None:
        async with left_whole(running):
            if "faketime" in running.lacks:
                with pytest.raises(NotAvailable, match="not available here"):
                    await broker.set_clock(100.0)
                return
            assert abs((await broker.set_clock(100.0))["clock_offset_ms"] - 100_000) < 100
            assert [line for line in await running.leftovers() if "ahead" in line]
            await broker.set_clock(0.0)

    runner.run(scenario())


def test_links_are_cut_and_never_ours(cluster: Started) -> None:
    runner, running = cluster
    one, two, three, four, five = running.brokers
    controller = running.controllers[0]

    async def scenario() -> None:
        async with left_whole(running):
            sessions = list(running._sessions.values())
            connections = [session.connections for session in sessions]
            # Of a broker from its clients: other nodes reach it, and we its agent.
            await running.block("clients", [(CLIENTS, one.name), (one.name, CLIENTS)])
            assert await running.leftovers() == ["broker-1 has rules that drop packets"]
            with pytest.raises(TimeoutError):
                await ask(one, "uid", timeout=0.5)
            assert await ask(two, "reach", *one.address) == "yes"
            # Halves, at the same time; and all at once.
            halves = ([one, two, controller], [three, four, five])
            links = [(a.name, b.name) for a in halves[0] for b in halves[1]]
            await running.block("halves", [*links, *((b, a) for a, b in links)])
            assert await ask(two, "reach", *three.address) == "TimeoutError"
            assert await ask(three, "reach", *four.address) == "yes"
            evidence = await running.unblock("clients")
            dropped = evidence["packets_dropped_by_link"]
            assert set(dropped) == {"clients > broker-1", "broker-1 > clients"}
            assert dropped["clients > broker-1"] > 0
            assert evidence["packets_dropped"] == sum(dropped.values())
            evidence = await running.unblock("halves")
            assert evidence["packets_dropped_by_link"]["broker-2 > broker-3"] > 0
            assert evidence["packets_dropped_by_link"]["broker-5 > broker-1"] == 0
            assert await running.unblock("halves") == {"packets_dropped": 0, "packets_dropped_by_link": {}}
            assert [session.connections for session in sessions] == connections

    runner.run(scenario())


def test_links_lose_double_and_slow_down_packets(cluster: Started) -> None:
    runner, running = cluster
    one, two = running.brokers[:2]
    links = [(one.name, two.name), (CLIENTS, one.name), (one.name, CLIENTS)]

    async def scenario() -> None:
        async with left_whole(running):
            await ask(two, "hear")
            await running.shape("x", links, Shape(loss=0.3))
            assert len(await running.leftovers()) == 2
            await ask(one, "say", two.address[0], 400)
            assert 200 < int(await ask(two, "heard")) < 360
            evidence = await running.unshape("x")
            assert 40 < evidence["packets_dropped_by_link"]["broker-1 > broker-2"] < 200
            assert await running.leftovers() == []

            await running.shape("x", links, Shape(duplicate=0.3))
            await ask(one, "say", two.address[0], 400)
            assert 440 < int(await ask(two, "heard")) < 600
            evidence = await running.unshape("x")
            assert 40 < evidence["packets_duplicated"] < 250
            assert await running.leftovers() == []

            await running.shape("x", links, Shape(rate_kbit=800.0))
            assert float(await ask(one, "pour", two.address[0], 60_000, timeout=20)) > 0.4
            evidence = await running.unshape("x")
            assert evidence["throttled"] > 0
            assert evidence["shaped_bytes"] > 60_000
            assert await running.leftovers() == []

            if "netem" in running.lacks:
                with pytest.raises(NotAvailable, match="not available here"):
                    await running.shape("x", links, Shape(delay_ms=50.0))
            else:
                evidence = await running.shape("x", links, Shape(delay_ms=50.0))
                assert evidence["round_trip_ms"]["while"] > 45
                assert (await running.unshape("x"))["packets_delayed"] > 0

    runner.run(scenario())


def test_requests_of_clients_are_held_between_them_and_a_broker(cluster: Started) -> None:
    runner, running = cluster

    async def scenario() -> None:
        from random import Random

        async with left_whole(running):
            assert set(running.bootstrap).isdisjoint(broker.address for broker in running.brokers)
            assert await running.hold_requests("x", "produce", "delay", (0.1, 0.2), 1.0, Random(1)) == {}
            evidence = await running.release_requests("x")
            assert (evidence["api"], evidence["requests"]) == ("produce", 0), "the stand-in speaks another protocol"

    runner.run(scenario())


def test_what_its_nodes_leave_is_collected(cluster: Started, tmp_path: Path) -> None:
    runner, running = cluster

    async def scenario() -> None:
        await ask(running.brokers[0], "write", "kept", "words", "sync")
        assert await running.collect(tmp_path) == {}

    runner.run(scenario())
    assert (tmp_path / "disks" / "broker-1" / "kept").read_text() == "words"
    assert "listens" in (tmp_path / "logs" / "broker-5.log").read_text()
    assert not list(tmp_path.rglob("volume*"))
