"""Targets `requests`, `responses`, `frames`: what a peer sends.

Any bytes are an entity, a MalformedFrame or an UnsupportedRequest. An entity can be encoded again, and is the same
then.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import suppress
from random import Random

from cluster_image import wire
from cluster_image.wire import FrameSplitter, MalformedFrame, WireError
from tests.cluster_image.wire.entities import random_entity

from .dice import Dice
from .target import Finding, Target, only

ALL = sorted(
    {
        (key, version)
        for served in wire.SUPPORTED.values()
        for key, (low, high) in served.items()
        for version in range(low, high + 1)
    }
)
_MAX_FRAME = 1000


def run_request(frame: bytes) -> None:
    for served in wire.SUPPORTED.values():
        try:
            header, request = wire.decode_request(frame, served)
        except WireError as error:
            only(error)
            continue
        again = wire.encode_request(request, header.correlation_id, header.client_id)[4:]
        if wire.decode_request(again, served) != (header, request):
            raise Finding(f"{request} is another after a round trip")


def seeds_of_requests(random: Random) -> Iterator[bytes]:
    for key, version in ALL:
        for client_id in (None, "someone"):
            request = random_entity(wire.request_schema(key, version), random)
            frame = wire.encode_request(request, random.getrandbits(31), client_id)[4:]
            yield frame if len(frame) < 4000 else frame[:4000]


def run_response(data: bytes) -> None:
    """The first byte picks API and version, what follows is the frame."""
    dice = Dice(data)
    key, version = dice.pick(ALL)
    frame = dice.rest()
    with suppress(MalformedFrame):
        wire.response_correlation_id(frame)
    try:
        response = wire.decode_response(frame, key, version)
    except WireError as error:
        only(error)
        return
    again = wire.encode_response(response, 7)[4:]
    if wire.decode_response(again, key, version) != response:
        raise Finding(f"{response} is another after a round trip")


def seeds_of_responses(random: Random) -> Iterator[bytes]:
    for index, (key, version) in enumerate(ALL):
        response = random_entity(wire.response_schema(key, version), random)
        yield bytes([index]) + wire.encode_response(response, 7)[4:4000]


assert len(ALL) <= 256, "one byte picks among them"


def run_frames(data: bytes) -> None:
    """A stream of frames, in pieces: the same frames come out as if it had come whole, up to the first bad length."""
    dice = Dice(data)
    sizes = [1 + dice.number(256) for _ in range(1 + dice.number(8))]
    stream = dice.rest()
    splitter = FrameSplitter(_MAX_FRAME)
    found: list[bytes] = []
    at, turn, broken = 0, 0, False
    try:
        while at < len(stream):
            for frame in splitter.feed(stream[at : at + sizes[turn % len(sizes)]]):
                found.append(frame)
            at, turn = at + sizes[turn % len(sizes)], turn + 1
    except MalformedFrame:
        broken = True
    if (found, broken) != _frames_of(stream):
        raise Finding(f"pieces of {sizes} bytes are cut differently from the whole")


def _frames_of(stream: bytes) -> tuple[list[bytes], bool]:
    frames: list[bytes] = []
    at = 0
    while at + 4 <= len(stream):
        (length,) = struct.unpack_from(">i", stream, at)
        if not 0 <= length <= _MAX_FRAME:
            return frames, True
        if at + 4 + length > len(stream):
            break
        frames.append(stream[at + 4 : at + 4 + length])
        at += 4 + length
    return frames, False


def seeds_of_frames(random: Random) -> Iterator[bytes]:
    for count in range(8):
        frames = [random.randbytes(random.choice((0, 1, 5, 300))) for _ in range(count)]
        pieces = bytes([2, random.randrange(10), random.randrange(256), 3])
        yield pieces + b"".join(struct.pack(">i", len(frame)) + frame for frame in frames)


REQUESTS = Target("requests", run_request, seeds_of_requests)
RESPONSES = Target("responses", run_response, seeds_of_responses)
FRAMES = Target("frames", run_frames, seeds_of_frames)
