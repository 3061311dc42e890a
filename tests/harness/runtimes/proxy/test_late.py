"""Requests of transactions that a broker gets late, as the proxy tells of them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random

from kio.schema.add_offsets_to_txn.v3.request import AddOffsetsToTxnRequest
from kio.schema.end_txn.v3.request import EndTxnRequest
from kio.schema.types import GroupId, ProducerId, TransactionalId
from kio.static.primitive import i16

from cluster_image.network import Entity
from cluster_image.wire import encode_request
from harness.runtimes.proxy.proxy import Proxy, Rule


class Broker:
    """Takes whatever comes, and answers nothing."""

    def __init__(self) -> None:
        self.taken = b""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            self.taken += data
        writer.close()


def end_txn(committed: bool = True) -> Entity:
    return EndTxnRequest(
        transactional_id=TransactionalId("mine"), producer_id=ProducerId(7), producer_epoch=i16(0), committed=committed
    )


def add_offsets() -> Entity:
    return AddOffsetsToTxnRequest(
        transactional_id=TransactionalId("mine"), producer_id=ProducerId(7), producer_epoch=i16(0),
        group_id=GroupId("g"),
    )  # fmt: skip


def run(story: Callable[[Proxy, Broker, Callable[..., Awaitable[asyncio.StreamWriter]]], Awaitable[None]]) -> None:
    async def whole() -> None:
        broker = Broker()
        server = await asyncio.start_server(broker.serve, "127.0.0.1", 0)
        proxy = Proxy({1: server.sockets[0].getsockname()[:2]})
        await proxy.start()

        async def send(*requests: Entity) -> asyncio.StreamWriter:
            _, writer = await asyncio.open_connection(*proxy.addresses[1])
            for number, request in enumerate(requests):
                writer.write(encode_request(request, number, "test"))
            await writer.drain()
            return writer

        try:
            async with asyncio.timeout(20):
                await story(proxy, broker, send)
        finally:
            await proxy.close()
            server.close()

    asyncio.run(whole())


def test_what_arrives_when_its_client_has_hung_up_is_told_of_with_what_waited_behind_it() -> None:
    async def story(proxy: Proxy, broker: Broker, send: Callable[..., Awaitable[asyncio.StreamWriter]]) -> None:
        proxy.strike("late", Rule("AddOffsetsToTxn", "delay", (0.5, 0.5), 1.0, Random(1)))
        writer = await send(add_offsets(), end_txn(committed=False))
        writer.close()
        await asyncio.sleep(1.0)
        assert [(late.api, late.transactional_id, late.committed) for late in proxy.late] == [
            ("AddOffsetsToTxn", "mine", None), ("EndTxn", "mine", False),
        ]  # fmt: skip
        assert all(450 <= late.held_ms <= 900 for late in proxy.late), proxy.late
        assert broker.taken

    run(story)


def test_what_is_held_back_within_its_clients_patience_is_not_late() -> None:
    async def story(proxy: Proxy, broker: Broker, send: Callable[..., Awaitable[asyncio.StreamWriter]]) -> None:
        proxy.strike("late", Rule("EndTxn", "delay", (0.2, 0.2), 1.0, Random(1)))
        writer = await send(end_txn())
        await asyncio.sleep(0.6)
        assert broker.taken and proxy.late == []
        writer.close()

    run(story)


def test_what_is_repeated_is_told_of_as_it_arrives_again() -> None:
    async def story(proxy: Proxy, broker: Broker, send: Callable[..., Awaitable[asyncio.StreamWriter]]) -> None:
        proxy.strike("again", Rule("EndTxn", "repeat", (0.3, 0.3), 1.0, Random(1)))
        writer = await send(end_txn())
        await asyncio.sleep(0.1)
        once = len(broker.taken)
        assert once and proxy.late == []
        await asyncio.sleep(0.6)
        assert len(broker.taken) == 2 * once
        assert [(late.api, late.committed) for late in proxy.late] == [("EndTxn", True)]
        writer.close()

    run(story)
