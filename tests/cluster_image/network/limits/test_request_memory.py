"""What peers may take of a node: memory for requests that are begun, waiting or being answered."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import Any
from unittest.mock import patch

import pytest

from cluster_image import wire
from cluster_image.network import Entity, Peer
from cluster_image.network.tcp import limits
from cluster_image.network.tcp.limits import (
    LARGE_BURST_S,
    LARGE_BYTES,
    PATIENCE_S,
    SMALL_BYTES,
    Pace,
    RequestMemory,
)
from tests.cluster_image.network.limits.peers import (
    MIB,
    Fake,
    an_answer,
    connections,
    is_closed,
    produce,
    until,
)
from tests.cluster_image.network.test_tcp import Echo, ask, on_both_loops, serving


@on_both_loops
async def test_a_request_that_is_too_large_for_its_api_closes_its_connection_as_soon_as_that_is_known() -> None:
    async with serving(Echo(), request_memory_bytes=8 * MIB) as (_, address):
        for frame in (
            wire.encode_request(ask("x"), 1, None)[4:],  # Metadata, of a MiB and more
            wire.encode_request(produce(0), 1, None)[4:],  # Produce, of more than half of what there is
        ):
            size = 4 * MIB + 1 if frame[:2] == b"\0\0" else MIB + 1
            reader, writer = await asyncio.open_connection(*address)
            writer.write((size - 1).to_bytes(4) + frame[:2])
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(reader.read(1), 0.1)
            writer.close()
            reader, writer = await asyncio.open_connection(*address)
            writer.write(size.to_bytes(4) + frame[:2])
            assert await asyncio.wait_for(is_closed(reader), 2)
            writer.close()


@patch("cluster_image.network.tcp.server.PATIENCE_S", 2)  # not by their being given up
@on_both_loops
async def test_requests_that_are_begun_and_not_ended_keep_nobody_waiting() -> None:
    async def acknowledge(request: Any, peer: Peer) -> Entity:
        return an_answer()

    frame = wire.encode_request(produce(3 * MIB), 1, None)
    async with serving(acknowledge, request_memory_bytes=16 * MIB) as (network, address):
        memory = network._listeners[0]._limits.requests
        async with connections(address, 40) as writers:
            for writer in writers:
                writer.write(frame[:-1])
            await asyncio.sleep(0.2)
            assert 0 < memory.total <= memory.limit
            honest = await network.connect(address, client_id="me", timeout=1)
            began = time.monotonic()
            await honest.request(ask("small"), timeout=5)
            assert time.monotonic() - began < 1
            with pytest.raises(ConnectionError):  # the answer is Metadata's
                await honest.request(produce(3 * MIB), timeout=5)
            assert memory.total <= memory.limit
        for _ in range(100):
            if not memory.total:
                break
            await asyncio.sleep(0.01)
        assert memory.total == 0, "nothing stays counted"


def test_large_requests_of_an_address_come_at_a_pace() -> None:
    pace = Pace(bytes_per_s=1000.0)
    assert pace.received("a", int(1000 * LARGE_BURST_S), now=5.0) == 0.0
    assert pace.received("a", 500, now=5.0) == pytest.approx(0.5)
    assert pace.received("a", 500, now=5.1) == pytest.approx(0.9), "whichever of its connections they come by"
    assert pace.received("b", 500, now=5.1) == pytest.approx(0.49)
    assert pace.received("a", 500, now=50.0) == pytest.approx(0.49), "nothing is saved up"


@on_both_loops
async def test_who_sends_large_requests_is_read_from_at_that_pace() -> None:
    """Which costs others their turns on the loop, and nobody who sends what clients send by default."""

    async def acknowledge(request: Any, peer: Peer) -> Entity:
        return an_answer()

    async with serving(acknowledge) as (network, address):
        network._listeners[0]._limits.pace = Pace(bytes_per_s=2 * MIB)  # type: ignore[misc]
        for size, least, most in ((LARGE_BYTES - 1000, 0.0, 1.0), (4 * MIB, 1.2, 5.0)):
            frame = wire.encode_request(produce(size), 1, None)
            reader, writer = await asyncio.open_connection(*address)
            began = time.monotonic()
            writer.write(frame)
            with suppress(ConnectionError):
                await asyncio.wait_for(reader.read(1), 5)
            took = time.monotonic() - began
            assert least < took < most
            writer.transport.abort()


def fakes(memory: RequestMemory, slownesses: Iterable[float]) -> list[Fake]:
    return [Fake(memory, slow) for slow in slownesses]


def test_memory_is_given_in_the_order_of_asking_and_small_requests_always_get_it() -> None:
    async def scenario() -> None:
        memory = RequestMemory(10 * SMALL_BYTES)
        a, b, c, d = fakes(memory, [0.0] * 4)
        assert a.want(6 * SMALL_BYTES) and not b.want(5 * SMALL_BYTES) and c.want(4 * SMALL_BYTES)
        assert not d.want(3 * SMALL_BYTES) and d.want(SMALL_BYTES)
        assert memory.total == 11 * SMALL_BYTES
        assert not d.want(4 * SMALL_BYTES)
        a.want(0)
        assert b.reads and not d.reads and memory.total == 10 * SMALL_BYTES
        memory.forget(c)
        assert d.reads and memory.total == 9 * SMALL_BYTES
        for each in (a, b, d):
            memory.forget(each)
        assert memory.total == 0

    asyncio.run(scenario())


def test_who_takes_longest_over_a_request_makes_room_for_others_that_wait() -> None:
    async def scenario() -> None:
        memory = RequestMemory(10 * SMALL_BYTES)
        quick, slow, slower, waiting = fakes(memory, [0.0, 1.0, 2.0, 0.0])
        assert quick.want(4 * SMALL_BYTES) and slow.want(3 * SMALL_BYTES) and slower.want(3 * SMALL_BYTES)
        await asyncio.sleep(PATIENCE_S)
        assert slower.reads, "nobody waits"
        assert not waiting.want(2 * SMALL_BYTES)
        await asyncio.sleep(PATIENCE_S)
        assert waiting.reads and slow.reads and quick.reads and not slower.reads

    asyncio.run(scenario())


def test_who_keeps_memory_while_it_only_waits_makes_room_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "WAITING_S", 0.3)

    async def scenario() -> None:
        memory = RequestMemory(10 * SMALL_BYTES)
        works, polls, small, waiting = fakes(memory, [0.0] * 4)
        assert works.want(4 * SMALL_BYTES) and polls.want(6 * SMALL_BYTES) and small.want(SMALL_BYTES)
        polls.waits = asyncio.get_running_loop().time()
        small.waits = polls.waits
        assert not waiting.want(3 * SMALL_BYTES)
        await asyncio.sleep(0.2)
        assert polls.reads and not waiting.reads, "it has not waited for long"
        await asyncio.sleep(0.3)
        assert works.reads and small.reads and waiting.reads and not polls.reads

    asyncio.run(scenario())


@on_both_loops
async def test_a_request_that_goes_on_after_its_connection_is_gone_still_counts() -> None:
    may_end, ended = asyncio.Event(), []

    async def handler(request: Entity, peer: Peer) -> Entity:
        await may_end.wait()
        ended.append(request)
        return an_answer()

    async with serving(handler) as (network, address):
        memory = network._listeners[0]._limits.requests
        async with connections(address, 3) as writers:
            for writer in writers:
                writer.write(wire.encode_request(produce(200_000), 1, None))
            await until(lambda: memory.total > 600_000)
        await asyncio.sleep(0.1)
        assert memory.total > 600_000 and not ended
        may_end.set()
        await until(lambda: len(ended) == 3 and memory.total == 0)


@on_both_loops
async def test_who_has_waited_for_records_and_sends_a_large_request_is_not_taken_for_one_that_waits() -> None:
    async def handler(request: Entity, peer: Peer) -> Entity:
        peer.only_waits()
        return an_answer()

    async with serving(handler) as (network, address), connections(address, 1) as (writer,):
        writer.write(wire.encode_request(ask("x"), 1, None))
        await until(lambda: network._listeners[0]._accepted)
        (connection,) = network._listeners[0]._accepted
        writer.write(wire.encode_request(produce(MIB), 2, None)[:-1])
        memory = network._listeners[0]._limits.requests
        await until(lambda: memory.total > MIB)
        assert connection.waits_since() == math.inf


@on_both_loops
async def test_who_leaves_while_its_request_only_waits_is_not_waited_for() -> None:
    waiting: list[Entity] = []
    cancelled: list[Entity] = []

    async def handler(request: Entity, peer: Peer) -> Entity:
        peer.only_waits()
        waiting.append(request)
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.append(request)
            raise
        return an_answer()

    async with serving(handler) as (_, address):
        async with connections(address, 1) as (writer,):
            writer.write(wire.encode_request(produce(1000), 1, None))
            await until(lambda: len(waiting) == 1)
        await until(lambda: cancelled == waiting)


@on_both_loops
async def test_a_request_that_begins_to_wait_once_its_peer_has_left_is_not_waited_for() -> None:
    begun, may_wait, cancelled = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def handler(request: Entity, peer: Peer) -> Entity:
        begun.set()
        await may_wait.wait()
        peer.only_waits()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.set()
            raise
        return an_answer()

    async with serving(handler) as (network, address):
        async with connections(address, 1) as (writer,):
            writer.write(wire.encode_request(produce(1000), 1, None))
            await begun.wait()
        await until(lambda: not network._listeners[0]._accepted)
        may_wait.set()
        await until(cancelled.is_set)
