"""The move of partitions under a throttle (KIP-73), beside clients: four brokers and three controllers in containers.

Half of a topic of 200 MB gets replicas on a broker that has none, at a quota, while librdkafka writes to all of it at a
steady pace. Aims: the rate of the move within a tenth of the quota, and the 99th percentile of what the clients wait
within one and a half of that without a move. Then it moves back without a throttle, to compare.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from statistics import quantiles
from typing import Any, Final

from kio.schema.alter_partition_reassignments.v0.request import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from kio.schema.errors import ErrorCode
from kio.schema.list_partition_reassignments.v0.request import ListPartitionReassignmentsRequest
from kio.schema.types import BrokerId, TopicName
from kio.static.primitive import i32

from cluster_image.network import Address
from cluster_image.tools.client import Client
from cluster_image.tools.throttle import ConfigChange, Move, Reassignment, request_of, throttle, unthrottle
from cluster_image.wire.messages import milliseconds
from harness.bench import Figure
from harness.cluster import Cluster
from harness.errors import HarnessFailure
from harness.plan.plan import Plan
from harness.plan.registry import make_target
from harness.runtimes.docker import cleanup, engine
from harness.runtimes.docker.runtime import DockerRuntime

TOPIC: Final = "moved"
FILL: Final = b"x" * 10_000
RECORDS: Final = 5_000  # of each partition: 50 MB
ASSIGNED: Final = ((1, 2, 3), (2, 3, 1), (1, 2, 3), (2, 3, 1))
MOVED: Final = {0: Move((1, 2, 3), (1, 2, 4)), 1: Move((2, 3, 1), (2, 4, 1))}
QUOTA: Final = 5_000_000  # bytes a second: twenty seconds
RECORD: Final = b"x" * 100
PACE: Final = 100  # records a second
ALONE_S: Final = 20
PATIENCE_S: Final = 120


def measure(results: Path) -> Iterator[Figure]:
    """Raises HarnessFailure if confluent-kafka, which is not needed otherwise, is not installed."""
    try:
        import confluent_kafka  # noqa: F401
    except ImportError:
        raise HarnessFailure("the bench loads the cluster with confluent-kafka, which is not installed") from None
    plan = Plan(run=f"bench-{os.getpid()}", brokers=4)
    runtime = DockerRuntime(make_target(plan.target))
    try:
        yield from runtime.run(_measure(runtime, plan, results))
    finally:
        cleanup.remove_run(engine.connect(), plan.run)


async def _measure(runtime: DockerRuntime, plan: Plan, results: Path) -> list[Figure]:
    cluster = await runtime.start(plan, results, lambda line: None)
    try:
        clients = _Clients(",".join("{}:{}".format(*node.address) for node in cluster.brokers))
        await asyncio.to_thread(clients.fill)
        alone: Future[None] = Future()
        writing = asyncio.create_task(asyncio.to_thread(clients.write_until, alone))
        await asyncio.sleep(ALONE_S)
        alone.set_result(None)
        before = _p99(await writing)
        moves: Reassignment = {TOPIC: MOVED}
        back = {partition: Move(move.target, move.present) for partition, move in MOVED.items()}
        await _alter(cluster, throttle(moves, QUOTA))
        throttled_rate, throttled = await _move(cluster, clients, MOVED)
        await _alter(cluster, unthrottle(moves))
        rate, unthrottled = await _move(cluster, clients, back)
    finally:
        await cluster.stop()
    size, mb = len(MOVED) * RECORDS * len(FILL) // 10**6, 10**6
    return [
        Figure(f"p99 of clients at {PACE} records a second, no move", "", f"{before * 1000:.1f} ms"),
        Figure(
            f"rate of a move of {size} MB, throttled to {QUOTA / mb:.1f} MB/s",
            f"{QUOTA * 0.9 / mb:.1f} to {QUOTA * 1.1 / mb:.1f} MB/s",
            f"{throttled_rate / mb:.2f} MB/s",
            abs(throttled_rate / QUOTA - 1) <= 0.1,
        ),
        Figure(
            "p99 of clients meanwhile",
            f"{before * 1500:.1f} ms",
            f"{throttled * 1000:.1f} ms",
            throttled <= 1.5 * before,
        ),
        Figure("rate of the move back, without a throttle", "", f"{rate / mb:.2f} MB/s"),
        Figure("p99 of clients meanwhile", "", f"{unthrottled * 1000:.1f} ms"),
    ]


async def _move(cluster: Cluster, clients: _Clients, moves: dict[int, Move]) -> tuple[float, float]:
    """Bytes a second until the move was complete, and the 99th percentile of what clients waited, in seconds."""
    request = AlterPartitionReassignmentsRequest(
        timeout=milliseconds(10_000),
        topics=(
            ReassignableTopic(
                name=TopicName(TOPIC),
                partitions=tuple(
                    ReassignablePartition(partition_index=i32(p), replicas=tuple(map(BrokerId, move.target)))
                    for p, move in moves.items()
                ),
            ),
        ),
    )
    listing = ListPartitionReassignmentsRequest(timeout=milliseconds(10_000), topics=None)
    done: Future[None] = Future()
    client = await _connect(cluster)
    began = time.monotonic()
    sent = clients.sent
    try:
        answer = await client.ask(request)
        writing = asyncio.create_task(asyncio.to_thread(clients.write_until, done))
        refused = [p.error_message for topic in answer.responses for p in topic.partitions if p.error_code.value]
        if refused:
            raise HarnessFailure(f"the bench's reassignment was refused: {refused[0]}")
        while (await client.ask(listing)).topics:
            await asyncio.sleep(0.05)
        took = time.monotonic() - began
    finally:
        done.set_result(None)
        await client.close()
    latencies = await writing
    # The clients write to all partitions in turn.
    written = (clients.sent - sent) * len(RECORD) * len(moves) // len(ASSIGNED)
    return (len(moves) * RECORDS * len(FILL) + written) / took, _p99(latencies)


async def _alter(cluster: Cluster, changes: list[ConfigChange]) -> None:
    client = await _connect(cluster)
    try:
        answer = await client.ask(request_of(changes))
    finally:
        await client.close()
    refused = [r.error_message for r in answer.responses if r.error_code is not ErrorCode.none]
    if refused:
        raise HarnessFailure(f"the bench's throttle was refused: {refused[0]}")


async def _connect(cluster: Cluster) -> Client:
    addresses = [Address(*node.address) for node in cluster.brokers]
    return await Client.connect(addresses, asyncio.get_running_loop().time() + PATIENCE_S)


def _p99(seconds: list[float]) -> float:
    """Without the first tenth: while connections are made, records wait for them."""
    return quantiles(seconds[len(seconds) // 10 :], n=100)[98]


class _Clients:
    """Blocks: to be called in a thread. sent: records so far, beside those of fill()."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap: dict[str, Any] = {"bootstrap.servers": bootstrap, "log_level": 2}
        self.sent = 0

    def fill(self) -> None:
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient, NewTopic

        admin, until = AdminClient(self._bootstrap), time.monotonic() + PATIENCE_S
        topic = NewTopic(TOPIC, num_partitions=len(ASSIGNED), replica_assignment=[list(r) for r in ASSIGNED])
        while True:
            try:
                admin.create_topics([topic], operation_timeout=10)[TOPIC].result(PATIENCE_S)
                break
            except KafkaException:  # the brokers have yet to register
                if time.monotonic() > until:
                    raise
                time.sleep(0.2)
        producer = self._producer(linger=20)
        for _ in range(RECORDS):
            for partition in range(len(ASSIGNED)):
                while True:
                    try:
                        producer.produce(TOPIC, FILL, partition=partition)
                        break
                    except BufferError:
                        producer.poll(0.01)
        if left := producer.flush(PATIENCE_S):
            raise HarnessFailure(f"{left} records of the bench were not acknowledged")

    def write_until(self, done: Future[None]) -> list[float]:
        """At PACE. What each record waited, in seconds."""
        producer, latencies = self._producer(linger=5), list[float]()
        began, sent = time.monotonic(), 0
        while not done.done():
            while sent < (time.monotonic() - began) * PACE:
                producer.produce(TOPIC, RECORD, partition=sent % len(ASSIGNED), on_delivery=_timer(latencies))
                sent += 1
            producer.poll(0.001)
        producer.flush(PATIENCE_S)
        self.sent += sent
        return latencies

    def _producer(self, linger: int) -> Any:
        from confluent_kafka import Producer

        return Producer({**self._bootstrap, "acks": "all", "enable.idempotence": True, "linger.ms": linger})


def _timer(latencies: list[float]) -> Any:
    began = time.monotonic()

    def delivered(error: Any, _: object) -> None:
        if error is not None:
            raise HarnessFailure(f"a record of the bench was refused: {error}")
        latencies.append(time.monotonic() - began)

    return delivered
