"""TcpNetwork: order, isolation of connections, and peers that misbehave."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from datetime import timedelta
from typing import Any
from unittest.mock import patch

import pytest
import uvloop
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kio.schema.api_versions.v0.response import ApiVersionsResponse as ApiVersionsResponseV0
from kio.schema.api_versions.v3.request import ApiVersionsRequest
from kio.schema.errors import ErrorCode
from kio.schema.metadata.v12.request import MetadataRequest
from kio.schema.metadata.v12.response import MetadataResponse
from kio.schema.produce.v9.request import ProduceRequest

from cluster_image import wire
from cluster_image.network import Address, Entity, Handler, Peer, tcp
from cluster_image.network.tcp import TcpNetwork
from cluster_image.network.tcp.transport import LONG_BYTES
from tests.clusters.fake_broker import free_port
from workloads.clients.kio.requests import metadata_request

Test = Callable[[], Coroutine[Any, Any, None]]


def on_both_loops(test: Test) -> Callable[[Any], None]:
    @pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
    def wrapper(run: Any) -> None:
        async def bounded() -> None:
            async with asyncio.timeout(20):
                await test()

        run(bounded())

    wrapper.__name__ = test.__name__
    return wrapper


def ask(name: str = "") -> MetadataRequest:
    """A request that says its name in the response (see Echo)."""
    request: MetadataRequest = metadata_request(name)
    return request


class Echo:
    """Answers with the name it was asked by, as cluster id; "slow…" names wait for `release`."""

    def __init__(self) -> None:
        self.release = asyncio.Event()
        self.handled: list[str] = []
        self.running = 0
        self.most_running = 0
        self.peers: list[Peer] = []

    async def __call__(self, request: Any, peer: Peer) -> Entity | None:
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        self.peers.append(peer)
        try:
            if request.__api_key__ == wire.PRODUCE:
                self.handled.append("produce")
                return None
            name = request.topics[0].name
            if name.startswith("slow"):
                await self.release.wait()
            if name == "crash":
                raise ValueError("a bug in a handler")
            self.handled.append(name)
            return MetadataResponse(throttle_time=timedelta(0), brokers=(), topics=(), cluster_id=name)  # type: ignore[arg-type]
        finally:
            self.running -= 1


@asynccontextmanager
async def serving(handler: Handler, **options: Any) -> AsyncIterator[tuple[TcpNetwork, Address]]:
    network, address = TcpNetwork(wire.SUPPORTED["broker"], **options), Address("127.0.0.1", free_port())
    await network.listen(address, handler)
    try:
        yield network, address
    finally:
        await network.close()


@on_both_loops
async def test_requests_of_one_connection_are_handled_one_at_a_time_and_answered_in_order() -> None:
    echo = Echo()
    async with serving(echo) as (network, address):
        connection = await network.connect(address, client_id="me", timeout=1)
        answers = [asyncio.create_task(connection.request(ask(n), timeout=5)) for n in ("slow", "a", "b", "c")]
        await asyncio.sleep(0.05)
        assert echo.handled == []  # a and b wait behind the slow one
        other = await network.connect(address, client_id="other", timeout=1)
        assert (await other.request(ask("elsewhere"), timeout=5)).cluster_id == "elsewhere"
        echo.release.set()
        assert [(await answer).cluster_id for answer in answers] == ["slow", "a", "b", "c"]
        assert echo.handled == ["elsewhere", "slow", "a", "b", "c"]
        assert echo.most_running == 2  # one for each connection
        assert echo.peers[0] == Peer("me", "127.0.0.1")


@on_both_loops
async def test_api_versions_is_answered_without_the_handler_and_with_error_35_when_too_new() -> None:
    echo = Echo()
    async with serving(echo) as (network, address):
        connection = await network.connect(address, client_id="me", timeout=1)
        request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
        answer = await connection.request(request, timeout=1)
        assert {k.api_key: (k.min_version, k.max_version) for k in answer.api_keys} == wire.SUPPORTED["broker"]
        reader, writer = await asyncio.open_connection(*address)
        writer.write(struct.pack(">ihhih", 10, 18, 99, 5, -1))
        length = struct.unpack(">i", await reader.readexactly(4))[0]
        frame = await reader.readexactly(length)
        too_new: ApiVersionsResponseV0 = wire.decode_response(frame, 18, 0)
        assert wire.response_correlation_id(frame) == 5
        assert too_new.error_code is ErrorCode.unsupported_version
        writer.close()
    assert echo.peers == []


@on_both_loops
async def test_produce_without_acks_is_not_answered_and_not_waited_for() -> None:
    echo = Echo()
    async with serving(echo) as (network, address):
        connection = await network.connect(address, client_id="me", timeout=1)
        unanswered = ProduceRequest(acks=0, timeout=timedelta(0), topic_data=())  # type: ignore[arg-type]
        assert await connection.request(unanswered, timeout=1) is None
        assert (await connection.request(ask("next"), timeout=1)).cluster_id == "next"
        assert echo.handled == ["produce", "next"]


@on_both_loops
async def test_requests_received_before_a_client_leaves_are_still_handled() -> None:
    echo = Echo()
    async with serving(echo) as (network, address):
        connection = await network.connect(address, client_id="me", timeout=1)
        frame = wire.encode_request(ProduceRequest(acks=0, timeout=timedelta(0), topic_data=()), 1, None)  # type: ignore[arg-type]
        _, writer = await asyncio.open_connection(*address)
        writer.write(frame * 3)
        writer.close()
        for _ in range(100):
            if len(echo.handled) == 3:
                break
            await asyncio.sleep(0.01)
        assert echo.handled == ["produce"] * 3
        connection.close()


@on_both_loops
async def test_a_timeout_closes_the_connection_and_fails_what_else_was_in_flight() -> None:
    echo = Echo()
    async with serving(echo) as (network, address):
        connection = await network.connect(address, client_id="me", timeout=1)
        late = asyncio.create_task(connection.request(ask("slow"), timeout=0.1))
        behind = asyncio.create_task(connection.request(ask("behind"), timeout=5))
        with pytest.raises(TimeoutError):
            await late
        with pytest.raises(ConnectionError):
            await behind
        assert connection.closed
        with pytest.raises(ConnectionError):
            await connection.request(ask(), timeout=1)


@on_both_loops
async def test_a_handler_that_raises_loses_its_connection_and_no_other() -> None:
    async with serving(Echo()) as (network, address):
        unlucky = await network.connect(address, client_id="me", timeout=1)
        other = await network.connect(address, client_id="me", timeout=1)
        with pytest.raises(ConnectionError):
            await unlucky.request(ask("crash"), timeout=1)
        assert unlucky.closed
        assert (await other.request(ask("fine"), timeout=1)).cluster_id == "fine"


@on_both_loops
async def test_close_ends_running_handlers_and_open_connections() -> None:
    echo = Echo()
    async with serving(echo) as (network, address):
        connection = await network.connect(address, client_id="me", timeout=1)
        waiting = asyncio.create_task(connection.request(ask("slow"), timeout=5))
        while not echo.running:
            await asyncio.sleep(0.01)
        await network.close()
        assert echo.running == 0
        with pytest.raises(ConnectionError):
            await waiting
        with pytest.raises(ConnectionError):
            await network.connect(address, client_id="me", timeout=1)


@on_both_loops
async def test_connecting_to_nobody_is_a_connection_error() -> None:
    network = TcpNetwork()
    with pytest.raises(ConnectionError):
        await network.connect(Address("127.0.0.1", free_port()), client_id="me", timeout=1)
    with pytest.raises(ConnectionError):
        await network.connect(Address("no such host.invalid", 1), client_id="me", timeout=1)


@on_both_loops
async def test_a_response_that_was_not_asked_for_or_is_malformed_closes_the_connection() -> None:
    replies = [
        struct.pack(">ii", 4, 99),  # another correlation id
        struct.pack(">iib", 5, 0, 0),  # too short for its message
        struct.pack(">i", -5),
        b"\x00\x00\x00\x02ab",
    ]

    async def bad_server(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with closing(writer):
            await reader.read(1)
            writer.write(replies.pop())
            await reader.read()

    port = free_port()
    server = await asyncio.start_server(bad_server, "127.0.0.1", port)
    network = TcpNetwork()
    while replies:
        connection = await network.connect(Address("127.0.0.1", port), client_id="me", timeout=1)
        with pytest.raises(ConnectionError, match="malformed"):
            await connection.request(ask(), timeout=2)
        assert connection.closed
    server.close()


@on_both_loops
async def test_a_client_that_never_reads_is_not_buffered_for_without_bound() -> None:
    big = "x" * 30_000

    async def generous(request: Any, peer: Peer) -> Entity:
        return MetadataResponse(throttle_time=timedelta(0), brokers=(), topics=(), cluster_id=big)  # type: ignore[arg-type]

    handled = 0

    async def counting(request: Any, peer: Peer) -> Entity:
        nonlocal handled
        handled += 1
        return await generous(request, peer)

    async with serving(counting) as (network, address):
        greedy = socket.socket()
        greedy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        greedy.setblocking(False)
        await asyncio.get_running_loop().sock_connect(greedy, tuple(address))
        frame = wire.encode_request(ask(), 1, None)
        try:
            async with asyncio.timeout(1):
                await asyncio.get_running_loop().sock_sendall(greedy, frame * 20_000)
        except TimeoutError:
            pass  # the server has stopped reading
        assert handled * len(big) < 20 * 1024 * 1024
        other = await network.connect(address, client_id="me", timeout=1)
        assert (await other.request(ask(), timeout=5)).cluster_id == big
        greedy.close()


def _frame(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


BAD_INPUT = {
    "negative length": struct.pack(">i", -1),
    "oversized length": struct.pack(">i", tcp.MAX_FRAME_BYTES + 1),
    "huge length": struct.pack(">i", 2**31 - 1),
    "empty frame": _frame(b""),
    "unknown API key": _frame(struct.pack(">hhih", 999, 0, 1, -1)),
    "unserved version": _frame(struct.pack(">hhih", 0, 99, 1, -1)),
    "controller's API on a broker": _frame(struct.pack(">hhih", 52, 0, 1, -1)),
    "array of 2^31 topics": _frame(struct.pack(">hhih", 3, 1, 1, -1) + b"\x7f\xff\xff\xff"),
    "compact array of 2^31 topics": _frame(struct.pack(">hhih", 3, 12, 1, -1) + b"\0\xff\xff\xff\xff\x07"),
    "truncated message": _frame(wire.encode_request(ask("cut"), 1, "me")[4:-3]),
    "trailing bytes": _frame(struct.pack(">hhih", 20, 1, 1, -1) + bytes(8) + b"x"),
    "HTTP": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
}


@pytest.mark.parametrize("bad", BAD_INPUT.values(), ids=BAD_INPUT.keys())
def test_bad_input_closes_that_connection_alone(bad: bytes) -> None:
    async def scenario() -> None:
        async with serving(Echo()) as (network, address):
            good = await network.connect(address, client_id="good", timeout=1)
            reader, writer = await asyncio.open_connection(*address)
            writer.write(wire.encode_request(ask("first"), 1, "me") + bad)
            async with asyncio.timeout(5):
                received = await reader.read()  # until closed
            assert wire.decode_response(received[4:], 3, 12).cluster_id == "first"
            assert (await good.request(ask("still here"), timeout=1)).cluster_id == "still here"
            writer.close()

    asyncio.run(scenario())


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.one_of(st.binary(max_size=60), st.binary(max_size=60).map(_frame)), min_size=1, max_size=5))
def test_random_bytes_never_stop_the_server(chunks: list[bytes]) -> None:
    async def scenario() -> None:
        async with serving(Echo(), max_request_bytes=1000) as (network, address):
            good = await network.connect(address, client_id="good", timeout=1)
            _, writer = await asyncio.open_connection(*address)
            for chunk in chunks:
                writer.write(chunk)
                await asyncio.sleep(0)
            assert (await good.request(ask("still here"), timeout=5)).cluster_id == "still here"
            writer.close()

    asyncio.run(scenario())


@on_both_loops
async def test_long_messages_are_encoded_and_decoded_beside_the_event_loop() -> None:
    """A thousand topics take a tenth of a second."""
    beside: list[bool] = []
    encode, decode = wire.request_parts, wire.decode_response

    def noted(work: Any) -> Any:
        def work_and_note(*args: Any) -> Any:
            beside.append(threading.current_thread() is not threading.main_thread())
            return work(*args)

        return work_and_note

    async with serving(Echo()) as (network, address):
        connection = await network.connect(address, client_id="me", timeout=1)
        with patch.object(wire, "request_parts", noted(encode)), patch.object(wire, "decode_response", noted(decode)):
            assert (await connection.request(ask("short"), timeout=5)).cluster_id == "short"
            name = "x" * (2 * LONG_BYTES)
            assert (await connection.request(ask(name), timeout=5)).cluster_id == name
            many = replace(ask("many"), topics=ask("many").topics * 1000)
            assert (await connection.request(many, timeout=5)).cluster_id == "many"
    assert beside == [False, False, False, True, True, False]
