"""One node of a cluster, of whichever generation of the protocol: run until it is told to stop."""

from __future__ import annotations

import asyncio
from typing import Protocol


class Node(Protocol):
    """Of one generation: kraft/node.py."""

    async def start(self) -> None:
        """Returns once it serves."""

    async def shut_down(self) -> None:
        """A controlled shutdown."""


async def run(node: Node, stop: asyncio.Event) -> None:
    """Start the node and shut it down once `stop` is set, be it before it has started."""
    starting = asyncio.create_task(node.start())
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait((starting, stopping), return_when=asyncio.FIRST_COMPLETED)
    if starting.done():
        starting.result()
    else:
        starting.cancel()
    await stopping
    await node.shut_down()
