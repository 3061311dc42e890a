"""A leader's listener for reassignments (001, "On reassignment of partitions"): there is one a broker, for all that it
leads, and only while it leads anything."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from ..metadata import paths, reading
from ..metadata.state_queue import Kind
from ..state_changes import StateChanges
from ..zookeeper import Event, ZooKeeper
from .replica import Partition


class ReassignmentListener:
    """led: the partitions that this broker leads now."""

    def __init__(
        self, zookeeper: ZooKeeper, state_changes: StateChanges, broker: int, led: Callable[[], Iterable[Partition]]
    ) -> None:
        self._zookeeper = zookeeper
        self._state_changes = state_changes
        self._me = broker
        self._led = led
        self._changed = asyncio.Event()

    def look_again(self) -> None:
        """It leads something that it did not lead before."""
        self._changed.set()

    def _hear(self, event: Event) -> None:
        self._changed.set()

    async def run(self) -> None:
        while True:
            self._changed.clear()
            if any(True for _ in self._led()):
                await self._look()
            await self._changed.wait()

    async def _look(self) -> None:
        topics = set(await reading.children(self._zookeeper, paths.REASSIGNED, self._hear))
        under_way: dict[tuple[str, int], None] = {}
        for topic in sorted(topics & {partition.topic for partition in self._led()}):
            path = paths.reassigned_topic(topic)
            for index in paths.numbers(await reading.children(self._zookeeper, path, self._hear)):
                under_way[topic, index] = None
        for partition in list(self._led()):
            await self._apply(partition, (partition.topic, partition.index) in under_way)

    async def _apply(self, partition: Partition, under_way: bool) -> None:
        """001, onPartitionsReassigned, where something has changed."""
        topic, index = partition.topic, partition.index
        coming = await reading.reassigned_to(self._zookeeper, topic, index) if under_way else None
        leadership = partition.leadership
        if leadership is None or not leadership.serves_clients or leadership.reassigned == coming:
            return
        leadership.reassigned, leadership.close_sent = coming, False
        if coming is None:
            return  # it was given up
        # By 001 what is read is what ZooKeeper has, not what this leader remembers.
        assigned = await reading.assigned_to(self._zookeeper, topic, index) or leadership.assigned
        for replica in coming:
            if replica not in assigned:
                await self._ask("start-replica", partition, replica, leadership.epoch)
        if not coming:
            for replica in assigned:
                await self._ask("close-replica", partition, replica, leadership.epoch)

    async def _ask(self, kind: Kind, partition: Partition, replica: int, epoch: int) -> None:
        await self._state_changes.send(kind, partition.topic, partition.index, replica, epoch, self._me)
