"""The metadata image as records that rebuild it: what a snapshot holds (KIP-630)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kio.schema.types import ProducerId, TopicName

from cluster_image.wire.integers import BrokerId, i8, i16, i32, i64, u16

from .image import BrokerRegistration, MetadataImage, PartitionRegistration
from .records import (
    BROKER_RESOURCE,
    BrokerEndpoint,
    ConfigRecord,
    MetadataRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    TopicRecord,
    decode,
    encode,
)


def records_of(image: MetadataImage) -> Iterator[MetadataRecord]:
    """In the order in which the image holds them, so that who loads them goes through everything in the same order."""
    for broker in image.brokers.values():
        yield _broker(broker)
    for id_, settings in image.broker_settings.items():
        for name, value in settings.items():
            yield ConfigRecord(resource_type=i8(BROKER_RESOURCE), resource_name=id_, name=name, value=value)
    for topic in image.topics.values():
        yield TopicRecord(name=TopicName(topic.name), topic_id=topic.id)
        for name, value in topic.settings.items():
            yield ConfigRecord(resource_name=topic.name, name=name, value=value)
        for partition in topic.partitions.values():
            yield _partition(partition)
    if image.next_producer_id:
        yield ProducerIdsRecord(
            broker_id=BrokerId(-1), broker_epoch=i64(-1), next_producer_id=ProducerId(image.next_producer_id)
        )


def encoded(image: MetadataImage) -> Sequence[bytes]:
    return [encode(record) for record in records_of(image)]


def image_of(records: Sequence[bytes], end_offset: int) -> MetadataImage:
    """The image of everything below `end_offset`. Raises KeyError, ValueError for records that are no snapshot."""
    image = MetadataImage()
    for value in records:
        image.replay(0, decode(value))
    image.end_offset = end_offset
    return image


def _broker(broker: BrokerRegistration) -> RegisterBrokerRecord:
    host, port = broker.address
    return RegisterBrokerRecord(
        broker_id=BrokerId(broker.id),
        incarnation_id=broker.incarnation_id,
        broker_epoch=i64(broker.epoch),
        end_points=(BrokerEndpoint(name="PLAINTEXT", host=host, port=u16(port), security_protocol=i16(0)),),
        rack=broker.rack,
        fenced=broker.fenced,
        in_controlled_shutdown=broker.in_controlled_shutdown,
    )


def _partition(partition: PartitionRegistration) -> PartitionRecord:
    return PartitionRecord(
        partition_id=i32(partition.index),
        topic_id=partition.topic_id,
        replicas=_ids(partition.replicas),
        isr=_ids(partition.isr),
        removing_replicas=_ids(partition.removing),
        adding_replicas=_ids(partition.adding),
        leader=BrokerId(partition.leader),
        leader_epoch=i32(partition.leader_epoch),
        partition_epoch=i32(partition.partition_epoch),
        leader_recovery_state=i8(partition.leader_recovery_state),
        eligible_leader_replicas=_ids(partition.elr),
        last_known_elr=_ids(partition.last_known_elr),
    )


def _ids(replicas: tuple[int, ...]) -> tuple[BrokerId, ...]:
    return tuple(map(BrokerId, replicas))
