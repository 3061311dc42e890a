"""Records of Kafka's metadata log, of every type and version from 3.7 to 4.3.

kio, which decodes requests, has no schemas of these. So here they are in short, after Kafka's own descriptions of its
messages (metadata/src/main/resources/common/metadata): a line a field, `name:type`, then the first version that has it
unless that is 0, then `#tag` of a tagged field with its default. A type ends in `?` if it may be null, and begins with
`[]` if it is an array; `{…}` are the fields of a nested structure. All versions are flexible.
"""

from __future__ import annotations

import re
import struct
import uuid
from collections.abc import Iterator
from functools import cache
from typing import Any, Final, NamedTuple

_BROKER_FEATURE: Final = "name:string min_supported_version:int16 max_supported_version:int16"
_ENDPOINT: Final = "name:string host:string port:uint16 security_protocol:int16"
RECORDS: Final[dict[int, tuple[str, str]]] = {
    0: (
        "RegisterBrokerRecord",
        "broker_id:int32 is_migrating_zk_broker:bool@2 incarnation_id:uuid broker_epoch:int64 "
        f"end_points:[]{{{_ENDPOINT}}} features:[]{{{_BROKER_FEATURE}}} rack:string? fenced:bool "
        "in_controlled_shutdown:bool@1 log_dirs:[]uuid@3#0=[]",
    ),
    1: ("UnregisterBrokerRecord", "broker_id:int32 broker_epoch:int64"),
    2: ("TopicRecord", "name:string topic_id:uuid"),
    3: (
        "PartitionRecord",
        "partition_id:int32 topic_id:uuid replicas:[]int32 isr:[]int32 removing_replicas:[]int32 "
        "adding_replicas:[]int32 leader:int32 leader_recovery_state:int8#0=0 leader_epoch:int32 partition_epoch:int32 "
        "directories:[]uuid@1 eligible_leader_replicas:[]int32?@2#1=null last_known_elr:[]int32?@2#2=null",
    ),
    4: ("ConfigRecord", "resource_type:int8 resource_name:string name:string value:string?"),
    5: (
        "PartitionChangeRecord",
        "partition_id:int32 topic_id:uuid isr:[]int32?#0=null leader:int32#1=-2 replicas:[]int32?#2=null "
        "removing_replicas:[]int32?#3=null adding_replicas:[]int32?#4=null leader_recovery_state:int8#5=-1 "
        "directories:[]uuid?@1#8=null eligible_leader_replicas:[]int32?@2#6=null last_known_elr:[]int32?@2#7=null",
    ),
    7: ("FenceBrokerRecord", "id:int32 epoch:int64"),
    8: ("UnfenceBrokerRecord", "id:int32 epoch:int64"),
    9: ("RemoveTopicRecord", "topic_id:uuid"),
    10: (
        "DelegationTokenRecord",
        "owner:string requester:string renewers:[]string issue_timestamp:int64 max_timestamp:int64 "
        "expiration_timestamp:int64 token_id:string",
    ),
    11: (
        "UserScramCredentialRecord",
        "name:string mechanism:int8 salt:bytes stored_key:bytes server_key:bytes iterations:int32",
    ),
    12: ("FeatureLevelRecord", "name:string feature_level:int16"),
    14: ("ClientQuotaRecord", "entity:[]{entity_type:string entity_name:string?} key:string value:float64 remove:bool"),
    15: ("ProducerIdsRecord", "broker_id:int32 broker_epoch:int64 next_producer_id:int64"),
    17: (
        "BrokerRegistrationChangeRecord",
        "broker_id:int32 broker_epoch:int64 fenced:int8#0=0 in_controlled_shutdown:int8@1#1=0 log_dirs:[]uuid@2#2=[]",
    ),
    18: (
        "AccessControlEntryRecord",
        "id:uuid resource_type:int8 resource_name:string pattern_type:int8 principal:string host:string "
        "operation:int8 permission_type:int8",
    ),
    19: ("RemoveAccessControlEntryRecord", "id:uuid"),
    20: ("NoOpRecord", ""),
    21: ("ZkMigrationStateRecord", "zk_migration_state:int8"),
    22: ("RemoveUserScramCredentialRecord", "name:string mechanism:int8"),
    23: ("BeginTransactionRecord", "name:string?#0=null"),
    24: ("EndTransactionRecord", ""),
    25: ("AbortTransactionRecord", "reason:string?#0=null"),
    26: ("RemoveDelegationTokenRecord", "token_id:string"),
    27: (
        "RegisterControllerRecord",
        f"controller_id:int32 incarnation_id:uuid zk_migration_ready:bool end_points:[]{{{_ENDPOINT}}} "
        f"features:[]{{{_BROKER_FEATURE}}}",
    ),
    28: ("ClearElrRecord", "topic_name:string"),
    29: ("UnregisterControllerRecord", "controller_id:int32"),
}
#: Control records of a dynamic quorum (KIP-853; clients/src/main/resources/common/message).
QUORUM_RECORDS: Final = {
    "KRaftVersion": "version:int16 kraft_version:int16",
    "KRaftVoters": (
        "version:int16 voters:[]{voter_id:int32 voter_directory_id:uuid endpoints:[]{name:string host:string "
        "port:uint16} kraft_version_feature:{min_supported_version:int16 max_supported_version:int16}}"
    ),
}
#: The last version of each type that is known; 0 of all others. Of a later one the fields cannot be told.
_LAST: Final = {0: 4, 3: 2, 5: 2, 17: 3}
_FIXED: Final = {
    "int8": struct.Struct(">b"), "int16": struct.Struct(">h"), "uint16": struct.Struct(">H"),
    "int32": struct.Struct(">i"), "int64": struct.Struct(">q"), "float64": struct.Struct(">d"),
    "bool": struct.Struct(">?"),
}  # fmt: skip
_FRAME_VERSION: Final = 1
_DEFAULTS: Final[dict[str, Any]] = {"null": None, "[]": []}
#: Where a version lacks a field that is not tagged.
_ABSENT: Final[dict[str, Any]] = {"bool": False, "[]uuid": []}


class UnreadableRecord(ValueError):
    """Bytes that are no record of a known type and version."""


class _Field(NamedTuple):
    name: str
    type: str  # without [] and ?
    array: bool
    nullable: bool
    since: int
    tag: int | None
    default: Any
    nested: tuple[_Field, ...]


class _Reader:
    def __init__(self, content: bytes) -> None:
        self._content = content
        self._at = 0

    @property
    def left(self) -> int:
        return len(self._content) - self._at

    def take(self, size: int) -> bytes:
        if not 0 <= size <= self.left:
            raise UnreadableRecord("it ends in the middle of a field")
        self._at += size
        return self._content[self._at - size : self._at]

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value
            if shift > 28:
                raise UnreadableRecord("a varint of more than five bytes")

    def fixed(self, kind: str) -> Any:
        form = _FIXED[kind]
        return form.unpack(self.take(form.size))[0]


def decode(value: bytes) -> tuple[str, dict[str, Any]]:
    """(type, fields) of a record's value. Ids are text, bytes hexadecimal. Raises UnreadableRecord."""
    reader = _Reader(value)
    if (frame := reader.varint()) != _FRAME_VERSION:
        raise UnreadableRecord(f"frame version {frame}")
    type_, version = reader.varint(), reader.varint()
    if type_ not in RECORDS or version > _LAST.get(type_, 0):
        raise UnreadableRecord(f"type {type_}, version {version}, of a later Kafka")
    fields = _structure(reader, _fields(RECORDS[type_][1]), version)
    if reader.left:
        raise UnreadableRecord(f"{reader.left} bytes too many")
    return RECORDS[type_][0], fields


def decode_quorum_record(name: str, value: bytes) -> dict[str, Any]:
    """Fields of a record in QUORUM_RECORDS. Of a version that added some, those of the first version. Raises
    UnreadableRecord."""
    return _structure(_Reader(value), _fields(QUORUM_RECORDS[name]), 0)


def _structure(reader: _Reader, fields: tuple[_Field, ...], version: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    tagged = {}
    for field in fields:
        if field.tag is not None:
            found[field.name] = field.default
            if version >= field.since:
                tagged[field.tag] = field
        elif version >= field.since:
            found[field.name] = _value(reader, field, version)
        else:
            found[field.name] = _ABSENT["[]uuid" if field.array else field.type]
    for _ in range(reader.varint()):
        tag, content = reader.varint(), _Reader(reader.take(reader.varint()))
        if tag in tagged:  # else of what is not looked at
            found[tagged[tag].name] = _value(content, tagged[tag], version)
    return found


def _value(reader: _Reader, field: _Field, version: int) -> Any:
    if not field.array:
        return _single(reader, field, version)
    count = reader.varint() - 1
    if count < 0:
        return None
    if count > reader.left:  # each takes a byte at least, but for empty structures, of which there are none
        raise UnreadableRecord(f"an array of {count} elements in {reader.left} bytes")
    return [_single(reader, field, version) for _ in range(count)]


def _single(reader: _Reader, field: _Field, version: int) -> Any:
    if field.nested:
        return _structure(reader, field.nested, version)
    if field.type == "uuid":
        return str(uuid.UUID(bytes=reader.take(16)))
    if field.type in ("string", "bytes"):
        length = reader.varint() - 1
        if length < 0:
            return None
        content = reader.take(length)
        return content.hex() if field.type == "bytes" else content.decode(errors="replace")
    return reader.fixed(field.type)


_FIELD: Final = re.compile(
    r"\s*(?P<name>\w+):(?P<array>\[\])?(?:(?P<type>\w+)|\{(?P<nested>(?:[^{}]|\{[^{}]*\})*)\})(?P<null>\?)?(?:@(?P<since>\d+))?"
    r"(?:#(?P<tag>\d+)=(?P<default>\S+))?"
)


@cache
def _fields(described: str) -> tuple[_Field, ...]:
    return tuple(_described(described))


def _described(described: str) -> Iterator[_Field]:
    at = 0
    while at < len(described):
        found = _FIELD.match(described, at)
        assert found is not None, described[at:]
        at = found.end()
        default = found["default"]
        yield _Field(
            found["name"], found["type"] or "", found["array"] is not None, found["null"] is not None,
            int(found["since"] or 0), None if found["tag"] is None else int(found["tag"]),
            _DEFAULTS[default] if default in _DEFAULTS else int(default or 0),
            _fields(found["nested"]) if found["nested"] else (),
        )  # fmt: skip
