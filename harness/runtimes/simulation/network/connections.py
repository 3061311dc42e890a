"""Connections of the simulated network: two pipes, and at either end what a process holds of it.

The end that opened a connection sends requests and awaits the answers; the one that was accepted handles them one at a
time and answers in order. Both tell a process that was ended from one that lives: a dead one says nothing any more,
and whoever still speaks to it is told so by its host.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any, Final, Protocol

from cluster_image import wire
from cluster_image.network import Entity, Foreign, Handler, Peer, Versions
from cluster_image.storage.disk import ProcessDied
from harness.cluster import CLIENTS
from harness.runtimes.proxy.rules import Rule
from harness.runtimes.simulation.disk.strike import ANSWER, REQUEST
from harness.runtimes.simulation.loop import Process, VirtualLoop
from harness.runtimes.simulation.network.shaping import Shaping

log = logging.getLogger("cluster_image.simulated_network")

#: After a cut is mended, TCP's next attempt to deliver comes within this time.
RETRANSMIT_S: Final = (0.0, 0.4)
#: For so long a message is late that is struck: within a client's patience, and longer than most else takes.
LATE_S: Final = 1.5
#: Of what carries no message, in bytes: a packet's headers.
_NO_MESSAGE: Final = 40


class _Close:
    """The end of a connection: what a socket sends when it is closed, or its host when nobody owns it."""


CLOSE: Final = _Close()
#: What a host says on a connection that it does not know: no part of the stream.
RESET: Final = _Close()


class Host(Protocol):
    """A machine on the network."""

    power_cuts: int


class AtMessage(Protocol):
    def sends(self, kind: str, name: str) -> str | None:
        """A host is about to send a message. kind: "request" or "answer"; name: of its type, as far as it is known.
        Returns "reset": the connection breaks instead; "late": it is held back, with what follows it; None: neither."""
        ...


class Links(Protocol):
    """The network, as connections see it: what becomes of a message on its way from one host to another."""

    loop: VirtualLoop
    encode: bool  # pass every message through the wire format
    shaping: Shaping
    waiting: dict[Pipe, None]  # those with something that waits for its turn at a rate
    rules: dict[str, Rule]  # by key: what becomes of clients' requests
    at_message: dict[str, AtMessage]  # by host: what strikes in one of its messages
    on_error: Callable[[str, Exception], None]  # a host's handler of requests has raised this
    on_request: Callable[[str, Any], None]  # a host's handler begins with this request
    on_answer: Callable[[str, Any, Any, float], None]  # ... and has this answer for it (None: none) since it began then

    @property
    def hosts(self) -> Mapping[str, Host]: ...

    def passes(self, source: str, target: str) -> bool:
        """Does the link let something through at all?"""

    def latency(self, source: str, target: str) -> float:
        """Of the next message, in seconds."""

    def random(self, source: str, target: str) -> Random:
        """The link's own stream."""

    def drop(self, source: str, target: str) -> None:
        """A packet does not arrive."""

    def hold(self, pipe: Pipe, message: Any) -> None:
        """TCP will try again to deliver it."""

    def release(self, pipe: Pipe) -> None:
        """It holds nothing any more."""


class Socket(Protocol):
    """What one process holds of the network."""

    process: Process
    opened: dict[ClientEnd, None]
    accepted: dict[ServerEnd, None]

    @property
    def host(self) -> str: ...


class Accepting(Protocol):
    """A port that is listened on."""

    handler: Handler
    served: Versions

    @property
    def endpoint(self) -> Socket: ...


@dataclass(slots=True)
class _InFlight:
    message: Any
    timer: asyncio.TimerHandle  # when something arrives
    unlimited: float  # when it would, had no rate held it up


class Pipe:
    """One direction of a connection: first in, first out. What was sent is held, and behind that in flight."""

    def __init__(self, network: Links, sender: End, receiver: End) -> None:
        self.receiver = receiver
        self.source = sender.host
        self.target = receiver.host
        self.held: deque[Any] = deque()  # sent and dropped on the way: TCP keeps trying
        self.power_cuts = network.hosts[sender.host].power_cuts  # before it
        self.torn = False  # something is missing for good: nothing that follows can arrive
        self._network = network
        self._in_flight: deque[_InFlight] = deque()
        self._last_arrival = 0.0
        self._last_unlimited = 0.0
        self._retransmitting = False

    def send(self, message: Any, held_back: float = 0.0) -> None:
        """held_back: seconds, with all that follows."""
        network = self._network
        if self.held and not self._in_flight:
            network.hold(self, message)
            return
        loop = network.loop
        now = loop.local_time()
        latency = network.latency(self.source, self.target)
        held_up = network.shaping.hold_up((self.source, self.target), now, lambda: self._size(message))
        arrival = now + latency + held_up.seconds + held_back
        self._last_unlimited = max(arrival - held_up.waiting, self._last_unlimited)
        self._last_arrival = max(arrival, self._last_arrival)
        timer = loop.call_in_world(self._last_arrival, self._arrive)
        self._in_flight.append(_InFlight(message, timer, self._last_unlimited))
        if self._last_arrival > self._last_unlimited:
            network.waiting[self] = None

    def wait_no_longer(self) -> None:
        """The link has no rate any more: TCP soon delivers what was waiting for its turn, but nothing earlier than if
        there had never been one."""
        self._network.waiting.pop(self, None)
        loop = self._network.loop
        soon = loop.time() + self._network.random(self.source, self.target).uniform(*RETRANSMIT_S)
        for each in self._in_flight:
            arrival = max(soon, each.unlimited)
            if each.timer.when() > arrival:
                each.timer.cancel()
                each.timer = loop.call_in_world(arrival, self._arrive)
        self._last_arrival = self._last_unlimited = self._in_flight[-1].timer.when()

    def _size(self, message: Any) -> int:
        """In bytes, on the wire."""
        if isinstance(message, _Close):
            return _NO_MESSAGE
        if isinstance(message, Foreign):
            return message.size + _NO_MESSAGE
        if not isinstance(message, bytes):
            to_server = isinstance(self.receiver, ServerEnd)
            message = wire.encode_request(message, 0, None) if to_server else wire.encode_response(message, 0)
        return len(message) + _NO_MESSAGE

    def _arrive(self) -> None:
        """Whichever was sent first of what is in flight."""
        network = self._network
        message = self._in_flight.popleft().message
        if not self._in_flight:
            network.waiting.pop(self, None)
        if self.torn and message is not RESET:
            return
        if self.held or not network.passes(self.source, self.target):
            network.drop(self.source, self.target)
            network.hold(self, message)
            return
        self.receiver.receive(message)

    def retransmit(self) -> None:
        """Soon, all that is held."""
        if not self._retransmitting:
            self._retransmitting = True
            network = self._network
            delay = network.random(self.source, self.target).uniform(*RETRANSMIT_S)
            network.loop.call_in_world(network.loop.time() + delay, self._retransmit)

    def _retransmit(self) -> None:
        self._retransmitting = False
        while self.held and self._network.passes(self.source, self.target):
            self.receiver.receive(self.held.popleft())
        if not self.held:
            self._network.release(self)


class ClientEnd:
    """The end that opened a connection. Requests may overlap: they are sent at once and answered in order."""

    out: Pipe

    def __init__(self, network: Links, endpoint: Socket, client_id: str) -> None:
        self.process = endpoint.process
        self.host = endpoint.host
        self.network = network
        self._endpoint = endpoint
        self._client_id = client_id
        self._pending: deque[tuple[Any, asyncio.Future[Entity]]] = deque()
        self._closed = False
        self._repeating = 0  # requests that will be sent once more
        endpoint.opened[self] = None

    @property
    def closed(self) -> bool:
        return self._closed

    async def request(self, entity: Entity, *, timeout: float) -> Entity:
        """See network.Connection. A Produce request with acks=0 returns None once it is sent."""
        if self._closed:
            raise ConnectionError("the connection is closed")
        message = entity
        if self.network.encode and not isinstance(entity, Foreign):
            message = wire.encode_request(entity, 0, self._client_id)
        if not isinstance(entity, Foreign) and not wire.expects_response(entity):
            send(self, message, self._by_rules(entity, message, answered=False))
            return None
        loop = self.network.loop
        response: asyncio.Future[Entity] = loop.create_future()
        self._pending.append((entity, response))
        timer = loop.call_later(timeout, self._time_out, response)
        send(self, message, self._by_rules(entity, message))
        try:
            return await response
        finally:
            timer.cancel()

    def _by_rules(self, entity: Entity, message: Any, *, answered: bool = True) -> float:
        """For how many seconds a proxy between clients and brokers would hold this request back. What it would deliver
        once more is sent in its time, and the end of the connection after it."""
        network, held_back = self.network, 0.0
        if not network.rules or self.host != CLIENTS:
            return held_back
        for rule in list(network.rules.values()):
            if type(entity).__name__ != f"{rule.api}Request" or (seconds := rule.draws()) is None:
                continue
            at = network.loop.time() + seconds
            if rule.action == "delay":
                held_back += seconds
                network.loop.call_in_world(at, self._count_late, rule)
            else:
                self._repeating += 1
                network.loop.call_in_world(at, self._repeat, entity, message, answered)
        return held_back

    def _count_late(self, rule: Rule) -> None:
        rule.after_hang_up += self._closed

    def _repeat(self, entity: Entity, message: Any, answered: bool) -> None:
        self._repeating -= 1
        if answered and not self._closed:
            self._pending.append((entity, self.network.loop.create_future()))  # an answer to nobody
        self.out.send(message)
        if self._closed and not self._repeating:
            self.out.send(CLOSE)

    def _time_out(self, response: asyncio.Future[Entity]) -> None:
        if not response.done():
            response.set_exception(TimeoutError("no response in time"))
            self._end("another request on this connection timed out")

    def receive(self, message: Any) -> None:
        """What arrived, in the world's time; whoever awaits it goes on when its process does."""
        if self._closed or not self.process.alive:
            if not isinstance(message, _Close) and not self._repeating:
                self.out.send(RESET)
            return
        if isinstance(message, _Close):
            self.lost("connection lost: closed by peer")
            return
        request, response = self._pending.popleft()
        if isinstance(message, bytes):
            message = wire.decode_response(message[4:], request.__api_key__, request.__version__)
        if not response.done():  # else its caller was cancelled
            response.set_result(message)

    def close(self) -> None:
        self._end("connection closed")

    def lost(self, reason: str) -> None:
        """The other end is gone, or the connection itself."""
        self._fail(reason)

    def _end(self, reason: str) -> None:
        if not self._closed and not self._repeating:
            send(self, CLOSE)
        self._fail(reason)

    def _fail(self, reason: str) -> None:
        if not self._closed:
            self._closed = True
            del self._endpoint.opened[self]
        pending, self._pending = self._pending, deque()
        for _, response in pending:
            if not response.done():
                response.set_exception(ConnectionError(reason))


class ServerEnd:
    """The end that was accepted: one handler call at a time, responses in order, as in tcp.py."""

    out: Pipe

    def __init__(self, network: Links, listener: Accepting, peer: str, client_id: str) -> None:
        endpoint = listener.endpoint
        self.process = endpoint.process
        self.host = endpoint.host
        self.listener = listener
        self.network = network
        self._endpoint = endpoint
        self._peer = Peer(client_id, peer)
        self._requests: deque[Any] = deque()
        self._serving: asyncio.Task[None] | None = None
        self._closed = False
        endpoint.accepted[self] = None

    def receive(self, message: Any) -> None:
        if self._closed or not self.process.alive:
            if not isinstance(message, _Close):
                self.out.send(RESET)
            return
        if isinstance(message, _Close):
            self.lost("closed by peer")
            return
        self._requests.append(message)
        if self._serving is None:
            loop = self.network.loop
            self._serving = loop.create_task(self._serve(), context=self.process.context.copy())

    async def _serve(self) -> None:
        handler = self.listener.handler
        try:
            while self._requests:
                request = self._requests.popleft()
                if isinstance(request, bytes):
                    _, request = wire.decode_request(request[4:], self.listener.served)
                since = self.network.loop.time()
                self.network.on_request(self.host, request)
                response = None
                try:
                    response = await handler(request, self._peer)
                finally:
                    self.network.on_answer(self.host, request, response, since)
                if response is not None and not self._closed:
                    encoded = self.network.encode and not isinstance(response, Foreign)
                    send(self, wire.encode_response(response, 0) if encoded else response)
        except ConnectionError as error:  # the handler's way to close this connection and say why
            log.info("connection from %s closed: %s", self._peer.host, error)
            self._end()
        except Exception as error:
            log.exception("request from %s failed: connection closed", self._peer.host)
            self.network.on_error(self.host, error)
            self._end()
        finally:
            self._serving = None

    def lost(self, reason: str) -> None:
        """The peer is gone. What it sent before has arrived, and is handled; nobody hears the answer."""
        if not self._closed:
            self._closed = True
            del self._endpoint.accepted[self]

    def _end(self) -> None:
        self._requests.clear()
        if not self._closed:
            send(self, CLOSE)
        self.lost("closed here")

    def close(self) -> None:
        self._end()
        if self._serving is not None:
            self._serving.cancel()

    async def stopped(self) -> None:
        if self._serving is not None:
            await asyncio.wait([self._serving])


End = ClientEnd | ServerEnd


def send(end: End, message: Any, held_back: float = 0.0) -> None:
    """What its process sends; its host speaks for itself (CLOSE). held_back: seconds."""
    if not end.process.alive:
        raise ProcessDied
    network = end.network
    strike = network.at_message.get(end.host) if network.at_message else None
    if strike is not None and not isinstance(message, _Close):
        struck = strike.sends(REQUEST if isinstance(end, ClientEnd) else ANSWER, type(message).__name__)
        if struck == "reset":
            end.out.send(RESET)
            network.loop.call_in_world(network.loop.time(), end.lost, "connection reset by peer")
            return
        held_back += LATE_S if struck == "late" else 0.0
    end.out.send(message, held_back)
