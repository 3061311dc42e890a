"""The network of one run, and the `Network` seam of each process on it.

What happens to a message is what TCP would make of it. It arrives after the link's latency, never before one sent
earlier on its connection. A link that is cut holds messages up: whoever sent them learns nothing, and once the link
is mended they arrive after all, however old, unless the connection was given up meanwhile. A host without power
answers nothing; when it is back, whoever still speaks to the process that was there gets a reset. A host whose
process has ended closes its connections, and refuses new ones.

Messages are kio entities, passed on as they are. With `encode` each is encoded and decoded on its way, as tcp.py does.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterable
from random import Random
from typing import Any, Final

from cluster_image import wire
from cluster_image.network import Address, Connection, Entity, Handler, Peer
from harness.runtimes.simulation.loop import Process, ProcessDied, VirtualLoop

log = logging.getLogger("cluster_image.simulated_network")

#: A link's own latency is this much of the network's, drawn once; and each message's this much of its link's.
LINK: Final = (0.5, 1.5)
JITTER: Final = (0.8, 1.4)
#: A packet that is lost or queued now and then: how often, and by how much it is late.
LATE: Final = 0.002
LATENESS_S: Final = (0.005, 0.2)
#: When TCP tries again to open a connection: seconds after the first attempt.
_SYN_RETRIES_S: Final = (0.0, 1.0, 3.0, 7.0)
#: After a cut is mended, TCP's next attempt to deliver comes within this time.
RETRANSMIT_S: Final = (0.0, 0.4)


class Host:
    """A machine on the network."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.up = True
        self.power_cuts = 0
        self.listeners: dict[int, Endpoint] = {}


class SimulatedNetwork:
    """latency: seconds from one host to another, on average. encode: pass every message through the wire format."""

    def __init__(self, loop: VirtualLoop, seed: int | str, *, latency: float = 0.0005, encode: bool = False) -> None:
        self.loop = loop
        self._latency = latency
        self.encode = encode
        self.hosts: dict[str, Host] = {}
        #: Packets that a cut link has dropped, by the host that would have received them.
        self.dropped: dict[str, int] = {}
        self._seed = seed
        self._cut: dict[tuple[str, str], None] = {}  # (from, to)
        self._slow: dict[tuple[str, str], float] = {}  # seconds added to the latency
        self._links: dict[tuple[str, str], Random] = {}
        self._bases: dict[tuple[str, str], float] = {}  # latency of each link
        self._endpoints: dict[Endpoint, None] = {}  # a dict, for its order
        self._holding: dict[Pipe, None] = {}  # those with something that has not got through

    def endpoint(self, process: Process, host: str, role: wire.Listener = "broker") -> Endpoint:
        """The seam of a process on that host. role: whose API versions its listeners serve."""
        endpoint = Endpoint(self, process, self.hosts.setdefault(host, Host(host)), role)
        self._endpoints[endpoint] = None
        return endpoint

    # -- faults -----------------------------------------------------------------------------------------------

    def cut(self, links: Iterable[tuple[str, str]]) -> None:
        """From now on exactly these links, (from host, to host) each, let nothing pass."""
        self._cut = dict.fromkeys(links)
        self._try_again()

    def slow(self, links: Iterable[tuple[str, str]], seconds: float) -> None:
        """From now on what passes these links takes so much longer; 0: no longer."""
        for link in links:
            if seconds:
                self._slow[link] = seconds
            else:
                self._slow.pop(link, None)

    def reset(self, host: str) -> None:
        """Every connection of a host breaks, and both ends learn of it."""
        for endpoint in self._endpoints:
            if endpoint.host == host:
                for end in endpoint.open_ends():
                    end.lost("connection reset")
                    end.out.receiver.lost("connection reset")

    def power_off(self, host: str) -> None:
        """Nobody is told anything, and what its sockets still held is gone."""
        self.hosts[host].up = False
        self.hosts[host].power_cuts += 1
        self.hosts[host].listeners.clear()
        self._endpoints = {endpoint: None for endpoint in self._endpoints if endpoint.host != host}
        for pipe in list(self._holding):
            if pipe.source == host:
                pipe.held.clear()
                pipe.torn = True
                del self._holding[pipe]

    def power_on(self, host: str) -> None:
        """The machine is back, and knows nothing of its old connections: who has something to say on one is told."""
        self.hosts[host].up = True
        self._try_again()

    def process_ended(self, process: Process) -> None:
        """Its host closes what it leaves open, and goes on delivering what it had sent."""
        for endpoint in [each for each in self._endpoints if each.process is process]:
            del self._endpoints[endpoint]
            endpoint.stop_listening()
            for end in endpoint.open_ends():
                end.out.send(CLOSE)

    def _try_again(self) -> None:
        for pipe in self._holding:
            if self.passes(pipe.source, pipe.target):
                pipe.retransmit()

    # -- links ------------------------------------------------------------------------------------------------

    def is_cut(self, source: str, target: str) -> bool:
        return (source, target) in self._cut

    def passes(self, source: str, target: str) -> bool:
        return not self.is_cut(source, target) and self.hosts[target].up

    def drop(self, source: str, target: str) -> None:
        """Counts what does not pass, if that is a cut link's doing."""
        if self.is_cut(source, target):
            self.dropped[target] = self.dropped.get(target, 0) + 1

    def latency(self, source: str, target: str) -> float:
        random = self.random(source, target)
        delay = self._bases[source, target] * random.uniform(*JITTER) + self._slow.get((source, target), 0.0)
        if random.random() < LATE:
            delay += random.uniform(*LATENESS_S)
        return delay

    def random(self, source: str, target: str) -> Random:
        """Each link's own stream: what passes one does not shift another."""
        link = (source, target)
        stream = self._links.get(link)
        if stream is None:
            stream = self._links[link] = Random(f"{self._seed}/network/{source}>{target}")
            self._bases[link] = self._latency * stream.uniform(*LINK)
        return stream

    def hold(self, pipe: Pipe, message: Any) -> None:
        if self.hosts[pipe.source].power_cuts > pipe.power_cuts:
            pipe.torn = True  # nobody will send it again
            return
        pipe.held.append(message)
        self._holding[pipe] = None

    def release(self, pipe: Pipe) -> None:
        self._holding.pop(pipe, None)


class _Close:
    """The end of a connection: what a socket sends when it is closed, or its host when nobody owns it."""


CLOSE: Final = _Close()
#: What a host says on a connection that it does not know: no part of the stream.
RESET: Final = _Close()


class Pipe:
    """One direction of a connection: first in, first out."""

    def __init__(self, network: SimulatedNetwork, sender: _End, receiver: _End) -> None:
        self.receiver = receiver
        self.source = sender.host
        self.target = receiver.host
        self.held: deque[Any] = deque()  # sent and dropped on the way: TCP keeps trying
        self.power_cuts = network.hosts[sender.host].power_cuts  # before it
        self.torn = False  # something is missing for good: nothing that follows can arrive
        self._network = network
        self._last_arrival = 0.0
        self._retransmitting = False

    def send(self, message: Any) -> None:
        network = self._network
        if self.held:
            network.hold(self, message)
            return
        loop = network.loop
        arrival = max(loop.local_time() + network.latency(self.source, self.target), self._last_arrival)
        self._last_arrival = arrival
        loop.call_in_world(arrival, self._arrive, message)

    def _arrive(self, message: Any) -> None:
        network = self._network
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


class Endpoint:
    """Implements cluster_image.network.Network for one process."""

    def __init__(self, network: SimulatedNetwork, process: Process, host: Host, role: wire.Listener) -> None:
        self.process = process
        self.handler: Handler | None = None
        self.served = wire.SUPPORTED[role]
        self._network = network
        self._host = host
        self.opened: dict[_Client, None] = {}
        self.accepted: dict[_Served, None] = {}

    @property
    def host(self) -> str:
        return self._host.name

    async def connect(self, address: Address, *, client_id: str, timeout: float) -> Connection:
        network = self._network
        loop = network.loop
        answer: asyncio.Future[_Client] = loop.create_future()

        def try_to_open() -> None:
            """A SYN arrives, and what comes back sets out."""
            if answer.done():
                return
            there = network.hosts.get(address.host)
            if there is None:
                loop.call_in_world(loop.time(), refuse, f"{address}: unknown host")
                return
            if not network.passes(self.host, address.host):
                network.drop(self.host, address.host)
                return
            if network.is_cut(address.host, self.host):
                network.drop(address.host, self.host)
                return
            back = loop.time() + network.latency(address.host, self.host)
            listener = there.listeners.get(address.port)
            if listener is None:
                loop.call_in_world(back, refuse, f"{address}: connection refused")
            else:
                loop.call_in_world(back, establish, listener)

        def refuse(reason: str) -> None:
            if not answer.done():
                answer.set_exception(ConnectionRefusedError(reason))

        def establish(listener: Endpoint) -> None:
            if answer.done() or not self.process.alive or not listener.process.alive:
                return
            client = _Client(network, self, client_id)
            served = _Served(network, listener, self.host, client_id)
            client.out, served.out = Pipe(network, client, served), Pipe(network, served, client)
            answer.set_result(client)

        for retry in _SYN_RETRIES_S:
            if retry < timeout:
                arrival = loop.local_time() + retry + network.latency(self.host, address.host)
                loop.call_in_world(arrival, try_to_open)
        async with asyncio.timeout(timeout):
            return await answer

    async def listen(self, address: Address, handler: Handler) -> None:
        if address.port in self._host.listeners:
            raise OSError(f"{address}: address already in use")
        self.handler = handler
        self._host.listeners[address.port] = self

    async def close(self) -> None:
        """Stop listening, close every connection and cancel the handlers that are still running."""
        self.stop_listening()
        for connection in list(self.opened):
            connection.close()
        accepted = list(self.accepted)
        for served in accepted:
            served.close()
        await asyncio.gather(*(served.stopped() for served in accepted))

    def stop_listening(self) -> None:
        for port in [port for port, listener in self._host.listeners.items() if listener is self]:
            del self._host.listeners[port]

    def open_ends(self) -> list[_End]:
        return [*self.opened, *self.accepted]


class _Client:
    """The end that opened a connection. Requests may overlap: they are sent at once and answered in order."""

    out: Pipe

    def __init__(self, network: SimulatedNetwork, endpoint: Endpoint, client_id: str) -> None:
        self.process = endpoint.process
        self.host = endpoint.host
        self._network = network
        self._endpoint = endpoint
        self._client_id = client_id
        self._pending: deque[tuple[Any, asyncio.Future[Entity]]] = deque()
        self._closed = False
        endpoint.opened[self] = None

    @property
    def closed(self) -> bool:
        return self._closed

    async def request(self, entity: Entity, *, timeout: float) -> Entity:
        """See network.Connection. A Produce request with acks=0 returns None once it is sent."""
        if self._closed:
            raise ConnectionError("the connection is closed")
        message = entity
        if self._network.encode:
            message = wire.encode_request(entity, 0, self._client_id)
        if not wire.expects_response(entity):
            _send(self, message)
            return None
        loop = self._network.loop
        response: asyncio.Future[Entity] = loop.create_future()
        self._pending.append((entity, response))
        timer = loop.call_later(timeout, self._time_out, response)
        _send(self, message)
        try:
            return await response
        finally:
            timer.cancel()

    def _time_out(self, response: asyncio.Future[Entity]) -> None:
        if not response.done():
            response.set_exception(TimeoutError("no response in time"))
            self._end("another request on this connection timed out")

    def receive(self, message: Any) -> None:
        """What arrived, in the world's time; whoever awaits it goes on when its process does."""
        if self._closed or not self.process.alive:
            if not isinstance(message, _Close):
                self.out.send(RESET)
            return
        if isinstance(message, _Close):
            self.lost("connection lost: closed by peer")
            return
        request, response = self._pending.popleft()
        if self._network.encode:
            message = wire.decode_response(message[4:], request.__api_key__, request.__version__)
        if not response.done():  # else its caller was cancelled
            response.set_result(message)

    def close(self) -> None:
        self._end("connection closed")

    def lost(self, reason: str) -> None:
        """The other end is gone, or the connection itself."""
        self._fail(reason)

    def _end(self, reason: str) -> None:
        if not self._closed:
            _send(self, CLOSE)
        self._fail(reason)

    def _fail(self, reason: str) -> None:
        if not self._closed:
            self._closed = True
            del self._endpoint.opened[self]
        pending, self._pending = self._pending, deque()
        for _, response in pending:
            if not response.done():
                response.set_exception(ConnectionError(reason))


class _Served:
    """The end that was accepted: one handler call at a time, responses in order, as in tcp.py."""

    out: Pipe

    def __init__(self, network: SimulatedNetwork, endpoint: Endpoint, peer: str, client_id: str) -> None:
        self.process = endpoint.process
        self.host = endpoint.host
        self._network = network
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
            loop = self._network.loop
            self._serving = loop.create_task(self._serve(), context=self.process.context.copy())

    async def _serve(self) -> None:
        handler = self._endpoint.handler
        assert handler is not None
        try:
            while self._requests:
                request = self._requests.popleft()
                if self._network.encode:
                    _, request = wire.decode_request(request[4:], self._endpoint.served)
                response = await handler(request, self._peer)
                if response is not None and not self._closed:
                    _send(self, wire.encode_response(response, 0) if self._network.encode else response)
        except ConnectionError as error:  # the handler's way to close this connection and say why
            log.info("connection from %s closed: %s", self._peer.host, error)
            self._end()
        except Exception:
            log.exception("request from %s failed: connection closed", self._peer.host)
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
            _send(self, CLOSE)
        self.lost("closed here")

    def close(self) -> None:
        self._end()
        if self._serving is not None:
            self._serving.cancel()

    async def stopped(self) -> None:
        if self._serving is not None:
            await asyncio.wait([self._serving])


_End = _Client | _Served


def _send(end: _End, message: Any) -> None:
    """What its process sends; its host speaks for itself (CLOSE)."""
    if not end.process.alive:
        raise ProcessDied
    end.out.send(message)
