"""python -m tests.cluster_image.metadata_size: what a controller holds and writes for 10,000 partitions.

On paper, without a cluster: records as the controller encodes them, and the image that it makes of them.
"""

from __future__ import annotations

import tracemalloc
import uuid
from collections.abc import Iterator
from random import Random
from typing import Final

from cluster_image.kraft.metadata import snapshot
from cluster_image.kraft.metadata.image import BrokerRegistration, MetadataImage, PartitionRegistration, Topic
from cluster_image.kraft.metadata.records import NO_LEADER_CHANGE, PartitionChangeRecord, encode
from cluster_image.kraft.raft import snapshots
from cluster_image.network import Address
from cluster_image.storage.records import build_batch
from cluster_image.wire.integers import BrokerId, i32
from harness.bench.placement import assigned

#: Of 100 partitions each, on so many brokers.
TOPICS: Final = 100
HOLDERS: Final = 10
_KB: Final = 1000


def sizes(random: Random) -> Iterator[str]:
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
    yield f"metadata log: {of} created, in {TOPICS} topics: {created / _KB:,.0f} kB"
    yield f"one of {HOLDERS} brokers fails: {len(changes):,} partitions change: {failure / _KB:,.0f} kB"
    yield f"metadata snapshot of {of}: {len(content) / _KB:,.0f} kB"
    yield f"the controller's image of it in memory: {held / 10**6:.1f} MB"
    yield f"while the snapshot is loaded: {peak / 10**6:.1f} MB"


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


if __name__ == "__main__":
    print("\n".join(sizes(Random(1))))
