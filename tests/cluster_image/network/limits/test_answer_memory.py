"""What peers may take of a node: memory for answers that are not read yet."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import Any

from cluster_image import wire
from cluster_image.network import Entity, Peer
from cluster_image.network.tcp.limits import (
    ANSWER_LOOK_S,
    PATIENCE_S,
    AnswerMemory,
)
from cluster_image.wire.encoder import APART_BYTES
from tests.cluster_image.network.limits.peers import (
    MIB,
    Unread,
    an_answer,
    connections,
    fetched,
    make_topics,
)
from tests.cluster_image.network.test_tcp import ask, on_both_loops, serving
from workloads.clients.kio.requests import fetch_request


@on_both_loops
async def test_answers_that_nobody_reads_keep_nobody_waiting() -> None:
    text = "x" * 30_000

    async def generous(request: Any, peer: Peer) -> Entity:
        if request.topics[0].name == "large":
            await peer.room.wait()
        return an_answer(text)

    async with serving(generous, answer_memory_bytes=MIB) as (network, address):
        memory = network._listeners[0]._limits.answers
        asked = wire.encode_request(ask("large"), 1, None) * 500
        async with connections(address, 30) as writers:
            for writer in writers:
                writer.write(asked)
            peak = 0
            for _ in range(20):
                await asyncio.sleep(0.02)
                peak = max(peak, memory.total)
            assert 0 < peak < 2 * MIB
            honest = await network.connect(address, client_id="me", timeout=1)
            began = time.monotonic()
            assert (await honest.request(ask("small"), timeout=5)).cluster_id == text
            assert time.monotonic() - began < 1
            assert (await honest.request(ask("large"), timeout=10)).cluster_id == text
        for _ in range(100):
            if not memory.total:
                break
            await asyncio.sleep(0.01)
        assert memory.total == 0, "nothing stays counted"


@on_both_loops
async def test_large_answers_are_made_one_after_the_other_where_there_is_no_room_for_all() -> None:
    made = most = 0

    async def generous(request: Any, peer: Peer) -> Entity:
        nonlocal made, most
        await peer.room.wait()
        peer.room.hold(MIB)
        made += 1
        most = max(most, made)
        await asyncio.sleep(0.01)
        made -= 1
        return an_answer()

    async with serving(generous, answer_memory_bytes=12 * MIB) as (network, address):  # a quarter of it for one address
        asking = [await network.connect(address, client_id="me", timeout=1) for _ in range(20)]
        await asyncio.gather(*(one.request(ask("large"), timeout=5) for one in asking))
        assert most == 3 and network._listeners[0]._limits.answers.total == 0


@on_both_loops
async def test_an_answer_counts_whole_until_the_last_of_it_is_read() -> None:
    """For so long it is kept, however much of it the network has taken."""
    text = "x" * 30_000

    async def generous(request: Any, peer: Peer) -> Entity:
        return make_topics(text, 400)

    async with serving(generous) as (network, address), connections(address, 1) as (writer,):
        memory = network._listeners[0]._limits.answers
        writer.write(wire.encode_request(ask("large"), 1, None))
        async with asyncio.timeout(5):
            while not memory.total:
                await asyncio.sleep(0.01)
        (peer,) = memory._unread
        assert 0 < peer.unread_bytes() < 400 * len(text) < memory.total


@on_both_loops
async def test_an_answer_is_kept_no_longer_than_until_the_network_has_it() -> None:
    """And not until the connection's next request is answered, which may wait for room: nobody counts it."""

    class Kept(bytes):
        def __del__(self) -> None:
            freed.append(len(self))

    freed: list[int] = []

    async def read(request: Any, peer: Peer) -> Entity:
        if request.__api_key__ != wire.FETCH:
            await asyncio.sleep(60)
        return fetched(Kept(APART_BYTES))

    async with serving(read) as (_, address):
        reader, writer = await asyncio.open_connection(*address)
        answered = fetch_request("t", (), max_wait=0, min_bytes=1, max_bytes=1, partition_max_bytes=1)
        for request in (answered, ask("waits")):
            writer.write(wire.encode_request(request, 1, None))
        await reader.readexactly(APART_BYTES)
        await asyncio.sleep(0.05)
        assert freed == [APART_BYTES]
        writer.transport.abort()


@on_both_loops
async def test_who_waits_for_room_goes_on_in_turns() -> None:
    """Once there is room for all of them, or their connections are gone."""
    began: list[float] = []

    async def generous(request: Any, peer: Peer) -> Entity:
        if request.topics[0].name == "filling":
            peer.room.hold(MIB)
            await asyncio.sleep(0.2)
        elif request.topics[0].name == "large":
            await peer.room.wait()
            time.sleep(0.005)
            began.append(time.monotonic())
        return an_answer()

    async with serving(generous, answer_memory_bytes=MIB) as (network, address):
        connect = partial(network.connect, address, client_id="me", timeout=1)
        filling, *large = [await connect() for _ in range(41)]
        filled = asyncio.create_task(filling.request(ask("filling"), timeout=5))
        await asyncio.sleep(0.05)
        waiting = [asyncio.create_task(one.request(ask("large"), timeout=5)) for one in large]
        await filled
        cycles = 0
        while len(began) < len(large):
            await asyncio.sleep(0)
            cycles += 1
        assert cycles > len(large) / 2
        await asyncio.gather(*waiting)


def test_one_address_has_a_quarter_of_the_memory_for_answers_and_makes_room_for_itself() -> None:
    async def scenario() -> None:
        memory = AnswerMemory(20)
        greedy, modest = Unread("a", 5), Unread("b", 4)
        memory.note(modest)
        memory.note(greedy)
        await asyncio.wait_for(memory.room("b"), PATIENCE_S / 2)
        began = time.monotonic()
        await asyncio.wait_for(memory.room("a"), 10 * PATIENCE_S)
        assert time.monotonic() - began >= PATIENCE_S - ANSWER_LOOK_S
        assert (greedy.kept, modest.kept) == (0, 4), "who stands in nobody's way stays"

    asyncio.run(scenario())


def test_room_for_one_address_is_not_room_for_another() -> None:
    async def scenario() -> None:
        memory = AnswerMemory(10)
        a, b = Unread("a", 5), Unread("b", 5)
        for each in (a, b):
            memory.note(each)
        waits = {host: asyncio.ensure_future(memory.room(host)) for host in ("a", "b", "c")}
        await asyncio.sleep(0.01)
        assert not any(wait.done() for wait in waits.values())
        a.kept = 1
        memory.note(a)
        for _ in range(3):
            await asyncio.sleep(0)
        assert waits["a"].done() and waits["c"].done() and not waits["b"].done()
        waits["b"].cancel()

    asyncio.run(scenario())
