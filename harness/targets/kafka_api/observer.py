"""What the live cluster says of itself: leaders, ISRs, the active controller. Asked over the Kafka protocol."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from kio.schema.describe_quorum.v2 import request as describe_quorum
from kio.schema.metadata.v12 import request as metadata
from kio.schema.types import TopicName

from cluster_image.network import Address, Network
from cluster_image.wire.integers import i32
from harness.cluster import Cluster, Node

#: Asked several times a second of nodes that may be dead, so not long; a healthy node answers within milliseconds.
REQUEST_TIMEOUT_S = 1.0
METADATA_TOPIC = TopicName("__cluster_metadata")


@dataclass(frozen=True)
class PartitionState:
    leader: int  # broker id; -1: none
    leader_epoch: int
    replicas: frozenset[int]
    isr: frozenset[int]


@dataclass(frozen=True)
class ClusterView:
    """What every node that answered knows, at one moment."""

    #: By broker id and partition. A broker that did not answer, or does not know the topic, is not in it.
    partitions: Mapping[int, Mapping[int, PartitionState]]
    active_controller: int | None
    out_of_sync: str | None  # why not every replica is in its ISR, as a clause; None: they all are

    @property
    def leaders(self) -> Mapping[int, int]:
        """Broker id: number of partitions it leads, by the newest leader epoch that any broker knows."""
        return Counter(state.leader for state in self._newest().values())

    @property
    def isrs(self) -> Mapping[int, frozenset[int]]:
        """By partition, as of the newest leader epoch; of equal ones the smallest."""
        return {partition: state.isr for partition, state in self._newest().items()}

    def _newest(self) -> dict[int, PartitionState]:
        newest: dict[int, PartitionState] = {}
        for partitions in self.partitions.values():
            for partition, state in partitions.items():
                known = newest.get(partition)
                if known is None or (state.leader_epoch, -len(state.isr)) > (known.leader_epoch, -len(known.isr)):
                    newest[partition] = state
        return newest

    def not_back(self, nodes: Sequence[Node]) -> str | None:
        """Why not each of these brokers is again in the ISR of all that it replicates, as a clause; None: they are.

        Each must say so itself: it serves metadata only once it has read its own new registration, which took it out of
        the ISRs."""
        for node in nodes:
            if node.role != "broker":
                continue
            if node.id not in self.partitions:
                return f"{node.name} does not answer or does not know the topic"
            for partition, state in sorted(self.partitions[node.id].items()):
                if node.id in state.replicas - state.isr:
                    return f"{node.name} is not in the ISR of partition {partition}"
        return None


class Observer(Protocol):
    async def view(self) -> ClusterView:
        """Ask every node now. Never raises for nodes that do not answer."""


class KafkaObserver:
    """Asks each broker for its metadata, and the controllers for their leader."""

    def __init__(self, cluster: Cluster, network: Network, topic: str) -> None:
        self._cluster = cluster
        self._network = network
        self._topic = topic

    async def view(self) -> ClusterView:
        brokers = self._cluster.brokers
        answers, controller = await asyncio.gather(
            asyncio.gather(*(self._partitions(node) for node in brokers)), self._active_controller()
        )
        known = {node.id: answer for node, answer in zip(brokers, answers, strict=True) if answer}
        return ClusterView(known, controller, why_out_of_sync(brokers, known))

    async def _partitions(self, node: Node) -> dict[int, PartitionState]:
        topic = metadata.MetadataRequestTopic(topic_id=None, name=TopicName(self._topic))
        request = metadata.MetadataRequest(
            topics=(topic,), allow_auto_topic_creation=False, include_topic_authorized_operations=False
        )
        response = await self._ask(node.address, request)
        return {
            partition.partition_index: PartitionState(
                partition.leader_id,
                partition.leader_epoch,
                frozenset(partition.replica_nodes),
                frozenset(partition.isr_nodes),
            )
            for answered in (response.topics if response else ())
            for partition in answered.partitions
        }

    async def _active_controller(self) -> int | None:
        request = describe_quorum.DescribeQuorumRequest(
            topics=(
                describe_quorum.TopicData(
                    topic_name=METADATA_TOPIC, partitions=(describe_quorum.PartitionData(partition_index=i32(0)),)
                ),
            )
        )
        controllers = self._cluster.controllers
        answers = await asyncio.gather(
            *(self._ask(node.controller_address or node.address, request) for node in controllers)
        )
        partitions = [p for answer in answers if answer for topic in answer.topics for p in topic.partitions]
        newest = max(partitions, key=lambda partition: partition.leader_epoch, default=None)
        return None if newest is None or newest.leader_id < 0 else int(newest.leader_id)

    async def _ask(self, address: tuple[str, int], request: Any) -> Any | None:
        """The response, or None from a node that does not answer. A new connection each time: after a fault an old
        one may be dead without either end knowing."""
        try:
            connection = await self._network.connect(
                Address(*address), client_id="chaos-observer", timeout=REQUEST_TIMEOUT_S
            )
        except (OSError, TimeoutError):
            return None
        try:
            return await connection.request(request, timeout=REQUEST_TIMEOUT_S)
        except (OSError, TimeoutError):
            return None
        finally:
            connection.close()


def why_out_of_sync(brokers: Sequence[Node], known: Mapping[int, Mapping[int, PartitionState]]) -> str | None:
    """Why not every replica is in its ISR, or None.

    Every broker must answer and agree. The one that came back last matters most: others may not have noticed yet
    that it was gone, while it serves metadata only once it has read its own new registration, which took it out of
    the ISRs.
    """
    for node in brokers:
        if node.id not in known:
            return f"{node.name} does not answer or does not know the topic"
    for node in brokers:
        for partition, state in sorted(known[node.id].items()):
            if state.leader < 0:
                return f"partition {partition} has no leader, says {node.name}"
            if missing := state.replicas - state.isr:
                names = ", ".join(str(broker) for broker in sorted(missing))
                return f"broker {names} is not in the ISR of partition {partition}, says {node.name}"
    return None
