"""Target `snapshots`: a metadata snapshot, from the disk or from a leader, and the records in it.

Decoding raises RecordError, loading what it decodes to KeyError or ValueError. What is loaded can be written again, and
is the same then.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from uuid import UUID

from cluster_image.kraft.metadata import snapshot
from cluster_image.kraft.metadata.image import MetadataImage
from cluster_image.kraft.metadata.records import (
    BrokerEndpoint,
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnregisterBrokerRecord,
    encode,
)
from cluster_image.kraft.raft import snapshots
from cluster_image.storage.records import RecordError
from cluster_image.wire.integers import i8
from tests.cluster_image.wire.entities import random_entity

from .batches import with_right_checksums
from .dice import Dice
from .target import Finding, Target, only

_TYPES = (
    *(RegisterBrokerRecord, UnregisterBrokerRecord, BrokerRegistrationChangeRecord, TopicRecord, RemoveTopicRecord),
    *(PartitionRecord, PartitionChangeRecord, ConfigRecord, ProducerIdsRecord),
)
_ID = UUID(int=5)


def run(data: bytes) -> None:
    """The first byte says what follows: one record, a snapshot, or one whose checksums are put right first."""
    dice = Dice(data)
    kind, content = dice.number(3), dice.rest()
    if kind == 0:
        _load([encode(record) for record in _image_before()] + [content])
        return
    try:
        records = snapshots.decode(with_right_checksums(content) if kind == 1 else content)
    except RecordError as error:
        only(error)
        return
    _load(records)


def _load(records: list[bytes]) -> None:
    try:
        image = snapshot.image_of(records, 100)
    except (KeyError, ValueError) as error:
        only(error)
        return
    again = snapshot.image_of(snapshots.decode(snapshots.encode(snapshot.encoded(image), 3, 1)), 100)
    if again != image:
        raise Finding(f"{image} is another from its own snapshot: {again}")


def _image_before() -> list[MetadataRecord]:
    endpoint = BrokerEndpoint(name="PLAINTEXT", host="h", port=1)
    return [
        RegisterBrokerRecord(broker_id=1, incarnation_id=_ID, broker_epoch=3, end_points=(endpoint,), rack=None),
        TopicRecord(name="t", topic_id=_ID),
        PartitionRecord(partition_id=0, topic_id=_ID, replicas=(1, 2), isr=(1,), leader=1, leader_epoch=2),
    ]


def seeds(random: Random) -> Iterator[bytes]:
    for record_type in _TYPES:
        for _ in range(3):
            yield b"\0" + encode(random_entity(record_type, random))
    for record in _image_before():
        yield b"\0" + encode(record)
    yield b"\0" + encode(BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=3, fenced=i8(1)))
    yield b"\0" + encode(PartitionChangeRecord(partition_id=0, topic_id=_ID, isr=(1, 2), leader=2))
    yield b"\0" + encode(RemoveTopicRecord(topic_id=_ID))
    yield b"\0" + encode(ConfigRecord(resource_name="t", name="segment.bytes", value="2000"))
    whole = snapshots.encode([encode(record) for record in _image_before()], 3, 1)
    empty = snapshots.encode(snapshot.encoded(MetadataImage()), 0, 0)
    for content in (whole, empty):
        yield b"\1" + content
        yield b"\2" + content


SNAPSHOTS = Target("snapshots", run, seeds)
