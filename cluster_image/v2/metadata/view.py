"""The cluster as ZooKeeper has it, for clients that ask a broker: 001 leaves it to clients to read ZooKeeper; today's
have only Metadata.

What was read is taken to be so for CACHED_S: clients that look for a new leader ask often.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from cluster_image.network import Address

from ..topics import topic_id
from ..zookeeper import ZooKeeper
from . import paths, reading

CACHED_S: Final = 0.1


@dataclass(frozen=True)
class Broker:
    """Implements KnownBroker. fenced: it is a member, which its queue of state changes tells, and not alive."""

    id: int
    address: Address
    rack: str | None
    fenced: bool


@dataclass(frozen=True)
class PartitionState:
    """Implements KnownPartition."""

    index: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int
    elr: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()


@dataclass(frozen=True)
class Topic:
    """Implements KnownTopic."""

    name: str
    id: UUID
    partitions: Mapping[int, PartitionState]


@dataclass(frozen=True)
class Cluster:
    """Implements KnownCluster."""

    brokers: Mapping[int, Broker] = field(default_factory=dict)
    topics: Mapping[str, Topic] = field(default_factory=dict)

    @property
    def topics_by_id(self) -> Mapping[UUID, Topic]:
        return {topic.id: topic for topic in self.topics.values()}


class View:
    def __init__(self, zookeeper: ZooKeeper) -> None:
        self._zookeeper = zookeeper
        self._brokers: tuple[float, Mapping[int, Broker]] = (float("-inf"), {})
        self._topics: dict[str, tuple[float, Topic | None]] = {}
        self._reading = asyncio.Lock()

    async def names(self) -> list[str]:
        return await reading.children(self._zookeeper, paths.TOPICS)

    async def cluster(self, topics: Iterable[str] | None) -> Cluster:
        """With these topics, None: all."""
        names = list(dict.fromkeys(topics)) if topics is not None else await self.names()
        async with self._reading:
            brokers, found = await asyncio.gather(
                self._known_brokers(), asyncio.gather(*(self._topic(name) for name in names))
            )
        return Cluster(brokers, {topic.name: topic for topic in found if topic is not None})

    async def named(self, ids: Iterable[UUID]) -> list[str]:
        """The names of topics with these ids."""
        wanted = set(ids)
        return [name for name in await self.names() if topic_id(name) in wanted]

    async def _known_brokers(self) -> Mapping[int, Broker]:
        now = asyncio.get_running_loop().time()
        if now - self._brokers[0] > CACHED_S:
            live, known = await asyncio.gather(
                reading.live_brokers(self._zookeeper), reading.children(self._zookeeper, paths.STATE)
            )
            ids = sorted({*live, *paths.numbers(known)})
            found = await asyncio.gather(*(reading.registered(self._zookeeper, broker) for broker in ids))
            self._brokers = (
                asyncio.get_running_loop().time(),  # not before it was read, however long that took
                {
                    broker: Broker(broker, Address("", 0), None, True)
                    if there is None
                    else Broker(broker, there.address, there.rack or None, False)
                    for broker, there in zip(ids, found, strict=True)
                },
            )
        return self._brokers[1]

    async def _topic(self, name: str) -> Topic | None:
        now = asyncio.get_running_loop().time()
        read_at, topic = self._topics.get(name, (float("-inf"), None))
        if now - read_at > CACHED_S:
            indexes = paths.numbers(await reading.children(self._zookeeper, paths.topic(name)))
            states = await asyncio.gather(*(self._partition(name, index) for index in indexes))
            partitions = {state.index: state for state in states if state is not None}
            topic = Topic(name, topic_id(name), partitions) if partitions else None
            if topic is None:
                self._topics.pop(name, None)
            else:
                self._topics[name] = (asyncio.get_running_loop().time(), topic)
        return topic

    async def _partition(self, topic: str, index: int) -> PartitionState | None:
        """None: it is being made, or is gone."""
        zookeeper = self._zookeeper
        replicas, leader, isr = await asyncio.gather(
            reading.assigned_to(zookeeper, topic, index),
            reading.leader_of(zookeeper, topic, index),
            reading.isr_of(zookeeper, topic, index),
        )
        if replicas is None:
            return None
        epoch = isr.epoch if isr is not None else -1
        if leader is not None:
            return PartitionState(index, replicas, isr.brokers if isr else (), leader.broker, leader.epoch)
        return PartitionState(index, replicas, isr.brokers if isr else (), -1, epoch)
