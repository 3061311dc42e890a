"""What compressed batches hold, up to a bound: a few bytes can claim to be gigabytes.

The codecs are Kafka's, by their number in a batch's attributes; snappy both as Java's clients frame it and bare.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final

import cramjam

from ..network import Aside
from .records import InvalidRecord

#: Of a batch, decompressed. As they come, batches are of message.max.bytes at most: 1 MiB.
MOST_BYTES: Final = 32 << 20

_XERIAL: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = len(_XERIAL) + 8  # two version numbers
_BLOCK_LENGTH: Final = struct.Struct(">i")


#: To make, or to make something of, so much takes ten milliseconds at the worst.
LITTLE_BYTES: Final = 64 << 10


def decompress(codec: int, payload: bytes, most: int = MOST_BYTES) -> bytes | mmap.mmap:
    """Raises InvalidRecord: no such codec, not its format, or more than `most` bytes. Without the interpreter's lock,
    for the most part: a thread may do it beside the event loop."""
    expand = _CODECS.get(codec)
    if expand is None:
        raise InvalidRecord(f"compression codec {codec}; there are 1 to {max(_CODECS)}")
    # Of what is mapped, only what is written to takes memory, and time.
    mapped = mmap.mmap(-1, most)
    try:
        with memoryview(mapped) as room:
            size = expand(payload, room)
        if size <= LITTLE_BYTES:
            return mapped[:size]
        mapped.resize(size)  # a copy would be made with the lock
        return mapped
    except (cramjam.DecompressionError, OSError, struct.error, ValueError) as error:
        mapped.close()  # at once: whoever keeps the error would keep this, too
        reason = f"{len(payload)} bytes are no data of compression codec {codec}, or of more than {most} bytes"
        raise InvalidRecord(f"{reason}: {error}") from None


@asynccontextmanager
async def expanded(codec: int, payload: bytes, aside: Aside) -> AsyncIterator[bytes | mmap.mmap]:
    """As decompress(); what becomes large is made aside, and not kept for longer than this is open. aside: see
    network.Peer. Raises InvalidRecord."""
    little = _little(codec, payload)
    if little is not None:
        yield little
        return
    async with aside.large():
        records = await aside(partial(decompress, codec, payload))
        try:
            yield records
        finally:
            if isinstance(records, mmap.mmap):
                records.close()  # at once: whoever keeps an error would keep these, too


def _little(codec: int, payload: bytes) -> bytes | mmap.mmap | None:
    """None: it takes long to find out, or does not become little."""
    if len(payload) > LITTLE_BYTES:
        return None
    try:
        return decompress(codec, payload, LITTLE_BYTES)
    except InvalidRecord:
        return None


def _snappy(payload: bytes, room: memoryview) -> int:
    if not payload.startswith(_XERIAL):
        return _block(payload, room)
    at, size = _XERIAL_HEADER, 0
    while at < len(payload):
        (length,) = _BLOCK_LENGTH.unpack_from(payload, at)
        at += _BLOCK_LENGTH.size
        if not 0 <= length <= len(payload) - at:
            raise ValueError(f"a block of {length} bytes where {len(payload) - at} are left")
        size += _block(payload[at : at + length], room[size:])
        at += length
    return size


def _block(block: bytes, room: memoryview) -> int:
    if cramjam.snappy.decompress_raw_len(block) > len(room):
        raise ValueError("no room")
    size: int = cramjam.snappy.decompress_raw_into(block, room)
    return size


_CODECS: Final[Mapping[int, Callable[[bytes, Any], int]]] = {
    1: cramjam.gzip.decompress_into,
    2: _snappy,
    3: cramjam.lz4.decompress_into,
    4: cramjam.zstd.decompress_into,
}
