"""Messages that kio does not have, declared as kio declares its own, so that its reader and our encoder handle them.

GetReplicaLogInfo (93) is KIP-966's question how far a replica's log goes, as in Apache Kafka's message schemas
(clients/src/main/resources/common/message/GetReplicaLogInfo*.json).
"""

# No postponed annotations here: kio reads the fields' types at run time.
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from kio.schema.errors import ErrorCode
from kio.schema.request_header.v2.header import RequestHeader
from kio.schema.response_header.v1.header import ResponseHeader
from kio.static.constants import EntityType
from kio.static.primitive import i16, i32, i32Timedelta, i64

GET_REPLICA_LOG_INFO: Final = 93
#: Partitions that one answer holds; `truncated` says that there were more in the question.
MAX_PARTITIONS: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPartitions:
    __type__: ClassVar = EntityType.nested
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(GET_REPLICA_LOG_INFO)
    __header_schema__: ClassVar[type[RequestHeader]] = RequestHeader
    topic_id: uuid.UUID | None = field(metadata={"kafka_type": "uuid"})
    partitions: tuple[i32, ...] = field(metadata={"kafka_type": "int32"}, default=())


@dataclass(frozen=True, slots=True, kw_only=True)
class GetReplicaLogInfoRequest:
    __type__: ClassVar = EntityType.request
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(GET_REPLICA_LOG_INFO)
    __header_schema__: ClassVar[type[RequestHeader]] = RequestHeader
    topic_partitions: tuple[TopicPartitions, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionLogInfo:
    """last_written_leader_epoch: of the last record, -1 of an empty log. current_leader_epoch: as far as the broker's
    metadata tells. log_end_offset: exclusive. All are -1 beside an error."""

    __type__: ClassVar = EntityType.nested
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(GET_REPLICA_LOG_INFO)
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader
    partition: i32 = field(metadata={"kafka_type": "int32"})
    last_written_leader_epoch: i32 = field(metadata={"kafka_type": "int32"})
    current_leader_epoch: i32 = field(metadata={"kafka_type": "int32"})
    log_end_offset: i64 = field(metadata={"kafka_type": "int64"})
    error_code: ErrorCode = field(metadata={"kafka_type": "error_code"})


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPartitionLogInfo:
    __type__: ClassVar = EntityType.nested
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(GET_REPLICA_LOG_INFO)
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader
    topic_id: uuid.UUID | None = field(metadata={"kafka_type": "uuid"})
    partition_log_info: tuple[PartitionLogInfo, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GetReplicaLogInfoResponse:
    """broker_epoch: of the process that answers; no two processes have the same, be it of one broker or of two."""

    __type__: ClassVar = EntityType.response
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(GET_REPLICA_LOG_INFO)
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader
    throttle_time: i32Timedelta = field(metadata={"kafka_type": "timedelta_i32"})
    broker_epoch: i64 = field(metadata={"kafka_type": "int64"})
    truncated: bool = field(metadata={"kafka_type": "bool"})
    topic_partition_log_info_list: tuple[TopicPartitionLogInfo, ...]


#: Request and response by API key and version.
SCHEMAS: Final[Mapping[tuple[int, int], tuple[Any, Any]]] = {
    (GET_REPLICA_LOG_INFO, 0): (GetReplicaLogInfoRequest, GetReplicaLogInfoResponse),
}
