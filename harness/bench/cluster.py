"""The cluster under test by itself: three brokers and three controllers in containers, loaded by librdkafka.

Records of 100 bytes, acks=all, replication factor 3, MinISR 2. What counts as acknowledged is checked against the ends
of the logs. A closed loop keeps so many records under way, and no more, when each travels alone: its latency is then
that of the cluster, not of a queue in the client.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from concurrent.futures import Future
from itertools import pairwise
from pathlib import Path
from statistics import median, quantiles
from typing import Any, Final

from harness.bench import Figure, profile
from harness.cluster import Cluster, Node
from harness.errors import HarnessFailure
from harness.plan.plan import Plan
from harness.plan.registry import make_target
from harness.runtimes.docker import cleanup, engine
from harness.runtimes.docker.runtime import DockerRuntime

PARTITIONS: Final = 6
RECORD: Final = b"x" * 100
BATCHED_S: Final = 20
PACED_RATE: Final = 20_000  # records a second, for the latency of batches
PACED_S: Final = 10
SINGLE_S: Final = 10
UNDER_WAY: Final = 16  # records that travel alone
FAILOVERS: Final = 5
GAP_S: Final = 0.5  # far longer than a record takes while nothing is amiss
SESSION_MS: Final = 3000
PATIENCE_S: Final = 60
AIM: Final = 100_000

_BATCHED: Final = {"linger.ms": 20, "batch.size": 1 << 20, "queue.buffering.max.messages": 200_000}
_SINGLE: Final = {"linger.ms": 0, "batch.num.messages": 1}


def figures(
    results: Path,
    measure: Callable[[Cluster], Awaitable[list[Figure]]],
    *,
    brokers: int = 3,
    settings: Mapping[str, str] | None = None,
) -> Iterator[Figure]:
    """What `measure` finds in a new cluster, which is gone afterwards. Raises HarnessFailure if confluent-kafka, which
    is not needed otherwise, is not installed."""
    try:
        import confluent_kafka  # noqa: F401
    except ImportError:
        raise HarnessFailure("the bench loads the cluster with confluent-kafka, which is not installed") from None
    plan = Plan(run=f"bench-{os.getpid()}", brokers=brokers, settings=dict(settings or {}))
    runtime = DockerRuntime(make_target(plan.target))

    async def started() -> list[Figure]:
        cluster = await runtime.start(plan, results, lambda line: None)
        try:
            return await measure(cluster)
        finally:
            await cluster.stop()

    try:
        yield from runtime.run(started())
    finally:
        cleanup.remove_run(engine.connect(), plan.run)


def bootstrap_of(cluster: Cluster) -> str:
    return ",".join("{}:{}".format(*node.address) for node in cluster.brokers)


def measure(results: Path) -> Iterator[Figure]:
    """Raises HarnessFailure if confluent-kafka, which is not needed otherwise, is not installed."""
    yield from figures(results, _measure, settings={"broker.session.timeout.ms": str(SESSION_MS)})


async def _measure(cluster: Cluster) -> list[Figure]:
    load = _Load(bootstrap_of(cluster))
    await asyncio.to_thread(load.create_topic, "bench", PARTITIONS)
    rate = await asyncio.to_thread(load.batched, "bench", BATCHED_S)
    profiling = asyncio.create_task(profile.of_processes(await _pids(cluster), BATCHED_S - 4))
    await asyncio.to_thread(load.batched, "bench", BATCHED_S)
    where = await profiling
    paced = await asyncio.to_thread(load.paced, "bench", PACED_S)
    alone_rate, alone = await asyncio.to_thread(load.single, "bench", SINGLE_S)
    outages = await _failovers(cluster, load)
    return [
        Figure(f"acknowledged records a second, batched, {BATCHED_S} s", f"{AIM:,}", f"{rate:,.0f}", rate >= AIM),
        Figure("where the brokers' time goes meanwhile", "", where),
        Figure(f"latency, batched, at {PACED_RATE:,} records a second", "", _latency(paced)),
        Figure(f"acknowledged records a second, each alone, {UNDER_WAY} under way", "", f"{alone_rate:,.0f}"),
        Figure("latency, each alone", "", _latency(alone)),
        Figure(
            f"leader killed to next acknowledgement, broker.session.timeout.ms={SESSION_MS}",
            "",
            f"{median(outages):.1f} s median, {max(outages):.1f} s longest of {len(outages)}",
        ),
    ]


def _latency(seconds: list[float]) -> str:
    cut = quantiles(seconds, n=100)
    return f"{cut[49] * 1000:.1f} ms p50, {cut[98] * 1000:.1f} ms p99"


async def _pids(cluster: Cluster) -> list[int]:
    """Of the brokers' processes, as the host sees them."""
    api = engine.connect()
    nodes: list[Any] = list(cluster.brokers)
    return [int(api.inspect_container(node.process)["State"]["Pid"]) for node in nodes]


async def _failovers(cluster: Cluster, load: _Load) -> list[float]:
    """Seconds from the kill of a leader to the next acknowledgement, of a partition that is written to all the time."""
    await asyncio.to_thread(load.create_topic, "failover", 1)
    outages = []
    for _ in range(FAILOVERS):
        leader = await asyncio.to_thread(load.leader_once_in_sync, "failover")
        node: Node = next(node for node in cluster.brokers if node.id == leader)
        killed: Future[float] = Future()
        writing = asyncio.create_task(asyncio.to_thread(load.write_until_acknowledged_after, "failover", killed))
        await asyncio.sleep(2)
        killed_at = time.monotonic()
        await node.kill()
        killed.set_result(killed_at)
        outages.append(await writing - killed_at)
        await node.start()
    return outages


class _Load:
    """Blocks: to be called in a thread."""

    def __init__(self, bootstrap: str) -> None:
        from confluent_kafka.admin import AdminClient

        self._bootstrap: dict[str, Any] = {"bootstrap.servers": bootstrap}
        self._admin = AdminClient(self._bootstrap)

    def create_topic(self, name: str, partitions: int) -> None:
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import NewTopic

        deadline = time.monotonic() + PATIENCE_S
        while True:
            topic = NewTopic(name, num_partitions=partitions, replication_factor=3)
            try:
                self._admin.create_topics([topic], operation_timeout=10)[name].result(PATIENCE_S)
                return
            except KafkaException:  # the brokers have yet to register
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)

    def batched(self, topic: str, seconds: float) -> float:
        """Acknowledged records a second, as fast as it goes."""
        producer = self._producer(**_BATCHED)
        before = self._committed(topic)
        began = time.monotonic()
        sent = 0
        while time.monotonic() - began < seconds:
            try:
                for _ in range(1000):
                    producer.produce(topic, RECORD, partition=sent // 1000 % PARTITIONS)
                    sent += 1
            except BufferError:
                producer.poll(0.005)
        if left := producer.flush(PATIENCE_S):
            raise HarnessFailure(f"{left} records of the bench were not acknowledged")
        took = time.monotonic() - began
        if (committed := self._committed(topic) - before) != sent:
            raise HarnessFailure(f"{sent} records of the bench were acknowledged, {committed} are committed")
        return sent / took

    def paced(self, topic: str, seconds: float) -> list[float]:
        """Latency of each record, in seconds, at PACED_RATE."""
        producer = self._producer(**{**_BATCHED, "linger.ms": 5})
        latencies: list[float] = []
        began = time.monotonic()
        sent = 0
        while (elapsed := time.monotonic() - began) < seconds:
            while sent < elapsed * PACED_RATE:
                producer.produce(topic, RECORD, partition=sent % PARTITIONS, on_delivery=_timer(latencies))
                sent += 1
            producer.poll(0.001)
        producer.flush(PATIENCE_S)
        return _warm(latencies)

    def single(self, topic: str, seconds: float) -> tuple[float, list[float]]:
        """Records a second and each one's latency, in a closed loop of UNDER_WAY."""
        producer = self._producer(**_SINGLE)
        latencies: list[float] = []
        began = time.monotonic()
        sent = 0
        while time.monotonic() - began < seconds:
            while sent - len(latencies) < UNDER_WAY:
                producer.produce(topic, RECORD, partition=sent % PARTITIONS, on_delivery=_timer(latencies))
                sent += 1
            producer.poll(0.01)
        producer.flush(PATIENCE_S)
        return len(latencies) / (time.monotonic() - began), _warm(latencies)

    def leader_once_in_sync(self, topic: str) -> int:
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            # A broker may know of the topic before it knows of its partitions.
            partition = self._admin.list_topics(topic, timeout=10).topics[topic].partitions.get(0)
            if partition is not None and len(partition.isrs) == 3 and partition.leader >= 0:
                return int(partition.leader)
            time.sleep(0.1)
        raise HarnessFailure(f"the replicas of {topic} did not come into sync within {PATIENCE_S} s")

    def write_until_acknowledged_after(self, topic: str, killed: Future[float]) -> float:
        """Write all the time. Returns when the first record was acknowledged after the gap that the kill, at this
        time, has made."""
        settings = {"topic.metadata.refresh.fast.interval.ms": 50, "retry.backoff.ms": 50}
        producer = self._producer(**_SINGLE, **settings)
        acknowledged = [time.monotonic()]

        def delivered(error: object, _: object) -> None:
            if error is None:
                acknowledged.append(time.monotonic())

        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            producer.produce(topic, RECORD, partition=0, on_delivery=delivered)
            producer.poll(0.02)
            if killed.done():
                for before, after in pairwise(acknowledged):
                    if after - before > GAP_S and after > killed.result():
                        producer.flush(PATIENCE_S)
                        return after
        raise HarnessFailure(f"no acknowledgement followed the kill of a leader within {PATIENCE_S} s")

    def _producer(self, **settings: Any) -> Any:
        from confluent_kafka import Producer

        return Producer({**self._bootstrap, "acks": "all", "enable.idempotence": True, **settings})

    def _committed(self, topic: str) -> int:
        """Records of all partitions up to their high watermarks."""
        from confluent_kafka import Consumer, TopicPartition

        consumer = Consumer({**self._bootstrap, "group.id": "bench"})
        ends = [
            consumer.get_watermark_offsets(TopicPartition(topic, p), timeout=PATIENCE_S)[1] for p in range(PARTITIONS)
        ]
        consumer.close()
        return sum(ends)


def _warm(latencies: list[float]) -> list[float]:
    """Without the first tenth: while connections are made, records wait for them."""
    return latencies[len(latencies) // 10 :]


def _timer(latencies: list[float]) -> Any:
    began = time.monotonic()

    def delivered(error: Any, _: object) -> None:
        if error is not None:
            raise HarnessFailure(f"a record of the bench was refused: {error}")
        latencies.append(time.monotonic() - began)

    return delivered
