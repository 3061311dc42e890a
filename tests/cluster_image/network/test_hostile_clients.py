"""Whatever a client sends, a node answers with Kafka's error or closes that connection alone."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from pathlib import Path
from random import Random
from typing import Any

import pytest
from kio.schema.create_topics.v7.request import CreatableTopic, CreateTopicsRequest
from kio.schema.errors import ErrorCode
from kio.schema.fetch.v12.request import FetchPartition, FetchRequest, FetchTopic
from kio.schema.list_offsets.v7.request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kio.schema.metadata.v12.request import MetadataRequest
from kio.schema.produce.v9.request import PartitionProduceData, ProduceRequest, TopicProduceData

from cluster_image.kraft.broker.partition import Partition
from cluster_image.network import Address
from cluster_image.network.tcp import TcpNetwork
from cluster_image.replication.fetch_session import FetchedPartition
from cluster_image.replication.replica import Watcher
from cluster_image.storage.records import build_batch
from cluster_image.wire.messages import milliseconds
from tests.clusters.local_cluster import LocalCluster, local_cluster


def topic_request(name: str = "t", partitions: int = 1, replication: int = 3) -> CreateTopicsRequest:
    topic = CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=replication, assignments=(), configs=()
    )
    return CreateTopicsRequest(topics=(topic,), timeout=milliseconds(5000))


def produce_request(records: bytes | None, partition: int = 0, acks: int = -1) -> ProduceRequest:
    data = PartitionProduceData(index=partition, records=records)
    return ProduceRequest(
        transactional_id=None, acks=acks, timeout=milliseconds(2000),
        topic_data=(TopicProduceData(name="t", partition_data=(data,)),),
    )  # fmt: skip


async def leader_of_t(cluster: LocalCluster, network: TcpNetwork) -> Address:
    """Once it has one."""
    address = Address("127.0.0.1", cluster.ports[1])
    connection = await network.connect(address, client_id="test", timeout=5)
    while True:
        request = MetadataRequest(
            topics=None, allow_auto_topic_creation=False, include_topic_authorized_operations=False
        )
        answer = await connection.request(request, timeout=5)
        leaders = [p.leader_id for topic in answer.topics for p in topic.partitions]
        if leaders and leaders[0] > 0:
            return Address("127.0.0.1", cluster.ports[leaders[0]])
        await asyncio.sleep(0.05)


def test_requests_that_make_no_sense_are_answered_with_an_error(tmp_path: Path) -> None:
    good = build_batch([b"value"], timestamp_ms=0)
    torn = good[:-1]
    flipped = good[:-1] + bytes([good[-1] ^ 1])

    async def scenario() -> None:
        async with local_cluster(tmp_path) as cluster:
            network = TcpNetwork()
            somebody = await network.connect(Address("127.0.0.1", cluster.ports[1]), client_id="test", timeout=5)
            for partitions in (0, -7, 2**31 - 1):
                answer = await somebody.request(topic_request("huge", partitions), timeout=5)
                assert answer.topics[0].error_code is ErrorCode.invalid_partitions, partitions
            assert (await somebody.request(topic_request(), timeout=5)).topics[0].error_code is ErrorCode.none
            leader = await network.connect(await leader_of_t(cluster, network), client_id="test", timeout=5)

            async def produced(*arguments: Any, **options: Any) -> ErrorCode:
                response = await leader.request(produce_request(*arguments, **options), timeout=5)
                error: ErrorCode = response.responses[0].partition_responses[0].error_code
                return error

            assert await produced(flipped) is ErrorCode.corrupt_message
            for nonsense in (None, b"", b"\0" * 200, torn):
                assert await produced(nonsense) in (ErrorCode.corrupt_message, ErrorCode.invalid_record)
            assert await produced(good, partition=-5) is ErrorCode.unknown_topic_or_partition
            assert await produced(good, acks=7) is ErrorCode.invalid_required_acks
            assert await produced(b"\0" * 2_000_000) is ErrorCode.message_too_large
            for offset in (-1, 10, 2**62):
                answer = await leader.request(fetch_request(offset), timeout=5)
                assert answer.responses[0].partitions[0].error_code is ErrorCode.offset_out_of_range
            for timestamp in (-99, -5):
                answer = await leader.request(list_offsets_request(timestamp), timeout=5)
                assert answer.topics[0].partitions[0].error_code is ErrorCode.unsupported_for_message_format
            assert await produced(good) is ErrorCode.none
            await network.close()

    asyncio.run(scenario())


def fetch_request(offset: int, max_wait_ms: int = 0, min_bytes: int = -1, max_bytes: int = -1) -> FetchRequest:
    partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=-1)
    return FetchRequest(
        replica_id=-1, max_wait=milliseconds(max_wait_ms), min_bytes=min_bytes, max_bytes=max_bytes, session_id=0,
        session_epoch=-1, topics=(FetchTopic(topic="t", partitions=(partition,)),), forgotten_topics_data=(),
    )  # fmt: skip


def consumers_of(partition: Partition) -> list[Watcher]:
    return [w for w in partition.watchers if isinstance(w, FetchedPartition) and not w.fetched.for_follower]


def test_fetches_that_wait_for_days_end_with_their_connection(tmp_path: Path) -> None:
    """Each would be woken by every record that is written."""

    async def scenario() -> None:
        async with local_cluster(tmp_path) as cluster:
            network = TcpNetwork()
            somebody = await network.connect(Address("127.0.0.1", cluster.ports[1]), client_id="test", timeout=5)
            await somebody.request(topic_request(), timeout=5)
            address = await leader_of_t(cluster, network)
            for request in (fetch_request(0, 2**31 - 1, 2**31 - 1, 1 << 20), fetch_request(0, 2**31 - 1, 1)):
                waiting = await network.connect(address, client_id="test", timeout=5)
                asked = asyncio.create_task(waiting.request(request, timeout=60))
                nodes = [node.broker for node in cluster.nodes.values() if node.broker]
                (leading,) = [p for broker in nodes for p in broker.partitions.values() if p.is_leader]
                while not consumers_of(leading):
                    await asyncio.sleep(0.01)
                waiting.close()
                with contextlib.suppress(ConnectionError):
                    await asked
                async with asyncio.timeout(5):
                    while consumers_of(leading):
                        await asyncio.sleep(0.01)
            await network.close()

    asyncio.run(scenario())


def test_a_fetch_gets_no_more_than_it_takes_and_waits_for_no_more(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with local_cluster(tmp_path) as cluster:
            network = TcpNetwork()
            somebody = await network.connect(Address("127.0.0.1", cluster.ports[1]), client_id="test", timeout=5)
            await somebody.request(topic_request(), timeout=5)
            leader = await network.connect(await leader_of_t(cluster, network), client_id="test", timeout=5)
            await leader.request(produce_request(build_batch([b"value"], timestamp_ms=0)), timeout=5)
            answer = await leader.request(fetch_request(0, 60_000, min_bytes=2**31 - 1, max_bytes=1), timeout=5)
            assert answer.responses[0].partitions[0].records
            await network.close()

    asyncio.run(scenario())


def list_offsets_request(timestamp: int) -> ListOffsetsRequest:
    partition = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    return ListOffsetsRequest(
        replica_id=-1, isolation_level=0, topics=(ListOffsetsTopic(name="t", partitions=(partition,)),)
    )


@pytest.mark.parametrize("seed", range(3))
def test_random_bytes_to_every_node_leave_the_cluster_working(tmp_path: Path, seed: int) -> None:
    random = Random(seed)

    async def throw(port: int) -> None:
        for _ in range(30):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            body = random.randbytes(random.randrange(200))
            length = random.choice([len(body), len(body), 2**31 - 1, -1, 0])
            header = struct.pack(">hhi", random.randrange(-2, 90), random.randrange(-1, 20), 1)
            writer.write(struct.pack(">i", length) + header + body)
            if random.random() < 0.5:
                writer.write_eof()
            with contextlib.suppress(TimeoutError, OSError):
                await asyncio.wait_for(reader.read(100), 0.02)
            writer.close()

    async def scenario() -> None:
        async with local_cluster(tmp_path) as cluster:
            await asyncio.gather(*(throw(port) for port in cluster.ports.values()))
            network = TcpNetwork()
            somebody = await network.connect(Address("127.0.0.1", cluster.ports[2]), client_id="test", timeout=5)
            assert (await somebody.request(topic_request(), timeout=5)).topics[0].error_code is ErrorCode.none
            leader = await network.connect(await leader_of_t(cluster, network), client_id="test", timeout=5)
            answer = await leader.request(produce_request(build_batch([b"v"], timestamp_ms=0)), timeout=5)
            assert answer.responses[0].partition_responses[0].error_code is ErrorCode.none
            await network.close()

    asyncio.run(scenario())
