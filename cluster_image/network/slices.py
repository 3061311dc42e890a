"""Long loops over what a request names, in slices: between them the event loop does what else there is to do."""

from __future__ import annotations

import asyncio
from typing import Final

#: Each step takes some tens of microseconds, so that a slice takes about a millisecond.
SLICE: Final = 32


class Pauses:
    """Of one loop, or of loops within each other. Who loops over what may change meanwhile takes a copy."""

    def __init__(self) -> None:
        self._since = 0

    async def after(self, steps: int) -> None:
        """So many more have been taken."""
        self._since += steps
        if self._since >= SLICE:
            self._since = 0
            await asyncio.sleep(0)
