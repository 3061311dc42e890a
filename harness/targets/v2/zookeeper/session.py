"""A client of the model: what kazoo_client.py is to Apache ZooKeeper."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from random import Random
from typing import Any, Final

from cluster_image.network import Address, Connection, Network
from cluster_image.v2.zookeeper import (
    ConnectionLoss,
    Create,
    Delete,
    Event,
    EventType,
    Operation,
    SessionExpired,
    SessionState,
    SetData,
    Stat,
    Watcher,
    ZooKeeper,
)

from . import messages
from .messages import Answer, Asked, Call, Connect, Connected, Numbered
from .server import foreign

log = logging.getLogger("cluster_image.v2.zookeeper")

#: Seconds between attempts to connect.
_RETRY_S: Final = (0.05, 0.5)


class _Connection:
    """To one server: a session's calls, and its wait for events."""

    def __init__(self, calls: Connection, events: Connection, connected: Connected) -> None:
        self.calls = calls
        self.events = events
        self.owner = connected.owner
        self.called = 0
        self.answered = 0  # calls, without a gap
        self._early: set[int] = set()  # calls whose answers were taken before those of calls before them
        self.last_event = 0  # that has arrived
        self.held: deque[Numbered] = deque()  # events that wait for the answers before them

    def taken(self, number: int) -> None:
        """The answer to the call of this number, from 1. Answers come in the order of their calls; whoever waits for
        them may run in another."""
        self._early.add(number)
        while self.answered + 1 in self._early:
            self.answered += 1
            self._early.remove(self.answered)

    def close(self) -> None:
        self.calls.close()
        self.events.close()


class ModelZooKeeper(ZooKeeper):
    """servers: of all. session_timeout: seconds."""

    def __init__(self, servers: Sequence[Address], network: Network, random: Random, session_timeout: float) -> None:
        self._servers = servers
        self._network = network
        self._random = random
        self._session_timeout = session_timeout
        #: A server that says nothing for so long is given up.
        self._patience = session_timeout * 2 / 3
        self._connect_timeout = session_timeout / len(servers)
        self._state = SessionState.SUSPENDED
        self._session = 0
        self._expired = False
        self._seen = 0  # the last transaction
        self._connection: _Connection | None = None
        self._connected = asyncio.Event()
        self._listeners: list[Callable[[SessionState], None]] = []
        self._data_watchers: dict[str, list[Watcher]] = defaultdict(list)
        self._child_watchers: dict[str, list[Watcher]] = defaultdict(list)
        self._task: asyncio.Task[None] | None = None

    @property
    def state(self) -> SessionState:
        return self._state

    @property
    def session(self) -> int:
        return self._session

    def add_listener(self, listener: Callable[[SessionState], None]) -> None:
        self._listeners.append(listener)

    async def start(self) -> None:
        self._task = asyncio.create_task(self._run())
        await self._connected.wait()

    async def close(self) -> None:
        self._data_watchers.clear()
        self._child_watchers.clear()
        if self._task is not None:
            self._task.cancel()
        with suppress(ConnectionLoss, SessionExpired):  # it will expire
            await self._call(messages.Close())
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    # -- the session ------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        """Connect, wait for events until the connection is lost, and again."""
        while True:
            connection = await self._connect()
            if connection is None:
                await asyncio.sleep(self._random.uniform(*_RETRY_S))
                continue
            while self._connection is connection:
                try:
                    await self._ask(connection, connection.events, messages.Wait())
                except ConnectionLoss:
                    break

    async def _connect(self) -> _Connection | None:
        address = self._random.choice(self._servers)
        opened: list[Connection] = []
        try:
            for _ in range(2):
                opened.append(
                    await self._network.connect(address, client_id="zookeeper", timeout=self._connect_timeout)
                )
            request = Connect(self._session_to_go_on, round(self._session_timeout * 1000), self._seen)
            answer = (await opened[0].request(foreign(request), timeout=self._patience)).content
        except (ConnectionError, TimeoutError):
            for each in opened:
                each.close()
            return None
        if isinstance(answer, Answer):
            for each in opened:
                each.close()
            self._expired = True
            self._change(SessionState.EXPIRED)
            return None
        self._session, self._expired = answer.session, False
        self._seen = max(self._seen, answer.zxid)
        connection = self._connection = _Connection(opened[0], opened[1], answer)
        self._connected.set()
        self._change(SessionState.CONNECTED)
        return connection

    @property
    def _session_to_go_on(self) -> int:
        return 0 if self._expired else self._session

    def _change(self, state: SessionState) -> None:
        self._state = state
        for listener in self._listeners:
            listener(state)

    def _lost(self, connection: _Connection) -> None:
        connection.close()
        if self._connection is not connection:
            return
        self._connection = None
        watchers = [(path, each) for path, found in self._data_watchers.items() for each in found]
        watchers += [(path, each) for path, found in self._child_watchers.items() for each in found]
        self._data_watchers.clear()
        self._child_watchers.clear()
        self._change(SessionState.SUSPENDED)
        for path, watcher in watchers:
            watcher(Event(EventType.LOST, path))

    # -- asking -----------------------------------------------------------------------------------------------

    async def _call(self, asked: Asked, watch: Watcher | None = None) -> Any:
        connection = self._connection
        if connection is None:
            raise ConnectionLoss("not connected")
        # Whoever asks may be cancelled: the answer is taken all the same, as others wait for their turn after it.
        loop = asyncio.get_running_loop()  # none any more, where this is a clean-up at the end of a simulation
        task = loop.create_task(self._ask(connection, connection.calls, asked, watch))
        task.add_done_callback(_retrieve)
        return await asyncio.shield(task)

    async def _ask(self, connection: _Connection, by: Connection, asked: Asked, watch: Watcher | None = None) -> Any:
        request = foreign(Call(self._session, connection.owner, connection.last_event, asked))
        if by is connection.calls:
            connection.called += 1
        number = connection.called
        try:
            answer: Answer = (await by.request(request, timeout=self._patience)).content
        except (ConnectionError, TimeoutError) as error:
            self._lost(connection)
            raise ConnectionLoss(str(error)) from None
        if self._connection is not connection:
            raise ConnectionLoss("the connection was given up")
        self._seen = max(self._seen, answer.zxid)
        self._take(connection, answer)
        if by is connection.calls:
            if watch is not None and (answer.error is None or isinstance(asked, messages.Exists)):
                watchers = self._child_watchers if isinstance(asked, messages.Children) else self._data_watchers
                watchers[asked.path].append(watch)  # type: ignore[union-attr]
            connection.taken(number)
        self._fire(connection)
        if isinstance(answer.error, SessionExpired):
            self._lost(connection)  # whoever connects again is told what has become of the session
        if answer.error is not None:
            raise answer.error
        return answer.result

    def _take(self, connection: _Connection, answer: Answer) -> None:
        for each in answer.events:
            if each.number > connection.last_event:
                connection.last_event = each.number
                connection.held.append(each)
        self._fire(connection)

    def _fire(self, connection: _Connection) -> None:
        """In their order, what came before nothing that is still to be answered."""
        while connection.held and connection.held[0].after <= connection.answered:
            event = connection.held.popleft().event
            fired = []
            if event.type is not EventType.CHILD:
                fired += self._data_watchers.pop(event.path, [])
            if event.type in (EventType.CHILD, EventType.DELETED):
                fired += self._child_watchers.pop(event.path, [])
            for watcher in fired:
                watcher(event)

    # -- what may be asked ------------------------------------------------------------------------------------

    async def _write(self, *operations: Operation) -> Sequence[str | Stat | None]:
        results: Sequence[str | Stat | None] = await self._call(messages.Write(operations))
        return results

    async def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequence: bool = False) -> str:
        (created,) = await self._write(Create(path, data, ephemeral, sequence))
        assert isinstance(created, str)
        return created

    async def set(self, path: str, data: bytes, version: int = -1) -> Stat:
        (stat,) = await self._write(SetData(path, data, version))
        assert isinstance(stat, Stat)
        return stat

    async def delete(self, path: str, version: int = -1) -> None:
        await self._write(Delete(path, version))

    async def multi(self, operations: Sequence[Operation]) -> Sequence[str | Stat | None]:
        return await self._write(*operations)

    async def get(self, path: str, watch: Watcher | None = None) -> tuple[bytes, Stat]:
        found: tuple[bytes, Stat] = await self._call(messages.Get(path, watch is not None), watch)
        return found

    async def exists(self, path: str, watch: Watcher | None = None) -> Stat | None:
        found: Stat | None = await self._call(messages.Exists(path, watch is not None), watch)
        return found

    async def children(self, path: str, watch: Watcher | None = None) -> Sequence[str]:
        found: Sequence[str] = await self._call(messages.Children(path, watch is not None), watch)
        return found


def _retrieve(task: asyncio.Task[Any]) -> None:
    """What went wrong was told to whoever asked, if they still wait."""
    if not task.cancelled():
        task.exception()
