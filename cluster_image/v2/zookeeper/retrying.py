"""A client whose calls wait for a connection and are made again, however long that takes and in whatever session: as
those of the ZkClient do that brokers of this generation used (its retryUntilConnected).

So what a leader writes that was paused or cut off comes through in the end, also when it leads no longer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from copy import copy
from typing import Final, TypeVar

from . import (
    ConnectionLoss,
    NodeExists,
    NoNode,
    Operation,
    SessionExpired,
    SessionState,
    Stat,
    Watcher,
    ZooKeeper,
)
from .delegating import DelegatingZooKeeper
from .fenced import FencedZooKeeper

T = TypeVar("T")
#: Between a call that failed and the next, while there is a connection.
_PAUSE_S: Final = 0.01


class RetryingZooKeeper(DelegatingZooKeeper):
    """No call raises ConnectionLoss or SessionExpired, but for multi()."""

    def __init__(self, client: ZooKeeper) -> None:
        super().__init__(client)
        self._connected = asyncio.Event()
        client.add_listener(self._hear)

    def _hear(self, state: SessionState) -> None:
        if state is SessionState.CONNECTED:
            self._connected.set()
        else:
            self._connected.clear()

    async def _retried(self, call: Callable[[], Awaitable[T]], settled: Callable[[Exception], Awaitable[T]]) -> T:
        """settled: what a refusal means after an attempt of which nobody knows what became of it; raises it again if
        that is no consequence of it."""
        unknown = False
        while True:
            try:
                return await call()
            except (ConnectionLoss, SessionExpired) as error:
                unknown |= isinstance(error, ConnectionLoss)
            except (NodeExists, NoNode) as error:
                if not unknown:
                    raise
                return await settled(error)
            await asyncio.sleep(_PAUSE_S)
            await self._connected.wait()

    async def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequence: bool = False) -> str:
        """What comes with a number may be made twice."""

        async def settled(error: Exception) -> str:
            if isinstance(error, NodeExists) and ephemeral:
                found = await self.exists(path)
                if found is not None and found.owner == self.session:
                    return path
            raise error

        return await self._retried(
            lambda: self._client.create(path, data, ephemeral=ephemeral, sequence=sequence), settled
        )

    async def get(self, path: str, watch: Watcher | None = None) -> tuple[bytes, Stat]:
        return await self._retried(lambda: self._client.get(path, watch), _raised)

    async def exists(self, path: str, watch: Watcher | None = None) -> Stat | None:
        return await self._retried(lambda: self._client.exists(path, watch), _raised)

    async def children(self, path: str, watch: Watcher | None = None) -> Sequence[str]:
        return await self._retried(lambda: self._client.children(path, watch), _raised)

    async def set(self, path: str, data: bytes, version: int = -1) -> Stat:
        """Of one version, a write that was made and of which nobody heard is refused the second time."""
        return await self._retried(lambda: self._client.set(path, data, version), _raised)

    async def delete(self, path: str, version: int = -1) -> None:
        async def settled(error: Exception) -> None:
            if not isinstance(error, NoNode):
                raise error

        await self._retried(lambda: self._client.delete(path, version), settled)

    async def multi(self, operations: Sequence[Operation]) -> Sequence[str | Stat | None]:
        return await self._client.multi(operations)

    def fenced(self, fence: str) -> RetryingZooKeeper:
        """The same client, which writes as long as that node is there; then its writes raise Fenced."""
        fenced = copy(self)
        fenced._client = FencedZooKeeper(self._client, fence)
        return fenced


async def _raised(error: Exception) -> T:
    raise error
