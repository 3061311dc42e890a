"""Wall clocks in containers, as the node's own process sees them. Monotonic time is the machine's and stays right."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.runtimes.agent.clock import wall_minus_monotonic
from harness.runtimes.docker import cleanup, engine
from harness.runtimes.docker.node import DockerNode
from harness.runtimes.docker.runtime import DockerCluster, DockerRuntime
from harness.runtimes.doctor import checks
from tests.clusters.stand_in import STAND_IN
from tests.harness.runtimes.docker.test_docker_runtime import ask, plan, quiet, removed_soon

pytestmark = pytest.mark.docker

HOUR_S = 3600.0
TOLERANCE_S = 0.02  # of two processes that look at two clocks each, on a busy machine


@pytest.fixture(scope="module")
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as made:
        yield made


@pytest.fixture(scope="module")
def cluster(runner: asyncio.Runner, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DockerCluster]:
    """One broker and a controller, shared: every test leaves it whole."""
    wanted = plan("clock", brokers=1)
    try:
        directory = tmp_path_factory.mktemp("run")
        started = runner.run(DockerRuntime(STAND_IN).start(wanted, directory, quiet, needs=["faketime"]))
        yield started
        runner.run(started.stop())
        assert removed_soon(wanted.run)
    finally:
        cleanup.remove_run(engine.connect(), wanted.run)


async def offset_s(node: DockerNode) -> float:
    """Of the clock that the node's process sees."""
    there = float((await ask(node, "clocks", 0)).split()[0])
    return there - wall_minus_monotonic()


def near(expected: float) -> Any:
    return pytest.approx(expected, abs=TOLERANCE_S)


def test_only_the_wall_clock_jumps(runner: asyncio.Runner, cluster: DockerCluster) -> None:
    async def scenario() -> None:
        node, other = cluster.nodes
        assert cluster.lacks == {}
        assert await offset_s(node) == near(0)
        try:
            evidence = await node.set_clock(HOUR_S)
            assert evidence == {"clock_offset_ms": pytest.approx(HOUR_S * 1000, abs=TOLERANCE_S * 1000)}
            there, slept, waited = map(float, (await ask(node, "clocks", 0.3)).split())
            assert there - wall_minus_monotonic() == near(HOUR_S)
            assert 0.3 <= slept < 0.4 and 0.3 <= waited < 0.4, "by the process' monotonic time, which is ours"
            assert await offset_s(other) == near(0), "another machine"
            (left,) = await node.leftovers()
            assert left == "has a clock that is 3.6e+03 s ahead"
            await ask(node, "write", "file", "x", "sync")
            assert float(await ask(node, "modified", "file")) == pytest.approx(time.time(), abs=5), "the file system's"
            await node.set_clock(-0.5)
            assert await offset_s(node) == near(-0.5)
        finally:
            evidence = await node.set_clock(0.0)
        assert evidence == {"clock_offset_ms": 0}
        assert await offset_s(node) == near(0)
        assert await node.leftovers() == []

    runner.run(scenario())


def test_clocks_are_set_at_the_same_time(runner: asyncio.Runner, cluster: DockerCluster) -> None:
    async def scenario() -> None:
        try:
            seen = await asyncio.gather(*(node.set_clock(60.0 * node.id) for node in cluster.nodes))
            assert [evidence["clock_offset_ms"] / 1000 for evidence in seen] == [
                near(60 * node.id) for node in cluster.nodes
            ]
        finally:
            await asyncio.gather(*(node.set_clock(0.0) for node in cluster.nodes))

    runner.run(scenario())


def test_a_wrong_clock_is_the_machines_and_not_the_process(runner: asyncio.Runner, cluster: DockerCluster) -> None:
    async def scenario() -> None:
        node = cluster.nodes[0]
        try:
            await node.set_clock(HOUR_S)
            await node.kill()
            assert "has a clock that is 3.6e+03 s ahead" in await node.leftovers(), "also while nobody looks at it"
            await node.start()
            assert await offset_s(node) == near(HOUR_S)
            await node.cut_power()
            await node.restore_power()
            assert await offset_s(node) == near(HOUR_S)
            await node.kill()
            assert await node.set_clock(0.0) == {}, "nothing that could be measured"
            await node.start()
            assert await offset_s(node) == near(0)
            assert await node.set_clock(0.0) == {"clock_offset_ms": 0}, "safe to repeat"
        finally:
            await node.set_clock(0.0)

    runner.run(scenario())


@pytest.mark.parametrize("drift", [0.2, -0.2])
def test_a_drifting_clock_goes_on_steadily(runner: asyncio.Runner, cluster: DockerCluster, drift: float) -> None:
    async def scenario() -> None:
        node = cluster.nodes[0]
        try:
            began = time.monotonic()
            first = await node.set_clock(10.0, drift)
            # It drifts from when it is set until it is read, however long that takes this machine.
            drifted_ms = (first["clock_offset_ms"] - 10_000) / drift
            assert -5 <= drifted_ms <= (time.monotonic() - began) * 1000 + 5
            await asyncio.sleep(1)
            await node.kill()
            await node.start()
            _, slept, waited = map(float, (await ask(node, "clocks", 0.3)).split())
            assert 0.3 <= slept < 1 and 0.3 <= waited < 1, "as long as ever"
            gained = (await offset_s(node) - 10) / (time.monotonic() - began)
            assert gained == pytest.approx(drift, rel=0.2), "from when it was set, and not from when the process began"
            readings = []
            for _ in range(20):  # for a second
                asked_at = time.monotonic()
                readings.append((asked_at, await offset_s(node), time.monotonic()))
                await asyncio.sleep(0.05)
            (first_at, first_s, _), (last_at, last_s, _) = readings[0], readings[-1]
            assert (last_s - first_s) / (last_at - first_at) == pytest.approx(drift, rel=0.2)
            for at, seen, by in readings:  # on a busy machine each takes its time, the first as well
                slack = 0.01 + abs(drift) * (by - at + readings[0][2] - first_at)
                assert seen == pytest.approx(first_s + drift * (at - first_at), abs=slack), "no steps"
        finally:
            healed = await node.set_clock(0.0)
        gained_ms = drift * (time.monotonic() - began) * 1000
        assert healed["clock_drifted_ms"] == pytest.approx(gained_ms, rel=0.2)
        assert healed["clock_drifted_ms"] == pytest.approx(drift * healed["clock_drifting_ms"], rel=0.1)
        assert healed["clock_offset_ms"] == 0
        assert await offset_s(node) == near(0)
        assert await node.leftovers() == []
        assert "clock_drifted_ms" not in await node.set_clock(0.0)

    runner.run(scenario())


def test_who_does_not_ask_for_it_runs_without(tmp_path: Path) -> None:
    wanted = plan("no-clock", brokers=1)

    async def scenario() -> None:
        cluster = await DockerRuntime(STAND_IN).start(wanted, tmp_path, quiet)
        try:
            assert await ask(cluster.nodes[0], "preload") == "none"
            assert not (tmp_path / "clock").exists()
        finally:
            await cluster.stop()

    try:
        asyncio.run(scenario())
    finally:
        cleanup.remove_run(engine.connect(), wanted.run)


def test_doctor_tries_it() -> None:
    (check,) = [check for check in checks() if check.name.startswith("clock faults")]
    assert check.status == "ok", check.detail
