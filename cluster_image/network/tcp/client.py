"""A connection that this process has opened: Kafka's requests on it, and their responses."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, TypeVar, cast

from cluster_image import wire
from cluster_image.network import Entity
from cluster_image.wire import FrameSplitter, MalformedFrame

from .transport import LONG_BYTES, MAX_FRAME_BYTES, write

T = TypeVar("T")


class ClientConnection(asyncio.Protocol):
    """One opened connection. Requests may overlap: they are sent at once and answered in order."""

    def __init__(self, client_id: str, on_lost: Callable[[ClientConnection], None]) -> None:
        self._client_id = client_id
        self._on_lost = on_lost
        self._splitter = FrameSplitter(MAX_FRAME_BYTES)
        self._pending: deque[_Pending] = deque()
        self._next_correlation_id = 0
        self._transport: asyncio.Transport
        self._closed = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but name
        self._closed = False

    @property
    def closed(self) -> bool:
        return self._closed

    async def request(self, entity: Entity, *, timeout: float) -> Entity:
        """See network.Connection. A Produce request with acks=0 returns None once it is handed to the socket."""
        correlation_id = self._next_correlation_id
        self._next_correlation_id = (correlation_id + 1) & 0x7FFFFFFF
        if wire.is_long(entity):
            frame = await _beside(partial(wire.request_parts, entity, correlation_id, self._client_id))
        else:
            frame = wire.request_parts(entity, correlation_id, self._client_id)
        if self._closed:
            raise ConnectionError("the connection is closed")
        if not wire.expects_response(entity):
            write(self._transport, frame)
            return None
        loop = asyncio.get_running_loop()
        pending = _Pending(correlation_id, entity.__api_key__, entity.__version__, loop.create_future())
        self._pending.append(pending)
        timer = loop.call_later(timeout, self._time_out, pending)
        write(self._transport, frame)
        try:
            answer = await pending.response
        finally:
            timer.cancel()
        try:
            if len(answer) > LONG_BYTES and pending.api_key != wire.FETCH:  # of that nearly all is records
                return await _beside(partial(wire.decode_response, answer, pending.api_key, pending.api_version))
            return wire.decode_response(answer, pending.api_key, pending.api_version)
        except MalformedFrame as error:
            self._fail(f"malformed response: {error}")
            raise ConnectionError(f"malformed response: {error}") from error

    def _time_out(self, pending: _Pending) -> None:
        if not pending.response.done():
            pending.response.set_exception(TimeoutError("no response in time"))
            self._fail("another request on this connection timed out")

    def data_received(self, data: bytes) -> None:
        try:
            for frame in self._splitter.feed(data):
                self._take_response(frame)
        except MalformedFrame as error:
            self._fail(f"malformed response: {error}")

    def _take_response(self, frame: bytes) -> None:
        correlation_id = wire.response_correlation_id(frame)
        if not self._pending or self._pending[0].correlation_id != correlation_id:
            raise MalformedFrame(f"correlation id {correlation_id} out of order")
        pending = self._pending.popleft()
        if not pending.response.done():  # else its caller was cancelled
            pending.response.set_result(frame)

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(f"connection lost: {exc or 'closed by peer'}")

    def close(self) -> None:
        self._fail("connection closed")

    def _fail(self, reason: str) -> None:
        """Close, and give every request in flight a ConnectionError."""
        if not self._closed:
            self._closed = True
            self._transport.abort()
            self._on_lost(self)
        pending, self._pending = self._pending, deque()
        for request in pending:
            if not request.response.done():
                request.response.set_exception(ConnectionError(reason))


class _Pending(NamedTuple):
    """A request that was sent and awaits its response."""

    correlation_id: int
    api_key: int
    api_version: int
    response: asyncio.Future[bytes]


async def _beside(work: Callable[[], T]) -> T:
    """In a thread: the event loop goes on."""
    return await asyncio.get_running_loop().run_in_executor(None, work)
