"""wire.py and its encoder and guard, against kio's own codec and against bad input of every kind."""

from __future__ import annotations

import io
import struct
import time
import tracemalloc
from contextlib import suppress
from dataclasses import replace
from random import Random
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.schema.api_versions.v4.request import ApiVersionsRequest
from kio.schema.errors import ErrorCode
from kio.serial import entity_writer

from cluster_image import wire
from cluster_image.wire import FrameSplitter, MalformedFrame, UnsupportedRequest
from cluster_image.wire.encoder import APART_BYTES, write_uvarint
from tests.cluster_image.wire.entities import random_entity

SERVED = {key: versions for listener in wire.SUPPORTED.values() for key, versions in listener.items()}
ALL = [(key, version) for key, (low, high) in sorted(SERVED.items()) for version in range(low, high + 1)]


def request_frame(request: Any, client_id: str | None = "someone") -> bytes:
    return wire.encode_request(request, 7, client_id)[4:]


def by_kio(entity: Any) -> bytes:
    buffer = io.BytesIO()
    entity_writer(type(entity))(buffer, entity)
    return buffer.getvalue()


@pytest.mark.parametrize(("key", "version"), ALL)
def test_every_served_message_is_encoded_as_kio_does_and_survives_a_round_trip(key: int, version: int) -> None:
    random = Random(f"{key}/{version}")
    for _ in range(20):
        request = random_entity(wire.request_schema(key, version), random)
        frame = request_frame(request)
        assert frame.endswith(by_kio(request))
        header, decoded = wire.decode_request(frame, SERVED)
        assert header == (key, version, 7, "someone")
        assert decoded == request

        response = random_entity(wire.response_schema(key, version), random)
        frame = wire.encode_response(response, 8)
        assert struct.unpack_from(">i", frame)[0] == len(frame) - 4
        assert frame.endswith(by_kio(response))
        assert wire.response_correlation_id(frame[4:]) == 8
        assert wire.decode_response(frame[4:], key, version) == response


@settings(max_examples=50, deadline=None)
@given(st.sampled_from([4, 12, 17]), st.lists(st.integers(APART_BYTES - 1, APART_BYTES + 1) | st.just(5), max_size=4))
def test_long_records_are_not_copied(version: int, sizes: list[int]) -> None:
    random = Random(1)
    some = random_entity(wire.response_schema(wire.FETCH, version), random)
    while not some.responses or not some.responses[0].partitions:
        some = random_entity(wire.response_schema(wire.FETCH, version), random)
    topic = some.responses[0]
    of_each = [random.randbytes(size) for size in sizes]
    partitions = tuple(replace(topic.partitions[0], records=records) for records in of_each)
    response = replace(some, responses=(replace(topic, partitions=partitions),))
    parts = wire.response_parts(response, 8)
    frame = b"".join(parts)
    assert frame == wire.encode_response(response, 8)
    assert struct.unpack_from(">i", frame)[0] == len(frame) - 4
    assert frame.endswith(by_kio(response))
    long = [records for records in of_each if len(records) >= APART_BYTES]
    assert [part for part in parts if isinstance(part, bytes)] == (long or [frame])
    assert all(any(part is records for part in parts) for records in long)


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(ALL), st.integers(0, 2**32), st.data())
def test_damaged_messages_raise_only_wire_errors(api: tuple[int, int], seed: int, data: st.DataObject) -> None:
    """Among the damage: lengths and counts of 2^31, with which kio's decoder aborts the whole process."""
    random = Random(seed)
    frame = bytearray(request_frame(random_entity(wire.request_schema(*api), random)))
    at = data.draw(st.integers(8, len(frame)))
    frame[at : at + data.draw(st.integers(0, 5))] = data.draw(
        st.one_of(
            st.sampled_from([b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\x07", b"\xff\xff\xff\xff", b"\x00\x10\x00\x00"]),
            st.binary(max_size=8),
        )
    )
    del frame[data.draw(st.integers(0, len(frame) * 2)) :]
    with suppress(wire.WireError):
        wire.decode_request(bytes(frame), SERVED)


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=80), st.sampled_from(ALL))
def test_random_bytes_raise_only_wire_errors(noise: bytes, api: tuple[int, int]) -> None:
    for frame in (noise, struct.pack(">hhih", *api, 1, -1) + noise):
        with suppress(wire.WireError):
            wire.decode_request(frame, SERVED)
    with suppress(wire.WireError):
        wire.decode_response(noise, *api)


def test_a_message_that_goes_on_after_its_end_is_malformed() -> None:
    frame = request_frame(ApiVersionsRequest(client_software_name="a", client_software_version="1"))
    with pytest.raises(MalformedFrame, match="1 bytes too many"):
        wire.decode_request(frame + b"\0", SERVED)


@pytest.mark.parametrize(("version", "body"), [(13, bytes(4) + b"\1\0\0"), (9, bytes(4) + b"\1\0\0\0")])
def test_librdkafka_asks_for_all_topics_with_an_array_count_of_four_bytes(version: int, body: bytes) -> None:
    """As version 2.16 sends it: the array is absent, and what follows the message is not looked at."""
    frame = struct.pack(">hhih", 3, version, 1, -1) + b"\0" + body
    _, request = wire.decode_request(frame, SERVED)
    assert request.topics is None


@pytest.mark.parametrize(
    ("key", "version", "body"),
    [
        (75, 0, lambda n: varint(n + 1) + b"\1\0" * n + bytes(4) + b"\xff\0"),  # topics without a name
        (46, 0, lambda n: bytes(4) + b"\2\1" + varint(n + 1) + bytes(4 * n) + b"\0\0"),  # partition indexes
        (18, 4, lambda n: b"\1\1" + varint(n) + b"\7\0" * n),  # tagged fields
    ],
)
def test_a_message_of_very_many_small_parts_is_malformed(key: int, version: int, body: Any) -> None:
    """Decoded, each part takes up to fifty times its bytes."""
    header = struct.pack(">hhih", key, version, 7, -1) + b"\0"
    _, decoded = wire.decode_request(header + body(1000), SERVED)
    assert wire.decode_request(request_frame(decoded, None), SERVED)[1] == decoded
    started = time.thread_time()
    with pytest.raises(MalformedFrame, match="more elements and tagged fields than"):
        wire.decode_request(header + body(5_000_000), SERVED)
    assert time.thread_time() - started < 1


def varint(value: int) -> bytes:
    encoded = bytearray()
    write_uvarint(encoded, value)
    return bytes(encoded)


def test_unknown_tagged_fields_are_skipped() -> None:
    """In the header, in the message, beside a known one, and inside an entity that is itself a tagged field."""
    fetch = wire.request_schema(1, 17)
    request = random_entity(fetch, Random(3))
    known = fetch(  # only the tagged replica state matters here
        replica_state=random_entity(type(request.replica_state), Random(4)),
        max_wait=request.max_wait,
        min_bytes=1,
        topics=(),
        forgotten_topics_data=(),
    )
    unknown_field = b"\x63\x02ab"  # tag 99, 2 bytes
    replica_state = by_kio(known.replica_state)
    assert replica_state.endswith(b"\0")
    extended_state = replica_state[:-1] + b"\x01" + unknown_field
    body = by_kio(known)
    section = body.index(b"\x01\x01" + bytes([len(replica_state)]) + replica_state)
    tags = b"\x02\x01" + bytes([len(extended_state)]) + extended_state + unknown_field
    header = struct.pack(">hhih", 1, 17, 7, -1) + b"\x01" + unknown_field
    _, decoded = wire.decode_request(header + body[:section] + tags, wire.SUPPORTED["broker"])
    assert decoded == known


def test_api_keys_and_versions_that_are_not_served_are_told_apart_from_damage() -> None:
    for key, version in ((999, 0), (0, 2), (0, 99), (-1, -1)):
        with pytest.raises(UnsupportedRequest, match=f"API key {key} version {version}"):
            wire.decode_request(struct.pack(">hhih", key, version, 1, -1), SERVED)


@pytest.mark.parametrize(
    "header", [b"", b"\0" * 9, struct.pack(">hhih", 3, 1, 1, 50), struct.pack(">hhih", 3, 1, 1, 1) + b"\xff"]
)
def test_damaged_headers_are_malformed(header: bytes) -> None:
    with pytest.raises(MalformedFrame):
        wire.decode_request(header, SERVED)


def test_api_versions_of_any_version_is_answered() -> None:
    for version in (0, 1, 2, 3, 4):
        answer = wire.answer_api_versions(version, SERVED)
        assert answer.error_code is ErrorCode.none
        assert {k.api_key: (k.min_version, k.max_version) for k in answer.api_keys} == SERVED
        assert wire.decode_response(wire.encode_response(answer, 1)[4:], 18, version) == answer
    for version in (5, 99, -1):
        answer = wire.answer_api_versions(version, SERVED)
        assert answer.error_code is ErrorCode.unsupported_version
        assert answer.__version__ == 0
        assert [k.api_key for k in answer.api_keys] == [18]


@given(
    st.lists(st.binary(max_size=30), max_size=6), st.lists(st.integers(1, 9), min_size=1), st.sampled_from([1, 7, 99])
)
def test_frames_are_cut_alike_however_the_bytes_arrive(frames: list[bytes], sizes: list[int], long: int) -> None:
    """long: a frame of more bytes is kept apart from what was received while it comes."""
    with patch.object(wire, "LONG_FRAME_BYTES", long):
        _cut(frames, sizes)


def _cut(frames: list[bytes], sizes: list[int]) -> None:
    stream = b"".join(struct.pack(">i", len(frame)) + frame for frame in frames)
    splitter = FrameSplitter(30)
    found, position, turn = [], 0, 0
    while position < len(stream):
        size = sizes[turn % len(sizes)]
        found += list(splitter.feed(stream[position : position + size]))
        position, turn = position + size, turn + 1
    assert found == frames


def test_a_long_frame_is_not_copied_once_it_is_complete() -> None:
    """The event loop does nothing else meanwhile: ten megabytes take as long as ten requests."""
    size, piece = 8 << 20, bytes(100 << 10)
    splitter = FrameSplitter(size)
    tracemalloc.start()
    try:
        assert not list(splitter.feed(struct.pack(">i", size)))
        while splitter.received + len(piece) < splitter.begun:
            assert not list(splitter.feed(piece))
        tracemalloc.reset_peak()
        (frame,) = splitter.feed(bytes(splitter.begun - splitter.received))
        assert len(frame) == size
        assert tracemalloc.get_traced_memory()[1] < 1.5 * size
    finally:
        tracemalloc.stop()
    assert (splitter.begun, splitter.received) == (0, 0)


@pytest.mark.parametrize("length", [-1, -(2**31), 31, 2**31 - 1])
def test_a_frame_length_out_of_bounds_is_malformed(length: int) -> None:
    splitter = FrameSplitter(30)
    assert list(splitter.feed(struct.pack(">i", 2) + b"ok")) == [b"ok"]
    with pytest.raises(MalformedFrame, match=f"{length} bytes"):
        list(splitter.feed(struct.pack(">i", length)))
