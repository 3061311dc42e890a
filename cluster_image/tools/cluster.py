"""A cluster as operators' tools see and change it, over Kafka's own APIs: kraft here, or Apache Kafka."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from kio.schema.alter_partition_reassignments.v0 import request as alter
from kio.schema.describe_configs.v4 import request as configs
from kio.schema.describe_log_dirs.v2.request import DescribeLogDirsRequest
from kio.schema.elect_leaders.v2 import request as elect
from kio.schema.errors import ErrorCode
from kio.schema.incremental_alter_configs.v1.request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kio.schema.list_partition_reassignments.v0.request import ListPartitionReassignmentsRequest
from kio.schema.metadata.v9.request import MetadataRequest
from kio.schema.types import BrokerId, TopicName
from kio.schema.unregister_broker.v0.request import UnregisterBrokerRequest

from ..config.throttling import SIDES
from ..kraft.metadata.records import TOPIC_RESOURCE
from ..network import Address, Entity
from ..placement.spread import Replicas
from ..wire.integers import i8, i32
from ..wire.messages import milliseconds
from ..wire.unanswered import says
from .client import Client
from .output import ToolError, Unanswered

#: Topic and partition number.
Place = tuple[str, int]

NOT_REGISTERED: Final = "there is no such broker"

_AGAIN: Final = (ErrorCode.request_timed_out, ErrorCode.not_controller, ErrorCode.coordinator_load_in_progress)
_PAUSE_S: Final = 0.3
_PREFERRED: Final = i8(0)
#: Operations of IncrementalAlterConfigs, in Kafka's numbers.
_SET, _DELETE = i8(0), i8(1)
#: Partitions in one request.
_AT_ONCE: Final = 200


class Broker(NamedTuple):
    address: Address
    rack: str | None


class Moving(NamedTuple):
    adding: Replicas
    removing: Replicas


@dataclass(frozen=True)
class State:
    """brokers: those that are alive. replicas: of each partition, with those that are being added and removed. moving:
    reassignments under way."""

    brokers: Mapping[int, Broker]
    replicas: Mapping[Place, Replicas]
    leaders: Mapping[Place, int]  # -1: none
    moving: Mapping[Place, Moving]

    def targets(self) -> dict[Place, Replicas]:
        """Replicas as they are going to be once all that is under way is done."""
        return {place: tuple(r for r in replicas if place not in self.moving or r not in self.moving[place].removing)
                for place, replicas in self.replicas.items()}  # fmt: skip

    def racks(self) -> dict[int, str | None]:
        return {broker: each.rack for broker, each in self.brokers.items()}


class ConfigChange(NamedTuple):
    """One setting of a topic or a broker (TOPIC_RESOURCE, BROKER_RESOURCE). value None: it is removed."""

    resource_type: int
    resource_name: str
    name: str
    value: str | None


class Cluster:
    """patience: seconds that a request is tried for, at one broker after the other, until one has it carried out."""

    def __init__(self, bootstrap: Sequence[Address], patience: float) -> None:
        self._addresses = list(bootstrap)
        self.patience = patience

    async def ask(self, request: Entity, broker: Broker | None = None, *, once: bool = False) -> Any:
        """broker: which is to answer; None: whoever does. once: it must not be carried out twice, so that it is not
        repeated once it may have been. Raises ToolError."""
        loop = asyncio.get_running_loop()
        deadline, reason = loop.time() + self.patience, ""
        while True:
            for address in [*self._addresses] if broker is None else [broker.address]:
                left = deadline - loop.time()
                try:
                    answer = await self._ask(address, request, max(left if once else min(left, self.patience / 2), 0.1))
                except Unanswered as error:
                    if once:
                        raise ToolError(f"{error}: it may have been done, look before you repeat it") from None
                    reason = str(error)
                    continue
                except ToolError as error:
                    reason = str(error)
                    continue
                again = [error for error in _AGAIN if says(answer, error)]
                if once and ErrorCode.request_timed_out in again:
                    raise ToolError(f"{address} had no answer of the controller: it may have been done, look before "
                                    "you repeat it")  # fmt: skip
                if not again:
                    return answer
                reason = f"{address} says that no controller has answered"
            if loop.time() + _PAUSE_S > deadline:
                raise ToolError(reason)
            await asyncio.sleep(_PAUSE_S)

    async def _ask(self, address: Address, request: Entity, seconds: float) -> Any:
        client = await Client.connect([address], asyncio.get_running_loop().time() + seconds)
        try:
            return await client.ask(request)
        finally:
            await client.close()

    async def state(self) -> State:
        """Raises ToolError."""
        metadata = await self.ask(
            MetadataRequest(
                topics=None,
                allow_auto_topic_creation=False,
                include_cluster_authorized_operations=False,
                include_topic_authorized_operations=False,
            )
        )
        ongoing = await self.ask(ListPartitionReassignmentsRequest(topics=None))
        if ongoing.error_code is not ErrorCode.none:
            raise ToolError(ongoing.error_message or ongoing.error_code.name)
        brokers = {int(b.node_id): Broker(Address(b.host, int(b.port)), b.rack) for b in metadata.brokers}
        self._addresses += [b.address for b in brokers.values() if b.address not in self._addresses]
        places = {(str(t.name), int(p.partition_index)): p for t in metadata.topics for p in t.partitions}
        return State(
            dict(sorted(brokers.items())),
            {place: _ids(data.replica_nodes) for place, data in sorted(places.items())},
            {place: int(data.leader_id) for place, data in places.items()},
            {
                (str(t.name), int(p.partition_index)): Moving(_ids(p.adding_replicas), _ids(p.removing_replicas))
                for t in ongoing.topics
                for p in t.partitions
            },
        )

    async def sizes(self, brokers: Mapping[int, Broker]) -> dict[int, dict[Place, int] | None]:
        """By broker, how many bytes it holds of each partition; None: it does not tell."""

        async def of_one(broker: Broker) -> dict[Place, int] | None:
            try:
                answer = await self._ask(broker.address, DescribeLogDirsRequest(topics=None), self.patience)
            except ToolError:
                return None
            return {
                (str(topic.name), int(data.partition_index)): int(data.partition_size)
                for result in answer.results
                for topic in result.topics
                for data in topic.partitions
                if not data.is_future_key
            }

        found = await asyncio.gather(*map(of_one, brokers.values()))
        return dict(zip(brokers, found, strict=True))

    async def reassign(self, targets: Mapping[Place, Replicas | None]) -> dict[Place, str]:
        """Begin these reassignments in place of what is under way; None: cancel that. Of those refused, why. Raises
        ToolError."""
        refused: dict[Place, str] = {}
        places = list(targets)
        for first in range(0, len(places), _AT_ONCE):
            of_topic: dict[str, list[Any]] = defaultdict(list)
            for topic, index in places[first : first + _AT_ONCE]:
                replicas = targets[topic, index]
                ids = None if replicas is None else tuple(map(BrokerId, replicas))
                of_topic[topic].append(alter.ReassignablePartition(partition_index=i32(index), replicas=ids))
            answer = await self.ask(alter.AlterPartitionReassignmentsRequest(
                timeout=milliseconds(round(self.patience * 1000)),
                topics=tuple(
                    alter.ReassignableTopic(name=TopicName(topic), partitions=tuple(partitions))
                    for topic, partitions in of_topic.items()
                ),
            ))  # fmt: skip
            if answer.error_code is not ErrorCode.none:
                raise ToolError(answer.error_message or answer.error_code.name)
            refused |= {
                (str(topic.name), int(data.partition_index)): str(data.error_message or data.error_code.name)
                for topic in answer.responses
                for data in topic.partitions
                if data.error_code is not ErrorCode.none
            }
        return refused

    async def elect_preferred(self, places: Iterable[Place]) -> None:
        """Their first replicas lead from now on, of those that may. Raises ToolError."""
        of_topic: dict[str, list[int]] = defaultdict(list)
        for topic, index in places:
            of_topic[topic].append(index)
        if of_topic:
            await self.ask(elect.ElectLeadersRequest(
                election_type=_PREFERRED,
                timeout=milliseconds(round(self.patience * 1000)),
                topic_partitions=tuple(
                    elect.TopicPartitions(topic=TopicName(topic), partitions=tuple(map(i32, indexes)))
                    for topic, indexes in of_topic.items()
                ),
            ))  # fmt: skip

    async def throttled(self, topics: Iterable[str]) -> list[str]:
        """Those of them that name replicas which are throttled. Raises ToolError."""
        names, found = sorted(topics), list[str]()
        lists = tuple(side.replicas for side in SIDES)
        for first in range(0, len(names), _AT_ONCE):
            resources = tuple(
                configs.DescribeConfigsResource(
                    resource_type=i8(TOPIC_RESOURCE), resource_name=name, configuration_keys=lists
                )
                for name in names[first : first + _AT_ONCE]
            )
            answer = await self.ask(configs.DescribeConfigsRequest(
                resources=resources, include_synonyms=False, include_documentation=False
            ))  # fmt: skip
            found += [each.resource_name for each in answer.results if any(config.value for config in each.configs)]
        return found

    async def configure(self, changes: Iterable[ConfigChange], alive: Mapping[int, Broker]) -> list[int]:
        """Settings of topics and brokers. Returns brokers whose settings are as they were, because they are not alive:
        Apache Kafka takes those of a broker at that broker only. Raises ToolError: one of the others was refused."""
        of_topics: list[ConfigChange] = []
        of_broker: dict[int, list[ConfigChange]] = defaultdict(list)
        for change in changes:
            of_topic = change.resource_type == TOPIC_RESOURCE
            (of_topics if of_topic else of_broker[int(change.resource_name)]).append(change)
        if of_topics:
            await self._configure(of_topics, None)
        left = []
        for broker, its in of_broker.items():
            try:
                await self._configure(its, alive.get(broker))
            except ToolError:
                if broker in alive:
                    raise
                left.append(broker)
        return left

    async def _configure(self, changes: Iterable[ConfigChange], broker: Broker | None) -> None:
        answer = await self.ask(request_of(changes), broker)
        for each in answer.responses:
            if each.error_code is not ErrorCode.none:
                raise ToolError(f"{each.resource_name}: {each.error_message or each.error_code.name}")

    async def unregister(self, broker: int) -> str:
        """ "": it is no longer registered; NOT_REGISTERED: it was not. Else why it was refused. Raises ToolError."""
        answer = await self.ask(UnregisterBrokerRequest(broker_id=BrokerId(broker)))
        if answer.error_code is ErrorCode.broker_id_not_registered:
            return NOT_REGISTERED
        return "" if answer.error_code is ErrorCode.none else str(answer.error_message or answer.error_code.name)


def request_of(changes: Iterable[ConfigChange], *, validate_only: bool = False) -> IncrementalAlterConfigsRequest:
    """The answer tells of each topic and broker on its own whether it was changed."""
    resources: dict[tuple[int, str], list[AlterableConfig]] = {}
    for type_, resource, name, value in changes:
        operation = _DELETE if value is None else _SET
        config = AlterableConfig(name=name, config_operation=operation, value=value)
        resources.setdefault((type_, resource), []).append(config)
    return IncrementalAlterConfigsRequest(
        resources=tuple(
            AlterConfigsResource(resource_type=i8(type_), resource_name=resource, configs=tuple(configs))
            for (type_, resource), configs in resources.items()
        ),
        validate_only=validate_only,
    )


async def state_once(cluster: Cluster, holds: Callable[[State], bool], wait: float) -> State:
    """The state once this holds of it, or after so many seconds: a broker may lag behind the controller. Raises
    ToolError."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + wait
    while True:
        state = await cluster.state()
        if holds(state) or loop.time() >= deadline:
            return state
        await asyncio.sleep(_PAUSE_S)


def _ids(brokers: Iterable[Any]) -> Replicas:
    return tuple(int(broker) for broker in brokers)
