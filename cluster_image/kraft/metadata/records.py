"""Records of the metadata log: the cluster's state, one change each.

Declared after Apache Kafka's metadata message schemas (metadata/src/main/resources/common/metadata) as kio
dataclasses, so that kio's own reader and writer handle them. A record's value in the log is, as in Kafka, a frame:
frame version, record type and record version as unsigned varints, then the message.
"""

# No postponed annotations here: kio reads the fields' types at run time.
import io
import uuid
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Final

from kio.schema.types import BrokerId, ProducerId, TopicName
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType
from kio.static.primitive import i8, i16, i32, i64, u16

from cluster_image.wire.guard import checked

FRAME_VERSION: Final = 1

NO_LEADER: Final = -1
#: In a change record: the leader stays as it is.
NO_LEADER_CHANGE: Final = -2
#: Leader recovery states (Kafka's LeaderRecoveryState): was the leader elected uncleanly, and may lack records?
RECOVERED: Final = 0
RECOVERING: Final = 1
#: In a change record: it stays as it is.
NO_RECOVERY_CHANGE: Final = -1
#: What has settings, in Kafka's numbers (ConfigResource.Type).
TOPIC_RESOURCE: Final = 2
BROKER_RESOURCE: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerEndpoint:
    __type__: ClassVar = EntityType.nested
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True
    name: str = field(metadata={"kafka_type": "string"})
    host: str = field(metadata={"kafka_type": "string"})
    port: u16 = field(metadata={"kafka_type": "uint16"})
    security_protocol: i16 = field(metadata={"kafka_type": "int16"}, default=i16(0))


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterBrokerRecord:
    """A broker's new uptime session. Its broker epoch is this record's own offset (000, 1.2.2)."""

    __type__: ClassVar = EntityType.data
    __version__: ClassVar[i16] = i16(1)
    __flexible__: ClassVar[bool] = True
    __record_type__: ClassVar[int] = 0
    broker_id: BrokerId = field(metadata={"kafka_type": "int32"})
    incarnation_id: uuid.UUID | None = field(metadata={"kafka_type": "uuid"})
    broker_epoch: i64 = field(metadata={"kafka_type": "int64"})
    end_points: tuple[BrokerEndpoint, ...]
    rack: str | None = field(metadata={"kafka_type": "string"})
    fenced: bool = field(metadata={"kafka_type": "bool"}, default=True)
    in_controlled_shutdown: bool = field(metadata={"kafka_type": "bool"}, default=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRegistrationChangeRecord:
    """fenced: -1 unfences, 1 fences, 0 no change. in_controlled_shutdown: 1 sets it, 0 no change."""

    __type__: ClassVar = EntityType.data
    __version__: ClassVar[i16] = i16(1)
    __flexible__: ClassVar[bool] = True
    __record_type__: ClassVar[int] = 17
    broker_id: BrokerId = field(metadata={"kafka_type": "int32"})
    broker_epoch: i64 = field(metadata={"kafka_type": "int64"})
    fenced: i8 = field(metadata={"kafka_type": "int8", "tag": 0}, default=i8(0))
    in_controlled_shutdown: i8 = field(metadata={"kafka_type": "int8", "tag": 1}, default=i8(0))


@dataclass(frozen=True, slots=True, kw_only=True)
class UnregisterBrokerRecord:
    """The broker has been taken out of the cluster. It may register again, as a new one."""

    __type__: ClassVar = EntityType.data
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True
    __record_type__: ClassVar[int] = 1
    broker_id: BrokerId = field(metadata={"kafka_type": "int32"})
    broker_epoch: i64 = field(metadata={"kafka_type": "int64"})


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRecord:
    __type__: ClassVar = EntityType.data
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True
    __record_type__: ClassVar[int] = 2
    name: TopicName = field(metadata={"kafka_type": "string"})
    topic_id: uuid.UUID | None = field(metadata={"kafka_type": "uuid"})


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveTopicRecord:
    """The topic is gone, with its partitions and settings. Its id is never used again."""

    __type__: ClassVar = EntityType.data
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True
    __record_type__: ClassVar[int] = 9
    topic_id: uuid.UUID | None = field(metadata={"kafka_type": "uuid"})


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRecord:
    """A new partition, whole (000, 2.3)."""

    __type__: ClassVar = EntityType.data
    __version__: ClassVar[i16] = i16(2)
    __flexible__: ClassVar[bool] = True
    __record_type__: ClassVar[int] = 3
    partition_id: i32 = field(metadata={"kafka_type": "int32"})
    topic_id: uuid.UUID | None = field(metadata={"kafka_type": "uuid"})
    replicas: tuple[BrokerId, ...] = field(metadata={"kafka_type": "int32"}, default=())
    isr: tuple[BrokerId, ...] = field(metadata={"kafka_type": "int32"}, default=())
    removing_replicas: tuple[BrokerId, ...] = field(metadata={"kafka_type": "int32"}, default=())
    adding_replicas: tuple[BrokerId, ...] = field(metadata={"kafka_type": "int32"}, default=())
    leader: BrokerId = field(metadata={"kafka_type": "int32"}, default=BrokerId(NO_LEADER))
    leader_epoch: i32 = field(metadata={"kafka_type": "int32"}, default=i32(0))
    partition_epoch: i32 = field(metadata={"kafka_type": "int32"}, default=i32(0))
    leader_recovery_state: i8 = field(metadata={"kafka_type": "int8", "tag": 0}, default=i8(RECOVERED))
    eligible_leader_replicas: tuple[BrokerId, ...] | None = field(
        metadata={"kafka_type": "int32", "tag": 1}, default=None
    )
    last_known_elr: tuple[BrokerId, ...] | None = field(metadata={"kafka_type": "int32", "tag": 2}, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionChangeRecord:
    """A change of a partition: what is None or NO_LEADER_CHANGE stays as it was (000, 2.3.2).

    Replaying it raises the partition epoch by one, and the leader epoch too where it names a leader."""

    __type__: ClassVar = EntityType.data
    __version__: ClassVar[i16] = i16(2)
    __flexible__: ClassVar[bool] = True
    __record_type__: ClassVar[int] = 5
    partition_id: i32 = field(metadata={"kafka_type": "int32"})
    topic_id: uuid.UUID | None = field(metadata={"kafka_type": "uuid"})
    isr: tuple[BrokerId, ...] | None = field(metadata={"kafka_type": "int32", "tag": 0}, default=None)
    leader: BrokerId = field(metadata={"kafka_type": "int32", "tag": 1}, default=BrokerId(NO_LEADER_CHANGE))
    replicas: tuple[BrokerId, ...] | None = field(metadata={"kafka_type": "int32", "tag": 2}, default=None)
    removing_replicas: tuple[BrokerId, ...] | None = field(metadata={"kafka_type": "int32", "tag": 3}, default=None)
    adding_replicas: tuple[BrokerId, ...] | None = field(metadata={"kafka_type": "int32", "tag": 4}, default=None)
    leader_recovery_state: i8 = field(metadata={"kafka_type": "int8", "tag": 5}, default=i8(NO_RECOVERY_CHANGE))
    eligible_leader_replicas: tuple[BrokerId, ...] | None = field(
        metadata={"kafka_type": "int32", "tag": 6}, default=None
    )
    last_known_elr: tuple[BrokerId, ...] | None = field(metadata={"kafka_type": "int32", "tag": 7}, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigRecord:
    """A topic's own value of a setting, or a broker's: resource_name is then its id, or empty for all brokers.
    value None: it has none any more."""

    __type__: ClassVar = EntityType.data
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True
    __record_type__: ClassVar[int] = 4
    resource_type: i8 = field(metadata={"kafka_type": "int8"}, default=i8(TOPIC_RESOURCE))
    resource_name: str = field(metadata={"kafka_type": "string"})
    name: str = field(metadata={"kafka_type": "string"})
    value: str | None = field(metadata={"kafka_type": "string"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerIdsRecord:
    """A block of producer ids was given to a broker: the next block starts at next_producer_id."""

    __type__: ClassVar = EntityType.data
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True
    __record_type__: ClassVar[int] = 15
    broker_id: BrokerId = field(metadata={"kafka_type": "int32"})
    broker_epoch: i64 = field(metadata={"kafka_type": "int64"})
    next_producer_id: ProducerId = field(metadata={"kafka_type": "int64"})


MetadataRecord = (
    RegisterBrokerRecord
    | UnregisterBrokerRecord
    | BrokerRegistrationChangeRecord
    | TopicRecord
    | RemoveTopicRecord
    | PartitionRecord
    | PartitionChangeRecord
    | ConfigRecord
    | ProducerIdsRecord
)

_TYPES: Final[dict[tuple[int, int], Any]] = {
    (t.__record_type__, int(t.__version__)): t
    for t in (
        RegisterBrokerRecord,
        UnregisterBrokerRecord,
        BrokerRegistrationChangeRecord,
        TopicRecord,
        RemoveTopicRecord,
        PartitionRecord,
        PartitionChangeRecord,
        ConfigRecord,
        ProducerIdsRecord,
    )
}


_NO_CHANGE: Final = {("leader", NO_LEADER_CHANGE), ("leader_recovery_state", NO_RECOVERY_CHANGE)}


def numbers(record: MetadataRecord) -> dict[str, int | tuple[int, ...]]:
    """A record's numbers by name, without those that say "no change"."""
    values = {f.name: getattr(record, f.name) for f in fields(record)}
    found: dict[str, int | tuple[int, ...]] = {}
    for name, value in values.items():
        if isinstance(value, int) and (name, value) not in _NO_CHANGE:
            found[name] = int(value)
        elif isinstance(value, tuple) and all(isinstance(item, int) for item in value):
            found[name] = tuple(map(int, value))
    return found


def encode(record: MetadataRecord) -> bytes:
    """The record's value in the metadata log. Every type and version fits in one varint byte."""
    out = io.BytesIO()
    out.write(bytes((FRAME_VERSION, record.__record_type__, int(record.__version__))))
    entity_writer(type(record))(out, record)
    return out.getvalue()


def decode(value: bytes) -> MetadataRecord:
    """Raises ValueError for a record that is damaged or that this version does not know: its state would be wrong
    without it."""
    if len(value) < 3:
        raise ValueError(f"a metadata record of {len(value)} bytes")
    frame, record_type, version = value[0], value[1], value[2]
    entity_type = _TYPES.get((record_type, version)) if frame == FRAME_VERSION else None
    if entity_type is None:
        raise ValueError(f"unknown metadata record: frame {frame}, type {record_type}, version {version}")
    value, start = checked(entity_type, value, 3, flexible_header=False)
    try:
        record: MetadataRecord = entity_reader(entity_type)(value, start)[0]
    except Exception as error:  # kio's own: text that is not UTF-8, values out of range
        raise ValueError(f"no valid {entity_type.__name__}: {error}") from error
    return record
