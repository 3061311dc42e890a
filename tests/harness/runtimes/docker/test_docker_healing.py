"""Whatever becomes of a harness, a machine can be made whole again; and no run disturbs another."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from harness.plan import registry
from harness.runtimes.clean import clean
from harness.runtimes.docker import cleanup, engine
from harness.runtimes.docker.agent_client import AgentGone
from harness.runtimes.docker.runtime import DockerCluster, DockerRuntime
from nemesis import EVERYWHERE, Nemesis
from nemesis.composites import Composite
from tests.clusters.machine_state import differences, differences_soon, machine_state
from tests.clusters.stand_in import STAND_IN
from tests.harness.runtimes.docker.test_docker_runtime import ask, plan, quiet

pytestmark = pytest.mark.docker

#: Ask a cluster that speaks Kafka's protocol, and leave nothing outside of it.
OF_A_REAL_CLUSTER = {"membership"}


def every_fault() -> list[str]:
    """The name of every nemesis that works in containers; of those that do the same to others one."""
    names = {}
    for family in registry.names(registry.NEMESES):
        kind = registry.load(registry.NEMESES, family)
        if family in OF_A_REAL_CLUSTER or issubclass(kind, Composite):
            continue
        for name, each in {family: kind, **{f"{family}:{name}": each for name, each in kind.variants.items()}}.items():
            if "docker" in getattr(each, "runtimes", EVERYWHERE):
                names.setdefault((each.inject, each.heal, getattr(each, "links", None)), name)
    return [*names.values(), "pause:how=sigstop"]


def striking(names: list[str]) -> list[Nemesis]:
    return list(registry.make_nemeses(names).values())


async def break_everything(cluster: DockerCluster, nemeses: list[Nemesis]) -> list[str]:
    """Every fault at once, each on a broker of its own. What took effect as far as that is known by now."""
    evidence = await asyncio.gather(
        *(
            nemesis.inject(cluster, [broker], nemesis.draw(Random(nemesis.name)).choice)
            for nemesis, broker in zip(nemeses, cluster.brokers, strict=True)
        ),
        return_exceptions=True,
    )
    return [f"{each.name}: {seen!r}" for each, seen in zip(nemeses, evidence, strict=True)]


PROGRAM = """
import asyncio, sys
from pathlib import Path
from harness.plan import registry
from harness.plan.plan import Plan
from harness.runtimes.docker.runtime import DockerRuntime
from tests.clusters.stand_in import STAND_IN
from tests.harness.runtimes.docker.test_docker_healing import break_everything, every_fault, striking

async def main():
    plan = Plan.model_validate_json(sys.argv[1])
    nemeses = striking(every_fault())
    needs = frozenset().union(*map(registry.needs, nemeses))
    cluster = await DockerRuntime(STAND_IN).start(plan, Path(sys.argv[2]), str, needs=needs)
    for line in await break_everything(cluster, nemeses):
        print(line, flush=True)
    print("left:", await cluster.leftovers(), flush=True)
    print("broken", flush=True)
    await asyncio.sleep(100)

asyncio.run(main())
"""


def test_a_harness_killed_in_the_midst_of_every_fault_leaves_nothing_that_clean_does_not_remove(tmp_path: Path) -> None:
    wanted = plan("broken", brokers=len(every_fault()))
    before = machine_state()
    try:
        arguments = [wanted.model_dump_json(), str(tmp_path)]
        with subprocess.Popen(
            [sys.executable, "-c", PROGRAM, *arguments], stdout=subprocess.PIPE, text=True
        ) as harness:
            assert harness.stdout is not None
            said = []
            for line in harness.stdout:
                said.append(line)
                if line == "broken\n":
                    break
            harness.kill()
        assert said and said[-1] == "broken\n", said
        assert [line for line in differences(before) if "mounts" in line], "or there was nothing to remove"
        cleaned = subprocess.run(
            [sys.executable, "-m", "harness", "clean"], capture_output=True, text=True, check=False
        ).stdout
        assert wanted.run in cleaned
        assert differences_soon(before) == []
    finally:
        cleanup.remove_run(engine.connect(), wanted.run)


def test_every_fault_is_seen_while_it_lasts_and_leaves_no_trace_once_it_is_healed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harness.runtimes.nodes.node._FAILURE_PATIENCE_S", 0.1)  # stand-ins need no disk
    nemeses = striking(every_fault())
    wanted = plan("healed", brokers=len(nemeses))
    needs = frozenset[str]().union(*map(registry.needs, nemeses))

    async def scenario() -> None:
        cluster = await DockerRuntime(STAND_IN).start(wanted, tmp_path, quiet, needs=needs)
        try:
            assert await cluster.leftovers() == []
            await break_everything(cluster, nemeses)
            broken = await cluster.leftovers()
            assert len(broken) > 5, broken
            for _ in range(2):  # each inverse may be repeated
                for nemesis, broker in reversed(list(zip(nemeses, cluster.brokers, strict=True))):
                    await nemesis.heal(cluster, [broker])
                await cluster.heal()
                assert await cluster.leftovers() == []
                for broker in cluster.brokers:
                    assert await broker.is_running(), broker
        finally:
            await cluster.stop()

    asyncio.run(scenario())


def pids(cluster: DockerCluster) -> list[int]:
    api = engine.connect()
    return [api.inspect_container(node.process)["State"]["Pid"] for node in cluster.nodes]


@pytest.fixture
def two(tmp_path: Path) -> Iterator[tuple[asyncio.Runner, DockerCluster, DockerCluster]]:
    """Two clusters beside each other."""
    plans = [plan("one"), plan("other")]

    async def start() -> list[DockerCluster]:
        return await asyncio.gather(
            *(DockerRuntime(STAND_IN).start(each, tmp_path / each.run, quiet) for each in plans)
        )

    try:
        with asyncio.Runner() as runner:
            one, other = runner.run(start())
            yield runner, one, other
            runner.run(one.stop())
            runner.run(other.stop())
    finally:
        for each in plans:
            cleanup.remove_run(engine.connect(), each.run)


def test_two_runs_beside_each_other_do_not_disturb_each_other(
    two: tuple[asyncio.Runner, DockerCluster, DockerCluster],
) -> None:
    runner, one, other = two

    async def scenario() -> None:
        before = pids(other)
        await one.block("all", [(a.name, b.name) for a in one.nodes for b in one.nodes if a is not b])
        await one.brokers[0].cut_power()
        await one.brokers[1].fill_disk()
        assert [line for line in await one.leftovers() if "rules" in line]
        assert await other.leftovers() == []
        assert pids(other) == before
        assert "still running" in "".join(await asyncio.to_thread(clean)), "clean lets live runs be"
        await one.stop()
        assert pids(other) == before
        await other.brokers[0].cut_power()
        await other.brokers[0].restore_power()
        await ask(other.brokers[0], "uid")

    runner.run(scenario())


def test_a_cluster_whose_agent_was_removed_by_hand_says_so_and_is_removed_all_the_same(tmp_path: Path) -> None:
    wanted = plan("no-agent")
    before = machine_state()
    api = engine.connect()

    async def scenario() -> None:
        cluster = await DockerRuntime(STAND_IN).start(wanted, tmp_path, quiet)
        try:
            await cluster.brokers[0].cut_power()
            api.remove_container(f"chaos-{wanted.run}-agent-serve", force=True)
            with pytest.raises(AgentGone, match="run it again"):
                await cluster.brokers[0].restore_power()
            with pytest.raises(AgentGone):
                await cluster.leftovers()
        finally:
            await cluster.stop()

    try:
        asyncio.run(scenario())
        assert differences_soon(before) == []
    finally:
        cleanup.remove_run(api, wanted.run)
