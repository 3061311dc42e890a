"""What lies in a log's files, item by item, damage included. Reads only, and never more than one batch at a time.

Each item is a dict with `kind` (below) and `file`, ready for JSON:

| kind         | other keys                                                                                           |
| ------------ | ---------------------------------------------------------------------------------------------------- |
| `file`       | bytes                                                                                                |
| `batch`      | position, bytes, base_offset, last_offset, records, leader_epoch, crc, max_timestamp, producer_id,   |
|              | producer_epoch, base_sequence, control, transactional, compression                                   |
| `record`     | offset, timestamp, key, value, or of metadata: offset, timestamp, type, fields                       |
| `epoch`      | epoch, start_offset: of the leader-epoch checkpoint                                                  |
| `checkpoint` | topic, partition, offset: of the high watermarks, recovery points and log starts                     |
| `content`    | fields: of the small JSON files and partition.metadata                                               |
| `damage`     | position (in bytes, None: the whole file), reason                                                    |

Times are milliseconds since 1970, offsets inclusive.
"""

from __future__ import annotations

import json
import os
import re
import struct
from collections.abc import Callable, Iterator
from dataclasses import fields
from functools import partial
from typing import Any, BinaryIO, Final

from kio.schema.leader_change_message.v0.data import LeaderChangeMessage
from kio.schema.snapshot_footer_record.v0.data import SnapshotFooterRecord
from kio.schema.snapshot_header_record.v0.data import SnapshotHeaderRecord
from kio.serial import entity_reader

from ..kraft.metadata import records as metadata
from ..storage import checkpoints
from ..storage.records import (
    HEADER_SIZE,
    BatchHeader,
    Record,
    RecordError,
    decode_every_record,
    parse_header,
    validate_batch,
)
from ..storage.segment import base_offset_of
from ..wire.guard import checked

Item = dict[str, Any]

METADATA_DIRECTORY: Final = "__cluster_metadata-0"
#: By the second half of their key, the first being its version (Kafka's ControlRecordType).
_CONTROL_RECORDS: Final[dict[bytes, Any]] = {
    b"\0\2": LeaderChangeMessage,
    b"\0\3": SnapshotHeaderRecord,
    b"\0\4": SnapshotFooterRecord,
}
_SNAPSHOT: Final = re.compile(r"\d{20}-\d{10}\.checkpoint")
_COMPRESSION: Final = ("none", "gzip", "snappy", "lz4", "zstd")
_INT64: Final = struct.Struct(">q")


def read_path(path: str, records: bool) -> Iterator[Item]:
    """A file's items, or those of all files of a log or data directory. Raises OSError; ValueError if it is a file of
    no kind known here."""
    if os.path.isdir(path):
        yield from _read_directory(path, records)
        return
    reader = _reader(path)
    if reader is None and os.path.exists(path):
        raise ValueError(f"{path} is no log segment, snapshot or checkpoint by its name (20 digits and .log)")
    yield from _read_file(path, reader or _json, BatchReader(records))


def _read_directory(path: str, records: bool) -> Iterator[Item]:
    batches = BatchReader(records)
    inner = []
    for name in sorted(os.listdir(path)):
        child = os.path.join(path, name)
        if os.path.isdir(child):
            inner.append(child)
        elif (reader := _reader(child)) is not None:
            yield from _read_file(child, reader, batches)
    for child in inner:
        yield from _read_directory(child, records)


Reader = Callable[[BinaryIO, str, "BatchReader"], Iterator[Item]]


def _read_file(path: str, reader: Reader, batches: BatchReader) -> Iterator[Item]:
    with open(path, "rb") as file:
        yield {"kind": "file", "file": path, "bytes": os.fstat(file.fileno()).st_size}
        for item in reader(file, path, batches):
            yield {"kind": item.pop("kind"), "file": path, **item}


def _reader(path: str) -> Reader | None:
    name = os.path.basename(path)
    if base_offset_of(name) is not None:
        return lambda file, path, batches: batches.segment(file, path)
    if _SNAPSHOT.fullmatch(name):
        return lambda file, path, batches: batches.snapshot(file, path)
    return _SMALL_FILES.get(name)


def _damage(position: int | None, reason: str) -> Item:
    return {"kind": "damage", "position": position, "reason": reason}


class BatchReader:
    """Batches of one log, whose segments come in the order of their offsets."""

    def __init__(self, records: bool) -> None:
        self._records = records
        self._next_offset: int | None = None
        self._last_epoch = -1

    def segment(self, file: BinaryIO, path: str) -> Iterator[Item]:
        base = base_offset_of(os.path.basename(path))
        assert base is not None
        if self._next_offset not in (None, base):
            yield _damage(None, f"it starts at offset {base}, the segment before ends at {self._next_offset}")
        self._next_offset = base
        yield from self._batches(file, path)

    def snapshot(self, file: BinaryIO, path: str) -> Iterator[Item]:
        last = ""
        for item in BatchReader(records=True)._batches(file, path):  # its offsets are its own, and so is its epoch
            last = item.get("type", "")
            if item["kind"] != "record" or self._records:
                yield item
        if last != SnapshotFooterRecord.__name__:
            yield _damage(None, "it is not complete: there is no footer at its end")

    def _batches(self, file: BinaryIO, path: str) -> Iterator[Item]:
        size = os.fstat(file.fileno()).st_size
        of_metadata = os.path.basename(os.path.dirname(os.path.abspath(path))) == METADATA_DIRECTORY
        position = 0
        while position < size:
            head = file.read(HEADER_SIZE)
            if len(head) < HEADER_SIZE:
                yield _damage(position, f"{size - position} bytes at the end are no batch")
                return
            header = parse_header(head)
            if not any(head):
                yield _damage(position, "zeros where a batch should be")
                return
            if not HEADER_SIZE <= header.size <= size - position:
                yield _damage(
                    position,
                    f"a batch of {header.size} bytes, at offset {header.base_offset}: {size - position} are left",
                )
                return
            batch = head + file.read(header.size - HEADER_SIZE)
            yield _batch(header, position)
            try:
                validate_batch(batch, 0, header)
            except RecordError as error:
                yield _damage(position, str(error))
                self._next_offset = None  # what the header says may be wrong as well
            else:
                yield from (_damage(position, reason) for reason in self._misplaced(header))
                self._next_offset, self._last_epoch = header.next_offset, header.leader_epoch
                if self._records:
                    yield from _records(batch, header, position, of_metadata)
            position += header.size

    def _misplaced(self, header: BatchHeader) -> Iterator[str]:
        if self._next_offset not in (None, header.base_offset):
            yield f"offset {header.base_offset} where {self._next_offset} is next"
        if header.leader_epoch < self._last_epoch:
            yield f"leader epoch {header.leader_epoch} after {self._last_epoch}"


def _batch(header: BatchHeader, position: int) -> Item:
    compression = header.attributes & 7
    return {
        "kind": "batch",
        "position": position,
        "bytes": header.size,
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "records": header.record_count,
        "leader_epoch": header.leader_epoch,
        "crc": header.crc,
        "max_timestamp": header.max_timestamp,
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "control": header.is_control,
        "transactional": header.is_transactional,
        "compression": _COMPRESSION[compression] if compression < len(_COMPRESSION) else str(compression),
    }


def _records(batch: bytes, header: BatchHeader, position: int, of_metadata: bool) -> Iterator[Item]:
    if header.is_compressed:
        return
    try:
        for record in decode_every_record(batch):
            item: Item = {"kind": "record", "offset": record.offset, "timestamp": record.timestamp_ms}
            if header.is_control:
                yield item | _control_record(record)
            elif of_metadata:
                yield item | _metadata_record(record)
            else:
                yield item | {"key": _readable(record.key), "value": _readable(record.value)}
    except (RecordError, ValueError) as error:
        yield _damage(position, str(error))


def _metadata_record(record: Record) -> Item:
    decoded = metadata.decode(record.value or b"")
    changed = {f.name: getattr(decoded, f.name) for f in fields(decoded) if getattr(decoded, f.name) != f.default}
    return {"type": type(decoded).__name__, "fields": {name: _plain(value) for name, value in changed.items()}}


def _control_record(record: Record) -> Item:
    """Raises ValueError."""
    key, value = record.key or b"", record.value or b""
    schema = _CONTROL_RECORDS.get(key[2:])
    if schema is None:
        return {"key": _readable(key), "value": _readable(value)}
    value, start = checked(schema, value, 0, flexible_header=False)
    decoded = entity_reader(schema)(value, start)[0]
    return {"type": schema.__name__, "fields": _plain(decoded)}


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if hasattr(value, "__dataclass_fields__"):
        return {f.name: _plain(getattr(value, f.name)) for f in fields(value)}
    return value if value is None or isinstance(value, bool | int | str) else str(value)


def _readable(data: bytes | None) -> str | int | None:
    """Text as text, 8 bytes as the integer that the workloads write, anything else in hexadecimal."""
    if data is None:
        return None
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = "\0"
    if text.isprintable():
        return text
    return int(_INT64.unpack(data)[0]) if len(data) == _INT64.size else "0x" + data.hex()


# -- small files ----------------------------------------------------------------------------------------------


def _lines(file: BinaryIO, path: str, batches: BatchReader, entry: Callable[[str], Item]) -> Iterator[Item]:
    try:
        entries = [entry(line) for line in checkpoints.entries_of(file.read())]
    except (ValueError, TypeError) as error:
        yield _damage(None, f"it is no checkpoint: {error}")
        return
    yield from entries


def _epoch(line: str) -> Item:
    epoch, offset = map(int, line.split())
    return {"kind": "epoch", "epoch": epoch, "start_offset": offset}


def _offset(line: str) -> Item:
    topic, partition, offset = line.split()
    return {"kind": "checkpoint", "topic": topic, "partition": int(partition), "offset": int(offset)}


def _json(file: BinaryIO, path: str, batches: BatchReader) -> Iterator[Item]:
    try:
        content = json.loads(file.read())
        if not isinstance(content, dict):
            raise ValueError("not an object")
    except (ValueError, RecursionError) as error:
        yield _damage(None, f"it is not JSON: {error}")
        return
    yield {"kind": "content", "fields": content}


def _properties(file: BinaryIO, path: str, batches: BatchReader) -> Iterator[Item]:
    lines = file.read().decode(errors="replace").splitlines()
    if any(":" not in line for line in lines):
        yield _damage(None, "it has a line that is not name: value")
        return
    yield {
        "kind": "content",
        "fields": {name: value.strip() for name, _, value in (line.partition(":") for line in lines)},
    }


_SMALL_FILES: Final[dict[str, Reader]] = {
    checkpoints.LEADER_EPOCH_FILE: partial(_lines, entry=_epoch),
    checkpoints.HIGH_WATERMARK_FILE: partial(_lines, entry=_offset),
    checkpoints.RECOVERY_POINT_FILE: partial(_lines, entry=_offset),
    checkpoints.LOG_START_FILE: partial(_lines, entry=_offset),
    checkpoints.CLEAN_SHUTDOWN_FILE: _json,
    "quorum-state": _json,
    "partition.metadata": _properties,
}
