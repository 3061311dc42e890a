"""Records of Kafka's metadata log: bytes as Kafka writes them."""

from __future__ import annotations

import struct
import uuid

import pytest

from harness.targets.kafka.metadata_records import (
    RECORDS,
    UnreadableRecord,
    _fields,
    decode,
    decode_quorum_record,
)

TOPIC = uuid.UUID(int=7)


def compact(text: str) -> bytes:
    return bytes([len(text) + 1]) + text.encode()


def ids(*values: int) -> bytes:
    return bytes([len(values) + 1]) + struct.pack(f">{len(values)}i", *values)


def test_a_feature_level() -> None:
    value = bytes([1, 12, 0]) + compact("metadata.version") + struct.pack(">h", 29) + b"\0"
    assert decode(value) == ("FeatureLevelRecord", {"name": "metadata.version", "feature_level": 29})


def test_a_partition_with_tagged_fields_of_its_version() -> None:
    head = struct.pack(">i", 3) + TOPIC.bytes + ids(1, 2, 3) + ids(1) + ids() + ids() + struct.pack(">iii", 1, 5, 6)
    directories = bytes([1])
    tagged = bytes([3]) + bytes([0, 1, 1]) + bytes([1, len(ids(2)), *ids(2)]) + bytes([9, 2, 0, 0])  # 9: of a later one
    type_, fields = decode(bytes([1, 3, 2]) + head + directories + tagged)
    assert type_ == "PartitionRecord" and fields["topic_id"] == str(TOPIC) and fields["replicas"] == [1, 2, 3]
    assert (fields["leader"], fields["leader_epoch"], fields["partition_epoch"]) == (1, 5, 6)
    assert fields["leader_recovery_state"] == 1 and fields["eligible_leader_replicas"] == [2]
    assert fields["last_known_elr"] is None
    _, older = decode(bytes([1, 3, 0]) + head + b"\0")
    assert older["directories"] == [] and older["eligible_leader_replicas"] is None


def test_a_change_leaves_what_it_does_not_name() -> None:
    value = bytes([1, 5, 0]) + struct.pack(">i", 3) + TOPIC.bytes + bytes([1, 1, 4]) + struct.pack(">i", 2)
    _, fields = decode(value)
    assert fields["leader"] == 2 and fields["isr"] is None and fields["leader_recovery_state"] == -1


def test_nested_structures() -> None:
    endpoint = compact("PLAINTEXT") + compact("host") + struct.pack(">Hh", 9092, 0) + b"\0"
    value = (
        bytes([1, 0, 4]) + struct.pack(">i?", 1, False) + TOPIC.bytes + struct.pack(">q", 14)
        + bytes([2]) + endpoint + bytes([1]) + compact("rack-1") + struct.pack(">??", True, False) + b"\0"
    )  # fmt: skip
    _, fields = decode(value)
    assert fields["end_points"] == [{"name": "PLAINTEXT", "host": "host", "port": 9092, "security_protocol": 0}]
    assert fields["rack"] == "rack-1" and fields["fenced"] and fields["log_dirs"] == []


def test_voters_of_a_dynamic_quorum() -> None:
    endpoint = compact("CONTROLLER") + compact("host") + struct.pack(">H", 9093) + b"\0"
    feature = struct.pack(">hh", 0, 1) + b"\0"
    voter = struct.pack(">i", 101) + TOPIC.bytes + bytes([2]) + endpoint + feature + b"\0"
    fields = decode_quorum_record("KRaftVoters", struct.pack(">h", 0) + bytes([2]) + voter + b"\0")
    assert fields["voters"] == [{
        "voter_id": 101, "voter_directory_id": str(TOPIC),
        "endpoints": [{"name": "CONTROLLER", "host": "host", "port": 9093}],
        "kraft_version_feature": {"min_supported_version": 0, "max_supported_version": 1},
    }]  # fmt: skip
    assert decode_quorum_record("KRaftVersion", struct.pack(">hh", 0, 1) + b"\0")["kraft_version"] == 1


def test_every_type_is_described() -> None:
    for name, described in RECORDS.values():
        fields = _fields(described)
        assert name.endswith("Record") and len({field.name for field in fields}) == len(fields)


@pytest.mark.parametrize(
    "value",
    [b"", bytes([2, 12, 0]), bytes([1, 99, 0]), bytes([1, 12, 7]), bytes([1, 12, 0, 200]), bytes([1, 20, 0, 0, 0]),
     bytes([1, 9, 0, 1]), bytes([1, 20, 0]) + b"\xff" * 6],
)  # fmt: skip
def test_what_is_no_record_is_refused(value: bytes) -> None:
    with pytest.raises(UnreadableRecord):
        decode(value)
