"""Administrators' commands (001, "Admin commands"; 003 for those of brokers): whoever is asked carries them out, one on
a topic at a time."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress

from kio.schema.errors import ErrorCode

from cluster_image.config import Config

from ..metadata import paths, reading
from ..state_changes import StateChanges
from ..zookeeper import ConnectionLoss, Create, NodeExists, NoNode, NotEmpty, SessionExpired
from ..zookeeper.fenced import Fenced
from ..zookeeper.retrying import RetryingZooKeeper
from .command import LOOK_S, AdminError, TopicCommand


class Admin:
    """timeout: seconds, of what a command waits for, and of the commands before it each."""

    def __init__(self, zookeeper: RetryingZooKeeper, state_changes: StateChanges, config: Config) -> None:
        self._zookeeper = zookeeper
        self._state_changes = state_changes
        self._me: int = config["node.id"]
        self._commands = itertools.count()

    # -- topics -----------------------------------------------------------------------------------------------

    async def create_topic(
        self, topic: str, partitions: int, replication_factor: int, assignment: Mapping[int, Sequence[int]] | None,
        timeout: float,
    ) -> None:  # fmt: skip
        """001, createTopic. assignment: replicas by partition, in place of the two numbers. Raises AdminError."""
        async with self._alone(topic, timeout) as command:
            await command.create_topic(partitions, replication_factor, assignment, timeout)

    async def add_partitions(
        self, topic: str, count: int, assignment: Sequence[Sequence[int]] | None, timeout: float
    ) -> None:
        """001, addPartition, up to so many. Raises AdminError."""
        async with self._alone(topic, timeout) as command:
            await command.add_partitions(count, assignment, timeout)

    async def delete_topic(self, topic: str, timeout: float) -> None:
        """001, deleteTopic. Raises AdminError."""
        async with self._alone(topic, timeout) as command:
            await command.delete_topic(timeout)

    async def reassign(self, topic: str, index: int, replicas: Sequence[int], timeout: float) -> None:
        """Begin to move a partition to these, wherever it was being moved to before. Raises AdminError."""
        async with self._alone(topic, timeout) as command:
            await command.reassign(index, replicas)

    async def cancel_reassignment(self, topic: str, index: int, timeout: float) -> None:
        """Raises AdminError: there is none, or it is complete."""
        async with self._alone(topic, timeout) as command:
            await command.cancel_reassignment(index)

    async def reassignments(self) -> Mapping[tuple[str, int], tuple[tuple[int, ...], tuple[int, ...]]]:
        """Those under way: where each partition is, and where it goes."""
        found = {}
        for topic in await reading.children(self._zookeeper, paths.REASSIGNED):
            for index in paths.numbers(await reading.children(self._zookeeper, paths.reassigned_topic(topic))):
                coming = await reading.reassigned_to(self._zookeeper, topic, index)
                assigned = await reading.assigned_to(self._zookeeper, topic, index)
                if coming and assigned:
                    found[topic, index] = (assigned, coming)
        return found

    @asynccontextmanager
    async def _alone(self, topic: str, timeout: float) -> AsyncIterator[TopicCommand]:
        """One command on a topic at a time: 001 has one administrator. Here whoever has no answer asks another broker,
        which would take what the first is doing for an attempt that has failed. Raises AdminError."""
        loop = asyncio.get_running_loop()
        until = loop.time() + timeout
        lock = paths.commanded(topic)
        mine = paths.command(topic, self._me, self._zookeeper.session, next(self._commands))
        while True:
            # Both of one session, with which they go: as long as the one is there, the other is this command's.
            with suppress(NodeExists, ConnectionLoss, SessionExpired):
                await self._zookeeper.multi([Create(lock, ephemeral=True), Create(mine, ephemeral=True)])
            if await self._zookeeper.exists(mine) is not None:
                break
            if loop.time() >= until:
                raise AdminError(ErrorCode.request_timed_out, f"another command on topic {topic} is still under way")
            await asyncio.sleep(LOOK_S)
        fenced = self._zookeeper.fenced(mine)
        try:
            yield TopicCommand(fenced, self._state_changes.by(fenced), topic)
        except Fenced:
            raise AdminError(
                ErrorCode.request_timed_out,
                f"broker {self._me} lost its session with ZooKeeper before the command on topic {topic} was done",
            ) from None
        finally:
            with suppress(Fenced, NoNode):
                await fenced.delete(lock)
            with suppress(NoNode):
                await self._zookeeper.delete(mine)

    # -- brokers ----------------------------------------------------------------------------------------------

    async def remove_broker(self, broker: int) -> None:
        """003: its queue goes with it. Raises AdminError: it is alive, or there is none."""
        if await reading.registered(self._zookeeper, broker) is not None:
            raise AdminError(ErrorCode.invalid_request, f"broker {broker} is alive")
        path = paths.state(broker)
        if await self._zookeeper.exists(path) is None:
            raise AdminError(ErrorCode.broker_id_not_registered, f"there is no broker {broker}")
        for name in await reading.children(self._zookeeper, path):
            await self._remove(f"{path}/{name}")
        await self._remove(path)

    async def _remove(self, path: str) -> None:
        with suppress(NoNode, NotEmpty):
            await self._zookeeper.delete(path)
