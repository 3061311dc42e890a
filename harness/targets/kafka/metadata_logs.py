"""The records of Kafka's metadata log, as the history has them."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from typing import Any, Final

from cluster_image.storage.records import BatchHeader, CorruptRecord, decode_every_record
from harness.record.collected import Collected
from harness.targets.kafka.metadata_records import QUORUM_RECORDS, decode, decode_quorum_record
from harness.targets.kafka_api import metadata_logs
from harness.targets.target import ReadableDisk, Recorder

_KEY: Final = struct.Struct(">hh")  # version, type
_LEADER_CHANGE: Final = struct.Struct(">hi")  # version, leader id (LeaderChangeMessage.json)


def record_metadata_logs(disks: Mapping[str, ReadableDisk], recorder: Recorder) -> list[Collected]:
    """disks: by node, each with its log directory as the root. See metadata_logs.record_metadata_logs()."""
    return metadata_logs.record_metadata_logs(disks, recorder, decode, _control)


def _control(batch: bytes, header: BatchHeader) -> Iterator[tuple[str, dict[str, Any]]]:
    """The records have no checksums of their own, so each has that of the batch."""
    for record in decode_every_record(batch):
        if record.key is None or len(record.key) != _KEY.size:
            raise CorruptRecord("a control record without a type")
        type_ = metadata_logs.CONTROL.get(_KEY.unpack(record.key)[1], "Control")
        value = record.value or b""
        fields: dict[str, Any] = {"crc": header.crc}
        if type_ == "LeaderChange" and len(value) >= _LEADER_CHANGE.size:
            fields["leader_id"] = _LEADER_CHANGE.unpack_from(value)[1]
        elif type_ in QUORUM_RECORDS:
            fields |= decode_quorum_record(type_, value)
        yield type_, fields
