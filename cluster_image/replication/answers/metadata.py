"""Metadata: brokers, topics and partitions, as this broker knows them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container
from functools import lru_cache
from typing import Any, Final, NamedTuple

from kio.schema.errors import ErrorCode
from kio.schema.types import TopicName

from cluster_image.config import Config
from cluster_image.network import Entity
from cluster_image.network.slices import Pauses
from cluster_image.wire.integers import BrokerId, i32
from cluster_image.wire.messages import NO_THROTTLE, make, response_module

from .known import AutoCreation, KnownBroker, KnownCluster, KnownPartition, KnownTopic

#: Of a request; before version 4 every one may.
_MAY_CREATE: Final = "allow_auto_topic_creation"
_NO_AUTHORIZED_OPERATIONS: Final = i32(-2147483648)
#: A broker that has just started may know of none that is available, itself included, until it is unfenced. An answer
#: without brokers leaves clients helpless (librdkafka asks again after minutes): so long, in seconds, they wait for it.
STARTING_S: Final = 5.0
LOOK_S: Final = 0.05


class _Asked(NamedTuple):
    """A topic as it was named, and as it was when it was asked for; None: there is none."""

    name: str | None
    id: Any
    topic: KnownTopic | None
    partitions: tuple[KnownPartition, ...]


class MetadataHandler:
    """some_broker: the id of one that passes for the controller, -1 if there is none. auto_creation: None if topics
    that clients ask for are not made. waits: for a broker that is available, which `image` will tell of."""

    def __init__(
        self,
        config: Config,
        image: KnownCluster,
        some_broker: Callable[[], int],
        auto_creation: AutoCreation | None,
        *,
        waits: bool = True,
    ) -> None:
        self._config = config
        self._image = image
        self._some_broker = some_broker
        self._auto_creation = auto_creation
        self._starting = waits

    async def handle(self, request: Any) -> Entity:
        """Others have their turn while many partitions are told of; what is told is of one moment."""
        if self._starting:
            await self._some_available()
        module = response_module(request)
        brokers = dict(self._image.brokers)
        asked = self._asked(request)
        missing = [each.name for each in asked if each.name and each.topic is None]
        if missing and self._auto_creation is not None and getattr(request, _MAY_CREATE, True):
            self._auto_creation.begin(missing)
        topics, pauses = [], Pauses()
        for each in asked:
            topics.append(await _topic(module, each, brokers, pauses))
        return make(
            module.MetadataResponse,
            throttle_time=NO_THROTTLE,
            brokers=tuple(
                make(
                    module.MetadataResponseBroker,
                    node_id=BrokerId(b.id),
                    host=b.address.host,
                    port=i32(b.address.port),
                    rack=b.rack,
                )
                for b in brokers.values()
                if not b.fenced
            ),
            cluster_id=self._config["cluster.id"],
            controller_id=BrokerId(self._some_broker()),
            topics=tuple(topics),
            cluster_authorized_operations=_NO_AUTHORIZED_OPERATIONS,
            error_code=ErrorCode.none,
        )

    async def _some_available(self) -> None:
        loop = asyncio.get_running_loop()
        until = loop.time() + STARTING_S
        while all(broker.fenced for broker in self._image.brokers.values()):
            if loop.time() >= until:
                return
            await asyncio.sleep(LOOK_S)
        self._starting = False

    def _asked(self, request: Any) -> list[_Asked]:
        image = self._image
        if request.topics is None or (request.__version__ == 0 and not request.topics):
            return [_Asked(t.name, t.id, t, tuple(t.partitions.values())) for t in image.topics.values()]
        asked = []
        # Each once, as Apache Kafka: a topic takes a few bytes to name, and its partitions many to tell of.
        named: list[tuple[str | None, Any]] = [(t.name, getattr(t, "topic_id", None)) for t in request.topics]
        for name, topic_id in dict.fromkeys(named):
            known = image.topics.get(name) if name else image.topics_by_id.get(topic_id)
            asked.append(_Asked(name, topic_id, known, tuple(known.partitions.values()) if known else ()))
        return asked


async def _topic(module: Any, asked: _Asked, brokers: dict[int, KnownBroker], pauses: Pauses) -> Entity:
    topic = asked.topic
    alive = {broker.id for broker in brokers.values() if not broker.fenced}
    missing = ErrorCode.unknown_topic_or_partition if asked.name else ErrorCode.unknown_topic_id
    await pauses.after(1)
    partitions = []
    for partition in asked.partitions:
        partitions.append(_partition(module, partition, alive))
        await pauses.after(1)
    return make(
        module.MetadataResponseTopic,
        error_code=ErrorCode.none if topic is not None else missing,
        name=TopicName(topic.name) if topic is not None else asked.name,
        topic_id=topic.id if topic is not None else asked.id,
        is_internal=False,
        partitions=tuple(partitions),
        topic_authorized_operations=_NO_AUTHORIZED_OPERATIONS,
    )


def _partition(module: Any, partition: KnownPartition, alive: Container[int]) -> Entity:
    return make(
        module.MetadataResponsePartition,
        error_code=ErrorCode.none if partition.leader >= 0 else ErrorCode.leader_not_available,
        partition_index=i32(partition.index),
        leader_id=BrokerId(partition.leader),
        leader_epoch=i32(partition.leader_epoch),
        replica_nodes=_broker_ids(partition.replicas),
        isr_nodes=_broker_ids(partition.isr),
        offline_replicas=_broker_ids(tuple(r for r in partition.replicas if r not in alive)),
    )


@lru_cache(maxsize=4096)
def _broker_ids(ids: tuple[int, ...]) -> tuple[BrokerId, ...]:
    """Kept, as they are few and told of again and again."""
    return tuple(BrokerId(each) for each in ids)
