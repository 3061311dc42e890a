"""The harness' own connections to brokers: TLS, SASL, and what they do not accept."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cluster_image import wire
from cluster_image.network import Address
from cluster_image.network.sasl import Credentials
from cluster_image.network.tcp import TcpNetwork
from harness.targets.security import Security
from harness.targets.security.certificates import Authority
from harness.targets.security.network import SecuredNetwork, network_to
from tests.cluster_image.network.test_tcp import Echo, ask
from tests.clusters.fake_broker import free_port

HOST = "127.0.0.1"


class Made:
    """An authority's certificates, in files. broker: its certificate is of this address."""

    def __init__(self, folder: Path, broker: str = HOST) -> None:
        folder.mkdir(exist_ok=True)
        self.authority = Authority("test")
        self.ca = folder / "ca.pem"
        self.ca.write_bytes(self.authority.certificate)
        issued, client = self.authority.issue("broker", [broker]), self.authority.issue("client")
        self.broker, self.certificate, self.key = (folder / name for name in ("broker.pem", "client.pem", "client.key"))
        self.broker.write_bytes(issued.key + issued.certificate)
        self.certificate.write_bytes(client.certificate)
        self.key.write_bytes(client.key)

    def server(self, *, mutual: bool = False) -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=self.ca)
        context.load_cert_chain(self.broker)
        context.verify_mode = ssl.CERT_REQUIRED if mutual else ssl.CERT_NONE
        return context


@asynccontextmanager
async def serving(
    context: ssl.SSLContext, credentials: Credentials | None = None
) -> AsyncIterator[tuple[Echo, Address]]:
    """Behind TLS a listener that answers, and knows one user of SCRAM."""
    echo, network = Echo(), TcpNetwork(wire.SUPPORTED["broker"], credentials=credentials)
    inner = Address(HOST, free_port())
    await network.listen(inner, echo)

    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        to_reader, to_writer = await asyncio.open_connection(*inner)

        async def copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
            with suppress(OSError):
                while data := await source.read(1 << 16):
                    sink.write(data)
            sink.close()

        await asyncio.gather(copy(reader, to_writer), copy(to_reader, writer))

    server = await asyncio.start_server(pass_on, HOST, 0, ssl=context)
    try:
        yield echo, Address(HOST, server.sockets[0].getsockname()[1])
    finally:
        server.close()
        await network.close()


def cluster(security: Security, quorum: Address | None = None) -> Any:
    return SimpleNamespace(security=security, machines=[SimpleNamespace(quorum_address=quorum)])


async def answered(security: Security, address: Address, quorum: Address | None = None) -> bool:
    """Raises ConnectionError."""
    network = network_to(cluster(security, quorum))
    connection = await network.connect(address, client_id="me", timeout=5)
    try:
        return await connection.request(ask("x"), timeout=5) is not None
    finally:
        await network.close()


def test_tls_and_scram_reach_a_broker(tmp_path: Path) -> None:
    made, credentials = Made(tmp_path), Credentials("alice", "secret")
    security = Security("SASL_SSL", "SCRAM-SHA-256", "alice", "secret", ca=made.ca)

    async def scenario() -> None:
        async with serving(made.server(), credentials) as (echo, address):
            assert await answered(security, address)
            assert [peer.is_node for peer in echo.peers] == [True], "it has proved who it is"
            with pytest.raises(ConnectionError, match="the proof was refused: authentication failed"):
                await answered(Security("SASL_SSL", "SCRAM-SHA-256", "alice", "wrong", ca=made.ca), address)
            with pytest.raises(ConnectionError, match=r"no PLAIN there: unsupported_sasl_mechanism"):
                await answered(Security("SASL_SSL", "PLAIN", "alice", "secret", ca=made.ca), address)

    asyncio.run(scenario())


def test_a_broker_that_nobody_vouches_for_is_not_spoken_to(tmp_path: Path) -> None:
    made, other = Made(tmp_path), Made(tmp_path / "other")

    async def scenario() -> None:
        async with serving(made.server()) as (_, address):
            assert await answered(Security("SSL", ca=made.ca), address)
            with pytest.raises(ConnectionError, match=r"self-signed certificate|local issuer certificate"):
                await answered(Security("SSL", ca=other.ca), address)

    asyncio.run(scenario())


def test_a_cluster_says_why_nobody_is_let_in(tmp_path: Path) -> None:
    made = Made(tmp_path)

    async def scenario() -> None:
        async with serving(made.server(), Credentials("alice", "secret")) as (_, address):
            entered = cluster(Security("SASL_SSL", "SCRAM-SHA-256", "alice", "wrong", ca=made.ca))
            with pytest.raises(ConnectionError):
                await network_to(entered).connect(address, client_id="me", timeout=5)
            assert entered.refused == "the proof was refused: authentication failed"
            right = Security("SASL_SSL", "SCRAM-SHA-256", "alice", "secret", ca=made.ca)
            await SecuredNetwork(right, entered).connect(address, client_id="me", timeout=5)
            assert entered.refused == ""

    asyncio.run(scenario())


def test_the_certificate_is_of_the_address_unless_nobody_asks(tmp_path: Path) -> None:
    made = Made(tmp_path, broker="10.0.0.1")

    async def scenario() -> None:
        async with serving(made.server()) as (_, address):
            with pytest.raises(ConnectionError, match="IP address mismatch"):
                await answered(Security("SSL", ca=made.ca), address)
            assert await answered(Security("SSL", ca=made.ca, checks_host=False), address)

    asyncio.run(scenario())


def test_a_broker_may_want_a_certificate_too(tmp_path: Path) -> None:
    made = Made(tmp_path)

    async def scenario() -> None:
        async with serving(made.server(mutual=True)) as (_, address):
            assert await answered(Security("SSL", ca=made.ca, certificate=made.certificate, key=made.key), address)
            with pytest.raises(ConnectionError):
                await answered(Security("SSL", ca=made.ca), address)

    asyncio.run(scenario())


def test_the_quorum_is_spoken_to_in_plain_text(tmp_path: Path) -> None:
    made = Made(tmp_path)

    async def scenario() -> None:
        network, echo = TcpNetwork(wire.SUPPORTED["broker"]), Echo()
        address = Address(HOST, free_port())
        await network.listen(address, echo)
        try:
            assert await answered(Security("SSL", ca=made.ca), address, quorum=address)
        finally:
            await network.close()

    asyncio.run(scenario())


def test_a_cluster_that_asks_for_nothing_is_reached_as_ever() -> None:
    assert isinstance(network_to(cluster(Security())), TcpNetwork)
    assert isinstance(network_to(SimpleNamespace()), TcpNetwork), "a stand-in says nothing of it"  # type: ignore[arg-type]
    assert isinstance(network_to(cluster(Security("SASL_PLAINTEXT", "PLAIN", "a", "b"))), SecuredNetwork)
