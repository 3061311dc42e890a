"""What links do to packets in Docker, looked at from the processes at their ends. Nodes run docker_stand_in."""

from __future__ import annotations

import asyncio
import os
import statistics
from collections.abc import Iterator

import pytest

from harness.cluster import CLIENTS, NotAvailable, Shape
from harness.plan.plan import Plan
from harness.runtimes.docker import cleanup, engine
from harness.runtimes.docker.node import DockerNode
from harness.runtimes.docker.runtime import DockerCluster, DockerRuntime
from harness.runtimes.doctor import checks
from tests.clusters.stand_in import STAND_IN

from .test_docker_runtime import ask, quiet

pytestmark = pytest.mark.docker

DATAGRAMS = 400
TRANSFER = 60_000  # bytes


@pytest.fixture(scope="module")
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as made:
        yield made


@pytest.fixture(scope="module")
def cluster(runner: asyncio.Runner, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DockerCluster]:
    """Two brokers and a controller."""
    wanted = Plan(
        run=f"test-shapes-{os.getpid()}", brokers=2, controllers=1, replication_factor=1, min_insync_replicas=1
    )
    try:
        started = runner.run(DockerRuntime(STAND_IN).start(wanted, tmp_path_factory.mktemp("run"), quiet))
        for node in started.nodes:
            runner.run(ask(node, "hear"))
        yield started
        assert runner.run(started.leftovers()) == []
        runner.run(started.stop())
    finally:
        cleanup.remove_run(engine.connect(), wanted.run)


async def arrived(source: DockerNode, target: DockerNode) -> int:
    """Of DATAGRAMS."""
    await ask(target, "heard")
    await ask(source, "say", target.address[0], DATAGRAMS)
    await asyncio.sleep(0.2)
    return int(await ask(target, "heard"))


async def bytes_per_s(source: DockerNode, target: DockerNode) -> float:
    return TRANSFER / float(await ask(source, "pour", target.address[0], TRANSFER, timeout=30))


async def connect_s(source: DockerNode, target: DockerNode) -> float:
    return statistics.median([float(await ask(source, "connect_s", *target.address)) for _ in range(5)])


def test_a_share_of_what_passes_is_lost_one_way_and_across_a_power_cut(
    runner: asyncio.Runner, cluster: DockerCluster
) -> None:
    async def scenario() -> None:
        one, other = cluster.brokers
        await cluster.shape("half", [(one.name, other.name)], Shape(loss=0.5))
        try:
            assert 120 < await arrived(one, other) < 280
            assert await arrived(other, one) == DATAGRAMS, "the other way"
            assert await arrived(cluster.controllers[0], other) == DATAGRAMS, "another link"
            await other.cut_power()
            await other.restore_power()
            await ask(other, "hear")
            assert 120 < await arrived(one, other) < 280, "its network is a new one"
            assert await cluster.leftovers() == [f"{other.name} has rules that drop packets"]
        finally:
            evidence = await cluster.unshape("half")
        assert 240 < evidence["packets_dropped"] < 560, "those before the power cut, too"
        assert evidence["packets_dropped_by_link"] == {"broker-1 > broker-2": evidence["packets_dropped"]}
        assert await arrived(one, other) == DATAGRAMS
        assert (await cluster.unshape("half"))["packets_dropped"] == 0, "safe to repeat"
        assert await cluster.leftovers() == []

    runner.run(scenario())


def test_two_losses_add_up_and_each_is_undone_for_itself(runner: asyncio.Runner, cluster: DockerCluster) -> None:
    async def scenario() -> None:
        one, other = cluster.brokers
        links = [(one.name, other.name)]
        await cluster.shape("a", links, Shape(loss=0.5))
        await cluster.shape("b", links, Shape(loss=0.8))
        try:
            assert 10 < await arrived(one, other) < 80
            evidence = await cluster.unshape("b")
            assert 120 < await arrived(one, other) < 280
            assert evidence["packets_dropped"] > 100
        finally:
            await cluster.heal()
        assert await arrived(one, other) == DATAGRAMS, "heal() undoes them all"

    runner.run(scenario())


def test_a_share_of_what_passes_comes_twice(runner: asyncio.Runner, cluster: DockerCluster) -> None:
    async def scenario() -> None:
        one, other = cluster.brokers
        await cluster.shape("twice", [(one.name, other.name)], Shape(duplicate=0.5))
        try:
            assert 1.3 * DATAGRAMS < await arrived(one, other) < 1.7 * DATAGRAMS
            assert await arrived(other, one) == DATAGRAMS
            assert await ask(one, "reach", *other.address) == "yes", "TCP does not mind"
        finally:
            evidence = await cluster.unshape("twice")
        assert 0.3 * DATAGRAMS < evidence["packets_duplicated"] < 0.7 * DATAGRAMS + 20
        assert await arrived(one, other) == DATAGRAMS

    runner.run(scenario())


def test_what_comes_from_clients_comes_twice_and_no_oftener(runner: asyncio.Runner, cluster: DockerCluster) -> None:
    async def scenario() -> None:
        one = cluster.brokers[0]
        await ask(one, "heard")
        await cluster.shape("twice", [(CLIENTS, one.name)], Shape(duplicate=1.0))
        try:
            transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(
                asyncio.DatagramProtocol, remote_addr=(one.address[0], 9999)
            )
            for _ in range(20):
                transport.sendto(b"x")
            await asyncio.sleep(0.2)
            transport.close()
            assert int(await ask(one, "heard")) == 40
        finally:
            assert (await cluster.unshape("twice"))["packets_duplicated"] >= 20

    runner.run(scenario())


def test_a_link_passes_so_many_bytes_a_second_one_way_and_across_a_power_cut(
    runner: asyncio.Runner, cluster: DockerCluster
) -> None:
    async def scenario() -> None:
        one, other = cluster.brokers
        assert await bytes_per_s(one, other) > 1e6
        await cluster.shape("slow", [(one.name, other.name)], Shape(rate_kbit=200))  # 25 kB/s
        try:
            assert 15e3 < await bytes_per_s(one, other) < 27e3
            assert await bytes_per_s(other, one) > 200e3, "only its acknowledgements pass the slow way"
            assert await bytes_per_s(one, cluster.controllers[0]) > 1e6, "another link"
            assert await cluster.leftovers() == [f"{one.name} has queues that shape its network"]
            await one.cut_power()
            await one.restore_power()
            await ask(one, "hear")
            assert 15e3 < await bytes_per_s(one, other) < 27e3, "its network is a new one"
        finally:
            evidence = await cluster.unshape("slow")
        assert evidence["throttled"] > 0 and evidence["shaped_bytes"] > 2 * TRANSFER
        assert await bytes_per_s(one, other) > 1e6
        assert "throttled" not in await cluster.unshape("slow"), "safe to repeat"

    runner.run(scenario())


def test_of_two_rates_the_lower_is_in_force(runner: asyncio.Runner, cluster: DockerCluster) -> None:
    async def scenario() -> None:
        one, other = cluster.brokers
        await cluster.shape("slow", [(one.name, other.name)], Shape(rate_kbit=400))
        await cluster.shape("slower", [(one.name, other.name), (one.name, "controller-1")], Shape(rate_kbit=200))
        try:
            assert 15e3 < await bytes_per_s(one, other) < 27e3
            await cluster.unshape("slower")
            assert 30e3 < await bytes_per_s(one, other) < 54e3
            assert await bytes_per_s(one, cluster.controllers[0]) > 1e6
        finally:
            await cluster.heal()
        assert await bytes_per_s(one, other) > 1e6

    runner.run(scenario())


def test_what_clients_send_and_are_sent_is_slow(runner: asyncio.Runner, cluster: DockerCluster) -> None:
    async def upload_s(node: DockerNode) -> float:
        loop = asyncio.get_running_loop()
        began = loop.time()
        reader, writer = await asyncio.open_connection(node.address[0], 9998)
        writer.write(b"x" * TRANSFER)
        writer.write_eof()
        await reader.read()
        writer.close()
        return loop.time() - began

    async def scenario() -> None:
        one = cluster.brokers[0]
        assert await upload_s(one) < 0.5
        await cluster.shape("slow", [(CLIENTS, one.name)], Shape(rate_kbit=200))
        try:
            assert 60 / 27 < await upload_s(one) < 60 / 15
            assert await bytes_per_s(cluster.brokers[1], one) > 1e6, "nodes are no clients"
        finally:
            assert (await cluster.unshape("slow"))["throttled"] > 0
        assert await upload_s(one) < 0.5
        assert await cluster.leftovers() == []

    runner.run(scenario())


def test_power_may_be_restored_once_more_while_links_are_slow(runner: asyncio.Runner, cluster: DockerCluster) -> None:
    async def scenario() -> None:
        one, other = cluster.brokers
        await cluster.shape("slow", [(one.name, other.name), (CLIENTS, one.name)], Shape(rate_kbit=200))
        try:
            await one.restore_power()  # its network is the same
            assert 15e3 < await bytes_per_s(one, other) < 27e3
        finally:
            await cluster.unshape("slow")
        assert await bytes_per_s(one, other) > 1e6
        assert await cluster.leftovers() == []

    runner.run(scenario())


def test_a_node_is_killed_and_loses_its_power_while_its_links_are_measured(
    runner: asyncio.Runner, cluster: DockerCluster
) -> None:
    async def scenario() -> None:
        one = cluster.brokers[0]
        nobody = "192.0.2.1"
        measuring = asyncio.create_task(one.round_trips([nobody], 6.0))
        await asyncio.sleep(0.2)
        async with asyncio.timeout(5):
            await one.kill()
            await one.cut_power()
            await one.restore_power()
            await ask(one, "hear")
            assert not measuring.done()
        assert await measuring == {nobody: {"ms": None, "answered": 0, "overtaken": 0}}

    runner.run(scenario())


#: Rules and queues that the agent knows nothing of, and a table and rules that are not ours.
STRAY = """
nft add table inet chaos
nft 'add chain inet chaos stray { type filter hook input priority 0; }'
nft add rule inet chaos stray ip saddr $OTHER udp dport 9999 counter drop
nft add table ip chaos
nft 'add chain ip chaos stray { type filter hook input priority 0; }'
nft add rule ip chaos stray counter
nft add table inet others
nft 'add chain inet others theirs { type filter hook input priority 0; }'
nft add rule inet others theirs counter
tc qdisc add dev eth0 root handle 1: tbf rate 200kbit burst 2000 limit 16384
tc qdisc add dev eth0 ingress
tc qdisc add dev lo root netem delay 1ms || tc qdisc add dev lo root tbf rate 200kbit burst 2000 limit 16384
ip link add chaos-in type ifb
"""
_LOOK = "nft list tables; tc qdisc show; ip -o link | cut -d: -f2"


def in_network_of(node: DockerNode, cluster: DockerCluster, script: str, **environment: str) -> list[str]:
    """What a shell there prints, by a container of its own."""
    api = engine.connect()
    agent = api.inspect_container(f"chaos-{cluster._plan.run}-agent-serve")
    container = api.create_container(
        agent["Image"], entrypoint=["sh", "-ec"], command=[script], user="root", environment=environment,
        labels=agent["Config"]["Labels"],
        host_config=api.create_host_config(network_mode=f"container:{node.network}", cap_add=["NET_ADMIN"]),
    )  # fmt: skip
    try:
        api.start(container)
        status, printed = api.wait(container)["StatusCode"], api.logs(container).decode()
    finally:
        api.remove_container(container, force=True)
    assert status == 0, printed
    return sorted(line.strip() for line in printed.splitlines())


def test_what_nobody_noted_is_found_and_removed_and_nothing_else(
    runner: asyncio.Runner, cluster: DockerCluster
) -> None:
    async def scenario() -> None:
        one, other = cluster.brokers
        untouched = [line for line in in_network_of(other, cluster, _LOOK) if not line.endswith(" chaos")]
        try:
            in_network_of(other, cluster, STRAY, OTHER=one.address[0])
            assert await arrived(one, other) == 0
            assert await bytes_per_s(other, one) < 27e3
            assert await cluster.leftovers() == [
                f"{other.name} has rules that drop packets", f"{other.name} has queues that shape its network",
            ]  # fmt: skip
        finally:
            await cluster.heal()
        assert await cluster.leftovers() == []
        assert await arrived(one, other) == DATAGRAMS
        assert await bytes_per_s(other, one) > 1e6
        assert in_network_of(other, cluster, _LOOK) == sorted([*untouched, "table inet others"])
        in_network_of(other, cluster, "nft delete table inet others")
        await cluster.heal()  # safe to repeat

    runner.run(scenario())


def _without_netem() -> str:
    """The doctor's reason; empty if there is netem."""
    found = next(check for check in checks() if check.name == "network delays (netem)")
    return "" if found.status == "ok" else f"{found.status}: {found.detail}"


def test_without_netem_a_delay_says_why_and_changes_nothing(runner: asyncio.Runner, cluster: DockerCluster) -> None:
    if not _without_netem():
        pytest.skip("there is netem")

    async def scenario() -> None:
        links = [(cluster.brokers[0].name, cluster.brokers[1].name)]
        for shape in (Shape(delay_ms=50), Shape(delay_ms=20, reorder=0.5)):
            with pytest.raises(NotAvailable, match="not available here: this kernel has no netem"):
                await cluster.shape("late", links, shape)
            assert await cluster.unshape("late") == {"packets_dropped": 0, "packets_dropped_by_link": {}}
        assert await connect_s(*cluster.brokers) < 0.02

    runner.run(scenario())


def test_a_delay_is_what_round_trips_and_connections_take(runner: asyncio.Runner, cluster: DockerCluster) -> None:
    if reason := _without_netem():
        pytest.skip(reason)

    async def scenario() -> None:
        one, other = cluster.brokers
        links = [(one.name, other.name), (other.name, one.name)]
        evidence = await cluster.shape("late", links, Shape(delay_ms=50))
        try:
            assert 90 < evidence["round_trip_ms"]["while"] - evidence["round_trip_ms"]["before"] < 130
            assert 0.09 < await connect_s(one, other) < 0.2
            assert await connect_s(one, cluster.controllers[0]) < 0.02
            await one.cut_power()
            await one.restore_power()
            assert 0.09 < await connect_s(one, other) < 0.2
        finally:
            assert (await cluster.unshape("late"))["packets_delayed"] > 0
        assert await connect_s(one, other) < 0.02

    runner.run(scenario())


def test_packets_that_are_not_late_overtake_others(runner: asyncio.Runner, cluster: DockerCluster) -> None:
    if reason := _without_netem():
        pytest.skip(reason)

    async def scenario() -> None:
        links = [(cluster.brokers[0].name, cluster.brokers[1].name)]
        evidence = await cluster.shape("reorder", links, Shape(delay_ms=40, reorder=0.5))
        assert evidence["packets_reordered"] > 0
        await arrived(*cluster.brokers)
        counted = await cluster.unshape("reorder")
        assert 0.3 < counted["packets_reordered"] / (counted["packets_reordered"] + counted["packets_delayed"]) < 0.7

    runner.run(scenario())
