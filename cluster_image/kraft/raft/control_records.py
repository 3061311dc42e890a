"""Records that the quorum writes for itself; listeners never see them."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

from cluster_image.storage.records import CorruptRecord, decode_every_record

_KEY: Final = struct.Struct(">hh")  # version, type
_HEAD: Final = struct.Struct(">hi")  # version, leader id
_VOTER: Final = struct.Struct(">ib")  # voter id, no tagged fields
_SNAPSHOT_HEADER: Final = struct.Struct(">hqB")  # version, timestamp of the last record, no tagged fields
_SNAPSHOT_FOOTER: Final = struct.Struct(">hB")

LEADER_CHANGE: Final = 2
SNAPSHOT_HEADER: Final = 3
SNAPSHOT_FOOTER: Final = 4


def leader_change(leader: int, voters: Sequence[int], granting: Sequence[int]) -> tuple[bytes, bytes]:
    """Key and value of a LeaderChange record (Kafka's LeaderChangeMessage.json, version 0)."""
    value = _HEAD.pack(0, leader) + _ids(voters) + _ids(granting) + b"\0"
    return _KEY.pack(0, LEADER_CHANGE), value


def snapshot_header(last_timestamp_ms: int) -> tuple[bytes, bytes]:
    """Key and value of a SnapshotHeader record (SnapshotHeaderRecord.json, version 0)."""
    return _KEY.pack(0, SNAPSHOT_HEADER), _SNAPSHOT_HEADER.pack(0, last_timestamp_ms, 0)


def snapshot_footer() -> tuple[bytes, bytes]:
    """Key and value of a SnapshotFooter record (SnapshotFooterRecord.json, version 0)."""
    return _KEY.pack(0, SNAPSHOT_FOOTER), _SNAPSHOT_FOOTER.pack(0, 0)


def control_type(batch: bytes) -> int:
    """Which control record a control batch holds. Raises CorruptRecord."""
    key = next(decode_every_record(batch)).key
    if key is None or len(key) != _KEY.size:
        raise CorruptRecord("a control record without a type")
    kind: int = _KEY.unpack(key)[1]
    return kind


def _ids(voters: Sequence[int]) -> bytes:
    """A compact array; its length, plus one, is a varint of one byte."""
    assert len(voters) < 127
    return bytes([len(voters) + 1]) + b"".join(_VOTER.pack(voter, 0) for voter in voters)
