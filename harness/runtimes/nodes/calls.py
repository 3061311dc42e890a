"""Blocking calls from asyncio that come to their end whatever becomes of whoever awaits them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class Calls:
    """Work that comes to its end even if whoever awaits it is cancelled: half a power cut cannot be undone, and a
    container that a thread is still making would be missed by a clean-up. settle() waits for all of it."""

    def __init__(self) -> None:
        self._under_way: set[asyncio.Task[Any]] = set()

    async def __call__(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """A blocking call, to the engine say, in a thread."""
        return await self.finish(asyncio.to_thread(function, *args, **kwargs))

    async def finish(self, work: Coroutine[Any, Any, T]) -> T:
        task = asyncio.ensure_future(work)
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        # Whoever awaited it may have been cancelled: then nobody asks what became of it, and nobody need be told.
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        return await asyncio.shield(task)

    async def settle(self) -> None:
        while self._under_way:
            await asyncio.gather(*self._under_way, return_exceptions=True)
