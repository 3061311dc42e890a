"""The cluster's state as the metadata log gives it: brokers, topics, partitions.

Records are replayed in log order; entries are immutable and replaced whole, so that whoever holds one holds a
consistent snapshot. Brokers act on what a batch of records has changed in the end, not on each record: several
changes of one partition merge (000, 2.3.2).
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields, replace

from cluster_image.network import Address
from cluster_image.replication.replica import PartitionKey

from .records import (
    BROKER_RESOURCE,
    NO_LEADER,
    NO_LEADER_CHANGE,
    NO_RECOVERY_CHANGE,
    RECOVERED,
    TOPIC_RESOURCE,
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
)


@dataclass(frozen=True, slots=True)
class BrokerRegistration:
    id: int
    epoch: int
    incarnation_id: uuid.UUID | None
    address: Address
    rack: str | None
    fenced: bool
    in_controlled_shutdown: bool

    @property
    def active(self) -> bool:
        """May lead and be in sync: neither fenced nor about to shut down."""
        return not self.fenced and not self.in_controlled_shutdown


@dataclass(frozen=True, slots=True)
class PartitionRegistration:
    """A partition's metadata (000, 2.3). Replica sets are in their listed order; the first is preferred."""

    topic_id: uuid.UUID
    topic: str
    index: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int  # or NO_LEADER
    leader_epoch: int
    partition_epoch: int
    elr: tuple[int, ...] = ()  # eligible leader replicas (002, 5.2)
    last_known_elr: tuple[int, ...] = ()  # once eligible, and perhaps still complete (002, 5.3.1)
    adding: tuple[int, ...] = ()  # by a reassignment under way (000, 2.3)
    removing: tuple[int, ...] = ()
    leader_recovery_state: int = RECOVERED


@dataclass(slots=True)
class Topic:
    name: str
    id: uuid.UUID
    partitions: dict[int, PartitionRegistration] = field(default_factory=dict)
    settings: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class MetadataImage:
    """State after every record up to `end_offset` (exclusive)."""

    end_offset: int = 0
    brokers: dict[int, BrokerRegistration] = field(default_factory=dict)
    topics: dict[str, Topic] = field(default_factory=dict)
    topics_by_id: dict[uuid.UUID, Topic] = field(default_factory=dict)
    next_producer_id: int = 0
    #: By broker id, and under "" of all brokers. Anew with each change: nobody changes it in place.
    broker_settings: dict[str, dict[str, str]] = field(default_factory=dict)

    def copy(self) -> MetadataImage:
        """An independent image of the same state."""
        topics = {
            name: Topic(topic.name, topic.id, dict(topic.partitions), dict(topic.settings))
            for name, topic in self.topics.items()
        }
        return MetadataImage(
            self.end_offset,
            dict(self.brokers),
            topics,
            {topic.id: topic for topic in topics.values()},
            self.next_producer_id,
            self.broker_settings,
        )

    def become(self, other: MetadataImage) -> None:
        """Take over another image's state, in place: whoever holds this one sees it. The other must not be used on."""
        for name in (f.name for f in fields(self)):
            setattr(self, name, getattr(other, name))

    def partition(self, topic_id: uuid.UUID | None, index: int) -> PartitionRegistration | None:
        topic = self.topics_by_id.get(topic_id) if topic_id is not None else None
        return topic.partitions.get(index) if topic is not None else None

    def partitions(self) -> Iterable[PartitionRegistration]:
        for topic in self.topics.values():
            yield from topic.partitions.values()

    def replay(self, offset: int, record: MetadataRecord) -> Sequence[PartitionKey]:
        """Apply the record at `offset`. Returns the partitions that it changed, made or removed.

        Raises KeyError when the record contradicts the state: going on would let nodes diverge (KAFKA-14275).
        """
        changed: Sequence[PartitionKey] = ()
        match record:
            case RegisterBrokerRecord(end_points=()):
                raise KeyError(f"broker {record.broker_id} has no address")
            case RegisterBrokerRecord():
                endpoint = record.end_points[0]
                self.brokers[record.broker_id] = BrokerRegistration(
                    int(record.broker_id),
                    int(record.broker_epoch),
                    record.incarnation_id,
                    Address(endpoint.host, int(endpoint.port)),
                    record.rack,
                    record.fenced,
                    record.in_controlled_shutdown,
                )
            case UnregisterBrokerRecord():
                del self.brokers[record.broker_id]
            case BrokerRegistrationChangeRecord():
                broker = self.brokers[record.broker_id]
                if broker.epoch != record.broker_epoch:
                    raise KeyError(f"broker {broker.id} has epoch {broker.epoch}, record has {record.broker_epoch}")
                self.brokers[broker.id] = replace(
                    broker,
                    fenced=broker.fenced if record.fenced == 0 else record.fenced > 0,
                    in_controlled_shutdown=broker.in_controlled_shutdown or record.in_controlled_shutdown > 0,
                )
            case TopicRecord():
                if record.topic_id is None or record.topic_id in self.topics_by_id or record.name in self.topics:
                    raise KeyError(f"topic {record.name} is there, or has no id")
                topic = Topic(record.name, record.topic_id)
                self.topics[topic.name] = self.topics_by_id[topic.id] = topic
            case RemoveTopicRecord() | PartitionRecord() | PartitionChangeRecord() if record.topic_id is None:
                raise KeyError("a record without the id of its topic")
            case RemoveTopicRecord():
                assert record.topic_id is not None
                topic = self.topics_by_id.pop(record.topic_id)
                del self.topics[topic.name]
                changed = tuple((topic.id, index) for index in topic.partitions)
            case ConfigRecord(resource_type=resource_type) if resource_type == BROKER_RESOURCE:
                self.broker_settings = _changed_settings(self.broker_settings, record)
            case ConfigRecord(resource_type=resource_type) if resource_type != TOPIC_RESOURCE:
                raise KeyError(f"resources of type {record.resource_type} have no settings")
            case ConfigRecord():
                topic = self.topics[record.resource_name]
                # Anew: whoever has read the settings before sees that they are others.
                topic.settings = {name: value for name, value in topic.settings.items() if name != record.name}
                if record.value is not None:
                    topic.settings[record.name] = record.value
                changed = tuple((topic.id, index) for index in topic.partitions)
            case PartitionRecord():
                assert record.topic_id is not None
                topic = self.topics_by_id[record.topic_id]
                index = int(record.partition_id)
                topic.partitions[index] = PartitionRegistration(
                    topic.id,
                    topic.name,
                    index,
                    tuple(map(int, record.replicas)),
                    tuple(map(int, record.isr)),
                    int(record.leader),
                    int(record.leader_epoch),
                    int(record.partition_epoch),
                    tuple(map(int, record.eligible_leader_replicas or ())),
                    tuple(map(int, record.last_known_elr or ())),
                    tuple(map(int, record.adding_replicas)),
                    tuple(map(int, record.removing_replicas)),
                    int(record.leader_recovery_state),
                )
                changed = ((topic.id, index),)
            case PartitionChangeRecord():
                assert record.topic_id is not None
                topic = self.topics_by_id[record.topic_id]
                index = int(record.partition_id)
                topic.partitions[index] = changed_partition(topic.partitions[index], record)
                changed = ((topic.id, index),)
            case ProducerIdsRecord():
                self.next_producer_id = int(record.next_producer_id)
        self.end_offset = offset + 1
        return changed


def _changed_settings(before: dict[str, dict[str, str]], record: ConfigRecord) -> dict[str, dict[str, str]]:
    """By resource; one without any is not in it."""
    own = {name: value for name, value in before.get(record.resource_name, {}).items() if name != record.name}
    if record.value is not None:
        own[record.name] = record.value
    others = {name: settings for name, settings in before.items() if name != record.resource_name}
    return {**others, record.resource_name: own} if own else others


def changed_partition(partition: PartitionRegistration, record: PartitionChangeRecord) -> PartitionRegistration:
    """The partition after a change: every change is a new partition epoch, every election a new leader epoch."""
    elects = record.leader != NO_LEADER_CHANGE

    def changed(before: tuple[int, ...], after: Iterable[int] | None) -> tuple[int, ...]:
        return before if after is None else tuple(map(int, after))

    return replace(
        partition,
        replicas=changed(partition.replicas, record.replicas),
        adding=changed(partition.adding, record.adding_replicas),
        removing=changed(partition.removing, record.removing_replicas),
        leader_recovery_state=(
            partition.leader_recovery_state
            if record.leader_recovery_state == NO_RECOVERY_CHANGE
            else int(record.leader_recovery_state)
        ),
        isr=changed(partition.isr, record.isr),
        elr=changed(partition.elr, record.eligible_leader_replicas),
        last_known_elr=changed(partition.last_known_elr, record.last_known_elr),
        leader=int(record.leader) if elects else partition.leader,
        leader_epoch=partition.leader_epoch + elects,
        partition_epoch=partition.partition_epoch + 1,
    )


__all__ = ["NO_LEADER", "BrokerRegistration", "MetadataImage", "PartitionKey", "PartitionRegistration", "Topic"]
