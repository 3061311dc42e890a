"""The queue of state changes that a broker is asked for (001, "State change communication"): in ZooKeeper, so that what
a broker is asked for while it is away waits for it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, Literal, NamedTuple

from ..zookeeper import NodeExists, NoNode, Watcher, ZooKeeper
from . import paths

_REQUEST: Final = "request-"

Kind = Literal["start-replica", "close-replica"]


class StateChange(NamedTuple):
    """epoch: of the leader that asks, rules.NO_EPOCH of an administrator; leader: its id, -1 of an administrator."""

    kind: Kind
    topic: str
    partition: int
    epoch: int
    leader: int

    def encode(self) -> bytes:
        return json.dumps(self._asdict()).encode()

    @classmethod
    def decode(cls, data: bytes) -> StateChange:
        return cls(**json.loads(data))


class FollowerStateChangeQueueFull(Exception):
    """The message names the broker."""


class StateQueue:
    """Of one broker. limit: requests that it holds."""

    def __init__(self, zookeeper: ZooKeeper, broker: int, limit: int) -> None:
        self._zookeeper = zookeeper
        self._path = paths.state(broker)
        self._broker = broker
        self._limit = limit

    async def put(self, change: StateChange) -> None:
        """Raises FollowerStateChangeQueueFull; NoNode: there is no such broker; and what ZooKeeper's calls raise."""
        if len(await self._names()) >= self._limit:
            await self._shrink()
            if len(await self._names()) >= self._limit:
                raise FollowerStateChangeQueueFull(f"broker {self._broker} has {self._limit} state changes to come to")
        await self._zookeeper.create(f"{self._path}/{_REQUEST}", change.encode(), sequence=True)

    async def make(self) -> None:
        """If there is none."""
        with suppress(NodeExists):
            await self._zookeeper.create(self._path)

    async def names(self, watch: Watcher | None = None) -> Sequence[str]:
        """Of the requests, the oldest first."""
        return await self._names(watch)

    async def read(self, name: str) -> StateChange | None:
        """None: it has gone."""
        try:
            data, _ = await self._zookeeper.get(f"{self._path}/{name}")
        except NoNode:
            return None
        return StateChange.decode(data)

    async def remove(self, name: str) -> None:
        """It is done."""
        with suppress(NoNode):  # it was shrunk away meanwhile
            await self._zookeeper.delete(f"{self._path}/{name}")

    async def _names(self, watch: Watcher | None = None) -> Sequence[str]:
        found = await self._zookeeper.children(self._path, watch)
        return [name for name in found if name.startswith(_REQUEST)]

    async def _shrink(self) -> None:
        """Of each partition one close-replica is kept, with the latest epoch: an offline broker deletes what is not its
        own any more when it is back. It finds out by itself what it has to start."""
        kept: dict[tuple[str, int], tuple[int, str]] = {}
        names = await self._names()
        for name in names:
            change = await self.read(name)
            if change is not None and change.kind == "close-replica":
                place = change.topic, change.partition
                kept[place] = max(kept.get(place, (change.epoch, name)), (change.epoch, name))
        keep = {name for _, name in kept.values()}
        await asyncio.gather(*(self.remove(name) for name in names if name not in keep))
