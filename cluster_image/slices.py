"""Long loops over what a request names, in slices: between them the event loop does what else there is to do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Final, TypeVar

T = TypeVar("T")

#: Each takes some tens of microseconds, so that a slice takes about a millisecond.
SLICE: Final = 32


class Pauses:
    """For loops within loops."""

    def __init__(self) -> None:
        self._since = 0

    async def after(self, steps: int) -> None:
        """So many more have been taken."""
        self._since += steps
        if self._since >= SLICE:
            self._since = 0
            await asyncio.sleep(0)


def in_slices(items: Iterable[T]) -> AsyncIterator[T]:
    """All of them, as they are now."""
    return _InSlices(list(items))


class _InSlices(AsyncIterator[T]):
    """Not an async generator: the event loop keeps a record of each of those, which takes longer than a few items."""

    def __init__(self, items: list[T]) -> None:
        self._items = iter(items)
        self._since = 0

    async def __anext__(self) -> T:
        if self._since == SLICE:
            self._since = 0
            await asyncio.sleep(0)
        self._since += 1
        for item in self._items:
            return item
        raise StopAsyncIteration
