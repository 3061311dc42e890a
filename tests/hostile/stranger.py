"""A connection that sends what it likes."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any, Final, NamedTuple
from uuid import UUID

from kio.schema.errors import ErrorCode

from cluster_image import wire
from cluster_image.network import Address

ANSWER_S: Final = 3.0
#: Strangers come from an address of their own, as they do: brokers share their time among addresses.
OTHER_HOST: Final = "127.0.0.66"


class Target(NamedTuple):
    brokers: list[Address]
    controllers: list[Address]
    cluster_id: str
    topic: str  # of three partitions, three replicas each; it is written to
    topic_id: UUID


#: One go; what was answered, in a few words. It is called again and again.
Kind = Callable[[Target], Awaitable[str]]


class Stranger:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._correlation = 0

    async def send(self, data: bytes) -> None:
        """Raises ConnectionError; TimeoutError if nobody reads it."""
        self._writer.write(data)
        async with asyncio.timeout(ANSWER_S):
            await self._writer.drain()

    async def frame(self) -> bytes:
        """Raises ConnectionError once the connection is closed, TimeoutError."""
        try:
            async with asyncio.timeout(ANSWER_S):
                length = int.from_bytes(await self._reader.readexactly(4), "big")
                return await self._reader.readexactly(length)
        except asyncio.IncompleteReadError:
            raise ConnectionResetError("closed") from None

    async def ask(self, request: Any) -> Any:
        self._correlation += 1
        await self.send(wire.encode_request(request, self._correlation, "stranger"))
        return wire.decode_response(await self.frame(), request.__api_key__, request.__version__)

    async def reported(self, data: bytes) -> str:
        """What comes of these bytes."""
        return await reported(self._sent(data))

    async def _sent(self, data: bytes) -> str:
        await self.send(data)
        return f"{len(await self.frame())} bytes"

    def abort(self) -> None:
        self._writer.transport.abort()


@asynccontextmanager
async def stranger(address: Address) -> Any:
    reader, writer = await asyncio.open_connection(*address, local_addr=(OTHER_HOST, 0))
    made = Stranger(reader, writer)
    try:
        yield made
    finally:
        made.abort()


async def asked(address: Address, request: Any) -> str:
    """The errors in the answer."""

    async def answered() -> str:
        async with stranger(address) as one:
            return ", ".join(sorted(set(_errors(await one.ask(request)))))

    return await reported(answered())


async def reported(answer: Awaitable[str]) -> str:
    try:
        return await answer
    except TimeoutError:
        return "no answer"
    except OSError:
        return "closed"


def _errors(answer: Any) -> Iterator[str]:
    for field in dataclasses.fields(answer):
        value = getattr(answer, field.name)
        if isinstance(value, ErrorCode):
            yield value.name
        elif isinstance(value, tuple):
            for item in value:
                if dataclasses.is_dataclass(item):
                    yield from _errors(item)


def frame(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big", signed=True) + body


def header(api_key: int, version: int, client_id: bytes = b"stranger") -> bytes:
    """Of a request, without its length and without tagged fields."""
    numbers = (api_key.to_bytes(2, "big", signed=True), version.to_bytes(2, "big", signed=True), b"\0\0\0\1")
    return b"".join(numbers) + len(client_id).to_bytes(2, "big") + client_id
