"""Nodes prove to each other that they are of the same cluster, and whoever does not may not ask what nodes ask."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from kio.schema.allocate_producer_ids.v0.request import AllocateProducerIdsRequest
from kio.schema.alter_partition.v3.request import AlterPartitionRequest
from kio.schema.broker_heartbeat.v1.request import BrokerHeartbeatRequest
from kio.schema.errors import ErrorCode
from kio.schema.fetch.v17.request import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from kio.schema.sasl_authenticate.v2.request import SaslAuthenticateRequest
from kio.schema.sasl_handshake.v1.request import SaslHandshakeRequest

from cluster_image import wire
from cluster_image.config import ConfigError, read_setting
from cluster_image.kraft.raft import rpc
from cluster_image.network import Address, Connection
from cluster_image.network.authorization import is_for_nodes
from cluster_image.network.sasl import MECHANISM, Credentials
from cluster_image.network.tcp import TcpNetwork
from cluster_image.wire.messages import milliseconds
from tests.cluster_image.network.test_tcp import Echo, ask
from tests.clusters.fake_broker import free_port
from tests.clusters.local_cluster import JAAS, LocalCluster, local_cluster, node_network

OURS = Credentials("node", "secret")


@asynccontextmanager
async def serving(credentials: Credentials | None) -> AsyncIterator[tuple[Echo, Address]]:
    echo, network = Echo(), TcpNetwork(wire.SUPPORTED["broker"], credentials=credentials)
    address = Address("127.0.0.1", free_port())
    await network.listen(address, echo)
    try:
        yield echo, address
    finally:
        await network.close()


async def connected(address: Address, credentials: Credentials | None = None) -> Connection:
    return await TcpNetwork(credentials=credentials).connect(address, client_id="me", timeout=5)


def test_who_knows_the_password_is_a_node_and_who_does_not_is_none() -> None:
    async def scenario() -> None:
        async with serving(OURS) as (echo, address):
            for credentials in (OURS, Credentials("node", "secret"), None):
                await (await connected(address, credentials)).request(ask("x"), timeout=5)
            assert [peer.is_node for peer in echo.peers] == [True, True, False]
            for wrong in (Credentials("node", "secreT"), Credentials("nodes", "secret")):
                with pytest.raises(ConnectionError, match="authentication failed"):
                    await connected(address, wrong)
        async with serving(None) as (echo, address):
            await (await connected(address)).request(ask("x"), timeout=5)
            assert [peer.is_node for peer in echo.peers] == [True], "nothing has to be proved"
            with pytest.raises(ConnectionError, match=f"no {MECHANISM} there"):
                await connected(address, OURS)

    asyncio.run(scenario())


def test_a_server_that_does_not_know_the_password_is_noticed() -> None:
    class Impostor(Credentials):
        """Takes any proof for one, and cannot give its own."""

        def server(self) -> Any:
            real = super().server()
            real.get_server_final = lambda: "v=" + "A" * 43 + "="
            return real

    async def scenario() -> None:
        async with serving(Impostor("node", "secret")) as (_, address):
            with pytest.raises(ConnectionError, match="does not prove to be a node"):
                await connected(address, OURS)

    asyncio.run(scenario())


def test_steps_out_of_order_prove_nothing() -> None:
    def say(content: bytes) -> SaslAuthenticateRequest:
        return SaslAuthenticateRequest(auth_bytes=content)

    async def scenario() -> None:
        async with serving(OURS) as (echo, address):
            stranger = await connected(address)
            first = OURS.client().get_client_first().encode()
            for content in (first, b"", b"\xff\xfe", b"c=biws,r=x,p=y"):
                answer = await stranger.request(say(content), timeout=5)
                assert answer.error_code is ErrorCode.sasl_authentication_failed, "no handshake"
            handshake = await stranger.request(SaslHandshakeRequest(mechanism="PLAIN"), timeout=5)
            assert handshake.error_code is ErrorCode.unsupported_sasl_mechanism
            assert handshake.mechanisms == (MECHANISM,)
            for content in (b"", b"\xff\xfe", b"n,,n=node,r=", b"c=biws,r=x,p=y"):
                begun = await stranger.request(SaslHandshakeRequest(mechanism=MECHANISM), timeout=5)
                assert begun.error_code is ErrorCode.none
                again = await stranger.request(SaslHandshakeRequest(mechanism=MECHANISM), timeout=5)
                assert again.error_code is ErrorCode.illegal_sasl_state
                answer = await stranger.request(say(content), timeout=5)
                assert answer.error_code is ErrorCode.sasl_authentication_failed
            await stranger.request(SaslHandshakeRequest(mechanism=MECHANISM), timeout=5)
            assert (await stranger.request(say(first), timeout=5)).error_code is ErrorCode.none
            answer = await stranger.request(say(first), timeout=5)
            assert answer.error_code is ErrorCode.sasl_authentication_failed, "the first half twice"
            await stranger.request(ask("x"), timeout=5)
            assert not echo.peers[-1].is_node
            node = await connected(address, OURS)
            again = await node.request(SaslHandshakeRequest(mechanism=MECHANISM), timeout=5)
            assert again.error_code is ErrorCode.illegal_sasl_state
            await node.request(ask("x"), timeout=5)
            assert echo.peers[-1].is_node

    asyncio.run(scenario())


def test_the_setting_is_as_kafka_writes_it() -> None:
    assert read_setting("sasl.jaas.config", JAAS).username == "node"
    assert read_setting("sasl.jaas.config", "") is None
    with pytest.raises(ConfigError):
        read_setting("sasl.jaas.config", "secret")


def fetch(replica: int, topic_id: uuid.UUID) -> FetchRequest:
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    return FetchRequest(
        replica_state=ReplicaState(replica_id=replica, replica_epoch=-1),  # type: ignore[arg-type]
        max_wait=milliseconds(0), min_bytes=0, max_bytes=1 << 20, isolation_level=0, session_id=0, session_epoch=-1,
        topics=(FetchTopic(topic_id=topic_id, partitions=(partition,)),), forgotten_topics_data=(), rack_id="",
    )  # fmt: skip


def of_the_quorum(cluster: LocalCluster, epoch: int) -> list[Any]:
    voter, other, third = sorted(cluster.quorum_ports)
    address = Address("127.0.0.1", cluster.quorum_ports[other])
    return [
        rpc.vote("local", voter, other, epoch, epoch, 10**9, False),
        rpc.vote("local", voter, other, epoch, epoch, 10**9, True),
        rpc.begin_quorum_epoch("local", voter, other, epoch, address),
        rpc.end_quorum_epoch("local", other, epoch, [third], address),
        AlterPartitionRequest(broker_id=1, broker_epoch=0, topics=()),  # type: ignore[arg-type]
        BrokerHeartbeatRequest(
            broker_id=1, broker_epoch=0, current_metadata_offset=0, want_fence=True, want_shut_down=True,
        ),  # type: ignore[arg-type]
        AllocateProducerIdsRequest(broker_id=1, broker_epoch=0),  # type: ignore[arg-type]
    ]  # fmt: skip


def test_a_stranger_with_the_right_ids_votes_for_nobody_and_fetches_for_nobody(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with local_cluster(tmp_path) as cluster:
            voter = min(cluster.quorum_ports)
            address = Address("127.0.0.1", cluster.quorum_ports[voter])
            stranger, node = TcpNetwork(), node_network()
            connection = await stranger.connect(address, client_id="raft-102", timeout=5)
            before = cluster.nodes[voter].raft.leader_epoch
            for request in of_the_quorum(cluster, before + 1):
                assert is_for_nodes(request)
                answer = await connection.request(request, timeout=5)
                assert answer.error_code is ErrorCode.cluster_authorization_failed, request
            await asyncio.sleep(0.3)
            assert cluster.nodes[voter].raft.leader_epoch == before
            broker = Address("127.0.0.1", cluster.ports[1])
            connection = await stranger.connect(broker, client_id="replica-2", timeout=5)
            for replica, error in ((2, ErrorCode.cluster_authorization_failed), (-1, ErrorCode.none)):
                request = fetch(replica, uuid.uuid4())
                assert is_for_nodes(request) is (replica >= 0)
                assert (await connection.request(request, timeout=5)).error_code is error
            await stranger.close()
            # What is refused to strangers is what does harm: a node is believed.
            connection = await node.connect(address, client_id="raft-102", timeout=5)
            for request in of_the_quorum(cluster, before + 1)[:1]:
                assert (await connection.request(request, timeout=5)).error_code is ErrorCode.none
            assert cluster.nodes[voter].raft.leader_epoch > before
            await node.close()

    asyncio.run(scenario())
