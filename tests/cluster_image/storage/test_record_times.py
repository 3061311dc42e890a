"""Offsets by time: of the record, and found without reading the log from its start."""

from __future__ import annotations

import asyncio
import gzip
import struct
from pathlib import Path
from random import Random
from typing import Any

import google_crc32c
import pytest

from cluster_image.storage import Log
from cluster_image.storage.disk import LocalDisk
from cluster_image.storage.log import LogConfig
from cluster_image.storage.record_times import NONE, record_since
from cluster_image.storage.records import HEADER_SIZE, varint


def batch(times: list[int], *, compressed: bool = False, claimed: int | None = None) -> bytes:
    """A batch of records with these timestamps (ms). claimed: the largest, as its header says."""
    records = b""
    for number, time in enumerate(times):
        body = b"\0" + varint(time - times[0]) + varint(number) + varint(-1) + varint(1) + b"x" + varint(0)
        records += varint(len(body)) + body
    if compressed:
        records = gzip.compress(records)
    covered = struct.pack(
        ">hiqqqhii", int(compressed), len(times) - 1, times[0], max(times) if claimed is None else claimed, -1, -1, -1,
        len(times),
    ) + records  # fmt: skip
    head = struct.pack(">qiibI", 0, HEADER_SIZE - 12 + len(records), 0, 2, google_crc32c.value(covered))
    return head + covered


def since(log: Log, time: int, end: int | None = None) -> tuple[int, int, int]:
    return asyncio.run(record_since(log, time, log.end_offset if end is None else end))


@pytest.mark.parametrize("seed", range(20))
def test_it_is_the_first_record_of_that_time_or_later(tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    log = Log.open(LocalDisk(tmp_path), "log", LogConfig(segment_bytes=1024))
    known: list[tuple[int, int]] = []
    ends = [0]  # of batches
    for _ in range(random.randrange(1, 40)):
        times = [random.randrange(1000) for _ in range(random.randrange(1, 6))]
        compressed = random.random() < 0.4
        claimed = max(times) + random.choice([0, 0, 0, 200])
        epoch = random.randrange(3) if log.end_offset == 0 else log.last_epoch
        known += [(time, epoch) for time in times]
        log.append_as_leader(batch(times, compressed=compressed, claimed=claimed), epoch)
        ends.append(log.end_offset)
    if random.random() < 0.5:
        log.truncate_to(random.randrange(log.end_offset + 1))
        known = known[: log.end_offset]
    if random.random() < 0.3:
        log.close()
        log = Log.open(LocalDisk(tmp_path), "log", LogConfig(segment_bytes=1024))
    for _ in range(50):
        time, end = random.randrange(-1, 1300), random.choice([each for each in ends if each <= log.end_offset])
        found = next(((o, t, e) for o, (t, e) in enumerate(known[:end]) if t >= time), NONE)
        assert since(log, time, end) == found, (time, end)


def test_of_many_batches_one_is_read(tmp_path: Path) -> None:
    log = Log.open(LocalDisk(tmp_path), "log")
    for time in range(3000):
        log.append_as_leader(batch([time, time]), 0)
    read, reads = log.read, []

    def counted(offset: int, *more: Any) -> bytes:
        reads.append(offset)
        return read(offset, *more)

    log.read = counted  # type: ignore[method-assign]
    assert since(log, 2500) == (5000, 2500, 0)
    assert reads == [5000]
    assert log.latest_timestamp(5000) == 2499 and log.latest_timestamp(0) is None


def test_a_time_beyond_64_bits_is_what_java_makes_of_it(tmp_path: Path) -> None:
    """Of a client that means harm: who asks would have no answer."""
    log = Log.open(LocalDisk(tmp_path), "log", LogConfig())
    log.append_as_leader(batch([(1 << 63) - 1, (1 << 63) + 4], claimed=(1 << 63) - 1), 0)
    assert since(log, (1 << 63) - 1) == (0, (1 << 63) - 1, 0)
    log = Log.open(LocalDisk(tmp_path), "other", LogConfig())
    log.append_as_leader(batch([5, 5 + (1 << 63)], claimed=(1 << 63) - 1), 0)
    assert since(log, 6) == NONE
