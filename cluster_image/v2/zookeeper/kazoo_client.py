"""A client of Apache ZooKeeper: kazoo, whose threads stay behind this module."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from queue import Queue
from typing import Any, Final

from kazoo import exceptions
from kazoo.client import KazooClient, KazooState, TransactionRequest
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.states import EventType as KazooEventType
from kazoo.protocol.states import WatchedEvent, ZnodeStat
from kazoo.retry import KazooRetry

from cluster_image.network import Address

from . import (
    BadVersion,
    Check,
    ConnectionLoss,
    Create,
    Delete,
    Event,
    EventType,
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NotEmpty,
    NotTried,
    Operation,
    SessionExpired,
    SessionState,
    SetData,
    Stat,
    Watcher,
    ZooKeeper,
    ZooKeeperError,
)

_ERRORS: Final[Sequence[tuple[type[Exception], type[ZooKeeperError]]]] = (
    (exceptions.NoNodeError, NoNode),
    (exceptions.NodeExistsError, NodeExists),
    (exceptions.BadVersionError, BadVersion),
    (exceptions.NotEmptyError, NotEmpty),
    (exceptions.NoChildrenForEphemeralsError, NoChildrenForEphemerals),
    (exceptions.RuntimeInconsistency, NotTried),
    (exceptions.RolledBackError, NotTried),
    (exceptions.SessionExpiredError, SessionExpired),  # also what kazoo says once it is closed
)
_STATES: Final = {
    KazooState.CONNECTED: SessionState.CONNECTED,
    KazooState.SUSPENDED: SessionState.SUSPENDED,
    KazooState.LOST: SessionState.EXPIRED,
}
_EVENTS: Final = {
    KazooEventType.CREATED: EventType.CREATED,
    KazooEventType.CHANGED: EventType.CHANGED,
    KazooEventType.DELETED: EventType.DELETED,
    KazooEventType.CHILD: EventType.CHILD,
    KazooEventType.NONE: EventType.LOST,
}
#: Seconds between attempts to connect: kazoo's own grow to a minute.
_RETRY_S: Final = 0.05
_LONGEST_RETRY_S: Final = 0.5


class _OneQueue(SequentialThreadingHandler):  # type: ignore[misc]
    """Hands on events and answers in the order in which they came. Kazoo's own handler has a thread for each of the
    two, so that an answer may overtake an event that came before it."""

    def __init__(self) -> None:
        super().__init__()
        self.completion_queue = _PassedOn(self.callback_queue)


class _PassedOn(Queue[Any]):
    """What is put here is put there; all but the mark by which a handler ends the thread that takes from here."""

    def __init__(self, there: Queue[Any]) -> None:
        super().__init__()
        self._there = there

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        if callable(item):
            self._there.put(item)
        else:
            super().put(item, block, timeout)


class KazooZooKeeper(ZooKeeper):
    """hosts: of all servers. session_timeout: seconds."""

    def __init__(self, hosts: Sequence[Address], session_timeout: float) -> None:
        self._hosts = ",".join(map(str, hosts))
        self._session_timeout = session_timeout
        self._listeners: list[Callable[[SessionState], None]] = []
        self._connected = asyncio.Event()
        self._state = SessionState.SUSPENDED
        self._session = 0
        self._handler = _OneQueue()
        self._client: Any = None
        self._closed = False

    @property
    def state(self) -> SessionState:
        return self._state

    @property
    def session(self) -> int:
        return self._session

    def add_listener(self, listener: Callable[[SessionState], None]) -> None:
        self._listeners.append(listener)

    async def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._client = KazooClient(
            self._hosts,
            timeout=self._session_timeout,
            handler=self._handler,
            connection_retry=KazooRetry(max_tries=-1, delay=_RETRY_S, backoff=2, max_delay=_LONGEST_RETRY_S),
        )
        self._client.add_listener(self._hear)
        self._client.start_async()
        await self._connected.wait()

    async def close(self) -> None:
        client, self._closed = self._client, True
        if client is None:
            return  # it was never started
        await asyncio.to_thread(client.stop)
        await asyncio.to_thread(client.close)

    # -- what is heard on threads of kazoo's ------------------------------------------------------------------

    def _hear(self, state: Any) -> None:
        """In turn with answers and events."""
        session = self._client.client_id[0] if state == KazooState.CONNECTED and self._client.client_id else 0
        self._handler.completion_queue.put(partial(self._say, self._change, _STATES[state], session))

    def _say(self, what: Callable[..., None], *arguments: Any) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(what, *arguments)

    # -- and here ---------------------------------------------------------------------------------------------

    def _change(self, state: SessionState, session: int) -> None:
        self._state = state
        if state is SessionState.CONNECTED:
            self._session = session
            self._connected.set()
        for listener in self._listeners:
            listener(state)

    def _watcher(self, watch: Watcher | None, path: str) -> Callable[[WatchedEvent], None] | None:
        if watch is None:
            return None

        def hear(event: Event) -> None:
            if not self._closed:
                watch(event)

        def tell(event: WatchedEvent) -> None:
            self._say(hear, Event(_EVENTS[event.type], path))

        return tell

    async def _ask(self, begin: Callable[[], Any]) -> Any:
        """begin: makes one of kazoo's calls, and returns what will have its result."""
        if self._state is not SessionState.CONNECTED:
            raise ConnectionLoss("not connected")
        answer: asyncio.Future[Any] = self._loop.create_future()

        def settle(result: Any, error: BaseException | None) -> None:
            if answer.done():
                return
            if error is not None:
                answer.set_exception(error)
            else:
                answer.set_result(result)

        def hear(result: Any) -> None:
            self._say(settle, result.value, result.exception)

        begin().rawlink(hear)
        try:
            return await answer
        except exceptions.KazooException as error:
            raise _error(error) from None

    async def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequence: bool = False) -> str:
        begin = partial(self._client.create_async, path, data, ephemeral=ephemeral, sequence=sequence)
        created: str = await self._ask(begin)
        return created

    async def get(self, path: str, watch: Watcher | None = None) -> tuple[bytes, Stat]:
        data, stat = await self._ask(partial(self._client.get_async, path, self._watcher(watch, path)))
        return data, _stat(stat)

    async def exists(self, path: str, watch: Watcher | None = None) -> Stat | None:
        stat = await self._ask(partial(self._client.exists_async, path, self._watcher(watch, path)))
        return None if stat is None else _stat(stat)

    async def children(self, path: str, watch: Watcher | None = None) -> Sequence[str]:
        return sorted(await self._ask(partial(self._client.get_children_async, path, self._watcher(watch, path))))

    async def set(self, path: str, data: bytes, version: int = -1) -> Stat:
        return _stat(await self._ask(partial(self._client.set_async, path, data, version)))

    async def delete(self, path: str, version: int = -1) -> None:
        await self._ask(partial(self._client.delete_async, path, version))

    async def multi(self, operations: Sequence[Operation]) -> Sequence[str | Stat | None]:
        results: Sequence[Any] = await self._ask(partial(self._begin_multi, operations))
        failed = [_error(each) for each in results if isinstance(each, Exception)]
        if failed:
            raise next((each for each in failed if not isinstance(each, NotTried)), failed[0])
        return [_result(each, result) for each, result in zip(operations, results, strict=True)]

    def _begin_multi(self, operations: Sequence[Operation]) -> Any:
        transaction: TransactionRequest = self._client.transaction()
        for each in operations:
            match each:
                case Create(path, data, ephemeral, sequence):
                    transaction.create(path, data, ephemeral=ephemeral, sequence=sequence)
                case SetData(path, data, version):
                    transaction.set_data(path, data, version)
                case Delete(path, version):
                    transaction.delete(path, version)
                case Check(path, version):
                    transaction.check(path, version)
        return transaction.commit_async()


def _error(error: BaseException) -> ZooKeeperError:
    """All that is not known to have failed may have been carried out."""
    kind = next((ours for theirs, ours in _ERRORS if isinstance(error, theirs)), ConnectionLoss)
    return kind(*error.args)


def _stat(stat: ZnodeStat) -> Stat:
    return Stat(stat.czxid, stat.mzxid, stat.pzxid, stat.version, stat.cversion, stat.ephemeralOwner, stat.numChildren)


def _result(operation: Operation, result: Any) -> str | Stat | None:
    match operation:
        case Create():
            return str(result)
        case SetData():
            return _stat(result)
        case _:
            return None
