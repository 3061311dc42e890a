"""What peers may take of a node: connections, elements of a request, lines of the log."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace

import pytest
from kio.schema.metadata.v12.request import MetadataRequestTopic

from cluster_image import wire
from cluster_image.network import Address, Entity, Peer
from cluster_image.network.sasl import Credentials
from cluster_image.network.tcp import TcpNetwork
from cluster_image.network.tcp.transport import LONG_BYTES
from cluster_image.telemetry.complaints import PER_SECOND, Complaints
from tests.cluster_image.network.limits.peers import (
    is_closed,
)
from tests.cluster_image.network.test_tcp import Echo, ask, on_both_loops, serving
from tests.clusters.fake_broker import free_port


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
