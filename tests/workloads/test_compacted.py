"""Workload compacted: records have keys, and what the cleaner leaves of a batch can be read."""

from __future__ import annotations

import google_crc32c
import pytest

from cluster_image.storage.records import (
    InvalidRecord,
    build_batch,
    decode_records,
    iter_batches,
    with_offset_and_epoch,
)
from workloads.clients.kio.batches import decode
from workloads.compacted import KEYS, CompactedWorkload


def test_the_key_of_a_value_is_its_remainder() -> None:
    records = list(decode_records(CompactedWorkload.encode([7, 7 + KEYS, 8], timestamp_ms=1)))
    assert [int.from_bytes(record.value or b"") for record in records] == [7, 7 + KEYS, 8]
    assert [record.key for record in records] == [number.to_bytes(8) for number in (7, 7, 8)]


def without(batch: bytes, gone: set[int]) -> bytes:
    """As the cleaner leaves it: it has fewer records, and the same last offset."""
    kept = [record for record in decode_records(batch) if record.offset not in gone]
    _, _, header = next(iter_batches(batch))
    made = bytearray(build_batch([record.value for record in kept], timestamp_ms=1, keys=[r.key for r in kept]))
    at = 61
    for number, record in enumerate(kept):  # offset deltas are one byte each here, after length, attributes and time
        assert made[at + 3] == 2 * number
        made[at + 3] = 2 * record.offset
        at += 1 + made[at] // 2
    made[23:27] = header.last_offset_delta.to_bytes(4)
    made[17:21] = google_crc32c.value(bytes(made[21:])).to_bytes(4)
    return bytes(made)


def test_what_the_cleaner_leaves_of_a_batch_is_read_with_its_offsets() -> None:
    whole = CompactedWorkload.encode([1, 2, 3], timestamp_ms=1)
    rest = with_offset_and_epoch(without(whole, {1}), 10, 4)
    offsets, values, following = decode(rest, 10, compacted=True)
    assert (offsets.tolist(), values.tolist(), following) == ([10, 12], [1, 3], 13)
    empty = with_offset_and_epoch(without(whole, {0, 1, 2}), 10, 4)
    offsets, values, following = decode(empty, 10, compacted=True)
    assert (offsets.tolist(), values.tolist(), following) == ([], [], 13)
    with pytest.raises(InvalidRecord):
        decode(rest, 10)
