"""Record batches: layout, limits, and what damage is noticed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster_image.storage.records import (
    HEADER_SIZE,
    CorruptRecord,
    Int64Batch,
    InvalidRecord,
    RecordError,
    build_batch,
    decode_int64s,
    decode_records,
    decode_values,
    encode_int64s,
    end_of_batches,
    iter_batches,
    parse_header,
    validate_batch,
    with_offset_and_epoch,
)

INT64S = st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=200)
OUTSIDE_CRC = set(range(8)) | set(range(12, 16))  # base offset and leader epoch, which brokers assign


def test_kafka_reads_the_same_bytes() -> None:
    """A batch written by Apache Kafka's own layout, spelled out by hand."""
    batch = build_batch([b"v"], keys=[b"k"], timestamp_ms=7, producer_id=9, producer_epoch=2, base_sequence=5)
    assert batch[:12] == (0).to_bytes(8, "big") + (len(batch) - 12).to_bytes(4, "big")
    assert batch[12:17] == b"\xff\xff\xff\xff\x02"
    assert batch[21:61] == (
        b"\0\0"
        + b"\0\0\0\0"
        + (7).to_bytes(8, "big") * 2
        + (9).to_bytes(8, "big")
        + b"\0\2"
        + b"\0\0\0\5"
        + b"\0\0\0\1"
    )
    assert batch[61:] == b"\x10" + b"\0\0\0" + b"\2k" + b"\2v" + b"\0"


@given(st.lists(st.tuples(st.none() | st.binary(max_size=200), st.none() | st.binary(max_size=200)), min_size=1))
def test_records_come_back(records: list[tuple[bytes | None, bytes | None]]) -> None:
    keys, values = [key for key, _ in records], [value for _, value in records]
    batch = with_offset_and_epoch(build_batch(values, keys=keys, timestamp_ms=1234), 70, 6)
    header = parse_header(batch)
    validate_batch(batch, 0, header)
    assert (header.size, header.next_offset) == (len(batch), 70 + len(records))
    decoded = list(decode_records(batch))
    assert [(record.key, record.value) for record in decoded] == records
    assert [record.offset for record in decoded] == list(range(70, 70 + len(records)))
    assert {(record.leader_epoch, record.timestamp_ms) for record in decoded} == {(6, 1234)}


@given(INT64S)
def test_the_fast_path_is_byte_identical(values: list[int]) -> None:
    encoded = encode_int64s(values, timestamp_ms=99, producer_id=3, producer_epoch=1, base_sequence=8)
    plain = [value.to_bytes(8, "big", signed=True) for value in values]
    assert encoded == build_batch(plain, timestamp_ms=99, producer_id=3, producer_epoch=1, base_sequence=8)
    placed = with_offset_and_epoch(encoded, 10, 2)
    assert list(decode_int64s(placed + placed)) == [Int64Batch(10, 2, tuple(values))] * 2


@given(INT64S, st.binary(max_size=3))
def test_int64s_of_any_other_layout_are_decoded_too(values: list[int], key: bytes) -> None:
    plain = [value.to_bytes(8, "big", signed=True) for value in values]
    batch = build_batch(plain, keys=[key] * len(plain), timestamp_ms=0)
    assert [value for decoded in decode_int64s(batch) for value in decoded.values] == values
    assert [decoded.base_offset for decoded in decode_int64s(batch)] == list(range(len(values)))


def test_a_layout_of_equal_length_is_not_mistaken_for_int64s() -> None:
    """An 8-byte key and a null value fill exactly the bytes of a null key and an 8-byte value."""
    batch = build_batch([None], keys=[b"12345678"], timestamp_ms=0)
    assert len(batch) == len(encode_int64s([1], timestamp_ms=0))
    with pytest.raises(InvalidRecord, match="not an 8-byte integer"):
        list(decode_int64s(batch))


def test_control_batches_hold_no_data() -> None:
    control = build_batch([b"leader change"], timestamp_ms=0, control=True)
    assert parse_header(control).is_control
    assert list(decode_values(control + build_batch([b"x"], timestamp_ms=0))) == [(0, -1, b"x")]
    assert list(decode_int64s(control)) == []


@given(INT64S, st.data())
def test_every_flipped_bit_is_noticed(values: list[int], data: st.DataObject) -> None:
    batch = bytearray(encode_int64s(values, timestamp_ms=5))
    at = data.draw(st.integers(0, len(batch) - 1).filter(lambda at: at not in OUTSIDE_CRC))
    batch[at] ^= 1 << data.draw(st.integers(0, 7))
    damaged = bytes(batch)
    with pytest.raises(RecordError):
        for position, _, header in iter_batches(damaged):
            validate_batch(damaged, position, header)


@given(st.binary(max_size=300))
def test_garbage_is_refused_in_one_way(garbage: bytes) -> None:
    batch = build_batch([b"x" * 100], timestamp_ms=0)
    for buffer in (garbage, batch[:HEADER_SIZE] + garbage.ljust(len(batch) - HEADER_SIZE)):
        try:
            list(decode_values(buffer))
            list(decode_int64s(buffer))
        except RecordError:
            pass


@pytest.mark.parametrize("size", [1, HEADER_SIZE - 1, HEADER_SIZE, 100])
def test_a_cut_off_batch_is_refused(size: int) -> None:
    batch = build_batch([b"x" * 100], timestamp_ms=0)
    with pytest.raises(CorruptRecord):
        list(iter_batches(batch + batch[:size]))
    with pytest.raises(CorruptRecord):
        end_of_batches(batch + batch[:size])


def test_where_batches_end_is_told_by_the_last_of_them() -> None:
    batches = [build_batch([b"x" * size] * 3, timestamp_ms=0) for size in (1, 100, 10)]
    placed = [with_offset_and_epoch(batch, 7 + 3 * number, 1) for number, batch in enumerate(batches)]
    assert end_of_batches(placed[0]) == 10
    assert end_of_batches(b"".join(placed)) == 16


def test_counts_that_disagree_are_refused() -> None:
    one = build_batch([b"x"], timestamp_ms=0)
    header = parse_header(one)._replace(record_count=2)
    with pytest.raises(InvalidRecord, match="2 records"):
        validate_batch(one, 0, header)


def test_sequence_numbers_wrap() -> None:
    header = parse_header(encode_int64s([1, 2, 3], timestamp_ms=0, producer_id=1, base_sequence=2**31 - 2))
    assert header.last_sequence == 0
