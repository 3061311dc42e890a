"""A leader's listener for reassignments (001, "On reassignment of partitions"): there is one a broker, for all that it
leads, and only while it leads anything."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence

from cluster_image.config import Config

from .. import rules
from ..metadata import paths, reading
from ..metadata.state_queue import Kind
from ..state_changes import StateChanges
from ..zookeeper import Event, NoNode, Watcher, ZooKeeper
from .replica import Partition


class ReassignmentListener:
    """led: the partitions that this broker leads now. end_term: of one of them; another election follows."""

    def __init__(
        self,
        zookeeper: ZooKeeper,
        state_changes: StateChanges,
        broker: int,
        config: Config,
        led: Callable[[], Iterable[Partition]],
        end_term: Callable[[Partition], Awaitable[None]],
    ) -> None:
        self._zookeeper = zookeeper
        self._state_changes = state_changes
        self._me = broker
        self._leaves_isr = config["v2.close.isr"]
        self._led = led
        self._end_term = end_term
        self._changed = asyncio.Event()
        self._watched: set[str] = set()  # nodes whose next change is heard of already

    def look_again(self) -> None:
        """It leads something that it did not lead before."""
        self._changed.set()

    def _hear(self, event: Event) -> None:
        self._watched.discard(event.path)
        self._changed.set()

    async def run(self) -> None:
        while True:
            self._changed.clear()
            if any(True for _ in self._led()):
                await self._look()
            await self._changed.wait()

    async def _look(self) -> None:
        topics = set(await self._children(paths.REASSIGNED))
        under_way: dict[tuple[str, int], tuple[int, ...]] = {}
        for topic in sorted(topics & {partition.topic for partition in self._led()}):
            for index in paths.numbers(await self._children(paths.reassigned_topic(topic))):
                coming = await self._coming(paths.reassigned(topic, index))
                if coming is not None:
                    under_way[topic, index] = coming
        for partition in list(self._led()):
            await self._apply(partition, under_way.get((partition.topic, partition.index)))

    async def _children(self, path: str) -> Sequence[str]:
        try:
            return await self._zookeeper.children(path, self._watcher(path))
        except NoNode:
            self._watched.discard(path)
            return ()

    async def _coming(self, path: str) -> tuple[int, ...] | None:
        """Where a partition is moved to may change while it is moved: then no child comes or goes."""
        try:
            data, _ = await self._zookeeper.get(path, self._watcher(path))
        except NoNode:
            self._watched.discard(path)
            return None
        return paths.decode_ids(data)

    def _watcher(self, path: str) -> Watcher | None:
        """One at a time: each that is given hears of the next change."""
        if path in self._watched:
            return None
        self._watched.add(path)
        return self._hear

    async def _apply(self, partition: Partition, coming: tuple[int, ...] | None) -> None:
        """001, onPartitionsReassigned, where something has changed. coming: as it was read last; None: nothing is under
        way."""
        topic, index = partition.topic, partition.index
        leadership = partition.leadership
        if leadership is None or not leadership.serves_clients or leadership.reassigned == coming:
            return
        # By 001 what is read is what ZooKeeper has, not what this leader remembers.
        assigned = await reading.assigned_to(self._zookeeper, topic, index) or leadership.assigned
        moved_to = None if leadership.reassigned is None else set(leadership.reassigned)
        if coming != () and rules.ends_term(moved_to, set(assigned), self._leaves_isr):
            await self._end_term(partition)
            return
        closed = set() if leadership.close_sent is None else set(assigned) - set(leadership.reassigned or ())
        leadership.reassigned, leadership.close_sent = coming, None
        # It was given up, or goes elsewhere: who was to go and stays after all begins anew.
        for replica in assigned if coming is None else coming:
            if replica not in assigned or replica in closed:
                await self._ask("start-replica", partition, replica, leadership.epoch)
        if coming is None:
            return
        if not coming:
            # Itself last: once it has closed its replica it asks nobody any more.
            for replica in sorted(assigned, key=lambda replica: replica == self._me):
                await self._ask("close-replica", partition, replica, leadership.epoch)

    async def _ask(self, kind: Kind, partition: Partition, replica: int, epoch: int) -> None:
        await self._state_changes.send(kind, partition.topic, partition.index, replica, epoch, self._me)
