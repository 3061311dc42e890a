"""What others open: a listener and its connections, each within what it may take of this node (limits.py)."""

from __future__ import annotations

import asyncio
import math
import socket
from collections import deque
from functools import partial
from time import perf_counter
from typing import Final, cast

from cluster_image import wire
from cluster_image.network import Address, Entity, Handler, Peer, Versions, sasl
from cluster_image.network.sasl import Credentials, Exchange
from cluster_image.wire import FrameSplitter, MalformedFrame, Parts, WireError

from .limits import LARGE_BYTES, PATIENCE_S, SMALL_BYTES, AnswerRoom, AsideOf, Limits
from .transport import LONG_BYTES, write

#: Reading from a peer pauses while it has this much waiting to be handled.
MAX_QUEUED_REQUESTS: Final = 64
MAX_QUEUED_BYTES: Final = 4 * 1024 * 1024
#: Of what was received, cut into frames in one turn.
CUT_AT_ONCE_BYTES: Final = 4 << 10
#: Connections that the kernel keeps until they are accepted, all in one cycle of the event loop (Kafka's default of
#: socket.listen.backlog.size).
BACKLOG: Final = 50
#: Of each direction of a connection: Kafka's defaults of socket.receive.buffer.bytes and socket.send.buffer.bytes.
SOCKET_BUFFER_BYTES: Final = 100 << 10


class Listener:
    """Implements cluster_image.network.Listening."""

    def __init__(
        self,
        handler: Handler,
        served: Versions,
        max_request_bytes: int,
        limits: Limits,
        credentials: Credentials | None,
    ) -> None:
        self._handler = handler
        self._served = served
        self._max_request_bytes = max_request_bytes
        self._limits = limits
        self._credentials = credentials
        self._server: asyncio.Server | None = None
        self._accepted: dict[ServerConnection, None] = {}  # a dict, for its order

    async def open(self, address: Address) -> None:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._accept, address.host, address.port, backlog=BACKLOG)

    def _accept(self) -> ServerConnection:
        splitter = FrameSplitter(self._max_request_bytes, self._allowed)
        exchange = Exchange(self._credentials)
        return ServerConnection(self._handler, self._served, splitter, self._accepted, self._limits, exchange)

    def _allowed(self, api_key: int) -> int:
        return self._max_request_bytes if api_key == wire.PRODUCE else wire.SMALL_REQUEST_BYTES

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        accepted = list(self._accepted)
        for connection in accepted:
            connection.close()
        await asyncio.gather(*(connection.stopped() for connection in accepted))
        self._limits.close()


class ServerConnection(asyncio.Protocol):
    """One accepted connection: frames in, one handler call at a time, responses out in order.

    Implements limits.Peer.
    """

    def __init__(
        self,
        handler: Handler,
        served: Versions,
        splitter: FrameSplitter,
        open_ones: dict[ServerConnection, None],
        limits: Limits,
        exchange: Exchange,
    ) -> None:
        self._handler = handler
        self._served = served
        self._exchange = exchange
        self._splitter = splitter
        self._open_ones = open_ones
        self._limits = limits
        self._room = AnswerRoom(limits.answers, self)
        self._received: deque[bytes] = deque()  # and not cut into frames yet
        self._frames: deque[bytes] = deque()
        self._queued_bytes = 0  # of both
        self._answering_bytes = 0
        self._began = 0.0  # when the frame that is unfinished did
        self._broken: MalformedFrame | None = None  # nothing can be read after it
        self._serving: asyncio.Task[None] | None = None
        self._reading_paused = False
        self._resting: asyncio.TimerHandle | None = None  # until then nothing is read: see Pace
        self._written: deque[int] = deque()  # the length of each answer of which some is not read
        self._kept_bytes = 0  # all of them together
        self._writable = asyncio.Event()
        self._writable.set()
        self.host = "?"
        self._lost = False
        self._waits_since = math.inf  # loop time: its request has no effect any more but the answer
        self._peer: Peer | None = None  # who sent the last request
        self._loop = asyncio.get_running_loop()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but name
        peer = transport.get_extra_info("peername")
        self.host = peer[0] if peer else "?"
        self._aside = AsideOf(self._limits, self.host)
        opened = transport.get_extra_info("socket")
        for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):  # what the kernel keeps is the node's memory too
            opened.setsockopt(socket.SOL_SOCKET, option, SOCKET_BUFFER_BYTES)
        self._open_ones[self] = None
        if not self._limits.connections.take(self.host):
            self._limits.complaints.warn("connection from %s refused: it has too many, or all have", self.host)
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        if self._transport.is_closing() or self._broken:
            return
        if self._exchange.has_authenticated and not self._received:
            self._cut_into_frames(data)
        else:
            self._received.append(data)
            self._queued_bytes += len(data)
        if self._serving is None:
            self._serving = self._loop.create_task(self._serve())
        self._limit_reading()

    def _cut_some(self) -> None:
        """Of what was received: there may be thousands of frames in it, and others wait for their turn."""
        data = self._received.popleft()
        most = max(CUT_AT_ONCE_BYTES, self._splitter.begun - self._splitter.received)
        if len(data) > most:
            self._received.appendleft(data[most:])
            data = data[:most]
        self._queued_bytes -= len(data)
        self._cut_into_frames(data)

    def _cut_into_frames(self, data: bytes) -> None:
        went_on = bool(self._splitter.begun)
        try:
            for frame in self._splitter.feed(data):
                self._frames.append(frame)
                self._queued_bytes += len(frame)
                went_on = False
        except MalformedFrame as error:
            self._broken = error  # what came before it is still answered
            self._received.clear()
        if self._splitter.begun and not went_on:
            self._began = self._loop.time()
        if self._splitter.begun > LARGE_BYTES and not self._exchange.has_authenticated:
            self._rest(self._limits.pace.received(self.host, len(data), self._loop.time()))

    async def _serve(self) -> None:
        turns = self._limits.turns
        try:
            while self._frames or self._received:
                if self._exchange.has_authenticated:  # nodes have the way free: they keep the ISR full
                    response = await self._answer_next()
                else:
                    await turns.take(self.host)
                    response = await turns.timed(self.host, self._answer_next())
                if response is None:
                    continue
                if self._transport.is_closing():
                    return  # the peer is gone: what it sent after this is dropped with it
                self._send(response)
                del response  # else it would be kept until there is the next one
                if not self._writable.is_set():
                    await self._writable.wait()
            if self._broken is not None:
                self._refuse(self._broken)
        except WireError as error:
            self._refuse(error)
        except ConnectionError as error:  # the handler's way to close this connection and say why
            self._limits.complaints.warn("connection from %s closed: %s", self.host, error)
            self._transport.close()
        except Exception:
            self._limits.complaints.warn("request from %s failed: connection closed", self.host, exc_info=True)
            self._transport.close()
        finally:
            self._serving = None
            if self._lost:
                self._limits.requests.forget(self)

    def _send(self, response: Parts) -> None:
        began = perf_counter()
        write(self._transport, response)
        if self._exchange.has_authenticated:
            return  # nodes read their answers, one at a time
        self._limits.turns.count(self.host, perf_counter() - began)  # the kernel copies a megabyte in a millisecond
        size = sum(map(len, response))
        self._written.append(size)
        self._kept_bytes += size
        self._limits.answers.note(self)

    async def _answer_next(self) -> Parts | None:
        """The response frame to the next request. None: none is due, or there is no request."""
        if not self._frames and self._received:
            self._cut_some()
            self._limit_reading()
        if not self._frames:
            return None  # none is complete, or this connection was given up
        frame = self._frames.popleft()
        self._queued_bytes -= len(frame)
        self._answering_bytes = len(frame)
        try:
            response = await self._answer(frame)
        finally:
            self._waits_since = math.inf
            if not self._exchange.has_authenticated:
                self._limits.answers.hold(self, 0)  # of what is written at once, it counts how much is not read
        self._answering_bytes = 0
        self._limit_reading()
        return response

    async def _answer(self, frame: bytes) -> Parts | None:
        """The response frame, or None when none is due. Raises WireError and whatever the handler raises."""
        header, position = wire.decode_request_header(frame)
        response: Entity | None
        if header.api_key == wire.API_VERSIONS and wire.API_VERSIONS in self._served:
            response = wire.answer_api_versions(header.api_version, self._served)
        else:
            most = wire.MAX_ELEMENTS if self._exchange.proven else self._limits.client_elements
            decode = wire.decode_request_message
            if len(frame) <= LONG_BYTES or header.api_key == wire.PRODUCE:
                request = decode(header, frame, position, self._served, most)
            else:
                request = await self._aside(partial(decode, header, frame, position, self._served, most))
            if header.api_key == wire.FETCH:
                self._only_waits()
            if header.api_key in (sasl.HANDSHAKE, sasl.AUTHENTICATE):
                response = self._exchange.answer(request)
            else:
                response = await self._handler(request, self._sender(header.client_id))
        if response is None:
            return None
        if wire.is_long(response):
            return await self._aside(partial(wire.response_parts, response, header.correlation_id))
        return wire.response_parts(response, header.correlation_id)

    def _sender(self, client_id: str | None) -> Peer:
        peer, proven = self._peer, self._exchange.proven
        if peer is None or peer.client_id != client_id or peer.is_node != proven:
            peer = self._peer = Peer(client_id, self.host, proven, self._room, self._aside, self._only_waits)
        return peer

    def _refuse(self, error: WireError) -> None:
        self._limits.complaints.warn("connection from %s closed: %s", self.host, error)
        self._forget_requests()
        self._transport.close()

    def _forget_requests(self) -> None:
        self._frames.clear()
        self._received.clear()

    # -- what it may take of this node ------------------------------------------------------------------------

    def _limit_reading(self) -> None:
        if self._transport.is_closing():
            return
        full = len(self._frames) >= MAX_QUEUED_REQUESTS or self._queued_bytes >= MAX_QUEUED_BYTES
        if not self._exchange.has_authenticated:
            begun = self._splitter.begun
            size = self._queued_bytes + self._answering_bytes + (begun if begun > SMALL_BYTES else 0)
            full = not self._limits.requests.hold(self, size) or full
        paused = full or self._broken is not None or self._resting is not None
        if paused != self._reading_paused and not self._transport.is_closing():
            self._reading_paused = paused
            if paused:
                self._transport.pause_reading()
            else:
                self._transport.resume_reading()

    def _rest(self, seconds: float) -> None:
        if seconds and self._resting is None:
            self._resting = self._loop.call_later(seconds, self._rested)

    def _rested(self) -> None:
        self._resting = None
        self._limit_reading()

    def read_on(self) -> None:
        self._limit_reading()

    def give_up(self, reason: str) -> None:
        self._limits.complaints.warn("connection from %s closed: %s", self.host, reason)
        self._forget_requests()
        self._transport.abort()
        self._forgotten()

    def slowness(self, now: float) -> float:
        taken = now - self._began
        return taken / max(self._splitter.received, 1) if self._splitter.begun and taken > PATIENCE_S else 0.0

    def waits_since(self) -> float:
        return self._waits_since

    def _only_waits(self) -> None:
        """See network.Peer."""
        self._waits_since = self._loop.time()
        if self._lost and self._serving is not None:
            self._serving.cancel()

    def unread_bytes(self) -> int:
        return 0 if self._lost else self._transport.get_write_buffer_size()

    def kept_bytes(self) -> int:
        unread, written = self.unread_bytes(), self._written
        while written and (not unread or self._kept_bytes - written[0] >= unread):
            self._kept_bytes -= written.popleft()
        return self._kept_bytes

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()
        self._limits.answers.note(self)

    def _forgotten(self) -> None:
        self._lost = True
        if self._serving is None:
            self._limits.requests.forget(self)
        self._limits.answers.note(self)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._waits_since < math.inf and self._serving is not None:
            self._serving.cancel()  # nobody will hear of what it waits for
        self._writable.set()
        self._open_ones.pop(self, None)
        self._limits.connections.leave(self.host)
        self._forgotten()

    def close(self) -> None:
        self._transport.abort()
        if self._serving is not None:
            self._serving.cancel()

    async def stopped(self) -> None:
        """Returns when no handler call of this connection is running."""
        if self._serving is not None:
            await asyncio.wait([self._serving])
