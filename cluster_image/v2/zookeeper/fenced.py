"""A client that writes only as long as a node is there: a lock's, which goes with the session of whoever holds it.

Who is frozen for longer than its session lasts does not know that it has lost its lock, and goes on where it stood. So
each of its writes asks for the node, in one transaction with it (as Apache Kafka's controllers ask for their epoch,
KAFKA-6082).
"""

from __future__ import annotations

from collections.abc import Sequence

from . import (
    Check,
    Create,
    Delete,
    NoNode,
    Operation,
    SetData,
    Stat,
    Watcher,
    ZooKeeper,
    ZooKeeperError,
)
from .delegating import DelegatingZooKeeper


class Fenced(ZooKeeperError):
    """The node that writes ask for has gone: nothing was written, and nothing will be. The message is its path."""


class FencedZooKeeper(DelegatingZooKeeper):
    """fence: the path of a node that is made once and never changed. All that writes raises Fenced, too."""

    def __init__(self, client: ZooKeeper, fence: str) -> None:
        super().__init__(client)
        self._fence = fence

    async def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequence: bool = False) -> str:
        (created,) = await self.multi([Create(path, data, ephemeral, sequence)])
        assert isinstance(created, str)
        return created

    async def get(self, path: str, watch: Watcher | None = None) -> tuple[bytes, Stat]:
        return await self._client.get(path, watch)

    async def exists(self, path: str, watch: Watcher | None = None) -> Stat | None:
        return await self._client.exists(path, watch)

    async def children(self, path: str, watch: Watcher | None = None) -> Sequence[str]:
        return await self._client.children(path, watch)

    async def set(self, path: str, data: bytes, version: int = -1) -> Stat:
        (stat,) = await self.multi([SetData(path, data, version)])
        assert isinstance(stat, Stat)
        return stat

    async def delete(self, path: str, version: int = -1) -> None:
        await self.multi([Delete(path, version)])

    async def multi(self, operations: Sequence[Operation]) -> Sequence[str | Stat | None]:
        try:
            return (await self._client.multi([Check(self._fence, 0), *operations]))[1:]
        except NoNode:
            if await self._client.exists(self._fence) is None:
                raise Fenced(self._fence) from None
            raise  # that of an operation: what is gone does not come again
