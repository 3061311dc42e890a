"""RaftClient on an event loop: what listeners see, what callers wait for, and what ends it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import pairwise
from random import Random
from typing import Any

import pytest

from cluster_image.kraft.raft import NotLeader, QuorumConfig, RaftClient, rpc
from cluster_image.kraft.raft.driver import DELIVERED_AT_ONCE
from cluster_image.kraft.raft.state import QuorumStateError
from cluster_image.network import Address, Entity, Handler, Peer
from tests.cluster_image.storage.simulated_disk import simulated_disk

VOTERS = {node: Address(f"node-{node}", 9093) for node in (1, 2, 3)}
OBSERVER = 9
CONFIG = QuorumConfig(
    election_timeout=0.1,
    fetch_timeout=0.2,
    election_backoff_max=0.1,
    request_timeout=0.2,
    fetch_wait_ms=50,
)
PEER = Peer("test", "here")


class MemoryNetwork:
    """Handlers of all nodes; a node that is not up refuses connections, one that is cut off answers nobody."""

    def __init__(self) -> None:
        self.handlers: dict[Address, Handler] = {}
        self.cut: set[Address] = set()

    def of(self, own: Address | None) -> MemoryNetwork.Node:
        return MemoryNetwork.Node(self, own)

    class Node:
        def __init__(self, network: MemoryNetwork, own: Address | None) -> None:
            self.network, self.own = network, own

        async def connect(self, address: Address, *, client_id: str, timeout: float) -> MemoryNetwork.Link:
            if address not in self.network.handlers:
                raise ConnectionRefusedError(address)
            return MemoryNetwork.Link(self, address)

        async def listen(self, address: Address, handler: Handler, served: Any = None) -> None:
            self.network.handlers[address] = handler

        async def close(self) -> None: ...

    class Link:
        closed = False

        def __init__(self, node: MemoryNetwork.Node, address: Address) -> None:
            self.node, self.address = node, address

        async def request(self, entity: Entity, *, timeout: float) -> Entity:
            async with asyncio.timeout(timeout):
                await self._pass()
                response = await self.node.network.handlers[self.address](entity, PEER)
                await self._pass()
                return response

        async def _pass(self) -> None:
            if {self.node.own, self.address} & self.node.network.cut:
                await asyncio.Event().wait()

        def close(self) -> None:
            self.closed = True


class Listener:
    def __init__(self) -> None:
        self.events: list[str] = []
        self.records: list[tuple[int, bytes]] = []  # offset, value
        self.snapshots = 0  # loaded

    def on_commit(self, base_offset: int, epoch: int, records: list[bytes]) -> None:
        self.records += enumerate(records, base_offset)

    def on_snapshot(self, end_offset: int, epoch: int, records: list[bytes]) -> None:
        self.snapshots += 1
        self.records = [(int(offset), value) for offset, _, value in (record.partition(b" ") for record in records)]

    def snapshot(self) -> list[bytes]:
        return [b"%d %s" % record for record in self.records]

    def on_leader(self, epoch: int) -> None:
        self.events.append(f"leader {epoch} after {len(self.records)}")

    def on_resign(self, epoch: int) -> None:
        self.events.append(f"resigned {epoch}")


class Cluster:
    def __init__(self, **settings: Any) -> None:
        self.config = replace(CONFIG, **settings)
        self.network = MemoryNetwork()
        self.disks = {node: simulated_disk() for node in (*VOTERS, OBSERVER)}
        self.clients: dict[int, RaftClient] = {}
        self.listeners: dict[int, Listener] = {}

    async def start(self, node: int) -> None:
        own = VOTERS.get(node)
        network: Any = self.network.of(own)
        listener = self.listeners[node] = Listener()
        client = RaftClient(
            node,
            VOTERS,
            "test",
            self.disks[node],
            "log",
            network,
            Random(node),
            self.config,
            listener,
            wall_clock=time.time,
        )
        self.clients[node] = client
        await client.start()
        if own is not None:
            await network.listen(own, client.handle)

    async def stop(self, node: int) -> None:
        self.network.handlers.pop(VOTERS[node], None)
        await self.clients.pop(node).close()

    async def leader(self) -> int:
        """The node that has been told that it leads, once there is one that is not cut off."""
        while True:
            for node, listener in self.listeners.items():
                up = node in self.clients and VOTERS.get(node) not in self.network.cut
                if up and listener.events and listener.events[-1].startswith("leader"):
                    return node
            await asyncio.sleep(0.005)


@asynccontextmanager
async def running(**settings: Any) -> AsyncIterator[Cluster]:
    cluster = Cluster(**settings)
    for node in cluster.disks:
        await cluster.start(node)
    try:
        async with asyncio.timeout(10):
            yield cluster
    finally:
        for client in cluster.clients.values():
            await client.close()


def on_a_cluster(test: Callable[[Cluster], Awaitable[None]]) -> Callable[[], None]:
    async def body() -> None:
        async with running() as cluster:
            await test(cluster)

    def run() -> None:
        asyncio.run(body())

    run.__name__ = test.__name__
    return run


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.005)


@on_a_cluster
async def test_every_node_sees_the_same_records_in_order(cluster: Cluster) -> None:
    leader = await cluster.leader()
    client = cluster.clients[leader]
    expected: list[tuple[int, bytes]] = []
    for n in range(20):
        values = [b"%d.%d" % (n, k) for k in range(3)]
        last = client.append(values)
        expected += enumerate(values, last - 2)
        if n % 5 == 0:
            await client.committed(last, 1)
            assert cluster.listeners[leader].records == expected, "delivered before committed() returns"
    await until(lambda: all(listener.records == expected for listener in cluster.listeners.values()))
    assert {c.leader_id for c in cluster.clients.values()} == {leader}


@on_a_cluster
async def test_a_new_leader_is_told_after_it_has_seen_everything_committed(cluster: Cluster) -> None:
    old = await cluster.leader()
    client = cluster.clients[old]
    await client.committed(client.append([b"a", b"b"]), 1)
    epoch = client.leader_epoch
    await cluster.stop(old)
    assert cluster.listeners[old].events == [f"leader {epoch} after 0", f"resigned {epoch}"]
    new = await cluster.leader()
    assert cluster.listeners[new].events == [f"leader {cluster.clients[new].leader_epoch} after 2"]


@on_a_cluster
async def test_nothing_is_exposed_before_the_leaders_own_record_is_committed(cluster: Cluster) -> None:
    """M65, KAFKA-12619: who has won the vote is told of it only when its LeaderChange is on a majority."""
    old = await cluster.leader()
    client = cluster.clients[old]
    await client.committed(client.append([b"a"]), 1)
    answering = {}

    def answers_no_fetch(address: Address) -> None:
        handle = answering[address] = cluster.network.handlers[address]

        async def handler(request: Entity, peer: Peer) -> Entity:
            if isinstance(request, rpc.FetchRequest):
                raise ConnectionError("not now")
            return await handle(request, peer)

        cluster.network.handlers[address] = handler

    others = [node for node in VOTERS if node != old]
    for node in others:
        answers_no_fetch(VOTERS[node])
    await cluster.stop(old)
    await until(lambda: any(cluster.clients[node].is_leader for node in others))
    leader = next(node for node in others if cluster.clients[node].is_leader)
    end = cluster.clients[leader].end_offset
    await asyncio.sleep(CONFIG.fetch_timeout / 4)
    assert cluster.listeners[leader].events == [] and cluster.clients[leader].high_watermark < end
    with pytest.raises((TimeoutError, NotLeader)):
        await cluster.clients[leader].committed(end - 1, 0.01)
    cluster.network.handlers |= answering
    await until(lambda: any(cluster.listeners[node].events for node in others))
    leader = next(node for node in others if cluster.listeners[node].events)
    assert cluster.clients[leader].high_watermark >= end


@on_a_cluster
async def test_waiting_for_a_commit_ends_with_the_leadership(cluster: Cluster) -> None:
    old = await cluster.leader()
    client = cluster.clients[old]
    cluster.network.cut.add(VOTERS[old])
    offset = client.append([b"nobody hears this"])
    with pytest.raises(TimeoutError):
        await client.committed(offset, 0.05)
    with pytest.raises(NotLeader):
        await client.committed(offset, 5)
    with pytest.raises(NotLeader):
        client.append([b"x"])
    new = await cluster.leader()
    assert new != old
    successor = cluster.clients[new]
    await successor.committed(successor.append([b"instead"]), 1)
    cluster.network.cut.clear()
    await until(lambda: [v for _, v in cluster.listeners[old].records] == [b"instead"])


@on_a_cluster
async def test_an_offset_of_an_earlier_leadership_is_not_taken_for_committed(cluster: Cluster) -> None:
    """The record there may be another one by now."""
    leader = await cluster.leader()
    client = cluster.clients[leader]
    offset = client.append([b"a"])
    await client.committed(offset, 1)
    for node in list(VOTERS):
        await cluster.stop(node)
    for node in VOTERS:
        await cluster.start(node)
    client = cluster.clients[await cluster.leader()]
    with pytest.raises(NotLeader):
        await client.committed(offset, 1)


@on_a_cluster
async def test_a_failed_sync_ends_the_node(cluster: Cluster) -> None:
    leader = await cluster.leader()
    client = cluster.clients[leader]

    def before(operation: str, path: str) -> None:
        if operation == "sync":
            raise OSError("no medium found")

    cluster.disks[leader].before = before
    offset = client.append([b"a"])
    with pytest.raises(OSError, match="no medium"):
        await client.failed
    with pytest.raises(NotLeader):
        await client.committed(offset, 1)
    with pytest.raises(ConnectionError):
        await client.handle(rpc.vote("test", leader, 2, 99, 9, 9, False), PEER)
    cluster.disks[leader].before = lambda operation, path: None
    del cluster.clients[leader]
    assert await cluster.leader() != leader


@on_a_cluster
async def test_a_listener_that_fails_ends_the_node(cluster: Cluster) -> None:
    leader = await cluster.leader()

    def on_commit(base_offset: int, epoch: int, records: list[bytes]) -> None:
        raise KeyError("a record that cannot be applied")

    cluster.listeners[OBSERVER].on_commit = on_commit  # type: ignore[method-assign]
    cluster.clients[leader].append([b"a"])
    with pytest.raises(KeyError):
        await cluster.clients[OBSERVER].failed


@on_a_cluster
async def test_many_records_are_delivered_little_by_little_and_others_have_their_turn(cluster: Cluster) -> None:
    client, listener = cluster.clients[OBSERVER], cluster.listeners[OBSERVER]
    seen = {0}

    async def others() -> None:
        while len(listener.records) < 2000:
            seen.add(len(listener.records))
            await asyncio.sleep(0)

    leader = cluster.clients[await cluster.leader()]
    for _ in range(200):
        last = leader.append([b"x"] * 10)
    await asyncio.gather(others(), leader.committed(last, 5))
    sizes = sorted({*seen, 2000})
    assert max(after - before for before, after in pairwise(sizes)) <= 2 * DELIVERED_AT_ONCE
    assert client.failed.done() is False


@on_a_cluster
async def test_a_version_that_is_not_served_is_refused_and_harms_nobody(cluster: Cluster) -> None:
    from kio.schema.vote.v0 import request as old

    client = cluster.clients[await cluster.leader()]
    with pytest.raises(ValueError, match="VoteRequest version 0 is not served"):
        await client.handle(old.VoteRequest(cluster_id=None, topics=()), PEER)
    await client.committed(client.append([b"a"]), 1)


@on_a_cluster
async def test_a_fetch_whose_sender_has_gone_is_forgotten(cluster: Cluster) -> None:
    client = cluster.clients[await cluster.leader()]
    await client.committed(client.append([b"a"]), 1)
    fetch = rpc.fetch("test", 77, client.leader_epoch, client.end_offset, client.leader_epoch, 99, 60_000, 1000)
    task = asyncio.ensure_future(client.handle(fetch, PEER))
    await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert client._quorum.leadership is not None
    assert all(w.request is not fetch for w in client._quorum.leadership.waiting)


@on_a_cluster
async def test_one_sync_serves_everything_appended_in_one_turn(cluster: Cluster) -> None:
    leader = await cluster.leader()
    client = cluster.clients[leader]
    await client.committed(client.append([b"a"]), 1)
    syncs = 0

    def before(operation: str, path: str) -> None:
        nonlocal syncs
        syncs += operation == "sync"

    cluster.disks[leader].before = before
    last = [client.append([b"%d" % n]) for n in range(50)][-1]
    await client.committed(last, 1)
    assert syncs == 1


def test_a_client_that_could_not_start_can_be_closed() -> None:
    disk = simulated_disk()
    disk.make_directory("log")
    disk.write_atomically("log/quorum-state", b"damaged")

    async def body() -> None:
        network: Any = MemoryNetwork().of(None)
        client = RaftClient(1, VOTERS, "test", disk, "log", network, Random(1), CONFIG, wall_clock=time.time)
        with pytest.raises(QuorumStateError):
            await client.start()
        assert client.leader_id is None and not client.is_leader
        await client.close()

    asyncio.run(body())
