"""Which record is the first of a time or later (Apache Kafka: UnifiedLog.fetchOffsetByTimestamp).

The index tells the batch by what its header says of the records inside; these are looked at one by one. A header may
say a later time than any of its records has, so the search goes on with the next batch then.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from mmap import mmap
from typing import Final

from ..network import Aside, here
from . import Log
from .compression import expanded
from .errors import OffsetOutOfRange
from .records import HEADER_SIZE, BatchHeader, InvalidRecord, iter_batches, read_varint

#: Records, or batches, that are looked at without a pause.
AT_ONCE: Final = 5_000

NONE: Final = (-1, -1, -1)
_HALF: Final = 1 << 63


async def record_since(log: Log, timestamp: int, end: int, aside: Aside = here) -> tuple[int, int, int]:
    """The first record of `log` below `end` of this time (ms) or later: its offset, time (ms) and leader epoch; -1 each
    if there is none. aside: see network.Peer."""
    offset = log.offset_since(timestamp)
    looked_at = 0
    while offset is not None and offset < end:
        try:
            batches = log.read(offset, 1, end)  # one
        except OffsetOutOfRange:  # it was cut meanwhile
            return NONE
        if not batches:
            return NONE
        for start, stop, header in iter_batches(batches):
            offset = header.next_offset
            if header.max_timestamp < timestamp:
                continue
            async with _records(header, batches[start + HEADER_SIZE : stop], aside) as records:
                for number, time in enumerate(times(records, header)):
                    if time >= timestamp and header.base_offset + number >= log.start_offset:
                        return header.base_offset + number, time, header.leader_epoch
                    looked_at += 1
                    if looked_at % AT_ONCE == 0:
                        await asyncio.sleep(0)
            if header.is_compressed:
                await asyncio.sleep(0)
        looked_at += 1
        if looked_at % AT_ONCE == 0:
            await asyncio.sleep(0)
    return NONE


@asynccontextmanager
async def _records(header: BatchHeader, payload: bytes, aside: Aside) -> AsyncIterator[bytes | mmap]:
    """Of a batch, uncompressed."""
    async with AsyncExitStack() as stack:
        records: bytes | mmap = payload
        if header.is_compressed:
            try:
                records = await stack.enter_async_context(expanded(header.codec, payload, aside))
            except InvalidRecord:  # it was stored before anybody looked
                records = b""
        yield records


def times(records: bytes | mmap, header: BatchHeader) -> Iterator[int]:
    """Of each record of a batch, given uncompressed and without its header, ms; of 64 bits, as Java adds them. Of what
    cannot be read, none."""
    at = 0
    try:
        for _ in range(header.record_count):
            length, body = read_varint(records, at)
            time = header.base_timestamp + read_varint(records, body + 1)[0]  # after the attributes
            yield (time + _HALF) % (2 * _HALF) - _HALF
            at = body + length
    except IndexError:
        return
