"""Asking other brokers for state changes, and doing what this one is asked for (001, "State change communication" and
"State change events").

Each has three lines in the trace: requested, by whoever leads; received and completed, by whoever is asked.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Protocol

from cluster_image.config import Config
from cluster_image.telemetry.trace import Trace, no_trace

from . import rules
from .metadata.paths import Isr
from .metadata.reading import isr_of, leader_of, replicas_of, replicas_to_start
from .metadata.state_queue import FollowerStateChangeQueueFull, Kind, StateChange, StateQueue
from .zookeeper import Event, NoNode, ZooKeeper

log = logging.getLogger(__name__)


class StateChanges:
    """Of one broker, to all. trace: of whoever asks."""

    def __init__(self, zookeeper: ZooKeeper, config: Config, trace: Trace = no_trace) -> None:
        self._zookeeper = zookeeper
        self._config = config
        self._limit = config["v2.state.queue.limit"]
        self._trace = trace

    def by(self, zookeeper: ZooKeeper) -> StateChanges:
        """The same, written by another client."""
        return StateChanges(zookeeper, self._config, self._trace)

    def queue(self, broker: int) -> StateQueue:
        return StateQueue(self._zookeeper, broker, self._limit)

    async def send(self, kind: Kind, topic: str, partition: int, broker: int, epoch: int, leader: int) -> None:
        """001, sendStateChange. A queue that is full, or gone with its broker, is told in the log: there is nobody who
        could do what would be asked for."""
        change = StateChange(kind, topic, partition, epoch, leader)
        try:
            await self.queue(broker).put(change)
        except (FollowerStateChangeQueueFull, NoNode) as error:
            log.error("state change not requested", extra={"change": change._asdict(), "error": repr(error)})
            return
        self._trace("state change requested", f"{topic}-{partition}", kind=kind, broker=broker, epoch=epoch)


class Replicas(Protocol):
    """Of this broker."""

    def start_replica(self, topic: str, partition: int) -> None: ...

    async def close_replica(self, topic: str, partition: int) -> None: ...

    def hosts(self, topic: str, partition: int) -> bool: ...


class StateChangeListener:
    """backlog: requests that this broker has still to come to, as far as it has looked."""

    def __init__(
        self, zookeeper: ZooKeeper, broker: int, queue: StateQueue, replicas: Replicas, config: Config, trace: Trace
    ) -> None:
        self._zookeeper = zookeeper
        self._me = broker
        self._queue = queue
        self._replicas = replicas
        self._config = config
        self._trace = trace
        self._changed = asyncio.Event()
        self.backlog = 0

    async def run(self) -> None:
        while True:
            await self.drain(watched=True)
            await self._changed.wait()

    def _hear(self, event: Event) -> None:
        self._changed.set()

    async def drain(self, *, watched: bool = False) -> None:
        """Do everything that is asked for, the oldest first. watched: run() hears of what comes later."""
        while True:
            self._changed.clear()
            try:
                names = await self._queue.names(self._hear if watched else None)
            except NoNode:  # it is new, or was removed while it was away
                await self._queue.make()
                continue
            self.backlog = len(names)
            if not names:
                return
            for name in names:
                change = await self._queue.read(name)
                if change is not None:
                    await self._do(change)
                    await self._queue.remove(name)
                self.backlog -= 1

    async def _do(self, change: StateChange) -> None:
        where = f"{change.topic}-{change.partition}"
        told: dict[str, object] = {"kind": change.kind, "leader": change.leader, "epoch": change.epoch}
        self._trace("state change received", where, **told)
        if change.kind == "close-replica":
            is_assigned = self._me in await replicas_to_start(self._zookeeper, change.topic, change.partition)
            done, told["assigned"] = await self._close(change, is_assigned), int(is_assigned)
        else:
            done = await self._start(change)
        self._trace("state change completed", where, **told, done=int(done))

    async def _close(self, change: StateChange, is_assigned: bool) -> bool:
        """is_assigned: it is to have a replica."""
        if not self._replicas.hosts(change.topic, change.partition):
            return False
        latest = await isr_of(self._zookeeper, change.topic, change.partition)
        latest_epoch = rules.NO_EPOCH if latest is None else latest.epoch
        if not rules.may_close(change.epoch, latest_epoch, is_assigned, self._config["v2.close.epochs"]):
            log.info("close-replica that came too late ignored", extra={"change": change._asdict()})
            return False
        await self._replicas.close_replica(change.topic, change.partition)
        return True

    async def _start(self, change: StateChange) -> bool:
        topic, partition = change.topic, change.partition
        if self._me not in await replicas_of(self._zookeeper, topic, partition):
            # 001: "this should not happen". It does when what was asked for has been undone meanwhile.
            log.error("start-replica of what this broker does not have", extra={"change": change._asdict()})
            return False
        leader = await leader_of(self._zookeeper, topic, partition)
        latest: Isr | None = await isr_of(self._zookeeper, topic, partition)
        latest_epoch = rules.NO_EPOCH if latest is None else latest.epoch
        if not rules.may_start(change.epoch, latest_epoch, leader is not None):
            log.info("start-replica of an earlier leader ignored", extra={"change": change._asdict()})
            return False
        self._replicas.start_replica(topic, partition)
        return True
