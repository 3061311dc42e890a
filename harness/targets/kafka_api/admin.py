"""An administrator's requests to the live cluster, over the Kafka protocol: metadata, elections, reassignments.

Any broker passes on what is for the controller. A request whose answer did not come may have been carried out, so each
one is made to be repeated.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final

from kio.schema.add_raft_voter.v0 import request as add_raft_voter
from kio.schema.alter_partition_reassignments.v1 import request as alter
from kio.schema.describe_cluster.v2.request import DescribeClusterRequest
from kio.schema.describe_configs.v4 import request as configs
from kio.schema.describe_log_dirs.v2.request import DescribeLogDirsRequest
from kio.schema.describe_quorum.v2 import request as describe_quorum
from kio.schema.describe_topic_partitions.v0 import request as describe
from kio.schema.elect_leaders.v2.request import ElectLeadersRequest
from kio.schema.errors import ErrorCode
from kio.schema.list_partition_reassignments.v0.request import ListPartitionReassignmentsRequest
from kio.schema.remove_raft_voter.v0.request import RemoveRaftVoterRequest
from kio.schema.types import BrokerId, TopicName
from kio.schema.unregister_broker.v0.request import UnregisterBrokerRequest
from kio.schema.update_features.v1 import request as update_features

from cluster_image.network import Address, Connection, Network
from cluster_image.placement.online import plan_online
from cluster_image.placement.spread import Spread
from cluster_image.wire.integers import i8, i16, i32, u16
from cluster_image.wire.messages import milliseconds
from harness.cluster import Node
from harness.targets.admin import (
    Ids,
    Load,
    Metadata,
    Move,
    Partition,
    Place,
    Quorum,
    Rebalancing,
    Refusal,
    Unanswered,
    newest,
)
from harness.targets.kafka_api.api_versions import features
from harness.targets.kafka_api.observer import describe_quorum_request
from harness.targets.kafka_api.properties import CONTROLLER_LISTENER

#: A broker waits so long, and longer, for the controller before it says that there was no answer.
REQUEST_TIMEOUT_S: Final = 5.0
CONNECT_TIMEOUT_S: Final = 1.0
#: Until somebody has answered.
PATIENCE_S: Final = 15.0
POLL_S: Final = 0.1
_PREFERRED: Final = i8(0)
_TOPIC: Final = i8(2)
#: No answer yet: another broker may know of a controller, or this one a little later.
_AGAIN: Final = frozenset({ErrorCode.request_timed_out, ErrorCode.not_controller})


@dataclass
class KafkaAdmin:
    """Implements harness.targets.admin.Admin. brokers: those there are at the moment, whether or not they run."""

    brokers: Callable[[], Sequence[Node]]
    network: Network
    #: Replicas as they were when anybody first looked, before any of them was moved.
    original: dict[Place, Ids] = field(default_factory=dict)
    #: By the name of a nemesis that is moving replicas or leaders: the partitions that it tells of. There is one at a
    #: time: two would undo each other's work.
    movers: dict[str, Sequence[Place]] = field(default_factory=dict)
    #: Features that an upgrade is done with, and the levels that they have.
    raised: dict[str, int] = field(default_factory=dict)

    async def metadata(self) -> Metadata:
        """The newest that any broker tells, partition by partition. Raises Unanswered."""
        deadline = _now() + PATIENCE_S
        while True:
            seen = [view for view in await self.views() if view is not None]
            if seen:
                break
            if _now() > deadline:
                raise Unanswered(f"no broker has told its metadata in {PATIENCE_S:g} s")
            await asyncio.sleep(POLL_S)
        found = newest(seen)
        own = {node.id: node.own_id for node in self.brokers()}
        for place, state in found.partitions.items():
            # A topic may have been made while a broker had both its own id and another.
            replicas = dict.fromkeys(own.get(replica, replica) for replica in state.replicas)
            self.original.setdefault(place, tuple(replicas))
        return found

    async def views(self) -> Sequence[Metadata | None]:
        """What each broker tells now, in order; None for one that does not answer."""
        return await asyncio.gather(*(self.view(node.address) for node in self.brokers()))

    async def reassign(self, targets: Mapping[Place, Ids | None]) -> Mapping[Place, Refusal]:
        """Give each partition these replicas, in this order, in place of what is under way; None: cancel that. Returns
        once it has begun, or is done where nobody is added. Of those refused, the reasons. Raises Unanswered."""
        if not targets:
            return {}
        of_topic: dict[str, list[Any]] = defaultdict(list)
        for (topic, index), replicas in targets.items():
            ids = None if replicas is None else tuple(map(BrokerId, replicas))
            of_topic[topic].append(alter.ReassignablePartition(partition_index=i32(index), replicas=ids))
        answer = await self._through_any(alter.AlterPartitionReassignmentsRequest(
            topics=tuple(
                alter.ReassignableTopic(name=TopicName(topic), partitions=tuple(partitions))
                for topic, partitions in of_topic.items()
            )
        ))  # fmt: skip
        return {
            (str(topic.name), int(partition.partition_index)): Refusal(
                partition.error_message or partition.error_code.name,
                is_gone=partition.error_code is ErrorCode.unknown_topic_or_partition,
            )
            for topic in answer.responses
            for partition in topic.partitions
            if partition.error_code is not ErrorCode.none
        }

    async def moves(self) -> Mapping[Place, Move]:
        """Every reassignment under way, as the controller has it. Raises Unanswered."""
        answer = await self._through_any(ListPartitionReassignmentsRequest(topics=None))
        return {
            (str(topic.name), int(each.partition_index)): Move(
                ids_of(each.replicas), ids_of(each.adding_replicas), ids_of(each.removing_replicas)
            )
            for topic in answer.topics
            for each in topic.partitions
        }

    async def rebalancing(self, brokers: Collection[int]) -> Rebalancing:
        """Over these brokers, from where replicas are going to be: nothing is changed yet. Raises Unanswered;
        ValueError, with a sentence: there are too few."""
        seen, moves = await self.metadata(), await self.moves()
        racks = {node.id: node.rack for node in self.brokers() if node.id in brokers}
        sizes = dict(zip(
            (node.id for node in self.brokers()),
            await asyncio.gather(*(self.sizes(node.address) for node in self.brokers())), strict=True,
        ))  # fmt: skip
        found = plan_online(
            {place: tuple(state.replicas) for place, state in seen.partitions.items()},
            {place: move.removing for place, move in moves.items()}, racks, sizes,
        )  # fmt: skip
        made = found.plan

        def loads(spread: Spread) -> dict[int, Load]:
            return {broker: Load(*counts) for broker, counts in found.loads(spread, racks).items()}

        return Rebalancing(
            {move.partition: move.after for move in made.moves}, made.replicas_moved, made.bytes_moved, made.is_least,
            loads(made.before), loads(made.after), found.assignment, found.weights, racks,
        )  # fmt: skip

    async def sizes(self, address: tuple[str, int]) -> dict[Place, int] | None:
        """Bytes of each partition that the broker there holds; None: it does not answer."""
        try:
            async with self._connected(address) as connection:
                answer = await connection.request(DescribeLogDirsRequest(topics=None), timeout=CONNECT_TIMEOUT_S)
        except (OSError, TimeoutError):
            return None
        return {
            (str(topic.name), int(each.partition_index)): int(each.partition_size)
            for result in answer.results
            for topic in result.topics
            for each in topic.partitions
        }

    async def unregister(self, broker: int) -> str:
        """It is no part of the cluster any more. "", or why it was refused. Raises Unanswered."""
        answer = await self._through_any(UnregisterBrokerRequest(broker_id=BrokerId(broker)))
        return "" if answer.error_code is ErrorCode.broker_id_not_registered else _refusal(answer)

    async def elect_preferred(self) -> None:
        """Of every partition the first replica leads from now on, if it may. Raises Unanswered."""
        await self._through_any(ElectLeadersRequest(election_type=_PREFERRED, topic_partitions=None))

    async def min_insync_replicas(self, topic: str) -> int:
        """Raises Unanswered."""
        resource = configs.DescribeConfigsResource(
            resource_type=_TOPIC, resource_name=topic, configuration_keys=("min.insync.replicas",)
        )
        answer = await self._through_any(configs.DescribeConfigsRequest(resources=(resource,)))
        return next((int(each.value) for result in answer.results for each in result.configs), 1)

    async def supported(self, address: tuple[str, int]) -> Mapping[str, int]:
        """By feature, up to which level the node there supports it. Nothing: it does not say."""
        try:
            async with self._connected(address) as connection:
                return (await features(connection, CONNECT_TIMEOUT_S))[0]
        except (OSError, TimeoutError):
            return {}

    async def features(self) -> Mapping[str, tuple[int, int]]:
        """By feature, up to which level every broker that answers supports it, and which is in force (0: not). Raises
        Unanswered."""
        told = []
        for node in self.brokers():
            with suppress(OSError, TimeoutError):
                async with self._connected(node.address) as connection:
                    told.append(await features(connection, CONNECT_TIMEOUT_S))
        if not told:
            raise Unanswered("no broker has told which features there are")
        names = set.intersection(*({*supported} for supported, _ in told))
        return {
            name: (min(supported[name] for supported, _ in told), max(level.get(name, 0) for _, level in told))
            for name in sorted(names)
        }

    async def raise_feature(self, name: str, level: int) -> str:
        """Returns once it is in force: "". Else why it was refused. Raises Unanswered."""
        update = update_features.FeatureUpdateKey(feature=name, max_version_level=i16(level))
        answer = await self._through_any(update_features.UpdateFeaturesRequest(feature_updates=(update,)))
        if answer.error_code is not ErrorCode.none:
            return str(answer.error_message or answer.error_code.name)
        refused = [each for each in answer.results if each.error_code is not ErrorCode.none]
        return str(refused[0].error_message or refused[0].error_code.name) if refused else ""

    async def quorum(self) -> Quorum:
        """Raises Unanswered."""
        deadline = _now() + PATIENCE_S
        while True:
            answer = await self._through_any(describe_quorum_request(describe_quorum))
            for each in (partition for topic in answer.topics for partition in topic.partitions):
                if each.error_code is ErrorCode.none and each.leader_id >= 0:
                    return Quorum(int(each.leader_id), _replicas(each.current_voters), _replicas(each.observers))
            if _now() > deadline:
                raise Unanswered(f"no broker has told of the metadata quorum in {PATIENCE_S:g} s")
            await asyncio.sleep(POLL_S)

    async def add_voter(self, node_id: int, directory: str, address: tuple[str, int]) -> str:
        """Returns once that is committed: "". Else why it was refused. Raises Unanswered."""
        host, port = address
        answer = await self._through_any(add_raft_voter.AddRaftVoterRequest(
            cluster_id=None, timeout=milliseconds(round(REQUEST_TIMEOUT_S * 1000)),
            voter_id=i32(node_id), voter_directory_id=uuid.UUID(directory),
            listeners=(add_raft_voter.Listener(name=CONTROLLER_LISTENER, host=host, port=u16(port)),),
        ))  # fmt: skip
        return _refusal(answer)

    async def remove_voter(self, node_id: int, directory: str) -> str:
        """Returns once that is committed: "". Else why it was refused. Raises Unanswered."""
        return _refusal(await self._through_any(RemoveRaftVoterRequest(
            cluster_id=None, voter_id=i32(node_id), voter_directory_id=uuid.UUID(directory)
        )))  # fmt: skip

    async def _through_any(self, request: Any) -> Any:
        """The answer of the first broker that has one."""
        deadline = _now() + PATIENCE_S
        while True:
            for node in self.brokers():
                try:
                    async with self._connected(node.address) as connection:
                        fitting = await self.fitting(connection, request)
                        answer = await connection.request(fitting, timeout=REQUEST_TIMEOUT_S)
                except (OSError, TimeoutError):
                    continue
                if getattr(answer, "error_code", ErrorCode.none) not in _AGAIN:
                    return answer
            if _now() > deadline:
                name = type(request).__name__.removesuffix("Request")
                raise Unanswered(f"no broker has had {name} carried out in {PATIENCE_S:g} s")
            await asyncio.sleep(POLL_S)

    async def fitting(self, connection: Connection, request: Any) -> Any:
        """The request in a version that the broker there serves. Raises OSError, TimeoutError."""
        return request

    async def view(self, address: tuple[str, int]) -> Metadata | None:
        """What the broker there tells now; None: it does not answer."""
        try:
            async with self._connected(address) as connection:
                return await self.told(connection)
        except (OSError, TimeoutError):
            return None

    async def told(self, connection: Connection) -> Metadata:
        """What the broker there tells. Raises OSError, TimeoutError."""
        answer = await connection.request(
            DescribeClusterRequest(include_cluster_authorized_operations=False, include_fenced_brokers=True),
            timeout=CONNECT_TIMEOUT_S,
        )
        partitions = [each async for each in _partitions(connection)]
        brokers = sorted(int(broker.broker_id) for broker in answer.brokers if not broker.is_fenced)
        return Metadata(tuple(brokers), frozenset(int(broker.broker_id) for broker in answer.brokers), dict(partitions))

    @asynccontextmanager
    async def _connected(self, address: tuple[str, int]) -> Any:
        """A new connection each time: after a fault an old one may be dead without either end knowing."""
        connection = await self.network.connect(Address(*address), client_id="chaos-admin", timeout=CONNECT_TIMEOUT_S)
        try:
            yield connection
        finally:
            connection.close()


async def _partitions(connection: Connection) -> Any:
    """(place, state) of every partition, page by page."""
    cursor = None
    while True:
        answer = await connection.request(
            describe.DescribeTopicPartitionsRequest(topics=(), cursor=cursor), timeout=CONNECT_TIMEOUT_S
        )
        for topic in answer.topics:
            for each in topic.partitions:
                yield (str(topic.name), int(each.partition_index)), Partition(
                    int(each.leader_id), int(each.leader_epoch), ids_of(each.replica_nodes), ids_of(each.isr_nodes),
                    ids_of(each.eligible_leader_replicas or ()),
                )  # fmt: skip
        if (following := answer.next_cursor) is None:
            return
        cursor = describe.Cursor(topic_name=following.topic_name, partition_index=following.partition_index)


def _replicas(described: Sequence[Any]) -> dict[int, str]:
    return {int(each.replica_id): str(each.replica_directory_id or uuid.UUID(int=0)) for each in described}


def _refusal(answer: Any) -> str:
    return "" if answer.error_code is ErrorCode.none else str(answer.error_message or answer.error_code.name)


def ids_of(brokers: Sequence[Any]) -> Ids:
    return tuple(int(broker) for broker in brokers)


def _now() -> float:
    return asyncio.get_running_loop().time()
