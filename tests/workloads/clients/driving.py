"""A driver of a client, spoken to by hand."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from harness.plan import registry

PATIENCE_S = 40


class Driving:
    """One client of a driver: number 0. settings: beside those that the harness gives."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    async def say(self, do: str, **fields: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"do": do, "client": 0, **fields}).encode() + b"\n")
        await self.process.stdin.drain()

    async def hear(self, what: str) -> dict[str, Any]:
        """The next line that is that; all before are left out."""
        assert self.process.stdout is not None
        async with asyncio.timeout(PATIENCE_S):
            while line := await self.process.stdout.readline():
                said: dict[str, Any] = json.loads(line)
                if said["is"] == what:
                    return said
                assert said["is"] != "failed", said
        raise AssertionError(f"the driver ended with {await self.process.wait()} and said no {what}")

    async def produce(self, topic: str, count: int = 1, *, partition: int = 0, first: int = 0, keys: int = 0) -> None:
        await self.say("produce", topic=topic, partition=partition, first=first, count=count, keys=keys)


@asynccontextmanager
async def driving(client: str, role: str, bootstrap: str, acks: str = "all", **settings: str) -> AsyncIterator[Driving]:
    """settings: the client's own names, with a _ for each dot."""
    kind = registry.make_client(client)
    given: Mapping[str, str] = {kind.own_name(name): value for name, value in settings.items()}
    process = await asyncio.create_subprocess_exec(
        *kind.command(sys.executable), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        env={**os.environ, **kind.environment()}, limit=1 << 24,
    )  # fmt: skip
    told = Driving(process)
    try:
        await told.say("open", role=role, settings={**kind.defaults(role, bootstrap, acks), **given})
        await told.hear("opened")
        yield told
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
