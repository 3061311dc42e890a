"""Bytes that are no requests."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Final

from .stranger import Kind, Target, frame, header, reported, stranger

_MANY: Final = b"\x7f\xff\xff\xff"
_VERY_MANY: Final = b"\xff\xff\xff\xff\x0f"  # as a varint, of 2^32 - 1


async def large_frames_begun(target: Target) -> str:
    """Eleven Produce requests of 99 MB to each broker, half of which comes."""
    size = 99 << 20
    start = size.to_bytes(4, "big") + header(0, 9)

    async def send(address: tuple[str, int]) -> str:
        async with stranger(address) as one:
            await one.send(start)
            for _ in range(size >> 21):
                await one.send(bytes(1 << 20))
            return "read"

    answers = [reported(send(address)) for address in target.brokers for _ in range(11)]
    return " or ".join(sorted(set(await asyncio.gather(*answers))))


def _frame_of(make: object, to_controllers: bool = False) -> Kind:
    async def send(target: Target) -> str:
        nodes = target.controllers if to_controllers else target.brokers
        async with stranger(random.choice(nodes)) as one:
            answer: str = await one.reported(make() if callable(make) else make)
            return answer

    return send


async def a_byte_at_a_time(target: Target) -> str:
    """Sixty requests that come in slowly and never end."""
    async with AsyncExitStack() as stack:
        slow = [await stack.enter_async_context(stranger(random.choice(target.brokers))) for _ in range(60)]
        for byte in frame(header(3, 12) + bytes(200))[:20]:
            await asyncio.gather(*(reported(_one_byte(one, byte)) for one in slow))
            await asyncio.sleep(0.05)
    return "kept open"


async def _one_byte(one: object, byte: int) -> str:
    await one.send(bytes([byte]))  # type: ignore[attr-defined]
    return ""


def _random_bytes() -> bytes:
    return random.randbytes(random.randrange(1, 4000))


def _random_request() -> bytes:
    return frame(header(random.randrange(-1, 95), random.randrange(-1, 19)) + random.randbytes(random.randrange(300)))


KINDS: Final[Mapping[str, Kind]] = {
    "99 MB frames begun": large_frames_begun,
    "length 2^31 - 1": _frame_of(_MANY + header(0, 9)),
    "length below zero": _frame_of(b"\xff\xff\xff\xfe"),
    "empty frames": _frame_of(bytes(4000)),
    "a byte at a time": a_byte_at_a_time,
    "random bytes": _frame_of(_random_bytes),
    "random bytes, controllers": _frame_of(_random_bytes, to_controllers=True),
    "random requests": _frame_of(_random_request),
    "random requests, controllers": _frame_of(_random_request, to_controllers=True),
    "HTTP": _frame_of(b"GET / HTTP/1.1\r\nHost: kafka\r\n\r\n"),
    "TLS ClientHello": _frame_of(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500)),
    "unknown API": _frame_of(frame(header(999, 0))),
    "unknown version": _frame_of(frame(header(0, 99))),
    "client id longer than the frame": _frame_of(frame(header(3, 9)[:8] + b"\x7f\xff")),
    "request cut short": _frame_of(frame(header(1, 12) + bytes(7))),
    "2^31 - 1 topics": _frame_of(frame(header(3, 8) + _MANY)),
    "2^32 - 1 topics, compact": _frame_of(frame(header(3, 12) + b"\0" + _VERY_MANY)),
    "2^32 - 1 tagged fields": _frame_of(frame(header(3, 12) + _VERY_MANY)),
}
