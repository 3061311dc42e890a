"""Record batches of format version 2, the unit of storage and replication.

A batch is a 61-byte header and its records. Brokers treat records as opaque bytes: they check a batch, give it its
offset and leader epoch, and store it. Both lie in front of what the CRC covers, so they are patched in place.

Source: Kafka's message format, https://kafka.apache.org/documentation/#recordbatch. Integers are big-endian;
lengths and deltas inside records are zig-zag varints.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import repeat
from mmap import mmap
from typing import Final, NamedTuple

import google_crc32c

HEADER_SIZE = 61
SMALLEST_RECORD = 7  # length, attributes, two deltas, key, value, headers: a byte each
MAGIC = 2

_HEADER = struct.Struct(">qiibIhiqqqhii")
_OFFSET = struct.Struct(">q")
_EPOCH = struct.Struct(">i")
_CRC = struct.Struct(">I")
_LENGTH = struct.Struct(">i")
_LENGTH_END = 12  # base offset and batch length, which the length does not count
_EPOCH_AT = 12
_CRC_AT = 17
_CRC_COVERS_FROM = 21

_COMPRESSION_MASK = 0x07
_TRANSACTIONAL = 0x10
_CONTROL = 0x20


class RecordError(ValueError):
    """A batch that must not be stored."""


class CorruptRecord(RecordError):
    """Damaged on its way or on disk: Kafka's CORRUPT_MESSAGE."""


class InvalidRecord(RecordError):
    """Intact but not allowed: Kafka's INVALID_RECORD."""


class BatchHeader(NamedTuple):
    """The header's fields in their order on the wire. Times are milliseconds since 1970."""

    base_offset: int
    batch_length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    def placed(self, base_offset: int, leader_epoch: int) -> BatchHeader:
        return BatchHeader(base_offset, self.batch_length, leader_epoch, *self[3:])

    @property
    def size(self) -> int:
        """Bytes of the whole batch."""
        return self.batch_length + _LENGTH_END

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """Sequence numbers wrap from 2^31 - 1 to 0. -1 without a producer id."""
        if self.base_sequence < 0:
            return -1
        return (self.base_sequence + self.last_offset_delta) & 0x7FFFFFFF

    @property
    def counts_agree(self) -> bool:
        """Do offsets and size allow for so many records? Compressed, they may take next to nothing."""
        count = self.record_count
        fits = self.is_compressed or count <= (self.size - HEADER_SIZE) // SMALLEST_RECORD
        return fits and 1 <= count == self.last_offset_delta + 1

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & _CONTROL)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & _TRANSACTIONAL)

    @property
    def codec(self) -> int:
        """0: none, 1: gzip, 2: snappy, 3: lz4, 4: zstd."""
        return self.attributes & _COMPRESSION_MASK

    @property
    def is_compressed(self) -> bool:
        return bool(self.codec)


class Record(NamedTuple):
    offset: int
    leader_epoch: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None


class Int64Batch(NamedTuple):
    """Consecutive records whose values are 8-byte integers: `values[i]` is at `base_offset + i`."""

    base_offset: int
    leader_epoch: int
    values: tuple[int, ...]


def parse_header(buffer: bytes, position: int = 0) -> BatchHeader:
    """Read a header without judging it. Raises CorruptRecord if fewer than 61 bytes are left."""
    try:
        return BatchHeader._make(_HEADER.unpack_from(buffer, position))
    except struct.error:
        raise CorruptRecord(f"{len(buffer) - position} bytes where a batch header takes {HEADER_SIZE}") from None


def iter_batches(buffer: bytes) -> Iterator[tuple[int, int, BatchHeader]]:
    """(start, end, header) of each batch, which must fill `buffer` exactly; contents are not checked.

    Raises CorruptRecord on an incomplete batch or an impossible length.
    """
    position, size = 0, len(buffer)
    while position < size:
        header = parse_header(buffer, position)
        end = position + header.size
        if end < position + HEADER_SIZE:
            raise CorruptRecord(f"batch length {header.batch_length} is shorter than a header")
        if end > size:
            raise CorruptRecord(f"batch of {header.size} bytes is cut off after {size - position}")
        yield position, end, header
        position = end


def end_of_batches(buffer: bytes) -> int:
    """The offset after the last of the batches, at least one, which must fill `buffer` exactly: of the others only the
    lengths are read. Raises CorruptRecord."""
    last = position = 0
    while position < len(buffer):
        if len(buffer) - position < HEADER_SIZE:
            raise CorruptRecord(f"{len(buffer) - position} bytes where a batch header takes {HEADER_SIZE}")
        size = _LENGTH_END + _LENGTH.unpack_from(buffer, position + _OFFSET.size)[0]
        if size < HEADER_SIZE or position + size > len(buffer):
            raise CorruptRecord(f"a batch of {size} bytes, at {position} of {len(buffer)}")
        last, position = position, position + size
    return parse_header(buffer, last).next_offset


def validate_batch(buffer: bytes, position: int, header: BatchHeader, compacted: bool = False) -> None:
    """Check the complete batch of `header` at `position`: magic, CRC and that counts agree. compacted: some of its
    records, or all, may have been taken out of it.

    Raises CorruptRecord or InvalidRecord.
    """
    if header.magic != MAGIC:
        raise InvalidRecord(f"record format version {header.magic}; only {MAGIC} is supported")
    if google_crc32c.value(buffer[position + _CRC_COVERS_FROM : position + header.size]) != header.crc:
        raise CorruptRecord(f"CRC of the batch at offset {header.base_offset} does not match its content")
    if not (header.counts_agree or (compacted and 0 <= header.record_count <= header.last_offset_delta)):
        last = header.last_offset_delta
        raise InvalidRecord(f"{header.record_count} records in {header.size} bytes, with a last offset delta of {last}")


def with_offset_and_epoch(batch: bytes, base_offset: int, leader_epoch: int) -> bytes:
    """A copy of one batch at its place in a log."""
    patched = bytearray(batch)
    patch_offset_and_epoch(patched, 0, base_offset, leader_epoch)
    return bytes(patched)


def patch_offset_and_epoch(buffer: bytearray, position: int, base_offset: int, leader_epoch: int) -> None:
    """Give the batch at `position` its place in a log."""
    _OFFSET.pack_into(buffer, position, base_offset)
    _EPOCH.pack_into(buffer, position + _EPOCH_AT, leader_epoch)


def build_batch(
    values: Sequence[bytes | None],
    *,
    timestamp_ms: int,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    control: bool = False,
    keys: Sequence[bytes | None] | None = None,
) -> bytes:
    """One uncompressed batch at base offset 0, without headers, all records at `timestamp_ms`."""
    records = bytearray()
    for delta, (key, value) in enumerate(zip(keys or repeat(None, len(values)), values, strict=True)):
        body = b"\0\0" + varint(delta) + _nullable(key) + _nullable(value) + b"\0"
        records += varint(len(body))
        records += body
    attributes = _CONTROL if control else 0
    return _assemble(bytes(records), len(values), attributes, timestamp_ms, producer_id, producer_epoch, base_sequence)


def encode_int64s(
    values: Sequence[int],
    *,
    timestamp_ms: int,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
) -> bytes:
    """`build_batch` of each value as an 8-byte big-endian integer, byte for byte, in a tenth of the time."""
    layout, frame = _int64_layout(len(values))
    fields: list[bytes | int] = list(frame)
    fields[1::2] = values
    return _assemble(layout.pack(*fields), len(values), 0, timestamp_ms, producer_id, producer_epoch, base_sequence)


def decode_int64s(buffer: bytes) -> Iterator[Int64Batch]:
    """The values of batches made by `encode_int64s`, or of any records whose values are 8 bytes long.

    Control batches are skipped. Raises CorruptRecord, and InvalidRecord on a value of another length.
    """
    for position, end, header in iter_batches(buffer):
        if header.is_control:
            continue
        if 0 < header.record_count <= end - position and not header.is_compressed:
            layout, frame = _int64_layout(header.record_count)
            if layout.size == end - position - HEADER_SIZE:
                fields = layout.unpack_from(buffer, position + HEADER_SIZE)
                if fields[::2] == frame[::2]:
                    yield Int64Batch(header.base_offset, header.leader_epoch, fields[1::2])
                    continue
        for record in _iter_records(buffer, position, end, header):
            if record.value is None or len(record.value) != _OFFSET.size:
                raise InvalidRecord(f"the value at offset {record.offset} is not an 8-byte integer")
            yield Int64Batch(record.offset, record.leader_epoch, _OFFSET.unpack(record.value))


def decode_records(buffer: bytes) -> Iterator[Record]:
    """Every data record; control batches are skipped. Raises CorruptRecord, and InvalidRecord if compressed."""
    for position, end, header in iter_batches(buffer):
        if not header.is_control:
            yield from _iter_records(buffer, position, end, header)


def decode_every_record(buffer: bytes) -> Iterator[Record]:
    """As decode_records, with the records of control batches."""
    for position, end, header in iter_batches(buffer):
        yield from _iter_records(buffer, position, end, header)


def decode_values(buffer: bytes) -> Iterator[tuple[int, int, bytes]]:
    """(offset, leader epoch, value) of every data record; a null value is given as b"". Raises as decode_records."""
    for record in decode_records(buffer):
        yield record.offset, record.leader_epoch, record.value or b""


def _assemble(
    records: bytes,
    count: int,
    attributes: int,
    timestamp_ms: int,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
) -> bytes:
    batch_length = HEADER_SIZE - _LENGTH_END + len(records)
    batch = bytearray(
        _HEADER.pack(
            0,
            batch_length,
            -1,
            MAGIC,
            0,
            attributes,
            count - 1,
            timestamp_ms,
            timestamp_ms,
            producer_id,
            producer_epoch,
            base_sequence,
            count,
        )
    )
    batch += records
    _CRC.pack_into(batch, _CRC_AT, google_crc32c.value(bytes(batch[_CRC_COVERS_FROM:])))
    return bytes(batch)


@lru_cache(maxsize=1024)
def _int64_layout(count: int) -> tuple[struct.Struct, tuple[bytes | int, ...]]:
    """How `count` records with 8-byte values, no keys and no headers lie in a batch: a struct that alternates
    between constant bytes and values, and its fields with every value 0."""
    frame: list[bytes | int] = []
    no_headers = b""
    for delta in range(count):
        body = b"\0\0" + varint(delta) + varint(-1) + varint(8)
        frame += [no_headers + varint(len(body) + 9) + body, 0]
        no_headers = b"\0"
    frame.append(no_headers)
    layout = ">" + "".join(f"{len(field)}s" if isinstance(field, bytes) else "q" for field in frame)
    return struct.Struct(layout), tuple(frame)


def _iter_records(buffer: bytes, position: int, end: int, header: BatchHeader) -> Iterator[Record]:
    if header.is_compressed:
        raise InvalidRecord(f"the batch at offset {header.base_offset} is compressed, which is not supported")
    at = position + HEADER_SIZE
    try:
        for _ in range(header.record_count):
            length, at = read_varint(buffer, at)
            record_end = at + length
            if length < 0 or record_end > end:
                raise IndexError
            timestamp_delta, at = read_varint(buffer, at + 1)  # after the attributes, of which none is defined
            offset_delta, at = read_varint(buffer, at)
            key, at = _read_nullable(buffer, at, record_end)
            value, at = _read_nullable(buffer, at, record_end)
            yield Record(
                header.base_offset + offset_delta,
                header.leader_epoch,
                header.base_timestamp + timestamp_delta,
                key,
                value,
            )
            at = record_end
    except IndexError:
        raise CorruptRecord(f"a record of the batch at offset {header.base_offset} overruns it") from None


def varint(value: int) -> bytes:
    """Zig-zag."""
    value = (value << 1) ^ (value >> 63)
    if value <= 0x7F:
        return value.to_bytes(1, "big")
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _nullable(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data


#: A varint of 32 bits has no more, one of 64 bits ten.
BYTES_OF_INT: Final = 5


def read_varint(buffer: bytes | mmap, at: int, most_bytes: int = 10) -> tuple[int, int]:
    """(value, position after it). Raises IndexError at the end of the buffer, and after most_bytes."""
    byte = buffer[at]
    at += 1
    value = byte & 0x7F
    shift = 7
    while byte & 0x80:
        if shift >= 7 * most_bytes:
            raise IndexError
        byte = buffer[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
    return (value >> 1) ^ -(value & 1), at


def _read_nullable(buffer: bytes, at: int, end: int) -> tuple[bytes | None, int]:
    length, at = read_varint(buffer, at)
    if length < 0:
        return None, at
    if at + length > end:
        raise IndexError
    return bytes(buffer[at : at + length]), at + length
