"""Target `batches`: record batches that a client sends or a leader answers with.

A log takes them or raises CorruptRecord, InvalidRecord or NonContiguousAppend, and is unchanged then. What it has taken
it finds again, all of it, when it is opened after a crash.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from random import Random

import google_crc32c

from cluster_image.storage import (
    InvalidProducerEpoch,
    Log,
    LogConfig,
    NonContiguousAppend,
    OutOfOrderSequence,
)
from cluster_image.storage.records import (
    HEADER_SIZE,
    RecordError,
    build_batch,
    decode_every_record,
    decode_int64s,
    encode_int64s,
    iter_batches,
    parse_header,
    with_offset_and_epoch,
)
from tests.cluster_image.storage.simulated_disk import simulated_disk

from .dice import Dice
from .target import Finding, Target, only

_FIRST = encode_int64s([1, 2, 3], timestamp_ms=1, producer_id=7, producer_epoch=1, base_sequence=0)


def run(data: bytes) -> None:
    """The first byte says who appends, to what, and whether checksums are put right first, so that what lies behind
    them is reached."""
    dice = Dice(data)
    as_leader, filled, repaired, producers = dice.flag(), dice.flag(), dice.flag(), dice.flag()
    batches = dice.rest()
    if repaired:
        batches = with_right_checksums(batches)
    _decode(batches)
    disk = simulated_disk()
    log = Log.open(disk, "t-0", LogConfig(segment_bytes=1000))
    if filled:
        log.append_as_leader(_FIRST, 3)
    before = (
        log.start_offset,
        log.end_offset,
        log.size,
        log.last_epoch,
        {k: bytes(v) for k, v in disk.files().items()},
    )
    try:
        if producers:
            for _, _, header in iter_batches(batches):
                log.producers.check(header)
        if as_leader:
            log.append_as_leader(batches, 5)
        else:
            log.append_as_follower(batches)
    except (RecordError, NonContiguousAppend, OutOfOrderSequence, InvalidProducerEpoch) as error:
        only(error)
        after = (log.start_offset, log.end_offset, log.size, log.last_epoch)
        if (*after, {k: bytes(v) for k, v in disk.files().items()}) != before:
            raise Finding(f"{type(error).__name__} has changed the log: {after}") from error
    _check_reopened(log, disk)


def _check_reopened(log: Log, disk: object) -> None:
    stored = _contents(log)
    log.flush()
    for clean in (False, True):
        again = Log.open(disk, "t-0", LogConfig(segment_bytes=1000), clean=clean)  # type: ignore[arg-type]
        if _contents(again) != stored or again.end_offset != log.end_offset:
            raise Finding(f"of {log.end_offset} records {again.end_offset} are found after a restart, clean: {clean}")
        if again.end_offset_for_epoch(5) != log.end_offset_for_epoch(5):
            raise Finding("leader epochs are others after a restart")
    if log.end_offset < 1 << 40:
        log.append_as_leader(_FIRST, max(log.last_epoch, 6))


def _contents(log: Log) -> bytes:
    content, offset = b"", log.start_offset
    while chunk := log.read(offset, 1 << 20):
        content += chunk
        for _, _, header in iter_batches(chunk):
            offset = header.next_offset
    return content


def _decode(batches: bytes) -> None:
    for decode in (decode_every_record, decode_int64s):
        try:
            for _ in decode(batches):
                pass
        except RecordError as error:
            only(error)


def with_right_checksums(data: bytes) -> bytes:
    """The same batches, up to the first whose length cannot be, as if nobody had changed them."""
    repaired = bytearray(data)
    at = 0
    while at + HEADER_SIZE <= len(repaired):
        size = parse_header(bytes(repaired), at).size
        if not HEADER_SIZE <= size <= len(repaired) - at:
            break
        struct.pack_into(">I", repaired, at + 17, google_crc32c.value(bytes(repaired[at + 21 : at + size])))
        at += size
    return bytes(repaired)


def seeds(random: Random) -> Iterator[bytes]:
    batches = [
        _FIRST,
        build_batch([b"value", None, b""], keys=[None, b"key", b""], timestamp_ms=5),
        build_batch([b"x"], timestamp_ms=5, control=True, keys=[b"\0\0\0\2"]),
        encode_int64s([4, 5], timestamp_ms=2, producer_id=7, producer_epoch=1, base_sequence=3),
        encode_int64s(range(100), timestamp_ms=2),
        build_batch([bytes(1500)], timestamp_ms=3),
    ]
    compressed = bytearray(build_batch([b"value"], timestamp_ms=1))
    compressed[22] |= 3  # lz4, it says
    batches.append(with_right_checksums(bytes(compressed)))
    for batch in batches:
        for head in (b"\1\0\0\0", b"\1\1\0\1", b"\1\1\1\0"):
            yield head + batch
        yield b"\1\1\0\0" + batch + batches[1]
        yield b"\0\0\1\0" + with_offset_and_epoch(batch, 0, 4)
        yield b"\0\1\0\0" + with_offset_and_epoch(batch, 3, 4)
    for batch in (batches[0], batches[-1]):
        many = bytearray(batch)
        for count in (4, 200, 1 << 31):
            struct.pack_into(">i", many, 23, count - 1)
            struct.pack_into(">i", many, 57, min(count, (1 << 31) - 1))
            yield b"\1\1\1\0" + many * 5


BATCHES = Target("batches", run, seeds)
