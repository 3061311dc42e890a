"""What peers may take of a node: turns on the event loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any
from unittest.mock import patch

from cluster_image import wire
from cluster_image.network import Entity, Handler, Peer
from cluster_image.network.slices import SLICE, Pauses
from cluster_image.network.tcp.limits import (
    Turns,
)
from tests.cluster_image.network.limits.peers import (
    MIB,
    an_answer,
    connections,
    produce,
)
from tests.cluster_image.network.test_tcp import ask, on_both_loops, serving


@on_both_loops
async def test_reading_requests_counts_as_a_turn() -> None:
    """Strangers that send large ones are served as much as who asks for little, and not whenever there is something to
    read from them."""
    pieces = 0
    feed = wire.FrameSplitter.feed

    def slow(self: wire.FrameSplitter, data: bytes) -> Any:
        nonlocal pieces
        if self.begun > MIB:
            pieces += 1
            time.sleep(0.002)
        return feed(self, data)

    async def works(request: Any, peer: Peer) -> Entity:
        time.sleep(0.005)
        return an_answer()

    with patch.object(wire.FrameSplitter, "feed", slow):
        await asked_beside_large_ones(works, lambda: pieces)


async def asked_beside_large_ones(works: Handler, pieces: Callable[[], int]) -> None:
    async with serving(works) as (network, address):
        honest = await network.connect(address, client_id="me", timeout=1)
        strangers = [await asyncio.open_connection(*address, local_addr=("127.0.0.66", 0)) for _ in range(10)]
        frame = wire.encode_request(produce(8 * MIB), 1, None)
        for _, writer in strangers:
            writer.write(frame[:-1])
        await asyncio.sleep(0.05)
        assert pieces(), "it has begun"
        longest = []  # of each of three goes: a machine that stands still for a moment does so once
        for _ in range(3):
            longest.append(0)
            for _ in range(20):
                before = pieces()
                await honest.request(ask("small"), timeout=5)
                longest[-1] = max(longest[-1], pieces() - before)
        assert pieces() > 20 and min(longest) <= 10, longest
        for _, writer in strangers:
            writer.transport.abort()


@on_both_loops
async def test_what_the_node_does_itself_has_its_turn_between_requests() -> None:
    """Requests without an answer never wait for anything: their connections would be served without a pause."""

    handled, between_beats = 0, []  # requests in all; requests between one turn of the node's own and the next

    async def busy(request: Any, peer: Peer) -> None:
        nonlocal handled
        time.sleep(0.002)
        handled += 1

    async def heartbeat() -> None:
        while True:
            before = handled
            await asyncio.sleep(0)
            between_beats.append(handled - before)

    async with serving(busy) as (_, address), connections(address, 20) as writers:
        frames = wire.encode_request(produce(10, acks=0), 1, None) * 60
        beating = asyncio.create_task(heartbeat())
        for writer in writers:
            writer.write(frames)
        await asyncio.sleep(1)
        beating.cancel()
    # In requests, not in seconds: a machine that stands still makes the time longer, and the count no larger.
    assert len(between_beats) > 20 and handled > 100 and max(between_beats) <= 10, sorted(between_beats)[-5:]


def test_turns_are_for_one_at_a_time_once_a_cycle_is_used_up() -> None:
    async def scenario() -> None:
        turns, done = Turns(), []

        async def work(number: int) -> int:
            time.sleep(0.01)
            await asyncio.sleep(0.001)
            return number

        async def ask_for(number: int) -> None:
            await turns.take("a")
            done.append(await turns.timed("a", work(number)))

        await asyncio.gather(*map(ask_for, range(20)))
        assert done == sorted(done)
        raising = asyncio.create_task(cancelled(turns))
        await asyncio.sleep(0.01)
        raising.cancel()
        assert await raising == "cancelled"

    asyncio.run(scenario())


def asking(slice_s: float) -> tuple[Callable[..., Coroutine[Any, Any, None]], list[str]]:
    """A request of so many slices from an address, one unless told; and the addresses whose slices have been done."""
    turns, order = Turns(), []

    async def work(host: str, slices: int) -> None:
        for number in range(slices):
            if number:
                await asyncio.sleep(0)
            order.append(host)
            time.sleep(slice_s)

    async def ask_for(host: str, slices: int = 1) -> None:
        await turns.take(host)
        await turns.timed(host, work(host, slices))

    return ask_for, order


def test_an_address_that_has_taken_much_lets_others_go_first() -> None:
    async def scenario() -> None:
        ask_for, order = asking(0.01)
        many = [asyncio.create_task(ask_for("many")) for _ in range(20)]
        await asyncio.sleep(0.02)
        assert 0 < len(order) < 10
        await asyncio.gather(ask_for("few"), *many)
        assert order.index("few") < 12

    asyncio.run(scenario())


def test_an_address_that_comes_late_has_no_claim_on_what_others_took_before() -> None:
    """Producers go on asking; a port scanner that has never been here must not have all turns until it has had as
    many."""

    async def scenario() -> None:
        ask_for, order = asking(0.005)
        for _ in range(30):
            await ask_for("long here")
        order.clear()
        late = [asyncio.create_task(ask_for("late")) for _ in range(20)]
        await asyncio.sleep(0.01)
        before = len(order)
        await asyncio.gather(ask_for("long here"), *late)
        assert order.index("long here") <= before + 3

    asyncio.run(scenario())


def test_a_loop_in_slices_takes_a_turn_for_each() -> None:
    """So that two hundred of them at once hold nobody up for longer than one."""

    async def scenario() -> None:
        ask_for, order = asking(0.003)
        many = [asyncio.create_task(ask_for("many", 5)) for _ in range(20)]
        await asyncio.sleep(0.02)
        before = len(order)
        await asyncio.gather(ask_for("few", 1), *many)
        assert order.index("few") <= before + 2

    asyncio.run(scenario())


def test_what_outlives_a_cancellation_goes_on() -> None:
    async def outlives() -> str:
        try:
            async with asyncio.timeout(0.01):
                await asyncio.sleep(10)
        except TimeoutError:
            await asyncio.sleep(0.001)
            await asyncio.sleep(0)
        return "went on"

    async def scenario() -> str:
        return await Turns().timed("a", outlives())

    assert asyncio.run(scenario()) == "went on"


async def cancelled(turns: Turns) -> str:
    async def wait() -> None:
        await asyncio.sleep(60)

    try:
        await turns.timed("a", wait())
    except asyncio.CancelledError:
        return "cancelled"
    return "done"


def test_a_long_loop_lets_others_go_on() -> None:
    async def scenario() -> int:
        turns = 0

        async def other() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        task = asyncio.create_task(other())
        pauses = Pauses()
        for _ in range(10 * SLICE):
            await pauses.after(1)
        task.cancel()
        return turns

    assert asyncio.run(scenario()) == 10
