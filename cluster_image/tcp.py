"""The real network: Kafka frames over TCP, behind the `Network` seam.

As in Kafka, the requests of one connection are handled one at a time and answered in the order they came, so
a long poll holds up what follows it on its own connection and nothing else. A peer that breaks the protocol
loses its connection; no other connection notices. (Both asyncio and uvloop set TCP_NODELAY themselves.)
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple, cast

from cluster_image import wire
from cluster_image.network import Address, Connection, Entity, Handler, Listening, Peer, Versions
from cluster_image.wire import FrameSplitter, MalformedFrame, WireError

log = logging.getLogger(__name__)

MAX_FRAME_BYTES: Final = 100 * 1024 * 1024  # Kafka's default of socket.request.max.bytes
#: Reading from a peer pauses while it has this much waiting to be handled.
MAX_QUEUED_REQUESTS: Final = 64
MAX_QUEUED_BYTES: Final = 4 * 1024 * 1024


class TcpNetwork:
    """Implements cluster_image.network.Network.

    served: the API versions that listeners answer which are not told otherwise; ApiVersions requests are answered here
    and handlers never see them. max_request_bytes: socket.request.max.bytes.
    """

    def __init__(self, served: Versions | None = None, *, max_request_bytes: int = MAX_FRAME_BYTES) -> None:
        self._served = served or {}
        self._max_request_bytes = max_request_bytes
        self._listeners: list[_Listener] = []
        self._opened: dict[_ClientConnection, None] = {}  # a dict, for its order

    async def connect(self, address: Address, *, client_id: str, timeout: float) -> Connection:
        """Raises ConnectionError, or TimeoutError after `timeout` seconds."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(timeout):
                _, connection = await loop.create_connection(
                    lambda: _ClientConnection(client_id, on_lost=self._forget_opened), address.host, address.port
                )
        except (TimeoutError, ConnectionError):
            raise
        except OSError as error:  # no route, unknown host, out of descriptors
            raise ConnectionError(f"{address}: {error}") from error
        self._opened[connection] = None
        return connection

    async def listen(self, address: Address, handler: Handler, served: Versions | None = None) -> Listening:
        """Serve until close(). Raises OSError, e.g. when the port is in use."""
        listener = _Listener(handler, self._served if served is None else served, self._max_request_bytes)
        await listener.open(address)
        self._listeners.append(listener)
        return listener

    async def close(self) -> None:
        """Stop listening, close every connection and cancel the handlers that are still running."""
        for connection in list(self._opened):
            connection.close()
        await asyncio.gather(*(listener.close() for listener in self._listeners))

    def _forget_opened(self, connection: _ClientConnection) -> None:
        self._opened.pop(connection, None)


class _Listener:
    """Implements cluster_image.network.Listening."""

    def __init__(self, handler: Handler, served: Versions, max_request_bytes: int) -> None:
        self._handler = handler
        self._served = served
        self._max_request_bytes = max_request_bytes
        self._server: asyncio.Server | None = None
        self._accepted: dict[_ServerConnection, None] = {}  # a dict, for its order

    async def open(self, address: Address) -> None:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._accept, address.host, address.port, backlog=1024)

    def _accept(self) -> _ServerConnection:
        splitter = FrameSplitter(self._max_request_bytes)
        return _ServerConnection(self._handler, self._served, splitter, self._accepted)

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        accepted = list(self._accepted)
        for connection in accepted:
            connection.close()
        await asyncio.gather(*(connection.stopped() for connection in accepted))


class _ServerConnection(asyncio.Protocol):
    """One accepted connection: frames in, one handler call at a time, responses out in order."""

    def __init__(
        self, handler: Handler, served: Versions, splitter: FrameSplitter, open_ones: dict[_ServerConnection, None]
    ) -> None:
        self._handler = handler
        self._served = served
        self._splitter = splitter
        self._open_ones = open_ones
        self._frames: deque[bytes] = deque()
        self._queued_bytes = 0
        self._broken: MalformedFrame | None = None  # nothing can be read after it
        self._serving: asyncio.Task[None] | None = None
        self._reading_paused = False
        self._writable = asyncio.Event()
        self._writable.set()
        self._host = "?"

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but name
        peer = transport.get_extra_info("peername")
        self._host = peer[0] if peer else "?"
        self._open_ones[self] = None

    def data_received(self, data: bytes) -> None:
        if self._transport.is_closing():
            return
        try:
            for frame in self._splitter.feed(data):
                self._frames.append(frame)
                self._queued_bytes += len(frame)
        except MalformedFrame as error:
            self._broken = error  # what came before it is still answered
        if (self._frames or self._broken) and self._serving is None:
            self._serving = asyncio.get_running_loop().create_task(self._serve())
        self._limit_reading()

    async def _serve(self) -> None:
        try:
            while self._frames:
                frame = self._frames.popleft()
                self._queued_bytes -= len(frame)
                self._limit_reading()
                response = await self._answer(frame)
                if response is None:
                    continue
                if self._transport.is_closing():
                    return  # the peer is gone: what it sent after this is dropped with it
                self._transport.write(response)
                await self._writable.wait()
            if self._broken is not None:
                self._refuse(self._broken)
        except WireError as error:
            self._refuse(error)
        except ConnectionError as error:  # the handler's way to close this connection and say why
            log.info("connection from %s closed: %s", self._host, error)
            self._transport.close()
        except Exception:
            log.exception("request from %s failed: connection closed", self._host)
            self._transport.close()
        finally:
            self._serving = None

    async def _answer(self, frame: bytes) -> bytes | None:
        """The response frame, or None when none is due. Raises WireError and whatever the handler raises."""
        header, _ = wire.decode_request_header(frame)
        response: Entity | None
        if header.api_key == wire.API_VERSIONS and wire.API_VERSIONS in self._served:
            response = wire.answer_api_versions(header.api_version, self._served)
        else:
            _, request = wire.decode_request(frame, self._served)
            response = await self._handler(request, Peer(header.client_id, self._host))
        return None if response is None else wire.encode_response(response, header.correlation_id)

    def _refuse(self, error: WireError) -> None:
        log.warning("connection from %s closed: %s", self._host, error)
        self._frames.clear()
        self._transport.close()

    def _limit_reading(self) -> None:
        full = len(self._frames) >= MAX_QUEUED_REQUESTS or self._queued_bytes >= MAX_QUEUED_BYTES
        full = full or self._broken is not None
        if full != self._reading_paused and not self._transport.is_closing():
            self._reading_paused = full
            if full:
                self._transport.pause_reading()
            else:
                self._transport.resume_reading()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self._writable.set()
        self._open_ones.pop(self, None)

    def close(self) -> None:
        self._transport.abort()
        if self._serving is not None:
            self._serving.cancel()

    async def stopped(self) -> None:
        """Returns when no handler call of this connection is running."""
        if self._serving is not None:
            await asyncio.wait([self._serving])


class _Pending(NamedTuple):
    """A request that was sent and awaits its response."""

    correlation_id: int
    api_key: int
    api_version: int
    response: asyncio.Future[Entity]


class _ClientConnection(asyncio.Protocol):
    """One opened connection. Requests may overlap: they are sent at once and answered in order."""

    def __init__(self, client_id: str, on_lost: Callable[[_ClientConnection], None]) -> None:
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
        if self._closed:
            raise ConnectionError("the connection is closed")
        correlation_id = self._next_correlation_id
        self._next_correlation_id = (correlation_id + 1) & 0x7FFFFFFF
        frame = wire.encode_request(entity, correlation_id, self._client_id)
        if not wire.expects_response(entity):
            self._transport.write(frame)
            return None
        loop = asyncio.get_running_loop()
        pending = _Pending(correlation_id, entity.__api_key__, entity.__version__, loop.create_future())
        self._pending.append(pending)
        timer = loop.call_later(timeout, self._time_out, pending)
        self._transport.write(frame)
        try:
            return await pending.response
        finally:
            timer.cancel()

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
        pending = self._pending[0]
        response = wire.decode_response(frame, pending.api_key, pending.api_version)
        self._pending.popleft()
        if not pending.response.done():  # else its caller was cancelled
            pending.response.set_result(response)

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
