"""How a cluster on hosts begins and ends, against hosts that are stand-ins: slow ones, lost ones, and Ctrl-C."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from harness.cluster import RuntimeUnavailable
from harness.plan import registry
from harness.plan.plan import Plan
from harness.run.run import TEAR_DOWN_TIMEOUT_S
from harness.runtimes.nodes.asking import AgentError
from harness.runtimes.ssh import cluster as module
from harness.runtimes.ssh.cluster import SshCluster
from harness.runtimes.ssh.connection.sessions import HostRefused, HostUnreachable, Output
from harness.runtimes.ssh.hosts_file import Host, Hosts, Service
from harness.runtimes.ssh.installation.install import Found
from harness.runtimes.ssh.installation.pieces import Piece
from harness.runtimes.ssh.installation.wanted import Wanted
from harness.runtimes.ssh.service import asking
from harness.runtimes.ssh.service import cluster as service
from harness.runtimes.ssh.service.cluster import ServiceCluster

from .stand_in_host import StandIn

HOLDER = {"run": "r", "who": "somebody", "since": "now"}
RESCUE_S = 5.0


@pytest.fixture
def hosts() -> list[StandIn]:
    return [StandIn(f"h{number}") for number in range(3)]


def made(hosts: list[StandIn], kind: type[SshCluster] = SshCluster) -> SshCluster:
    """Not started: three nodes that are brokers and controllers."""
    is_service = kind is ServiceCluster
    target = registry.make_target("kafka:4.2.0" if is_service else "kraft")
    plan = Plan(
        run="r", nemesis=("pause",), time_limit=3, target=target.name, brokers=3, controllers=3, combined=True,
        on="ssh", service=is_service, topic="chaos-r",
    )  # fmt: skip
    listed = tuple(Host(host.name, "127.0.0.1", f"127.0.0.{2 + n}") for n, host in enumerate(hosts))
    whole = Hosts(listed, Service("/data", 9093, unit="kafka") if is_service else None, RESCUE_S, Path("h"))
    chosen = {spec.name: host for spec, host in zip(target.nodes(plan), listed, strict=True)}
    found = {host.name: Found("3.11", "/usr/bin/python3", "x86_64", 22) for host in listed}
    agent = Piece("agent-1", Path("agent"), "", None)
    sessions: Any = {host.name: host for host in hosts}
    return kind(plan, target, whole, chosen, sessions, found, Wanted(agent, None, {}))


async def start_agents(cluster: SshCluster) -> None:
    cluster._begun = True
    await cluster._on_all(lambda node: cluster._start_agent(node, {"holder": HOLDER}))


def test_one_slow_host_lets_no_other_agent_wait_for_its_harness(hosts: list[StandIn]) -> None:
    hosts[2].takes_s = {"serve": 2.0}

    async def scenario() -> None:
        cluster = made(hosts)
        starting = asyncio.ensure_future(start_agents(cluster))
        await asyncio.sleep(1.5)
        assert not starting.done()
        assert all(host.asked["monotonic_ns"] for host in hosts[:2])
        await starting
        await cluster.stop()

    asyncio.run(scenario())


def test_a_host_that_is_just_being_taken_is_given_back(hosts: list[StandIn]) -> None:
    """Ctrl-C during the start."""
    hosts[2].takes_s = {"serve": 1.0}

    async def scenario() -> None:
        cluster = made(hosts)
        starting = asyncio.ensure_future(start_agents(cluster))
        await asyncio.sleep(0.3)
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        await cluster.stop()

    asyncio.run(scenario())
    assert [host.ran for host in hosts] == [["serve", "remove"]] * 3
    assert all(host.closed for host in hosts)


def test_hosts_that_do_not_end_their_removal_are_named_in_time(
    hosts: list[StandIn], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SshCluster, "removal_s", 0.3)
    hosts[0].takes_s = {"remove": 1.5}
    hosts[1].outputs = {"remove": [HostRefused("host h1: no more room")]}

    async def scenario() -> None:
        cluster = made(hosts)
        await start_agents(cluster)
        began = time.monotonic()
        with pytest.raises(RuntimeUnavailable) as error:
            await cluster.stop()
        assert time.monotonic() - began < 1.2
        late = "host h0: not everything could be removed: it has not ended within 0.3 s"
        assert str(error.value) == f"{late}; host h1: no more room"

    asyncio.run(scenario())


@pytest.mark.parametrize("kind", [SshCluster, ServiceCluster])
def test_a_tear_down_ends_before_it_is_given_up(kind: type[SshCluster]) -> None:
    topic_s = sum(service._DELETE_S) + 2 * service._ANSWER_S if kind is ServiceCluster else 0.0
    assert kind.settle_s + kind.removal_s + topic_s < TEAR_DOWN_TIMEOUT_S


def held_by(holder: dict[str, Any]) -> Output:
    return Output(3, b"", json.dumps(holder))


def test_an_agent_of_an_attempt_whose_connection_was_lost_is_taken(
    hosts: list[StandIn], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_LOOK_S", 0.01)
    ours = {**HOLDER, "guard": 7, "worker": 8}
    nobody = Output(4, b"", "boot 1")
    hosts[0].outputs = {"serve": [HostUnreachable("lost"), held_by(ours), held_by(ours)], "connect": [nobody]}
    cluster = made(hosts)
    with pytest.raises(HostUnreachable):
        cluster._start_agent(cluster.machines[0], {"holder": HOLDER})
    assert cluster._start_agent(cluster.machines[0], {"holder": HOLDER}) == "boot 1"
    assert hosts[0].ran[1:] == ["serve", "connect", "serve", "connect", "boot"]
    for theirs in ({**ours, "run": "another"}, {**ours, "since": "yesterday"}, {}):
        hosts[1].outputs = {"serve": [held_by(theirs)]}
        with pytest.raises(HostRefused, match="host h1 is held by"):
            cluster._start_agent(cluster.machines[1], {"holder": HOLDER})
    cluster._agents.close()


def test_a_file_of_a_host_comes_whole_or_not_at_all(hosts: list[StandIn], tmp_path: Path) -> None:
    class Sending(StandIn):
        fails = False

        def run(self, command: list[str], *, into: Any = None, **_: Any) -> Output:
            into.write(b"half")
            if self.fails:
                raise HostUnreachable("host h0: the connection was lost")
            return Output(0, b"", "")

    hosts[0] = sending = Sending("h0")
    cluster = made(hosts)

    async def fetch(name: str) -> None:
        await cluster.machines[0].fetch_file("output.log", tmp_path / "logs" / name)

    asyncio.run(fetch("a"))
    sending.fails = True
    with pytest.raises(AgentError, match="the connection was lost"):
        asyncio.run(fetch("b"))
    assert [path.name for path in (tmp_path / "logs").iterdir()] == ["a"]
    assert (tmp_path / "logs" / "a").read_bytes() == b"half"
    cluster._agents.close()


def test_what_an_agent_said_lies_beside_what_its_node_did(hosts: list[StandIn], tmp_path: Path) -> None:
    class Saying(StandIn):
        agent = b""

        def run(self, command: list[str], *, into: Any = None, **_: Any) -> Output:
            into.write(self.agent if command[1].endswith("/run-r/agent.log") else b"output")
            return Output(0, b"", "")

    hosts[0], hosts[1] = saying, _ = Saying("h0"), Saying("h1")
    saying.agent = b"Traceback"
    cluster = made(hosts)

    async def save() -> None:
        for node in cluster.machines[:2]:
            await cluster._save_log_of(node, tmp_path / f"{node.name}.log")

    asyncio.run(save())
    found = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert found == {"broker-1.log": b"output", "broker-1.agent.txt": b"Traceback", "broker-2.log": b"output"}
    cluster._agents.close()


# -- of a cluster that is already there --------------------------------------------------------------------------


@pytest.fixture
def there(hosts: list[StandIn], monkeypatch: pytest.MonkeyPatch) -> Iterator[ServiceCluster]:
    async def ids(nodes: Any, given: Any, network: Any, where: str) -> list[int]:
        return [1, 2, 3]

    async def exists(*_: Any) -> bool:
        return False

    monkeypatch.setattr(asking, "ids", ids)
    monkeypatch.setattr(asking, "exists", exists)
    for host in hosts:
        host.results = {"plug_in": None, "lacks": {}}
    cluster = cast(ServiceCluster, made(hosts, ServiceCluster))
    yield cluster
    cluster._agents.close()


def cannot_delete(monkeypatch: pytest.MonkeyPatch) -> None:
    async def delete(*_: Any) -> str:
        return "no broker answers"

    monkeypatch.setattr(asking, "delete", delete)


def test_a_service_begins_as_every_cluster_does(
    hosts: list[StandIn], there: ServiceCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slow host does not make this process wait, no lost host is waited for twice, and each says what it lacks."""
    cannot_delete(monkeypatch)
    hosts[0].takes_s = {"monotonic_ns": 0.2}
    hosts[2].results["lacks"] = {"netem": "no netem"}

    async def scenario() -> int:
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                await asyncio.sleep(0.02)
                ticks += 1

        ticking = asyncio.ensure_future(tick())
        await there.start(None, Path(), {"netem"})
        ticking.cancel()
        return ticks

    assert asyncio.run(scenario()) > 20
    assert there.lacks == {"netem": "host h2: no netem"}
    assert {host.patience_s for host in hosts} == {0.0}


def test_a_service_that_cannot_say_what_it_lacks_is_refused(hosts: list[StandIn], there: ServiceCluster) -> None:
    hosts[1].nonsense = [b'{"error": "OSError: no netlink"}\n'] * 6  # samples of its clock, and what it is asked first
    with pytest.raises(RuntimeUnavailable, match="The agents could not begin"):
        asyncio.run(there.start(None, Path(), {"netem"}))


def test_the_topic_and_the_hosts_where_something_stays_are_told_together(
    hosts: list[StandIn], there: ServiceCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cannot_delete(monkeypatch)
    hosts[1].outputs = {"remove": [HostRefused("host h1: no more room")]}

    async def scenario() -> None:
        await there.start(None, Path(), set())
        await there.stop()

    with pytest.raises(RuntimeUnavailable, match=r"^host h1: no more room; topic chaos-r could not be deleted \(no "):
        asyncio.run(scenario())


def test_an_agent_that_was_brought_goes_with_the_list_of_its_files(tmp_path: Path) -> None:
    import subprocess

    class Here(StandIn):
        def run(self, command: list[str], **_: Any) -> Output:
            done = subprocess.run(command, capture_output=True, text=True)
            return Output(done.returncode, done.stdout.encode(), done.stderr)

    host = Host("a", "a", "a", install_directory=str(tmp_path / "opt"))
    agent = tmp_path / "opt" / service.pieces.agent().name
    agent.mkdir(parents=True)
    for suffix in (".files", ".7.new"):
        Path(f"{agent}{suffix}").touch()
    session: Any = Here()
    service.take_back(session, host, Found("3.11", "/usr/bin/python3", "x86_64", 22))
    assert not (tmp_path / "opt").exists()
