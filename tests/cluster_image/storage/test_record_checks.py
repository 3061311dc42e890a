"""What of a producer's batch is looked at before it is stored."""

from __future__ import annotations

import asyncio
import gzip
import struct
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from random import Random
from typing import Any
from unittest.mock import patch

import cramjam
import google_crc32c
import pytest

from cluster_image.network import here
from cluster_image.storage import record_checks
from cluster_image.storage.compression import LITTLE_BYTES, MOST_BYTES, decompress
from cluster_image.storage.record_checks import UnknownTransaction, check_batch
from cluster_image.storage.records import HEADER_SIZE, CorruptRecord, InvalidRecord, build_batch, encode_int64s, varint

ATTRIBUTES_AT, COUNT_AT, LAST_DELTA_AT, CRC_AT = 21, 57, 23, 17


def rewritten(
    batch: bytes, *, attributes: int | None = None, records: bytes | None = None, count: int | None = None
) -> bytes:
    """With other contents, and a length and a CRC that are right for them."""
    changed = bytearray(batch if records is None else batch[:HEADER_SIZE] + records)
    struct.pack_into(">i", changed, 8, len(changed) - 12)
    if attributes is not None:
        struct.pack_into(">h", changed, ATTRIBUTES_AT, attributes)
    if count is not None:
        struct.pack_into(">i", changed, COUNT_AT, count)
        struct.pack_into(">i", changed, LAST_DELTA_AT, count - 1)
    struct.pack_into(">I", changed, CRC_AT, google_crc32c.value(bytes(changed[ATTRIBUTES_AT:])))
    return bytes(changed)


def check(batch: bytes) -> int:
    """How many pauses it takes."""
    checking, pauses = check_batch(batch, here), 0
    while True:
        try:
            checking.send(None)
        except StopIteration:
            return pauses
        pauses += 1


def contents(batch: bytes) -> bytes:
    return batch[HEADER_SIZE:]


GOOD = build_batch([b"one", b"two", b"three"], timestamp_ms=7)


def test_what_only_brokers_write_is_refused() -> None:
    check(GOOD)
    with pytest.raises(InvalidRecord, match="control"):
        check(build_batch([b"x"], timestamp_ms=0, control=True))
    with pytest.raises(UnknownTransaction):
        check(rewritten(GOOD, attributes=0x10))
    with pytest.raises(InvalidRecord, match="sequence number -1 of producer 5"):
        check(build_batch([b"x"], timestamp_ms=0, producer_id=5, producer_epoch=0))


@pytest.mark.parametrize(
    "records",
    [
        b"garbage under a right checksum, three records of it",
        contents(GOOD)[:-1],
        contents(GOOD) + b"\0",
        contents(GOOD)[:3] + b"\x06" + contents(GOOD)[4:],  # the first says that it is number 3
        contents(build_batch([b"one", b"two"], timestamp_ms=7)),
        contents(build_batch([b"one", b"two", b"three", b"four"], timestamp_ms=7)),
        contents(GOOD)[:-1] + varint(40),  # headers that are not there
    ],
)
def test_garbage_under_a_right_checksum_is_refused(records: bytes) -> None:
    with pytest.raises(InvalidRecord):
        check(rewritten(GOOD, records=records))


def test_a_wrong_checksum_is_told_first() -> None:
    with pytest.raises(CorruptRecord):
        check(GOOD[:-1] + bytes([GOOD[-1] ^ 1]))


def test_records_of_one_shape_and_of_many_are_judged_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """Column by column or one by one: batches of all kinds, whole and with one bit changed."""
    alike = record_checks._alike
    for seed in range(400):
        random = Random(seed)
        count = random.choice([1, 2, 7, 63, 64, 65, 200])
        same = random.random() < 0.6
        values = [random.randbytes(5 if same else random.randrange(150)) for _ in range(count)]
        keys = [b"key%d" % (n % 10) for n in range(count)] if random.random() < 0.5 else None
        records = bytearray(contents(build_batch(values, timestamp_ms=3, keys=keys)))
        if random.random() < 0.9:
            records[random.randrange(len(records))] ^= 1 << random.randrange(8)
        batch = rewritten(build_batch(values, timestamp_ms=3), records=bytes(records))
        verdicts = []
        for how in (alike, one_by_one):
            monkeypatch.setattr(record_checks, "_alike", how)
            verdicts.append(is_taken(batch))
        assert verdicts[0] == verdicts[1], seed


def one_by_one(records: bytes, at: int, number: int, count: int) -> tuple[int, int]:
    return 1, record_checks._check_record(records, at, number) - at


def is_taken(batch: bytes) -> bool:
    try:
        check(batch)
    except InvalidRecord:
        return False
    return True


@pytest.mark.parametrize("count", [1, 63, 64, 65, 8_191, 8_192, 8_193, 30_000])
def test_the_harness_own_batches_are_looked_at_in_one_go(count: int) -> None:
    assert check(encode_int64s(range(count), timestamp_ms=1)) == 0


def shaped(times: Iterable[int]) -> bytes:
    """Records of a hundred bytes each, by their time deltas, as librdkafka fills a batch with."""
    records = bytearray()
    for number, time in enumerate(times):
        body = b"\0" + varint(time) + varint(number) + varint(-1) + varint(100) + b"v" * 100 + b"\0"
        records += varint(len(body)) + body
    return bytes(records)


@pytest.mark.parametrize(
    ("times", "singly"),
    [
        pytest.param([n // 100 for n in range(10_000)], 10, id="while 64 ms pass"),
        pytest.param(sorted([0] * 5000 + [100] * 4000 + [9000] * 1000), 10, id="while seconds pass"),
        pytest.param([n % 2 * 100 for n in range(2_000)], 2_100, id="no two alike"),
        pytest.param([n // 20 % 2 * 100 for n in range(2_000)], 120, id="alike by twenties"),
    ],
)
def test_records_are_looked_at_singly_only_where_the_shape_changes(times: list[int], singly: int) -> None:
    with patch.object(record_checks, "_check_record", side_effect=record_checks._check_record) as looked_at:
        assert list(record_checks.check_records(shaped(times), len(times))) in ([], [None])
    assert looked_at.call_count <= singly


def test_others_have_their_turn_while_many_records_are_looked_at() -> None:
    values: Sequence[bytes] = [b"x" * (n % 7) for n in range(3 * record_checks.AT_ONCE)]
    assert check(build_batch(values, timestamp_ms=1)) == 2


CODECS = {1: gzip.compress, 2: cramjam.snappy.compress_raw, 3: cramjam.lz4.compress, 4: cramjam.zstd.compress}


def xerial(data: bytes) -> bytes:
    """As Java's clients frame snappy."""
    blocks = [bytes(cramjam.snappy.compress_raw(data[at : at + 100])) for at in range(0, len(data), 100)]
    return b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1) + b"".join(struct.pack(">i", len(b)) + b for b in blocks)


@pytest.mark.parametrize(("codec", "compress"), [*CODECS.items(), (2, xerial)])
def test_compressed_records_are_looked_into(codec: int, compress: object) -> None:
    assert callable(compress)
    plain = build_batch([b"value %d" % n for n in range(50)], timestamp_ms=1)
    payload = bytes(compress(contents(plain)))
    check(rewritten(plain, attributes=codec, records=payload))
    for bad in (payload[:-1], payload[: len(payload) // 2], b"", b"garbage" * 9, bytes(compress(b"garbage" * 9))):
        with pytest.raises(InvalidRecord):
            check(rewritten(plain, attributes=codec, records=bad))
    with pytest.raises(InvalidRecord):
        check(rewritten(plain, attributes=codec, records=payload, count=51))


def test_a_few_bytes_that_claim_to_be_billions_of_records_are_refused() -> None:
    with pytest.raises(InvalidRecord):
        check(rewritten(GOOD, attributes=1, records=b"", count=2**31 - 1))


@pytest.mark.parametrize("codec", CODECS)
def test_what_would_take_gigabytes_is_refused(codec: int) -> None:
    bomb = bytes(CODECS[codec](bytes(MOST_BYTES + 1)))
    with pytest.raises(InvalidRecord, match="of more than"):
        decompress(codec, bomb)


def test_a_codec_that_does_not_exist_is_refused() -> None:
    with pytest.raises(InvalidRecord, match="compression codec 6"):
        check(rewritten(GOOD, attributes=6))


class Aside:
    """Notes what is asked of it, and what is so large meanwhile."""

    def __init__(self) -> None:
        self.asked = 0
        self.large_ones = 0

    async def __call__(self, work: Callable[[], Any], /) -> Any:
        assert self.large_ones == 1
        self.asked += 1
        return work()

    @asynccontextmanager
    async def large(self) -> AsyncIterator[None]:
        self.large_ones += 1
        yield
        self.large_ones -= 1


@pytest.mark.parametrize(("size", "large"), [(1000, False), (2 * LITTLE_BYTES, True)])
def test_what_becomes_large_is_expanded_aside_and_counts_until_it_is_looked_at(size: int, large: bool) -> None:
    """A client's few kilobytes would else hold up the event loop for tens of milliseconds."""
    aside = Aside()
    values = build_batch([bytes(size)], timestamp_ms=0)
    batch = rewritten(values, attributes=1, records=gzip.compress(contents(values)))
    while_checked = []

    def check_records(*of: Any) -> Iterable[None]:
        while_checked.append(aside.large_ones)
        return checked(*of)

    checked = record_checks.check_records
    with patch.object(record_checks, "check_records", check_records):
        asyncio.run(check_batch(batch, aside))
    assert aside.asked == large and while_checked == [large] and not aside.large_ones


def test_what_takes_long_to_expand_is_expanded_aside() -> None:
    """Of snappy, millions of empty blocks are nothing at the end."""
    aside = Aside()
    payload = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1) + (struct.pack(">i", 1) + b"\0") * LITTLE_BYTES
    with pytest.raises(InvalidRecord):
        asyncio.run(check_batch(rewritten(GOOD, attributes=2, records=payload), aside))
    assert aside.asked == 1


def with_headers(count: int, header: bytes = b"\0\0") -> bytes:
    """A batch of one record."""
    body = b"\0" + varint(0) + varint(0) + varint(-1) + varint(-1) + varint(count) + header * count
    return rewritten(build_batch([b"x"], timestamp_ms=0), records=varint(len(body)) + body)


def test_others_have_their_turn_while_the_headers_of_one_record_are_looked_at() -> None:
    count = 10 * record_checks.AT_ONCE
    assert check(with_headers(count)) >= count // record_checks.HEADERS_AT_ONCE
    for number in (0, 1, record_checks.MANY_HEADERS, record_checks.MANY_HEADERS + 1):
        assert check(with_headers(number)) == 0
    many = contents(with_headers(record_checks.AT_ONCE))
    with pytest.raises(InvalidRecord):
        check(rewritten(GOOD, records=many[:-1] + b"\2", count=1))
    with pytest.raises(InvalidRecord, match="header without a name"):
        check(with_headers(count, b"\1\0"))


def test_headers_count_as_records_that_are_looked_at() -> None:
    """Of thousands of records with a hundred headers each."""
    headers = 100
    records = b""
    for number in range(record_checks.AT_ONCE // 10):
        body = b"\0" + varint(0) + varint(number) + varint(-1) + varint(-1) + varint(headers) + b"\0\0" * headers
        records += varint(len(body)) + body
    batch = rewritten(GOOD, records=records, count=record_checks.AT_ONCE // 10)
    assert check(batch) >= headers // 10 - 1


def test_others_have_their_turn_after_each_compressed_batch() -> None:
    assert check(rewritten(GOOD, attributes=1, records=gzip.compress(contents(GOOD)))) == 1


def test_a_client_writes_one_batch_at_a_time() -> None:
    with pytest.raises(InvalidRecord, match="one batch"):
        check(GOOD + GOOD)


def test_numbers_that_no_java_client_can_read_are_refused() -> None:
    """Of 32 bits, in more than five bytes: a poison pill for every consumer of the partition."""

    def stretched(value: int) -> bytes:
        short = varint(value).ljust(1, b"\0")
        return bytes(byte | 0x80 for byte in short) + b"\x80" * (6 - len(short) - 1) + b"\0"

    whole = [b"\0", varint(0), varint(0), varint(1), b"k", varint(1), b"v", varint(0)]
    for place in (2, 3, 5, 7):
        for is_stretched in (False, True):
            parts = list(whole)
            if is_stretched:
                parts[place] = stretched(1 if place in (3, 5) else 0)
            body = b"".join(parts)
            batch = rewritten(build_batch([b"x"], timestamp_ms=0), records=varint(len(body)) + body)
            assert is_taken(batch) is not is_stretched
