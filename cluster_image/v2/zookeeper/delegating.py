"""What wraps a client and leaves its session to it."""

from __future__ import annotations

from collections.abc import Callable

from . import SessionState, ZooKeeper


class DelegatingZooKeeper(ZooKeeper):
    def __init__(self, client: ZooKeeper) -> None:
        self._client = client

    @property
    def state(self) -> SessionState:
        return self._client.state

    @property
    def session(self) -> int:
        return self._client.session

    def add_listener(self, listener: Callable[[SessionState], None]) -> None:
        self._client.add_listener(listener)

    async def start(self) -> None:
        await self._client.start()

    async def close(self) -> None:
        await self._client.close()
