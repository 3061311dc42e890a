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


async def in_slices(items: Iterable[T]) -> AsyncIterator[T]:
    """All of them, as they are now."""
    for number, item in enumerate(list(items), 1):
        yield item
        if number % SLICE == 0:
            await asyncio.sleep(0)
