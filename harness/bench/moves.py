"""The move of partitions under a throttle (KIP-73), beside clients: four brokers and three controllers in containers.

Half of a topic of 200 MB gets replicas on a broker that has none, at a quota, while librdkafka writes to all of it at a
steady pace. Aims: the rate of the move within a tenth of the quota, and the 99th percentile of what the clients wait
within one and a half of that without a move. Then it moves back without a throttle, to compare.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from pathlib import Path
from statistics import quantiles
from typing import Any, Final

from harness.bench import Figure
from harness.bench.cluster import bootstrap_of, figures
from harness.cluster import Cluster
from harness.errors import HarnessFailure
from harness.targets.admin import Place

TOPIC: Final = "moved"
FILL: Final = b"x" * 10_000
RECORDS: Final = 5_000  # of each partition: 50 MB
ASSIGNED: Final = ((1, 2, 3), (2, 3, 1), (1, 2, 3), (2, 3, 1))
MOVED: Final[Mapping[Place, tuple[int, ...]]] = {(TOPIC, 0): (1, 2, 4), (TOPIC, 1): (2, 4, 1)}
BACK: Final[Mapping[Place, tuple[int, ...]]] = {(TOPIC, index): ASSIGNED[index] for _, index in MOVED}
ADDED: Final = 4
QUOTA: Final = 5_000_000  # bytes a second: twenty seconds
RECORD: Final = b"x" * 100
PACE: Final = 100  # records a second
ALONE_S: Final = 20
PATIENCE_S: Final = 120


def measure(results: Path) -> Iterator[Figure]:
    """Raises HarnessFailure if confluent-kafka, which is not needed otherwise, is not installed."""
    yield from figures(results, _measure, brokers=4)


async def _measure(cluster: Cluster) -> list[Figure]:
    clients = _Clients(bootstrap_of(cluster))
    await asyncio.to_thread(clients.fill)
    # Else the kernel writes 600 MB back half a minute later, which is in the middle of the move, and all else waits.
    await asyncio.to_thread(os.sync)
    before = await _alone(clients)
    await asyncio.to_thread(clients.throttle, QUOTA)
    throttled_rate, throttled = await _move(cluster, clients, MOVED)
    await asyncio.to_thread(clients.throttle, None)
    after = await _alone(clients)
    quiet = _p99(before + after)
    rate, unthrottled = await _move(cluster, clients, BACK)
    size, mb = len(MOVED) * RECORDS * len(FILL) // 10**6, 10**6
    return [
        Figure(
            f"p99 of clients at {PACE} records a second, no move",
            "",
            f"{quiet * 1000:.1f} ms ({_p99(before) * 1000:.1f} before, {_p99(after) * 1000:.1f} after)",
        ),
        Figure(
            f"rate of a move of {size} MB, throttled to {QUOTA / mb:.1f} MB/s",
            f"{QUOTA * 0.9 / mb:.1f} to {QUOTA * 1.1 / mb:.1f} MB/s",
            f"{throttled_rate / mb:.2f} MB/s",
            abs(throttled_rate / QUOTA - 1) <= 0.1,
        ),
        Figure(
            "p99 of clients meanwhile",
            f"{quiet * 1500:.1f} ms",
            f"{throttled * 1000:.1f} ms",
            throttled <= 1.5 * quiet,
        ),
        Figure("rate of the move back, without a throttle", "", f"{rate / mb:.2f} MB/s"),
        Figure("p99 of clients meanwhile", "", f"{unthrottled * 1000:.1f} ms"),
    ]


async def _alone(clients: _Clients) -> list[float]:
    done: Future[None] = Future()
    writing = asyncio.create_task(asyncio.to_thread(clients.write_until, done))
    await asyncio.sleep(ALONE_S)
    done.set_result(None)
    return await writing


async def _move(cluster: Cluster, clients: _Clients, targets: Mapping[Place, tuple[int, ...]]) -> tuple[float, float]:
    """Bytes a second until the move was complete, and the 99th percentile of what clients waited, in seconds."""
    admin, done, sent = cluster.admin, Future[None](), clients.sent
    began = time.monotonic()
    refused = await admin.reassign(targets)
    if refused:
        raise HarnessFailure(f"the bench's reassignment was refused: {next(iter(refused.values()))}")
    writing = asyncio.create_task(asyncio.to_thread(clients.write_until, done))
    try:
        while await admin.moves():
            await asyncio.sleep(0.05)
        took = time.monotonic() - began
    finally:
        done.set_result(None)
    latencies = await writing
    # The clients write to all partitions in turn.
    written = (clients.sent - sent) * len(RECORD) * len(targets) // len(ASSIGNED)
    return (len(targets) * RECORDS * len(FILL) + written) / took, _p99(latencies)


def _p99(seconds: list[float]) -> float:
    return quantiles(seconds, n=100)[98]


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

    def throttle(self, rate: int | None) -> None:
        """The replicas that MOVED moves, and all brokers, or none any more."""
        from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

        operation = AlterConfigOpType.DELETE if rate is None else AlterConfigOpType.SET
        leading = ",".join(f"{index}:{replica}" for _, index in MOVED for replica in ASSIGNED[index])
        following = ",".join(f"{index}:{ADDED}" for _, index in MOVED)
        values = {
            (ResourceType.TOPIC, TOPIC): {"leader": leading, "follower": following},
            **{(ResourceType.BROKER, str(b)): {"leader": str(rate), "follower": str(rate)} for b in (1, 2, 3, ADDED)},
        }
        admin = AdminClient(self._bootstrap)
        for (type_, name), sides in values.items():
            what = "replicas" if type_ is ResourceType.TOPIC else "rate"
            entries = [
                ConfigEntry(f"{side}.replication.throttled.{what}", value, incremental_operation=operation)
                for side, value in sides.items()
            ]
            resource = ConfigResource(type_, name, incremental_configs=entries)
            admin.incremental_alter_configs([resource])[resource].result(PATIENCE_S)

    def write_until(self, done: Future[None]) -> list[float]:
        """At PACE. What each record waited, in seconds; without the first tenth: while connections are made, records
        wait for them."""
        producer, latencies = self._producer(linger=5), list[float]()
        began, sent = time.monotonic(), 0
        while not done.done():
            while sent < (time.monotonic() - began) * PACE:
                producer.produce(TOPIC, RECORD, partition=sent % len(ASSIGNED), on_delivery=_timer(latencies))
                sent += 1
            producer.poll(0.001)
        producer.flush(PATIENCE_S)
        self.sent += sent
        return latencies[len(latencies) // 10 :]

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
