"""A plan that balances a large cluster, and what its controller holds and writes: on paper, without a cluster."""

from __future__ import annotations

import time
import tracemalloc
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from random import Random
from typing import Final

from cluster_image.kraft.metadata import snapshot
from cluster_image.kraft.metadata.image import BrokerRegistration, MetadataImage, PartitionRegistration, Topic
from cluster_image.kraft.metadata.records import NO_LEADER_CHANGE, PartitionChangeRecord, encode
from cluster_image.kraft.raft import snapshots
from cluster_image.network import Address
from cluster_image.placement.rebalance import Plan, plan
from cluster_image.storage.records import build_batch
from cluster_image.wire.integers import BrokerId, i32
from harness.bench import Figure

BROKERS: Final = 1_000
PARTITIONS: Final = 200_000
RACKS: Final = 10
CHANGED: Final = 10  # brokers that come, or go
PLAN_AIM_S: Final = 30.0
#: Of the metadata: topics of 100 partitions each, on so many brokers.
TOPICS: Final = 100
HOLDERS: Final = 10
_KB: Final = 1000


def measure(_: Path) -> Iterator[Figure]:
    random = Random(1)
    yield from _plans(random)
    yield from _metadata(random)


def _plans(random: Random) -> Iterator[Figure]:
    racks = {broker: f"rack-{broker % RACKS}" for broker in range(BROKERS)}
    weights = {partition: random.randint(0, 10**9) for partition in range(PARTITIONS)}
    few = {broker: rack for broker, rack in racks.items() if broker < BROKERS - CHANGED}
    cases = (
        (f"{CHANGED} brokers more", few, racks),
        (f"{CHANGED} brokers fewer", racks, few),
    )
    for change, before, after in cases:
        assignment = assigned(before, PARTITIONS, random)
        began = time.perf_counter()
        made = plan(assignment, after, weights)
        took = time.perf_counter() - began
        yield Figure(
            f"plan for {len(after):,} brokers in {RACKS} racks, {PARTITIONS:,} partitions of three, {change}",
            f"{PLAN_AIM_S:g} s",
            f"{took:.1f} s; {_moved(made)}",
            took <= PLAN_AIM_S,
        )


def _metadata(random: Random) -> Iterator[Figure]:
    """Of a controller: the image that it holds, by tracemalloc; its log and snapshot, as they lie on its disk."""
    image = _image(random)
    number = sum(len(topic.partitions) for topic in image.topics.values())
    records = snapshot.encoded(image)
    created = sum(
        len(build_batch(records[first : first + 101], timestamp_ms=1))  # a topic and its partitions
        for first in range(HOLDERS, len(records), 101)
    )
    changes = [
        encode(PartitionChangeRecord(
            partition_id=i32(partition.index), topic_id=partition.topic_id,
            isr=tuple(BrokerId(b) for b in partition.isr if b != 0),
            leader=BrokerId(partition.replicas[1] if partition.leader == 0 else NO_LEADER_CHANGE),
        ))
        for partition in image.partitions() if 0 in partition.isr
    ]  # fmt: skip
    failure = len(build_batch(changes, timestamp_ms=1))
    content = snapshots.encode(records, 1, 1)
    tracemalloc.start()
    try:
        loaded = snapshot.image_of(snapshots.decode(content), len(records))
        held, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert loaded.topics.keys() == image.topics.keys()
    of = f"{number:,} partitions of three"
    yield Figure(f"metadata log: {of} created, in {TOPICS} topics", "", f"{created / _KB:,.0f} kB")
    yield Figure(f"one of {HOLDERS} brokers fails: {len(changes):,} partitions change", "", f"{failure / _KB:,.0f} kB")
    yield Figure(f"metadata snapshot of {of}", "", f"{len(content) / _KB:,.0f} kB")
    yield Figure(
        "the controller's image of it in memory; while the snapshot is loaded", "",
        f"{held / _KB / 1000:.1f} MB; {peak / _KB / 1000:.1f} MB",
    )  # fmt: skip


def _image(random: Random) -> MetadataImage:
    racks = {broker: f"rack-{broker % 5}" for broker in range(HOLDERS)}
    held = assigned(racks, TOPICS * 100, random)
    image = MetadataImage(brokers={
        broker: BrokerRegistration(
            broker, broker, uuid.UUID(int=broker + 1), Address(f"broker-{broker}", 9092), rack, False, False
        )
        for broker, rack in racks.items()
    })  # fmt: skip
    for number in range(TOPICS):
        topic = Topic(f"topic-{number}", uuid.UUID(int=random.getrandbits(128)))
        image.topics[topic.name] = image.topics_by_id[topic.id] = topic
        for index in range(100):
            replicas = held[number * 100 + index]
            topic.partitions[index] = PartitionRegistration(
                topic.id, topic.name, index, replicas, replicas, replicas[0], 0, 0
            )
    return image


def assigned(brokers: Mapping[int, str], partitions: int, random: Random) -> dict[int, tuple[int, ...]]:
    """Three replicas of each partition in three racks; replicas within one of each other, and nearly so leaders."""
    by_rack: dict[str, list[int]] = {}
    for broker, rack in brokers.items():
        by_rack.setdefault(rack, []).append(broker)
    dealt = dict.fromkeys(by_rack, 0)
    held: dict[int, tuple[int, ...]] = {}
    for partition in range(partitions):
        # Racks that are furthest behind, by their size, are dealt to next.
        chosen = sorted(by_rack, key=lambda rack: (dealt[rack] / len(by_rack[rack]), random.random()))[:3]
        random.shuffle(chosen)
        replicas = []
        for rack in chosen:
            replicas.append(by_rack[rack][dealt[rack] % len(by_rack[rack])])
            dealt[rack] += 1
        held[partition] = tuple(replicas)
    return held


def _moved(made: Plan[int]) -> str:
    least = {True: "the least possible", False: "not the least", None: "not known to be the least"}[made.is_least]
    return f"{made.replicas_moved:,} replicas, {made.bytes_moved / 1e12:.2f} TB, {least}"
