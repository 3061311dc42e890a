"""The simulated network of one run, and the implementation of cluster_image.network.Network that each process gets.

What happens to a message is what TCP would make of it. It arrives after the link's latency, never before one sent
earlier on its connection. A link that is cut holds messages up: whoever sent them learns nothing, and once the link
is mended they arrive after all, however old, unless the connection was given up meanwhile. A host without power
answers nothing; when it is back, whoever still speaks to the process that was there gets a reset. A host whose
process has ended closes its connections, and refuses new ones.

Messages are kio entities, passed on as they are. With `encode` each is encoded and decoded on its way, as tcp.py does;
but for those of other protocols (cluster_image.network.Foreign).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from random import Random
from typing import Any, Final

from cluster_image import wire
from cluster_image.network import Address, Connection, Handler, Listening, Versions
from harness.cluster import Shape
from harness.runtimes.proxy.rules import Rule
from harness.runtimes.simulation.loop import Process, VirtualLoop
from harness.runtimes.simulation.network.connections import CLOSE, AtMessage, ClientEnd, End, Pipe, ServerEnd
from harness.runtimes.simulation.network.shaping import Shaping

#: A link's own latency is this much of the network's, drawn once; and each message's this much of its link's.
LINK: Final = (0.5, 1.5)
JITTER: Final = (0.8, 1.4)
#: A packet that is lost or queued now and then: how often, and by how much it is late.
LATE: Final = 0.002
LATENESS_S: Final = (0.005, 0.2)
#: When TCP tries again to open a connection: seconds after the first attempt.
_SYN_RETRIES_S: Final = (0.0, 1.0, 3.0, 7.0)


Link = tuple[str, str]  # from host, to host


class Host:
    """A machine on the network."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.up = True
        self.power_cuts = 0
        self.listeners: dict[int, Listener] = {}


class SimulatedNetwork:
    """latency: seconds from one host to another, on average. encode: pass every message through the wire format."""

    def __init__(self, loop: VirtualLoop, seed: int | str, *, latency: float = 0.0005, encode: bool = False) -> None:
        self.loop = loop
        self._latency = latency
        self.encode = encode
        self.hosts: dict[str, Host] = {}
        #: Packets that each key's cut has dropped, by link.
        self._dropped: dict[str, dict[Link, int]] = {}
        self._seed = seed
        self._cuts: dict[str, frozenset[Link]] = {}  # by key
        self._cut: frozenset[Link] = frozenset()  # of all keys
        self._slow: dict[Link, float] = {}  # seconds added to the latency
        self._links: dict[Link, Random] = {}
        self._bases: dict[Link, float] = {}  # latency of each link
        self._endpoints: dict[Endpoint, None] = {}  # a dict, for its order
        self._holding: dict[Pipe, None] = {}  # those with something that has not got through
        self.shaping = Shaping(seed)
        self.rules: dict[str, Rule] = {}  # by key: what becomes of clients' requests
        #: A host's handler of requests has raised this.
        self.on_error: Callable[[str, Exception], None] = lambda host, error: None
        #: A host's handler has this answer for a request.
        self.on_request: Callable[[str, Any], None] = lambda host, request: None
        self.on_answer: Callable[[str, Any, Any, float], None] = lambda host, request, response, since: None
        self.at_message: dict[str, AtMessage] = {}  # by host: what strikes in one of its messages
        self.waiting: dict[Pipe, None] = {}  # those with something that waits for its turn at a rate

    def endpoint(self, process: Process, host: str, role: wire.Listener = "broker") -> Endpoint:
        """The seam of a process on that host. role: whose API versions its listeners serve."""
        endpoint = Endpoint(self, process, self.hosts.setdefault(host, Host(host)), role)
        self._endpoints[endpoint] = None
        return endpoint

    # -- faults -----------------------------------------------------------------------------------------------

    def cut(self, key: str, links: Iterable[Link]) -> None:
        """From now on exactly these links, of those that this key has cut, let nothing pass."""
        self._cuts[key] = frozenset(links)
        self._dropped.setdefault(key, {})
        self._changed()

    def mend(self, key: str) -> dict[Link, int]:
        """What this key has cut passes again. Packets that it dropped, by link."""
        self._cuts.pop(key, None)
        self._changed()
        return self._dropped.pop(key, {})

    def _changed(self) -> None:
        self._cut = frozenset().union(*self._cuts.values())
        self._try_again()

    def mend_all(self) -> None:
        for key in list(self._cuts):
            self.mend(key)
        for key in self.shaping.keys:
            self.unshape(key)

    def shape(self, key: str, links: Iterable[Link], shape: Shape) -> None:
        """From now on exactly these links, of those that this key shapes, are shaped so. Adds to what others do."""
        self.shaping.shape(key, links, shape)
        self._let_pass()

    def unshape(self, key: str) -> Mapping[Link, Mapping[str, int]]:
        """What was counted for this key, by link."""
        counted = self.shaping.unshape(key)
        self._let_pass()
        return counted

    def _let_pass(self) -> None:
        for pipe in list(self.waiting):
            if not self.shaping.limits((pipe.source, pipe.target)):
                pipe.wait_no_longer()

    def slow(self, links: Iterable[Link], seconds: float) -> None:
        """What sets out on these links from now on arrives so much later; 0: no longer. For last words, which nobody
        counts."""
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

    def has_power(self, host: str) -> bool:
        return host not in self.hosts or self.hosts[host].up

    @property
    def troubled(self) -> tuple[bool, bool]:
        """Are links cut; are some slow or lossy."""
        return bool(self._cut), bool(self._slow or self.shaping.keys)

    def leftovers(self) -> list[str]:
        """Which faults of links are in force, a clause each."""
        cuts = [f"the network is cut for {key}" for key, links in self._cuts.items() if links]
        shapes = [f"the network is shaped for {key}" for key in self.shaping.keys]
        held = [f"requests of {rule.api} are held back for {key}" for key, rule in self.rules.items()]
        slow = [f"what sets out from {source} to {target} is late" for source, target in self._slow]
        return [*cuts, *shapes, *held, *slow]

    # -- links ------------------------------------------------------------------------------------------------

    def is_cut(self, source: str, target: str) -> bool:
        return (source, target) in self._cut

    def passes(self, source: str, target: str) -> bool:
        return not self.is_cut(source, target) and self.hosts[target].up

    def drop(self, source: str, target: str) -> None:
        """Counts what does not pass, with the first whose doing that is."""
        link = (source, target)
        for key, links in self._cuts.items():
            if link in links:
                self._dropped[key][link] = self._dropped[key].get(link, 0) + 1
                return

    def latency(self, source: str, target: str) -> float:
        link = (source, target)
        random = self._links.get(link) or self.random(source, target)
        delay = self._bases[link] * random.uniform(*JITTER) + self._slow.get(link, 0.0)
        if random.random() < LATE:
            delay += random.uniform(*LATENESS_S)
        return delay + self.shaping.delay(link)

    def round_trip(self, source: str, target: str) -> float:
        """Seconds, typically, as the links are at the moment."""
        seconds = 0.0
        for link in ((source, target), (target, source)):
            self.random(*link)
            seconds += self._bases[link] * sum(JITTER) / 2 + self.shaping.typical(link, self.loop.time())
        return seconds

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


class Endpoint:
    """Implements cluster_image.network.Network for one process."""

    def __init__(self, network: SimulatedNetwork, process: Process, host: Host, role: wire.Listener) -> None:
        self.process = process
        self.served = wire.SUPPORTED[role]
        self._network = network
        self._host = host
        self.opened: dict[ClientEnd, None] = {}
        self.accepted: dict[ServerEnd, None] = {}

    @property
    def host(self) -> str:
        return self._host.name

    async def connect(self, address: Address, *, client_id: str, timeout: float) -> Connection:
        network = self._network
        loop = network.loop
        # Why not is told by its result: an exception would know this frame, which knows the future, which knows the
        # exception, and one cycle for each connection that is refused is a good part of what a run leaves behind.
        answer: asyncio.Future[ClientEnd | str | None] = loop.create_future()

        def try_to_open() -> None:
            """A SYN arrives, and what comes back sets out."""
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
            shaping = network.shaping
            if shaping.loses((self.host, address.host)) or shaping.loses((address.host, self.host)):
                return
            back = loop.time() + network.latency(address.host, self.host)
            listener = there.listeners.get(address.port)
            if listener is None:
                loop.call_in_world(back, refuse, f"{address}: connection refused")
            else:
                loop.call_in_world(back, establish, listener)

        def refuse(reason: str) -> None:
            if not answer.done():
                answer.set_result(reason)

        def establish(listener: Listener) -> None:
            if answer.done() or not self.process.alive or not listener.endpoint.process.alive:
                return
            client = ClientEnd(network, self, client_id)
            served = ServerEnd(network, listener, self.host, client_id)
            client.out, served.out = Pipe(network, client, served), Pipe(network, served, client)
            answer.set_result(client)

        def give_up() -> None:
            if not answer.done():
                answer.set_result(None)

        now, retries = loop.local_time(), [retry for retry in _SYN_RETRIES_S if retry < timeout]
        arrivals = [now + retry + network.latency(self.host, address.host) for retry in retries]
        loop.call_in_world_until(answer, arrivals, try_to_open)
        timer = loop.call_later(timeout, give_up)
        try:
            opened = await answer
        finally:
            timer.cancel()
        if opened is None:
            raise TimeoutError
        if isinstance(opened, str):
            raise ConnectionRefusedError(opened)
        return opened

    async def listen(self, address: Address, handler: Handler, served: Versions | None = None) -> Listening:
        if address.port in self._host.listeners:
            raise OSError(f"{address}: address already in use")
        listener = Listener(self, handler, self.served if served is None else served)
        self._host.listeners[address.port] = listener
        return listener

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
        for listener in [each for each in self._host.listeners.values() if each.endpoint is self]:
            self.forget(listener)

    def forget(self, listener: Listener) -> None:
        """Nobody is accepted there any more."""
        for port in [port for port, other in self._host.listeners.items() if other is listener]:
            del self._host.listeners[port]

    def open_ends(self) -> list[End]:
        return [*self.opened, *self.accepted]


class Listener:
    """Implements cluster_image.network.Listening."""

    def __init__(self, endpoint: Endpoint, handler: Handler, served: Versions) -> None:
        self.endpoint = endpoint
        self.handler = handler
        self.served = served

    async def close(self) -> None:
        self.endpoint.forget(self)
        accepted = [end for end in self.endpoint.accepted if end.listener is self]
        for served in accepted:
            served.close()
        await asyncio.gather(*(served.stopped() for served in accepted))
