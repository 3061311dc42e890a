"""What peers may take of a node: memory for requests and answers, and turns on the event loop."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any
from unittest.mock import patch

import pytest
from kio.schema.errors import ErrorCode
from kio.schema.fetch.v12.response import FetchableTopicResponse, FetchResponse, PartitionData
from kio.schema.metadata.v12.request import MetadataRequestTopic
from kio.schema.metadata.v12.response import MetadataResponse, MetadataResponseBroker
from kio.schema.produce.v9.request import PartitionProduceData, ProduceRequest, TopicProduceData
from kio.schema.types import BrokerId

from cluster_image import wire
from cluster_image.network import Address, Entity, Handler, Peer, tcp_limits
from cluster_image.network.sasl import Credentials
from cluster_image.network.slices import SLICE, Pauses
from cluster_image.network.tcp import LONG_BYTES, TcpNetwork
from cluster_image.network.tcp_limits import (
    ANSWER_LOOK_S,
    LARGE_BURST_S,
    LARGE_BYTES,
    PATIENCE_S,
    SMALL_BYTES,
    AnswerMemory,
    Pace,
    RequestMemory,
    Turns,
)
from cluster_image.telemetry.complaints import PER_SECOND, Complaints
from cluster_image.wire.encoder import APART_BYTES
from cluster_image.wire.messages import milliseconds
from tests.cluster_image.network.test_tcp import Echo, ask, on_both_loops, serving
from tests.clusters.fake_broker import free_port
from workloads.client.requests import fetch_request

MIB = 1 << 20


def fetched(records: bytes) -> Entity:
    data = PartitionData(
        partition_index=0, error_code=ErrorCode.none, high_watermark=1, records=records, aborted_transactions=None
    )  # type: ignore[call-arg]
    topics = (FetchableTopicResponse(topic="t", partitions=(data,)),)
    return FetchResponse(throttle_time=timedelta(0), error_code=ErrorCode.none, session_id=0, responses=topics)  # type: ignore[arg-type]


def produce(size: int, acks: int = -1) -> ProduceRequest:
    data = PartitionProduceData(index=0, records=bytes(size))
    return ProduceRequest(
        transactional_id=None, acks=acks, timeout=milliseconds(2000),
        topic_data=(TopicProduceData(name="t", partition_data=(data,)),),
    )  # fmt: skip


def an_answer(text: str = "") -> Entity:
    return MetadataResponse(throttle_time=timedelta(0), brokers=(), topics=(), cluster_id=text)  # type: ignore[arg-type]


@asynccontextmanager
async def connections(address: Address, count: int) -> AsyncIterator[list[asyncio.StreamWriter]]:
    """That read nothing, as a stream reader stops to at its limit."""
    opened = [await asyncio.open_connection(*address, limit=1024) for _ in range(count)]
    try:
        yield [writer for _, writer in opened]
    finally:
        for _, writer in opened:
            writer.transport.abort()
        await asyncio.sleep(0)


async def is_closed(reader: asyncio.StreamReader) -> bool:
    with suppress(ConnectionError):
        return await reader.read() == b""
    return True


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


@patch("cluster_image.network.tcp.PATIENCE_S", 2)  # not by their being given up
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


class Fake:
    """A connection that holds what it is told to."""

    host = "a"

    def __init__(self, memory: RequestMemory, slow: float = 0.0) -> None:
        self.memory = memory
        self.slow = slow
        self.waits = math.inf
        self.wants = 0
        self.reads = True

    def want(self, size: int) -> bool:
        self.wants = size
        self.reads = self.memory.hold(self, size)
        return self.reads

    def read_on(self) -> None:
        self.want(self.wants)

    def give_up(self, reason: str) -> None:
        self.reads = False
        self.memory.forget(self)

    def slowness(self, now: float) -> float:
        return self.slow

    def waits_since(self) -> float:
        return self.waits

    def unread_bytes(self) -> int:
        return 0

    def kept_bytes(self) -> int:
        return 0


class Unread(Fake):
    """A connection with answers that nobody reads."""

    def __init__(self, host: str, kept: int) -> None:
        super().__init__(RequestMemory(0))
        self.host = host
        self.kept = kept

    def kept_bytes(self) -> int:
        return self.kept

    def unread_bytes(self) -> int:
        return self.kept

    def give_up(self, reason: str) -> None:
        self.kept = 0


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


def make_topics(text: str, count: int) -> Entity:
    """An answer of so many times this text."""
    brokers = tuple(
        MetadataResponseBroker(node_id=BrokerId(number), host=text, port=1, rack=None)  # type: ignore[arg-type]
        for number in range(count)
    )
    return replace(an_answer(), brokers=brokers)


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
        strangers = [
            await asyncio.open_connection(*address, local_addr=("127.0.0.66", 0)) for _ in range(10)
        ]
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
    monkeypatch.setattr(tcp_limits, "WAITING_S", 0.3)

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


async def until(true: Callable[[], object]) -> None:
    async with asyncio.timeout(5):
        while not true():
            await asyncio.sleep(0.01)


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


def test_an_error_that_strangers_can_cause_does_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async def handler(request: Entity, peer: Peer) -> Entity:
        raise ValueError("not foreseen")

    async def story() -> None:
        async with serving(handler) as (network, address):
            for _ in range(3 * PER_SECOND):
                connection = await network.connect(address, client_id="me", timeout=1)
                with pytest.raises(ConnectionError):
                    await connection.request(ask("x"), timeout=5)

    asyncio.run(story())
    with_traceback = [record for record in caplog.records if record.exc_info]
    assert PER_SECOND <= len(with_traceback) < 3 * PER_SECOND


@on_both_loops
async def test_what_one_request_may_name_is_bounded_for_all_but_nodes() -> None:
    echo, ours = Echo(), Credentials("node", "secret")
    network = TcpNetwork(wire.SUPPORTED["broker"], max_client_elements=100, credentials=ours)
    address = Address("127.0.0.1", free_port())
    await network.listen(address, echo)
    try:
        topics = tuple(MetadataRequestTopic(topic_id=None, name=f"t{number}") for number in range(101))  # type: ignore[arg-type]
        for long in (False, True):  # also by the thread that decodes what is long
            name = "x" * (LONG_BYTES if long else 1)
            many, few = (
                replace(ask("x"), topics=(*some, MetadataRequestTopic(topic_id=None, name=name)))  # type: ignore[arg-type]
                for some in (topics, topics[:90])
            )
            client = await TcpNetwork().connect(address, client_id="me", timeout=5)
            await client.request(few, timeout=5)
            with pytest.raises(ConnectionError):
                await client.request(many, timeout=5)
            node = await TcpNetwork(credentials=ours).connect(address, client_id="node", timeout=5)
            await node.request(many, timeout=5)
    finally:
        await network.close()


@on_both_loops
async def test_one_address_may_have_so_many_connections_and_no_more() -> None:
    async with serving(Echo(), max_connections_per_ip=3) as (_, address):
        opened = [await asyncio.open_connection(*address) for _ in range(3)]
        reader, writer = await asyncio.open_connection(*address)
        assert await asyncio.wait_for(is_closed(reader), 2)
        writer.close()
        assert not opened[0][0].at_eof()
        opened[0][1].transport.abort()
        await asyncio.sleep(0.05)
        client = await TcpNetwork().connect(address, client_id="me", timeout=5)
        await client.request(ask("x"), timeout=5)
        for _, writer in opened:
            writer.transport.abort()


def test_what_strangers_cause_does_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        complaints = Complaints(logging.getLogger("test"))
        loop = asyncio.get_running_loop()
        now = 5.0
        loop.time = lambda: now  # type: ignore[method-assign]
        for _ in range(1000):
            complaints.warn("refused: %s", "it")
        now = 6.0
        complaints.warn("refused: %s", "another")

    asyncio.run(scenario())
    assert [record.getMessage() for record in caplog.records] == [
        *["refused: it"] * PER_SECOND, f"{1000 - PER_SECOND} more such lines were kept back", "refused: another",
    ]  # fmt: skip


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
