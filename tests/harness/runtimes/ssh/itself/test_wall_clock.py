"""The host's own clock, by a stand-in for it: no test sets this machine's."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.runtimes.agent.host import folder as run_folder
from harness.runtimes.agent.host import undo
from harness.runtimes.agent.host.itself import wall_clock
from harness.runtimes.ssh.clean import clean
from harness.runtimes.ssh.cluster import SshCluster
from nemesis import merge
from nemesis.clock import Drift
from tests import ROOT
from tests.clusters.ssh_hosts import SshHosts

from ..on_hosts import differences_soon, plan, started, state
from .stand_ins import CLOCK, NEAR_S, PROGRAM, TRIGGER, clocks_shown


@pytest.fixture
def clock(tmp_path: Path) -> str:
    return str(tmp_path / "stand-in")


def ahead(clock: str) -> float:
    return float(Path(clock).read_text())


def test_it_is_set_and_set_again_and_put_right(tmp_path: Path, clock: str) -> None:
    Path(clock).write_text("3.0")  # as it was before: nobody knows better
    assert wall_clock.amiss(tmp_path) == [] and wall_clock.offset_s(tmp_path) == 0
    wall_clock.set_to(tmp_path, 60.0, 0.0, clock)
    assert ahead(clock) == pytest.approx(63.0, abs=NEAR_S)
    assert wall_clock.offset_s(tmp_path) == pytest.approx(60.0, abs=NEAR_S)
    wall_clock.set_to(tmp_path, -5.0, 0.0, clock)
    assert ahead(clock) == pytest.approx(-2.0, abs=NEAR_S)
    assert wall_clock.amiss(tmp_path) == ["the host's clock was set"]
    for _ in range(2):
        wall_clock.put_right(tmp_path)
        assert ahead(clock) == pytest.approx(3.0, abs=NEAR_S) and not wall_clock.amiss(tmp_path)


@pytest.mark.parametrize("drift", [0.5, -0.2])
def test_one_that_gains_does_so_until_it_is_put_right(tmp_path: Path, clock: str, drift: float) -> None:
    began = time.monotonic()
    wall_clock.set_to(tmp_path, 10.0, drift, clock)
    time.sleep(0.5)
    gained = wall_clock.offset_s(tmp_path) - 10.0
    assert gained == pytest.approx(drift * (time.monotonic() - began), abs=NEAR_S)
    wall_clock.set_to(tmp_path, 0.0, 0.0, clock)
    time.sleep(5 * wall_clock.STEP_S)
    assert ahead(clock) == pytest.approx(0.0, abs=NEAR_S) and not wall_clock.amiss(tmp_path)


def test_what_a_dead_agent_has_set_is_put_right_by_whoever_undoes(tmp_path: Path, clock: str) -> None:
    folder = run_folder.make(tmp_path / "data", "dead", resumes=False)
    program = (
        "import os, sys, time; from pathlib import Path; from harness.runtimes.agent.host.itself import wall_clock; "
        "wall_clock.set_to(Path(sys.argv[1]), 3600.0, 0.1, sys.argv[2]); time.sleep(0.1); os._exit(9)"
    )
    done = subprocess.run([sys.executable, "-c", program, str(folder), clock], cwd=ROOT, check=False)
    assert done.returncode == 9 and ahead(clock) > 3600
    assert undo.found(folder.parent)["clock"] == ["the host's clock was set"]
    wall_clock.put_right(folder)
    assert ahead(clock) == pytest.approx(0.0, abs=NEAR_S)


def test_by_what_was_noted_before_a_reboot_nothing_is_set(
    tmp_path: Path, clock: str, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    wall_clock.set_to(tmp_path, 60.0, 0.0, clock)
    Path(clock).write_text("0.0")
    boot = wall_clock.holding.boot()
    monkeypatch.setattr(wall_clock.holding, "boot", lambda: "another")
    assert wall_clock.offset_s(tmp_path) == 0
    wall_clock.put_right(tmp_path)
    assert ahead(clock) == 0.0 and not wall_clock.amiss(tmp_path)
    # The same, but it is set anew in this life: by what it was in this one.
    wall_clock.set_to(tmp_path, 60.0, 0.0, clock)
    monkeypatch.setattr(wall_clock.holding, "boot", lambda: boot)
    Path(clock).write_text("0.0")
    wall_clock.set_to(tmp_path, 7.0, 0.0, clock)
    assert wall_clock.offset_s(tmp_path) == pytest.approx(7.0, abs=NEAR_S)


def test_the_clock_of_a_container_is_never_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wall_clock, "in_container", lambda: True)
    monkeypatch.setattr(wall_clock.time, "clock_settime", lambda *_: pytest.fail("it was set"))
    with pytest.raises(OSError, match="its clock is that of others"):
        wall_clock.set_to(tmp_path, 60.0, 0.0)
    wall_clock.set_to(tmp_path, 0.0, 0.0)  # healing what was never done
    assert list(tmp_path.iterdir()) == []


def test_who_may_not_set_a_clock_is_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wall_clock, "in_container", lambda: False)
    monkeypatch.setattr(wall_clock, "_may_set", lambda: False)
    assert wall_clock.lacking("") == "only root may set a clock"


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshHosts]:
    with SshHosts(tmp_path_factory.mktemp("hosts"), 3) as made:
        made.file.write_text(made.file.read_text().replace("[defaults]", "[defaults]\nmay_set_clock = true", 1))
        yield made


@pytest.mark.docker
def test_nodes_clocks_gain_and_those_that_dead_agents_leave_are_put_right_by_clean(
    hosts: SshHosts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SshCluster, "clock_stand_in", CLOCK)
    before, nemesis = state(hosts), Drift()

    async def scenario() -> None:
        killed = False
        try:
            async with started(plan("clocks", hosts.file, brokers=2), tmp_path, ("faketime",)) as cluster:
                one, other = cluster.brokers
                choice = {"drift": 0.15}
                evidence = await nemesis.inject(cluster, [one], choice)
                await asyncio.sleep(1.0)
                assert any("gains 0.15 s a second" in what or "ahead" in what for what in await cluster.leftovers())
                healed = await nemesis.heal(cluster, [one])
                assert nemesis.effective(merge(evidence, healed)), (evidence, healed)
                assert await cluster.leftovers() == []
                await other.set_clock(-3600.0)
                for name in hosts.names:
                    holder = json.loads(hosts.execute(name, "cat", "/run/chaos/lock")[1])
                    hosts.execute(name, "kill", "-9", str(holder["guard"]), str(holder["worker"]))
                cluster._begun = False
                killed = True
        except Exception:
            assert killed, "only at the end it finds nobody"

    asyncio.run(scenario())
    assert min(clocks_shown(hosts).values()) == pytest.approx(-3600, abs=NEAR_S)
    assert any("clock: the host's clock was set" in line for line in clean(hosts.hosts))
    assert all(abs(each) < NEAR_S for each in clocks_shown(hosts).values())
    assert differences_soon(hosts, before) == []


@pytest.mark.docker
@pytest.mark.nightly
def test_a_run_on_hosts_that_are_containers_is_told_that_their_clocks_are_not_set(
    hosts: SshHosts, tmp_path: Path
) -> None:  # fmt: skip
    asked = [
        "run", "--on", "ssh", "--hosts", str(hosts.file), "--combined", "--nemesis", "clock", "--quiet", "--results",
        str(tmp_path),
    ]  # fmt: skip
    command = [sys.executable, "-c", PROGRAM, TRIGGER, "", *asked]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 255 and not done.stdout
    assert done.stderr == (
        "chaos: nemesis clock is not available here: no host has it: this host is a container: its clock is that of "
        "others, and is not set\n"
    )
