"""Records that brokers must not store, and Produce requests without end."""

from __future__ import annotations

import asyncio
import gzip
import random
import struct
from collections.abc import Mapping
from typing import Final

import google_crc32c
from kio.schema.produce.v9.request import PartitionProduceData, ProduceRequest, TopicProduceData

from cluster_image import wire
from cluster_image.storage.records import HEADER_SIZE, build_batch, varint
from cluster_image.wire.messages import milliseconds

from .stranger import Kind, Target, asked, reported, stranger

_ATTRIBUTES_AT, _LAST_DELTA_AT, _COUNT_AT, _CRC_AT = 21, 23, 57, 17
_GZIP: Final = 1
_GOOD: Final = build_batch([b"x" * 100], timestamp_ms=1)


def _batch(records: bytes, attributes: int, count: int) -> bytes:
    """With a length and a CRC that are right."""
    changed = bytearray(_GOOD[:HEADER_SIZE] + records)
    struct.pack_into(">i", changed, 8, len(changed) - 12)
    struct.pack_into(">h", changed, _ATTRIBUTES_AT, attributes)
    struct.pack_into(">i", changed, _COUNT_AT, count)
    struct.pack_into(">i", changed, _LAST_DELTA_AT, count - 1)
    struct.pack_into(">I", changed, _CRC_AT, google_crc32c.value(bytes(changed[_ATTRIBUTES_AT:])))
    return bytes(changed)


def _produce(topic: str, batch: bytes, acks: int = -1, partitions: range = range(3)) -> ProduceRequest:
    data = tuple(PartitionProduceData(index=p, records=batch) for p in partitions)
    return ProduceRequest(
        transactional_id=None, acks=acks, timeout=milliseconds(2000),
        topic_data=(TopicProduceData(name=topic, partition_data=data),),
    )  # fmt: skip


def _batches(batch: bytes) -> Kind:
    """To all partitions, of which a third is led by the broker that is asked."""

    async def send(target: Target) -> str:
        return await asked(random.choice(target.brokers), _produce(target.topic, batch))

    return send


async def pipelined_without_acks(target: Target) -> str:
    """Records for partitions that there are not, one request after the other, and no answer is due."""
    request = wire.encode_request(_produce(target.topic, _GOOD, acks=0, partitions=range(1000, 1300)), 1, "s")

    async def send() -> str:
        async with stranger(random.choice(target.brokers)) as one:
            for _ in range(200):
                await one.send(request)
            return "taken"

    return await reported(send())


async def too_large(target: Target) -> str:
    return await asked(random.choice(target.brokers), _produce(target.topic, bytes(5 << 20), partitions=range(1)))


async def large_at_once(target: Target) -> str:
    """Thirty of 10 MB, side by side."""
    batch = bytes(10 << 20)
    address = random.choice(target.brokers)
    answers = (asked(address, _produce(target.topic, batch, partitions=range(1))) for _ in range(30))
    return " or ".join(sorted(set(await asyncio.gather(*answers))))


def _record_of_headers(count: int) -> bytes:
    """Each of two bytes; and one byte that belongs to nothing, which is found at the end."""
    body = b"\0\0\0\1\1" + varint(count) + bytes(2 * count)
    return varint(len(body)) + body + b"\0"


_BOMB: Final = gzip.compress(bytes(200 << 20))
_HEADERS: Final = gzip.compress(_record_of_headers(4_000_000))
_MEGABYTE: Final = gzip.compress(bytes(1_000_000))

KINDS: Final[Mapping[str, Kind]] = {
    "acks=0 without end": pipelined_without_acks,
    "control batches": _batches(build_batch([b"x"], timestamp_ms=0, control=True)),
    "transactional batches": _batches(_batch(_GOOD[HEADER_SIZE:], 0x10, 1)),
    "garbage under a right CRC": _batches(_batch(bytes(range(1, 200)), 0, 3)),
    "2^31 - 1 records in 61 bytes": _batches(_batch(gzip.compress(b""), _GZIP, 2**31 - 1)),
    "200 MB compressed to 200 kB": _batches(_batch(_BOMB, _GZIP, 1)),
    "4,000,000 headers in 8 kB": _batches(_batch(_HEADERS, _GZIP, 1)),
    "700 batches of 1 kB for 1 MB each": _batches(_batch(_MEGABYTE, _GZIP, 1) * 700),
    "a batch of 5 MB": too_large,
    "thirty batches of 10 MB": large_at_once,
}
