"""Whatever becomes of a harness, or of its agents, hosts are made whole again."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest

from harness.plan import registry
from harness.runtimes.ssh.cluster import SshCluster
from nemesis import EVERYWHERE
from tests.clusters.ssh_hosts import SshHosts
from tests.harness.runtimes.docker.test_docker_healing import every_fault

from .on_hosts import ask, differences, differences_soon, plan, started, state, with_rescue

pytestmark = pytest.mark.docker

RESCUE_S = 5.0
#: By broker, in this order: what is done to one before the others must not keep them from being done.
FAULTS: Mapping[str, Sequence[str]] = {
    "broker-1": ("clock", "requests", "partition", "partition:followers", "partition:between", "partition:bridge",
                 "partition:majorities-ring", "partition:clients", "pause"),
    "broker-2": ("kill", "kill:term", "kill:storm", "page-cache", "page-cache:clean", "power"),
    "broker-3": ("disk:corrupt", "network", "disk:slow", "pause:how=sigstop"),
    "broker-4": ("hw-truncation", "power:during-recovery"),
    "broker-5": ("disk",),
}  # fmt: skip
#: The agents of `chaos clean --dry-run`, of which some may just be ending.
LOOKING = re.compile(r"new host-\d: python3 -m agent\.host serve .*")
NEEDS = ("faketime", "io-limit", "netem", "proxy")

PROGRAM = """
import asyncio, sys
from pathlib import Path
from harness.plan.plan import Plan
from tests.harness.runtimes.ssh.on_hosts import started
from tests.harness.runtimes.ssh.test_host_escape import NEEDS, break_everything

async def main():
    async with started(Plan.model_validate_json(sys.argv[1]), Path(sys.argv[2]), NEEDS) as cluster:
        for line in await break_everything(cluster):
            print(line, flush=True)
        print("left:", await cluster.leftovers(), flush=True)
        print("broken", flush=True)
        await asyncio.sleep(100)

asyncio.run(main())
"""


@pytest.fixture(scope="module")
def containers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshHosts]:
    with SshHosts(tmp_path_factory.mktemp("hosts"), 6) as running:
        yield running


async def break_everything(cluster: SshCluster) -> list[str]:
    """Every fault that there is for hosts, at once. What took effect as far as that is known by now."""

    async def breaking(broker: Any, names: Sequence[str]) -> list[str]:
        told = []
        for nemesis in registry.make_nemeses(list(names)).values():
            choice = nemesis.draw(Random(nemesis.name)).choice
            try:
                evidence: Any = await nemesis.inject(cluster, [broker], choice)
            except Exception as error:
                evidence = repr(error)
            told.append(f"{nemesis.name} on {broker.name}: {evidence}")
        return told

    for broker in cluster.brokers:
        await ask(broker, "append", "topic-0/00000000000000000000.log", 2, 1, "sync")
        await ask(broker, "append", "topic-0/00000000000000000100.log", 2, 1, "unsynced")
    done = await asyncio.gather(*(breaking(broker, FAULTS[broker.name]) for broker in cluster.brokers))
    # An empty disk in the place of its own, and a copy of it that is under way.
    controller = cluster.controllers[0]
    await controller.kill()
    await controller.replace(77)
    await controller.start()
    await controller.fill_disk()
    return [line for each in done for line in each]


def test_every_fault_of_hosts_is_among_those_of_this_file() -> None:
    of_hosts = {name for name in every_fault()
                if "ssh" in getattr(registry.load(registry.NEMESES, name.partition(":")[0]), "runtimes", EVERYWHERE)}
    composed = {"choreography"}  # of kills, pauses, power cuts and partitions, which are here
    assert {name for names in FAULTS.values() for name in names} | composed == of_hosts


@contextmanager
def harness_killed(name: str, file: Path, folder: Path) -> Iterator[str]:
    """A run whose harness was just killed in the midst of every fault. Its name."""
    wanted = plan(name, file)
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, wanted.model_dump_json(), str(folder)], stdout=subprocess.PIPE, text=True
    ) as harness:
        assert harness.stdout is not None
        said = []
        for line in harness.stdout:
            said.append(line)
            if line == "broken\n":
                break
        harness.kill()
    assert said and said[-1] == "broken\n", said
    print("".join(said))
    for clause in ("broker-1 is frozen", "broker-1 has rules", "broker-2 is cut off", "broker-3 is stopped",
                   "a slow disk", "broker-4 is cut off", "broker-5 has a", "controller-1 is replaced",
                   "full on purpose"):  # fmt: skip
        assert clause in said[-2], f"{clause}: {''.join(said)}"
    yield wanted.run


def chaos(*arguments: object) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "harness", *map(str, arguments)], capture_output=True, text=True, check=False
    )
    return done.stdout + done.stderr


def test_hosts_whose_harness_was_killed_help_themselves(containers: SshHosts, tmp_path: Path) -> None:
    before = state(containers)
    with harness_killed("alone", with_rescue(containers, RESCUE_S, tmp_path), tmp_path):
        killed_at = time.monotonic()
        assert differences(before, state(containers)), "or there was nothing to undo"
        assert differences_soon(containers, before, RESCUE_S + 5) == []
        print(f"whole after {time.monotonic() - killed_at:.1f} s")


def test_clean_makes_hosts_whole_whose_harness_was_killed(containers: SshHosts, tmp_path: Path) -> None:
    before = state(containers)
    file = with_rescue(containers, 300, tmp_path)  # not before all of this is over, on a busy machine either
    with harness_killed("cleaned", file, tmp_path) as run:
        assert "may be running" in chaos("clean", "--on", "ssh", "--hosts", file), "as far as hosts can know"
        broken = state(containers)
        would = chaos("clean", "--on", "ssh", "--hosts", file, "--run", run, "--dry-run")
        for kind in ("host-1", "host-6", "table inet chaos", "loop devices", "processes", "cgroups", "mounts", run):
            assert kind in would, f"{kind}: {would}"
        others = [each for each in differences(broken, state(containers)) if not LOOKING.fullmatch(each)]
        assert others == [], "it only looks"
        assert differences_soon(containers, broken, 5) == [], "and what it has looked with ends"
        began = time.monotonic()
        assert f"of run {run}" in chaos("clean", "--on", "ssh", "--hosts", file, "--run", run)
        assert differences_soon(containers, before, 1) == []
        print(f"clean took {time.monotonic() - began:.1f} s")
        assert chaos("clean", "--on", "ssh", "--hosts", file) == "nothing was left\n"


@pytest.mark.nightly
def test_clean_makes_hosts_whole_whose_agents_and_guards_were_killed(containers: SshHosts, tmp_path: Path) -> None:
    before = state(containers)
    with harness_killed("unguarded", containers.file, tmp_path) as run:
        for name in containers.names:
            holder = json.loads(containers.execute(name, "cat", "/run/chaos/lock")[1])
            assert holder["run"] == run
            assert containers.execute(name, "kill", "-9", str(holder["guard"]), str(holder["worker"]))[0] == 0
        assert f"of run {run}" in chaos("clean", "--on", "ssh", "--hosts", containers.file)
        assert differences_soon(containers, before, 1) == []


def test_the_next_run_undoes_what_an_unguarded_one_left(containers: SshHosts, tmp_path: Path) -> None:
    before = state(containers)

    async def scenario() -> None:
        with suppress(Exception):
            async with started(plan("first", containers.file, brokers=2), tmp_path) as cluster:
                await cluster.block("x", [(cluster.brokers[0].name, cluster.brokers[1].name)])
                await cluster.brokers[1].pause()
                for name in containers.names[:3]:
                    holder = json.loads(containers.execute(name, "cat", "/run/chaos/lock")[1])
                    containers.execute(name, "kill", "-9", str(holder["guard"]), str(holder["worker"]))
                cluster._begun = False  # it is not there to tidy up either
        assert differences(before, state(containers))
        async with started(plan("second", containers.file, brokers=2), tmp_path) as cluster:
            assert await cluster.leftovers() == []
            await ask(cluster.brokers[1], "uid")  # it listens
            assert await ask(cluster.brokers[0], "reach", *cluster.brokers[1].address) == "yes"

    asyncio.run(scenario())
    assert differences_soon(containers, before) == []
