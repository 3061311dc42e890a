"""A whole simulated cluster of this generation, asked over Kafka's protocol and looked into: brokers 1.., ZooKeeper's
servers zookeeper-1 to 3 of the model."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from kio.schema.alter_partition_reassignments.v1.request import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from kio.schema.create_partitions.v3.request import CreatePartitionsRequest, CreatePartitionsTopic
from kio.schema.create_topics.v7.request import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest
from kio.schema.delete_topics.v5.request import DeleteTopicsRequest
from kio.schema.errors import ErrorCode
from kio.schema.types import BrokerId, TopicName
from kio.schema.unregister_broker.v0.request import UnregisterBrokerRequest
from kio.static.primitive import i16, i32

from cluster_image.network import Address, Entity
from cluster_image.storage.checkpoints import HIGH_WATERMARK_FILE, OffsetCheckpoint
from cluster_image.storage.records import build_batch, decode_values
from cluster_image.v2.metadata import paths
from cluster_image.v2.metadata.paths import Isr, Leader
from cluster_image.v2.metadata.state_queue import Kind
from cluster_image.v2.partition.replica import Partition
from cluster_image.v2.topics import topic_id
from cluster_image.wire.messages import milliseconds
from harness.plan.plan import Plan
from harness.runtimes.simulation.cluster import SimulatedCluster
from harness.runtimes.simulation.node import SimulatedNode
from harness.runtimes.simulation.runtime import SimulationRuntime
from harness.targets.v2.observer import V2Observer
from harness.targets.v2.target import V2
from workloads.clients.kio import requests
from workloads.clients.kio.administration.requests import administered, create_topic_request

TOPIC: Final = "story"
#: Virtual seconds. Longer than any time-out of the cluster.
PATIENCE_S: Final = 30.0
#: Of a whole story, so that one in which a client tries again for ever fails.
LONGEST_S: Final = 900.0


class V2Cluster:
    def __init__(self, cluster: SimulatedCluster, trace: list[tuple[str, str, str, Mapping[str, Any]]]) -> None:
        self._cluster = cluster
        self.trace = trace
        self._network = cluster.network.endpoint(cluster.loop.new_process("operator"), "harness")

    # -- looking ----------------------------------------------------------------------------------------------

    def node(self, number: int) -> SimulatedNode:
        return self._cluster.node(f"broker-{number}")

    def replica(self, broker: int, index: int = 0, topic: str = TOPIC) -> Partition | None:
        running: Any = self.node(broker).running
        found: Partition | None = None if running is None else running.broker.partitions.get((topic_id(topic), index))
        return found

    def log_of(self, broker: int, index: int = 0) -> list[str]:
        replica = self.replica(broker, index)
        assert replica is not None
        log = replica.log
        records = log.read(log.start_offset, 1 << 20, log.end_offset) if log.end_offset > log.start_offset else b""
        return [value.decode() for _, _, value in decode_values(records)]

    def _servers(self) -> list[Any]:
        """ZooKeeper's, that run."""
        found: list[Any] = [node.running for node in self._cluster.machines if node.name.startswith("zookeeper")]
        return [server for server in found if server is not None]

    def _znode(self, path: str) -> Any:
        """As ZooKeeper's leader has it."""
        return max((server.tree for server in self._servers()), key=lambda tree: tree.zxid).node(path)

    def znode(self, path: str) -> bytes | None:
        node = self._znode(path)
        return None if node is None else bytes(node.data)

    def children(self, path: str) -> list[str]:
        node = self._znode(path)
        return [] if node is None else sorted(node.children)

    def watched(self, path: str) -> set[int]:
        """The sessions that hear of the next change of the children of a node."""
        clients = [client for server in self._servers() for client in server._clients.values()]
        return {client.session for client in clients if path in client.child_watches}

    def session(self, broker: int) -> int:
        running: Any = self.node(broker).running
        session: int = running.broker._zookeeper.session
        return session

    async def ask_for(self, kind: Kind, broker: int, epoch: int, by: int) -> None:
        """A state change, as that leader would ask for it in that epoch."""
        running: Any = self.node(by).running
        await running.broker._replicas.state_changes.send(kind, TOPIC, 0, broker, epoch, by)

    def checkpointed(self, broker: int) -> int | None:
        """The high watermark of partition 0 in the file that a restart begins with."""
        offsets = OffsetCheckpoint(self.node(broker).disk, HIGH_WATERMARK_FILE).read()
        return offsets.get((TOPIC, 0))

    def leader(self, index: int = 0) -> Leader | None:
        data = self.znode(paths.leader(TOPIC, index))
        return None if data is None else Leader.decode(data)

    def isr(self, index: int = 0) -> set[int]:
        data = self.znode(paths.isr(TOPIC, index))
        return set() if data is None else set(Isr.decode(data).brokers)

    def replicas(self, index: int = 0) -> tuple[int, ...]:
        data = self.znode(paths.replicas(TOPIC, index))
        return () if data is None else paths.decode_ids(data)

    def serves(self, broker: int, index: int = 0) -> bool:
        replica = self.replica(broker, index)
        return replica is not None and replica.serves_clients

    async def until(self, holds: Callable[[], object], seconds: float = PATIENCE_S) -> None:
        async with asyncio.timeout(seconds):
            while not holds():
                await asyncio.sleep(0.005)

    async def out_of_sync(self) -> str | None:
        """As the harness asks, twice: why the cluster is not whole again."""
        observer = V2Observer(self._cluster, self._network, TOPIC, idle_checks=False)
        await observer.view()
        return (await observer.view()).out_of_sync

    # -- asking -----------------------------------------------------------------------------------------------

    async def ask(self, broker: int, request: Entity, timeout: float = PATIENCE_S) -> Any:
        connection = await self._network.connect(Address(f"broker-{broker}", 9092), client_id="story", timeout=3.0)
        try:
            return await connection.request(request, timeout=timeout)
        finally:
            connection.close()

    async def create_anywhere(self, partitions: int, replication_factor: int) -> ErrorCode:
        """A topic whose replicas are placed by whoever makes it."""
        answer = await self.ask(1, create_topic_request(TOPIC, partitions, replication_factor, {}, 10.0))
        error, _ = administered(answer)
        return error

    async def create(
        self, *assignment: Sequence[int], topic: str = TOPIC, broker: int = 1, timeout_ms: int = 10_000
    ) -> ErrorCode:
        """A topic with these replicas of each partition."""
        answer = await self.ask(broker, CreateTopicsRequest(
            topics=(CreatableTopic(
                name=TopicName(topic), num_partitions=i32(-1), replication_factor=i16(-1), configs=(),
                assignments=tuple(
                    CreatableReplicaAssignment(partition_index=i32(i), broker_ids=tuple(map(BrokerId, replicas)))
                    for i, replicas in enumerate(assignment)
                ),
            ),),
            timeout=milliseconds(timeout_ms), validate_only=False,
        ))  # fmt: skip
        error: ErrorCode = answer.topics[0].error_code
        return error

    async def delete(self, topic: str = TOPIC, broker: int = 1, timeout_ms: int = 10_000) -> ErrorCode:
        answer = await self.ask(
            broker, DeleteTopicsRequest(topic_names=(TopicName(topic),), timeout=milliseconds(timeout_ms))
        )
        error: ErrorCode = answer.responses[0].error_code
        return error

    async def remove(self, broker: int) -> ErrorCode:
        error: ErrorCode = (await self.ask(1, UnregisterBrokerRequest(broker_id=BrokerId(broker)))).error_code
        return error

    async def add_partitions(self, count: int, timeout_ms: int = 10_000) -> ErrorCode:
        answer = await self.ask(1, CreatePartitionsRequest(
            topics=(CreatePartitionsTopic(name=TopicName(TOPIC), count=i32(count), assignments=None),),
            timeout=milliseconds(timeout_ms), validate_only=False,
        ))  # fmt: skip
        error: ErrorCode = answer.results[0].error_code
        return error

    async def reassign(self, replicas: Sequence[int] | None, broker: int = 1) -> ErrorCode:
        to = None if replicas is None else tuple(map(BrokerId, replicas))
        answer = await self.ask(broker, AlterPartitionReassignmentsRequest(
            topics=(ReassignableTopic(
                name=TopicName(TOPIC), partitions=(ReassignablePartition(partition_index=i32(0), replicas=to),)
            ),),
        ))  # fmt: skip
        error: ErrorCode = answer.responses[0].partitions[0].error_code
        return error

    async def produce(
        self, value: str, broker: int, acks: int = -1, index: int = 0, and_also: Sequence[str] = ()
    ) -> ErrorCode:
        """and_also: in the same batch."""
        batch = build_batch([each.encode() for each in (value, *and_also)], timestamp_ms=0)
        answer = await self.ask(broker, requests.produce_request(TOPIC, {index: batch}, acks, 10.0))
        return requests.produce_answers(answer)[index].error

    async def consumed(self, broker: int, index: int = 0) -> list[str]:
        """What that broker shows a consumer of the whole log. Raises AssertionError where it shows nothing of it."""
        answer = requests.fetch_answers(await self.ask(broker, fetch_all(index)))[index]
        assert answer.error is ErrorCode.none, answer.error
        return [value.decode() for _, _, value in decode_values(answer.records)]

    async def consume_error(self, broker: int) -> ErrorCode:
        return requests.fetch_answers(await self.ask(broker, fetch_all(0)))[0].error

    async def ask_to_produce(self, value: str, broker: int) -> None:
        """Whatever becomes of it."""
        with suppress(ConnectionError, TimeoutError):
            await self.produce(value, broker)

    async def produced(self, value: str) -> int:
        """By whoever leads, however often it changes. Who it was."""
        while True:
            leader = self.leader()
            serves = leader is not None and self.serves(leader.broker)
            if leader is not None and serves and await self.produce(value, leader.broker) is ErrorCode.none:
                return leader.broker
            await asyncio.sleep(0.05)

    # -- faults -----------------------------------------------------------------------------------------------

    async def kill(self, broker: int) -> None:
        await self.node(broker).kill()

    async def start(self, broker: int) -> None:
        await self.node(broker).start()
        await self.until(lambda: self.is_ready(broker))

    def is_ready(self, broker: int) -> bool:
        running: Any = self.node(broker).running
        return running is not None and running.broker.ready

    def cut(self, *links: tuple[int, int]) -> None:
        """Between brokers, both ways."""
        names = [(f"broker-{a}", f"broker-{b}") for a, b in links]
        self._cluster.network.cut("story", [link for a, b in names for link in ((a, b), (b, a))])

    def cut_one_way(self, a: int, b: int) -> None:
        """What one broker sends to another."""
        self._cluster.network.cut("story", [(f"broker-{a}", f"broker-{b}")])

    def processes(self) -> Mapping[str, Any]:
        return {node.name: node.running for node in self._cluster.machines}

    def mend(self) -> None:
        self._cluster.network.mend("story")


def fetch_all(index: int) -> Entity:
    return requests.fetch_request(
        TOPIC, [requests.FetchFrom(index, 0, -1)], max_wait=0, min_bytes=0, max_bytes=1 << 20,
        partition_max_bytes=1 << 20,
    )  # fmt: skip


Story = Callable[[V2Cluster], Coroutine[Any, Any, None]]


def tell(story: Story, *, brokers: int = 3, seed: int = 1, settings: Mapping[str, str] | None = None) -> None:
    """settings: of every broker. All brokers are registered when it begins."""
    plan = Plan(
        run="story", on="simulation", target="v2", seed=seed, brokers=brokers, topic=TOPIC, partitions=1,
        replication_factor=1, min_insync_replicas=1,
        encode_messages=True, settings=dict(settings or {}),
    )  # fmt: skip
    runtime = SimulationRuntime(V2())

    async def main() -> None:
        await runtime.start(plan, Path(), lambda _: None)
        assert runtime.cluster is not None
        trace: list[tuple[str, str, str, Mapping[str, Any]]] = []
        runtime.cluster.observe = lambda _, node, event, where, fields: trace.append((node, event, where, fields))
        cluster = V2Cluster(runtime.cluster, trace)
        await cluster.until(lambda: all(cluster.is_ready(n) for n in range(1, brokers + 1)))
        async with asyncio.timeout(LONGEST_S):
            await story(cluster)

    runtime.run(main())
