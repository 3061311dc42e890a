"""What cluster_image/v2/zookeeper promises, of the model and of Apache ZooKeeper alike."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from cluster_image.v2.zookeeper import (
    BadVersion,
    Check,
    ConnectionLoss,
    Create,
    Delete,
    Event,
    EventType,
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NotEmpty,
    SessionExpired,
    SessionState,
    SetData,
    ZooKeeper,
)

from .worlds import SESSION_S, World


async def started(world: World) -> ZooKeeper:
    client = world.client()
    await client.start()
    return client


async def until(holds: Callable[[], Any], seconds: float = 20.0) -> None:
    async with asyncio.timeout(seconds):
        while not holds():
            await asyncio.sleep(0.01)


async def retried(call: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    """While there is no connection."""
    while True:
        try:
            return await call()
        except ConnectionLoss:
            await asyncio.sleep(0.05)


def test_nodes_have_data_versions_and_children(world: World) -> None:
    async def scenario(world: World) -> None:
        client = await started(world)
        a, b = f"{world.base}/a", f"{world.base}/a/b"
        assert await client.create(a, b"1") == a
        assert await client.create(b) == b
        data, stat = await client.get(a)
        assert (data, stat.version, stat.cversion, stat.owner, stat.children) == (b"1", 0, 1, 0, 1)
        changed = await client.set(a, b"2")
        assert changed.version == 1 and changed.mzxid > stat.mzxid and changed.czxid == stat.czxid
        assert await client.get(a) == (b"2", changed)
        assert await client.children(a) == ["b"]
        await client.delete(b)
        after = await client.exists(a)
        assert after is not None and (after.cversion, after.children) == (2, 0) and after.pzxid > changed.mzxid
        assert await client.exists(b) is None
        await client.delete(a, version=1)

    world.run(scenario)


def test_what_cannot_be_done_is_refused_and_changes_nothing(world: World) -> None:
    async def scenario(world: World) -> None:
        client = await started(world)
        a = f"{world.base}/a"
        await client.create(a, b"1")
        await client.create(f"{a}/b")
        await client.create(f"{world.base}/e", ephemeral=True)
        for refusal, call in (
            (NodeExists, client.create(a)),
            (NoNode, client.create(f"{world.base}/missing/x")),
            (NoChildrenForEphemerals, client.create(f"{world.base}/e/x")),
            (NoNode, client.get(f"{world.base}/missing")),
            (NoNode, client.children(f"{world.base}/missing")),
            (NoNode, client.set(f"{world.base}/missing", b"")),
            (BadVersion, client.set(a, b"2", version=7)),
            (NoNode, client.delete(f"{world.base}/missing")),
            (BadVersion, client.delete(a, version=7)),
            (NotEmpty, client.delete(a)),
        ):
            with pytest.raises(refusal):
                await call
        assert (await client.get(a))[0] == b"1"

    world.run(scenario)


def test_sequences_count_what_was_created_beside_them(world: World) -> None:
    async def scenario(world: World) -> None:
        client = await started(world)
        first = await client.create(f"{world.base}/q-", sequence=True)
        await client.create(f"{world.base}/other")
        await client.delete(first)
        third = await client.create(f"{world.base}/q-", b"x", sequence=True)
        assert (first, third) == (f"{world.base}/q-0000000000", f"{world.base}/q-0000000002")

    world.run(scenario)


def test_several_operations_are_done_together_or_not_at_all(world: World) -> None:
    async def scenario(world: World) -> None:
        client = await started(world)
        a, b = f"{world.base}/a", f"{world.base}/b"
        results = await client.multi(
            [Create(a, b"1"), SetData(a, b"2"), Check(a, 1), Create(f"{a}/c"), Delete(f"{a}/c")]
        )
        assert results[0] == a and list(results[2:]) == [None, f"{a}/c", None]
        with pytest.raises(BadVersion):
            await client.multi([Create(b), Delete(a), Check(world.base, 7), Create(f"{b}/c")])
        assert await client.exists(b) is None
        assert (await client.get(a))[0] == b"2"
        with pytest.raises(NodeExists):
            await client.multi([SetData(a, b"3"), Create(a)])
        assert (await client.get(a))[0] == b"2"

    world.run(scenario)


def test_a_watch_fires_once_and_before_what_came_after_it_is_seen(world: World) -> None:
    async def scenario(world: World) -> None:
        client, other = await started(world), await started(world)
        a = f"{world.base}/a"
        seen: list[Event] = []
        assert await client.exists(a, seen.append) is None
        await other.create(a, b"0")
        await until(lambda: seen)
        assert seen == [Event(EventType.CREATED, a)]
        for number in range(1, 30):
            seen.clear()
            before, _ = await client.get(a, seen.append)
            changing = asyncio.create_task(other.set(a, b"%d" % number))
            while True:
                told = list(seen)
                data, _ = await client.get(a)
                if data != before:
                    assert told or seen, "the change was seen before its event"
                    break
            await changing
            assert seen == [Event(EventType.CHANGED, a)]
        await other.set(a, b"nobody watches")
        await client.get(a)
        assert len(seen) == 1

    world.run(scenario)


def test_each_kind_of_watch_hears_of_its_own(world: World) -> None:
    async def scenario(world: World) -> None:
        client, other = await started(world), await started(world)
        a = f"{world.base}/a"
        await other.create(a)
        of_data: list[Event] = []
        of_children: list[Event] = []
        of_base: list[Event] = []
        assert await client.exists(a) is not None
        await client.get(a, of_data.append)
        await client.children(a, of_children.append)
        await client.children(world.base, of_base.append)
        await other.create(f"{a}/b")
        await until(lambda: of_children)
        assert (of_data, of_children, of_base) == ([], [Event(EventType.CHILD, a)], [])
        await client.children(a, of_children.append)
        await other.delete(f"{a}/b")
        await until(lambda: len(of_children) == 2)
        await client.children(a, of_children.append)
        await other.delete(a)
        await until(lambda: of_base)
        assert of_data == [Event(EventType.DELETED, a)]
        assert of_children == [Event(EventType.CHILD, a)] * 2 + [Event(EventType.DELETED, a)]
        assert of_base == [Event(EventType.CHILD, world.base)]
        with pytest.raises(NoNode):
            await client.get(a, of_data.append)  # watches nothing
        await other.create(a)
        await client.exists(a)
        assert len(of_data) == 1

    world.run(scenario)


def test_ephemeral_nodes_go_with_the_session_that_is_closed(world: World) -> None:
    async def scenario(world: World) -> None:
        client, other = await started(world), await started(world)
        e = f"{world.base}/e"
        await client.create(e, b"mine", ephemeral=True)
        await other.set(world.base, b"")  # what was written before this is known here from now on
        _, stat = await other.get(e)
        assert stat.owner == client.session
        seen: list[Event] = []
        await other.exists(e, seen.append)
        await client.close()
        await until(lambda: seen)
        assert seen == [Event(EventType.DELETED, e)] and await other.exists(e) is None

    world.run(scenario)


def test_a_session_that_is_not_heard_of_in_time_expires(world: World) -> None:
    async def scenario(world: World) -> None:
        client, other = await started(world), await started(world)
        e = f"{world.base}/e"
        await client.create(e, ephemeral=True)
        session = client.session
        watched: list[Event] = []
        gone: list[Event] = []
        await other.set(world.base, b"")  # what was written before this is known here from now on
        assert await other.exists(e, gone.append) is not None
        loop = asyncio.get_running_loop()
        heard = loop.time()  # or later: cutting takes its time where the machine is busy
        await client.get(world.base, watched.append)
        await world.isolate(client)
        cut = loop.time()
        await until(lambda: client.state is SessionState.SUSPENDED)
        assert watched == [Event(EventType.LOST, world.base)]
        with pytest.raises(ConnectionLoss):
            await client.get(world.base)
        await until(lambda: gone)
        assert gone == [Event(EventType.DELETED, e)]
        assert loop.time() - heard >= SESSION_S * 0.6 and loop.time() - cut <= SESSION_S + 3
        assert client.session == session, "nobody can have told it"
        await world.reconnect(client)
        await until(lambda: client.state is SessionState.CONNECTED and client.session != session)
        assert await client.exists(e) is None
        assert len(watched) == 1

    world.run(scenario)


def test_a_session_goes_on_by_another_connection(world: World) -> None:
    async def scenario(world: World) -> None:
        client = await started(world)
        e = f"{world.base}/e"
        await client.create(e, ephemeral=True)
        session = client.session
        states: list[SessionState] = []
        client.add_listener(states.append)
        await world.disconnect(client)
        await until(lambda: states == [SessionState.SUSPENDED, SessionState.CONNECTED])
        assert client.session == session and await client.exists(e) is not None

    world.run(scenario)


def test_another_server_takes_a_session_over_and_nothing_is_lost(world: World) -> None:
    async def scenario(world: World) -> None:
        clients = [await started(world) for _ in range(3)]
        for number, client in enumerate(clients):
            await client.create(f"{world.base}/e{number}", ephemeral=True)
        sessions = [client.session for client in clients]
        await world.kill_leader()
        for number, client in enumerate(clients):
            await retried(lambda client=client, number=number: client.create(f"{world.base}/n{number}"))
        assert [client.session for client in clients] == sessions
        names = await retried(lambda: clients[0].children(world.base))
        assert {"e0", "e1", "e2", "n0"} <= set(names)
        await world.start_all()
        assert {"e0", "e1", "e2", "n0", "n1", "n2"} <= set(await retried(lambda: clients[2].children(world.base)))

    world.run(scenario)


def test_calls_after_the_end_of_a_session_are_refused(world: World) -> None:
    async def scenario(world: World) -> None:
        client = await started(world)
        await client.close()
        with pytest.raises((ConnectionLoss, SessionExpired)):
            await client.get(world.base)

    world.run(scenario)
