"""Where the contract of ZooKeeper is tried: three servers of the model in the simulator, or of Apache ZooKeeper."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from random import Random
from typing import Any, Final, Protocol, TypeVar

from cluster_image.network import Address
from cluster_image.v2.zookeeper import ZooKeeper
from cluster_image.v2.zookeeper.kazoo_client import KazooZooKeeper
from harness.runtimes.simulation.disk.disk import SimulatedDisk
from harness.runtimes.simulation.loop import Process, VirtualLoop
from harness.runtimes.simulation.network.network import SimulatedNetwork
from harness.targets.v2.zookeeper.server import ZooKeeperServer
from harness.targets.v2.zookeeper.session import ModelZooKeeper
from tests.clusters.real_zookeeper import RealZooKeeper

T = TypeVar("T")
#: Seconds.
SESSION_S: Final = 2.0
TEST_S: Final = 60.0


class World(Protocol):
    """A cluster of three servers. `base`: a node of this test's own, which is there."""

    base: str

    def run(self, scenario: Callable[[Any], Coroutine[Any, Any, T]]) -> T: ...

    def client(self) -> ZooKeeper:
        """A new one, not started."""
        ...

    async def forget(self, client: ZooKeeper) -> None:
        """It is closed, and not asked for again."""

    async def disconnect(self, client: ZooKeeper) -> None:
        """Its connection breaks."""

    async def isolate(self, client: ZooKeeper) -> None:
        """It reaches no server from now on."""

    async def reconnect(self, client: ZooKeeper) -> None: ...

    async def kill_leader(self) -> None: ...

    async def start_all(self) -> None:
        """Those that were killed."""


class Model(World):
    def __init__(self, seed: int = 1) -> None:
        self.base = "/test"
        self.loop = VirtualLoop()
        self._network = SimulatedNetwork(self.loop, seed)
        self._seed = seed
        self._addresses = {n: Address(f"zookeeper-{n}", 2181) for n in (1, 2, 3)}
        self._disks = {n: SimulatedDisk(Random(f"{seed}/{n}")) for n in self._addresses}
        self.servers: dict[int, tuple[Process, ZooKeeperServer]] = {}
        self._starts = 0
        self._made = 0  # clients
        self._clients: dict[ZooKeeper, str] = {}

    def run(self, scenario: Callable[[Any], Coroutine[Any, Any, T]]) -> T:
        async def main() -> T:
            await self.start_all()
            first = self.client()
            await first.start()
            await first.create(self.base)
            async with asyncio.timeout(TEST_S):
                result = await scenario(self)
            await first.close()
            return result

        try:
            return self.loop.run_until_complete(self.loop.create_task(main()))
        finally:
            self.loop.bury()

    async def start_all(self) -> None:
        for number in [n for n in self._addresses if n not in self.servers]:
            self._starts += 1
            process = self.loop.new_process(f"zookeeper-{number}")
            server = ZooKeeperServer(
                number,
                self._addresses,
                self._disks[number].mount(lambda p=process: p.alive, lambda *_: None, lambda _: None),
                self._network.endpoint(process, f"zookeeper-{number}"),
                Random(f"{self._seed}/{number}/{self._starts}"),
                _fail,
                wall_clock=self.loop.time,
            )
            self.servers[number] = (process, server)
            self.loop.spawn(process, server.run(asyncio.Event()))

    def client(self) -> ZooKeeper:
        self._made += 1
        host = f"client-{self._made}"
        network = self._network.endpoint(self.loop.new_process(host), host)
        client = ModelZooKeeper(list(self._addresses.values()), network, Random(f"{self._seed}/{host}"), SESSION_S)
        self._clients[client] = host
        return client

    async def forget(self, client: ZooKeeper) -> None:
        del self._clients[client]

    async def disconnect(self, client: ZooKeeper) -> None:
        self._network.reset(self._clients[client])

    async def isolate(self, client: ZooKeeper) -> None:
        host = self._clients[client]
        others = [address.host for address in self._addresses.values()]
        self._network.cut(host, [(a, b) for other in others for a, b in ((host, other), (other, host))])

    async def reconnect(self, client: ZooKeeper) -> None:
        self._network.mend(self._clients[client])

    async def kill_leader(self) -> None:
        number = next(n for n, (_, server) in self.servers.items() if server.leads)
        process, _ = self.servers.pop(number)
        self.loop.kill(process)
        self._network.process_ended(process)


def _fail(error: BaseException) -> None:
    raise error


class Real(World):
    """zookeeper: runs, and goes on running."""

    _tests = 0

    def __init__(self, zookeeper: RealZooKeeper, session: float = SESSION_S) -> None:
        """session: seconds, of its clients."""
        Real._tests += 1
        self.base = f"/test-{Real._tests}"
        self._zookeeper = zookeeper
        self._session = session
        self._clients: dict[ZooKeeper, list[Link]] = {}
        self._killed: list[int] = []

    def run(self, scenario: Callable[[Any], Coroutine[Any, Any, T]]) -> T:
        async def main() -> T:
            first = self.client()
            await first.start()
            await first.create(self.base)
            try:
                async with asyncio.timeout(TEST_S):
                    return await scenario(self)
            finally:
                await self.close()

        return asyncio.run(main())

    async def close(self) -> None:
        await self.start_all()
        for client, links in self._clients.items():
            for link in links:
                await link.mend()
            with suppress(Exception):
                await client.close()
            for link in links:
                await link.close()

    def client(self) -> ZooKeeper:
        links = [Link(address) for address in self._zookeeper.addresses.values()]
        client = _Linked(links, self._session)
        self._clients[client] = links
        return client

    async def forget(self, client: ZooKeeper) -> None:
        for link in self._clients.pop(client):
            await link.close()

    async def disconnect(self, client: ZooKeeper) -> None:
        await self.isolate(client)
        await self.reconnect(client)

    async def isolate(self, client: ZooKeeper) -> None:
        for link in self._clients[client]:
            await link.cut()

    async def reconnect(self, client: ZooKeeper) -> None:
        for link in self._clients[client]:
            await link.mend()

    async def kill_leader(self) -> None:
        number = await asyncio.to_thread(self._zookeeper.leader)
        await asyncio.to_thread(self._zookeeper.kill, number)
        self._killed.append(number)

    async def start_all(self) -> None:
        while self._killed:
            await asyncio.to_thread(self._zookeeper.start, self._killed.pop())


class _Linked(KazooZooKeeper):
    """By links that can be cut."""

    def __init__(self, links: list[Link], session: float) -> None:
        self._links = links
        self._session_s = session

    async def start(self) -> None:
        addresses = [await link.listen() for link in self._links]
        super().__init__(addresses, self._session_s)
        await super().start()


class Link:
    """Passes a client's connections on to a server, until it is cut: then nobody hears anything any more."""

    def __init__(self, server: Address) -> None:
        self._server = server
        self._cut = asyncio.Event()
        self._listening: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._accepting: set[asyncio.Task[Any]] = set()

    async def listen(self) -> Address:
        self._listening = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return Address(*self._listening.sockets[0].getsockname())

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepting = asyncio.current_task()
        assert accepting is not None
        self._accepting.add(accepting)
        accepting.add_done_callback(self._accepting.discard)
        try:
            if self._cut.is_set():
                return
            there_reader, there_writer = await asyncio.open_connection(*self._server)
            task = asyncio.create_task(self._both(reader, writer, there_reader, there_writer))
            self._tasks.add(task)
            await asyncio.wait((task,))
            self._tasks.discard(task)
            there_writer.close()
        except OSError:
            pass
        finally:
            writer.close()

    async def _both(self, reader: Any, writer: Any, there_reader: Any, there_writer: Any) -> None:
        ways = [self._pass(reader, there_writer), self._pass(there_reader, writer)]
        tasks = [asyncio.create_task(way) for way in ways]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()

    @staticmethod
    async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(65536):
                writer.write(data)

    async def cut(self) -> None:
        self._cut.set()
        for task in list(self._tasks):
            task.cancel()

    async def mend(self) -> None:
        self._cut.clear()

    async def close(self) -> None:
        """Whatever was accepted has ended by then: a loop that ends earlier leaves tasks that nobody awaited."""
        if self._listening is not None:
            self._listening.close()
        await self.cut()
        if self._accepting:
            await asyncio.wait(self._accepting, timeout=5)


Scenario = Callable[[World], Awaitable[None]]
