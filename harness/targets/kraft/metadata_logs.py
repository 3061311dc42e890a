"""The records of kraft's metadata log, as the history has them."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from cluster_image.kraft.metadata import records
from cluster_image.kraft.raft.control_records import control_type
from cluster_image.storage.records import BatchHeader
from harness.record.collected import Collected
from harness.targets.kafka_api import metadata_logs
from harness.targets.target import ReadableDisk, Recorder


def record_metadata_logs(disks: Path | Mapping[str, ReadableDisk], recorder: Recorder) -> list[Collected]:
    """See metadata_logs.record_metadata_logs()."""
    return metadata_logs.record_metadata_logs(disks, recorder, _decode, _control)


def _decode(value: bytes) -> tuple[str, dict[str, Any]]:
    record = records.decode(value)
    return type(record).__name__, {f.name: _plain(getattr(record, f.name)) for f in fields(record)}


def _control(batch: bytes, header: BatchHeader) -> list[tuple[str, dict[str, Any]]]:
    """Known to the quorum alone. Its bytes, less what gives it its place, tell two of them apart."""
    return [(metadata_logs.CONTROL.get(control_type(batch), "Control"), {"crc": header.crc})]


def _plain(value: Any) -> Any:
    """As JSON can hold it."""
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if is_dataclass(value):
        return {f.name: _plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, uuid.UUID):
        return str(value)
    return value
