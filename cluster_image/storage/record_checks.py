"""What of a producer's batch a broker looks at before it is stored (Apache Kafka's LogValidator): the records inside.

Whoever reads a stored batch trusts it. So a CRC over garbage, records that claim to be others than the header counts,
and what only brokers write (control batches, transactions that no coordinator knows) are refused here.

Records of one shape, as most batches have, are compared column by column, in C; the others one by one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import cache
from mmap import mmap
from typing import Final

from ..network import Aside
from .compression import expanded
from .records import (
    BYTES_OF_INT,
    HEADER_SIZE,
    BatchHeader,
    InvalidRecord,
    RecordError,
    iter_batches,
    read_varint,
    validate_batch,
    varint,
)

#: Records of different shapes that are looked at without a pause; to compare some by column takes as long as so many.
AT_ONCE: Final = 5_000
_COMPARED: Final = 64
#: At first so many are looked at one by one where fewer were alike; each time that this happens again, twice as many.
FEW: Final = 16
#: More headers than these count as records that are looked at.
MANY_HEADERS: Final = 4
#: Headers of one record that are looked at without a pause: no honest client has so many.
HEADERS_AT_ONCE: Final = 1_000


class UnknownTransaction(RecordError):
    """A transactional batch, and there is no transaction: Kafka's INVALID_TXN_STATE."""


async def check_batch(batch: bytes, aside: Aside) -> None:
    """Whether a client may write this. Others have their turn meanwhile; aside: see network.Peer. Raises CorruptRecord,
    InvalidRecord, UnknownTransaction."""
    start, end, header = next(iter_batches(batch))
    validate_batch(batch, start, header)
    check_header(header)
    if end < len(batch):  # (as Apache Kafka since version 3 of Produce)
        raise InvalidRecord("a client writes one batch at a time to a partition")
    if not header.is_compressed:
        await _check_records(batch[start + HEADER_SIZE :], header.record_count)
        return
    async with expanded(header.codec, batch[start + HEADER_SIZE :], aside) as records:
        await _check_records(records, header.record_count)
    await asyncio.sleep(0)  # a request may have thousands, each a few bytes that have become many


async def _check_records(records: bytes | mmap, count: int) -> None:
    for _ in check_records(records, count):
        await asyncio.sleep(0)


def check_header(header: BatchHeader) -> None:
    """May a client write such a batch? Raises InvalidRecord, UnknownTransaction."""
    if header.is_control:
        raise InvalidRecord("clients may not write control batches")
    if header.is_transactional:
        raise UnknownTransaction("there are no transactions here")
    if header.producer_id >= 0 and header.base_sequence < 0:
        raise InvalidRecord(f"sequence number {header.base_sequence} of producer {header.producer_id}")


def check_records(records: bytes | mmap, count: int) -> Iterator[None]:
    """Are these `count` records, uncompressed and without their header, and nothing else? Yields now and then, for
    whoever has something else to do meanwhile. Raises InvalidRecord."""
    at = number = work = 0
    apart = FEW
    try:
        while number < count:
            alike = 0
            if count - number >= FEW:
                alike, size = _alike(records, at, number, count)
                at += alike * size
                number += alike
                work += _COMPARED
            if alike < FEW:
                until = min(number + apart, count)
                for each in range(number, until):
                    try:
                        at = _check_record(records, at, each)
                    except _ManyHeaders as many:
                        at = many.end
                        work += many.count
                        if work >= AT_ONCE:
                            work = 0
                            yield
                        yield from _check_headers(records, many, each)
                work += until - number
                number = until
            apart = FEW if alike >= FEW else min(2 * apart, AT_ONCE)
            if work >= AT_ONCE and number < count:
                work = 0
                yield
    except IndexError:
        raise InvalidRecord(f"of {count} records one does not end within the batch") from None
    if at != len(records):
        raise InvalidRecord(f"{len(records) - at} bytes after the last of {count} records")


class _ManyHeaders(Exception):
    """Of a record that is right but for its `count` headers, from `position` to `end`, which are still to be checked:
    there may be millions."""

    def __init__(self, count: int, position: int, end: int) -> None:
        self.count = count
        self.position = position
        self.end = end


def _check_record(records: bytes | mmap, at: int, number: int) -> int:
    """Where the record at `at` ends. Raises InvalidRecord, _ManyHeaders, IndexError at the end of what there is."""
    length, body = read_varint(records, at, BYTES_OF_INT)
    end = body + length
    if length < 0 or end > len(records):
        raise IndexError
    _, position = read_varint(records, body + 1)  # the timestamp's delta, after the attributes
    delta, position = read_varint(records, position, BYTES_OF_INT)
    if delta != number:
        raise InvalidRecord(f"record {number} says that it is number {delta}")
    position = _skip(records, _skip(records, position))  # key, value
    headers, position = read_varint(records, position, BYTES_OF_INT)
    if not 0 <= headers <= end - position:
        raise InvalidRecord(f"record {number} of {length} bytes has {headers} headers")
    if headers > MANY_HEADERS:
        raise _ManyHeaders(headers, position, end)
    for _ in range(headers):
        position = _skip_header(records, position, number)
    if position != end:
        raise InvalidRecord(f"record {number} of {length} bytes has {position - body} bytes of content")
    return end


def _check_headers(records: bytes | mmap, many: _ManyHeaders, number: int) -> Iterator[None]:
    """Yields and raises as check_records."""
    position = many.position
    for header in range(many.count):
        if header % HEADERS_AT_ONCE == HEADERS_AT_ONCE - 1:
            yield
        position = _skip_header(records, position, number)
    if position != many.end:
        raise InvalidRecord(f"record {number} has {position - many.position} bytes of headers")


def _skip_header(records: bytes | mmap, position: int, number: int) -> int:
    size, position = read_varint(records, position, BYTES_OF_INT)
    if size < 0:
        raise InvalidRecord(f"record {number} has a header without a name")
    return _skip(records, position + size)


def _skip(records: bytes | mmap, position: int) -> int:
    """Past a key or value that may be null. Beyond the end of the records: whoever reads on finds out."""
    size, position = read_varint(records, position, BYTES_OF_INT)
    return position + max(size, 0)


def _alike(records: bytes | mmap, at: int, number: int, count: int) -> tuple[int, int]:
    """From `number` on, how many records are of the shape of the first of them (of _MOST_AT_ONCE at most), and the size
    of each. The same shape: everything is where it is in the first and as long as there; no headers. 0: the first has
    many headers. Raises InvalidRecord, IndexError."""
    try:
        end = _check_record(records, at, number)
    except _ManyHeaders:
        return 0, 0
    size = end - at
    position = read_varint(records, at)[1] + 1
    time_at, (_, delta_at) = position, read_varint(records, position)
    _, key_at = read_varint(records, delta_at)
    _, key = read_varint(records, key_at)
    value_at = _skip(records, key_at)
    _, value = read_varint(records, value_at)
    if _skip(records, value_at) != end - 1:
        return 1, size  # headers
    deltas, first = _deltas(key_at - delta_at)
    alike = min(count - number, (len(records) - at) // size, first + len(deltas[0]) - number, _MOST_AT_ONCE)
    if alike < 2:
        return 1, size
    for column in (*range(at, time_at), *range(key_at, key), *range(value_at, value), end - 1):
        alike = _common(records[column : at + alike * size : size], records[column : column + 1] * alike)
    for column, expected in zip(range(delta_at, key_at), deltas, strict=True):
        counted = expected[number - first : number - first + alike]
        alike = _common(records[column : at + alike * size : size], counted)
    for column in range(time_at, delta_at):
        # As many bytes as the first has: all but the last say that another follows.
        followed = records[column : at + alike * size : size].translate(_FOLLOWED)
        alike = _common(followed, bytes([column < delta_at - 1]) * alike)
    return alike, size


def _common(some: bytes, others: bytes) -> int:
    """With how many bytes both begin."""
    if some == others:
        return len(some)
    least, most = 0, min(len(some), len(others))
    while least < most:
        middle = (least + most + 1) // 2
        if some[:middle] == others[:middle]:
            least = middle
        else:
            most = middle - 1
    return least


_FOLLOWED: Final = bytes(byte >= 128 for byte in range(256))


@cache
def _deltas(width: int) -> tuple[tuple[bytes, ...], int]:
    """Column by column, the varints of this many bytes; and the first number that they count from."""
    first = 0 if width == 1 else 1 << 7 * (width - 1) - 1
    last = min(1 << 7 * width - 1, _MOST)
    whole = b"".join(varint(number) for number in range(first, last))
    return tuple(whole[column::width] for column in range(width)), first


#: Of one batch that changes its shape again and again, no more is compared each time.
_MOST_AT_ONCE: Final = 4096
#: Numbers of records that are compared by column: those of the rest of a batch are looked at one by one.
_MOST: Final = 1 << 15
