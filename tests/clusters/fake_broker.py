"""A cluster of in-memory brokers behind real sockets, for tests of the client: leaders move when a test says so,
and any request can be answered with an error, delayed, or met with a lost connection."""

from __future__ import annotations

import asyncio
import socket
from bisect import bisect_right
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from kio.index import load_payload_module
from kio.schema.errors import ErrorCode
from kio.static.constants import EntityType

from cluster_image import wire
from cluster_image.network import Address, Entity, Peer
from cluster_image.network.tcp import TcpNetwork
from cluster_image.storage.records import iter_batches, with_offset_and_epoch

PRODUCE, FETCH, LIST_OFFSETS, METADATA, CREATE_TOPICS = 0, 1, 2, 3, 19


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


@dataclass
class FakeLog:
    leader: int
    leader_epoch: int = 0
    batches: list[bytes] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)  # the next offset after each batch
    end: int = 0
    appended: asyncio.Event = field(default_factory=asyncio.Event)

    def append(self, records: bytes) -> int:
        first = self.end
        for start, end, header in iter_batches(records):
            self.batches.append(with_offset_and_epoch(records[start:end], self.end, self.leader_epoch))
            self.end += header.record_count
            self.ends.append(self.end)
        self.appended.set()
        self.appended = asyncio.Event()
        return first

    def read(self, offset: int) -> bytes:
        return b"".join(self.batches[bisect_right(self.ends, offset) :])


@dataclass
class FakeNode:
    """A broker. The three knobs are by API key and hold until changed."""

    id: int
    name: str
    address: tuple[str, int]
    errors: dict[int, ErrorCode] = field(default_factory=dict)  # refused with this, nothing done
    after_append: ErrorCode | None = None  # Produce: answered with this although appended
    drops: set[int] = field(default_factory=set)  # carried out, then the connection is lost without an answer
    delays: dict[int, float] = field(default_factory=dict)  # seconds before it is carried out
    network: TcpNetwork | None = None


class FakeCluster:
    """Implements as much of harness.cluster.Cluster as workloads use."""

    def __init__(self, topic: str, partitions: int, nodes: int) -> None:
        self.topic = topic
        self.logs: dict[int, FakeLog] = {}
        self.partitions = partitions
        self.nodes = [FakeNode(i, f"broker-{i}", ("127.0.0.1", free_port())) for i in range(1, nodes + 1)]
        self.requests: Counter[int] = Counter()

    @property
    def brokers(self) -> Sequence[FakeNode]:
        return self.nodes

    @property
    def addresses(self) -> list[Address]:
        return [Address(*node.address) for node in self.nodes]

    def create(self) -> None:
        for index in range(self.partitions):
            self.logs.setdefault(index, FakeLog(self.nodes[index % len(self.nodes)].id))

    def move(self, partition: int, leader: int) -> None:
        self.logs[partition].leader = leader
        self.logs[partition].leader_epoch += 1

    async def start(self, node: FakeNode) -> None:
        node.network = TcpNetwork(wire.SUPPORTED["broker"])

        async def handle(request: Entity, peer: Peer) -> Entity | None:
            return await self._handle(node, request)

        await node.network.listen(Address(*node.address), handle)

    async def stop(self, node: FakeNode) -> None:
        if node.network is not None:
            await node.network.close()
            node.network = None

    async def _handle(self, node: FakeNode, request: Any) -> Entity | None:
        key = request.__api_key__
        self.requests[key] += 1
        if key in node.delays:
            await asyncio.sleep(node.delays[key])
        response = await _HANDLERS[key](self, node, request, _responses(request))
        if key in node.drops:
            raise ConnectionResetError("the test drops this connection")
        return response

    def _error(self, node: FakeNode, key: int, partition: int, leader_epoch: int | None) -> ErrorCode:
        if key in node.errors:
            return node.errors[key]
        log = self.logs.get(partition)
        if log is None:
            return ErrorCode.unknown_topic_or_partition
        if log.leader != node.id:
            return ErrorCode.not_leader_or_follower
        if leader_epoch is not None and leader_epoch < log.leader_epoch:
            return ErrorCode.fenced_leader_epoch
        return ErrorCode.none

    async def produce(self, node: FakeNode, request: Any, kio: Any) -> Entity | None:
        answers = []
        (topic,) = request.topic_data
        for data in topic.partition_data:
            error = self._error(node, PRODUCE, data.index, None)
            base_offset = -1
            if error is ErrorCode.none:
                base_offset = self.logs[data.index].append(data.records)
                error = node.after_append or error
            answers.append(
                kio.PartitionProduceResponse(
                    index=data.index, error_code=error, base_offset=base_offset, record_errors=()
                )
            )
        if request.acks == 0:
            return None
        answer = kio.TopicProduceResponse(name=topic.name, partition_responses=tuple(answers))
        response: Entity = kio.ProduceResponse(responses=(answer,), throttle_time=timedelta(0))
        return response

    async def fetch(self, node: FakeNode, request: Any, kio: Any) -> Entity:
        (topic,) = request.topics
        waiting = [
            asyncio.create_task(self.logs[p.partition].appended.wait())
            for p in topic.partitions
            if p.partition in self.logs
        ]
        if not any(p.partition in self.logs and self.logs[p.partition].end > p.fetch_offset for p in topic.partitions):
            await asyncio.wait(waiting, timeout=request.max_wait.total_seconds(), return_when=asyncio.FIRST_COMPLETED)
        for task in waiting:
            task.cancel()
        answers = []
        for p in topic.partitions:
            error = self._error(node, FETCH, p.partition, p.current_leader_epoch)
            log = self.logs.get(p.partition)
            if error is ErrorCode.none and log is not None and p.fetch_offset > log.end:
                error = ErrorCode.offset_out_of_range
            good = error is ErrorCode.none and log is not None
            answers.append(
                kio.PartitionData(
                    partition_index=p.partition,
                    error_code=error,
                    high_watermark=log.end if good and log else -1,
                    aborted_transactions=None,
                    records=log.read(p.fetch_offset) if good and log else b"",
                )
            )
        answer = kio.FetchableTopicResponse(topic=topic.topic, partitions=tuple(answers))
        response: Entity = kio.FetchResponse(throttle_time=timedelta(0), error_code=ErrorCode.none, responses=(answer,))
        return response

    async def list_offsets(self, node: FakeNode, request: Any, kio: Any) -> Entity:
        (topic,) = request.topics
        answers = []
        for p in topic.partitions:
            error = self._error(node, LIST_OFFSETS, p.partition_index, p.current_leader_epoch)
            end = self.logs[p.partition_index].end if error is ErrorCode.none else -1
            answers.append(
                kio.ListOffsetsPartitionResponse(partition_index=p.partition_index, error_code=error, offset=end)
            )
        answer = kio.ListOffsetsTopicResponse(name=topic.name, partitions=tuple(answers))
        response: Entity = kio.ListOffsetsResponse(throttle_time=timedelta(0), topics=(answer,))
        return response

    async def metadata(self, node: FakeNode, request: Any, kio: Any) -> Entity:
        everyone = tuple(n.id for n in self.nodes)
        partitions = tuple(
            kio.MetadataResponsePartition(
                error_code=ErrorCode.none,
                partition_index=index,
                leader_id=log.leader,
                leader_epoch=log.leader_epoch,
                replica_nodes=everyone,
                isr_nodes=everyone,
            )
            for index, log in self.logs.items()
        )
        topic = kio.MetadataResponseTopic(
            error_code=ErrorCode.none if self.logs else ErrorCode.unknown_topic_or_partition,
            name=self.topic,
            topic_id=None,
            partitions=partitions,
        )
        brokers = tuple(
            kio.MetadataResponseBroker(node_id=n.id, host=n.address[0], port=n.address[1]) for n in self.nodes
        )
        response: Entity = kio.MetadataResponse(throttle_time=timedelta(0), brokers=brokers, topics=(topic,))
        return response

    async def create_topics(self, node: FakeNode, request: Any, kio: Any) -> Entity:
        (topic,) = request.topics
        error = node.errors.get(CREATE_TOPICS, ErrorCode.none)
        if error is ErrorCode.none:
            self.create()
        answer = kio.CreatableTopicResult(
            name=topic.name, topic_id=None, error_code=error, error_message=None, configs=None
        )
        response: Entity = kio.CreateTopicsResponse(throttle_time=timedelta(0), topics=(answer,))
        return response


_HANDLERS: dict[int, Any] = {
    PRODUCE: FakeCluster.produce,
    FETCH: FakeCluster.fetch,
    LIST_OFFSETS: FakeCluster.list_offsets,
    METADATA: FakeCluster.metadata,
    CREATE_TOPICS: FakeCluster.create_topics,
}


def _responses(request: Any) -> Any:
    return load_payload_module(request.__api_key__, request.__version__, EntityType.response)


@asynccontextmanager
async def fake_cluster(topic: str = "chaos", partitions: int = 4, nodes: int = 2) -> AsyncIterator[FakeCluster]:
    """Started nodes; the topic exists once a client creates it, or create() is called."""
    cluster = FakeCluster(topic, partitions, nodes)
    for node in cluster.nodes:
        await cluster.start(node)
    try:
        yield cluster
    finally:
        for node in cluster.nodes:
            await cluster.stop(node)
