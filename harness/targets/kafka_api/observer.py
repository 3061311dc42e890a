"""What the live cluster says of itself: leaders, ISRs, the active controller. Asked over the Kafka protocol."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

from kio.schema.describe_quorum.v2 import request as describe_quorum
from kio.schema.metadata.v12 import request as metadata
from kio.schema.types import TopicName

from cluster_image.network import Address, Network
from cluster_image.wire.integers import i32
from harness.cluster import Cluster, Node
from harness.targets.view import ClusterView, PartitionState

#: Asked several times a second of nodes that may be dead, so not long; a healthy node answers within milliseconds.
REQUEST_TIMEOUT_S = 1.0
METADATA_TOPIC = TopicName("__cluster_metadata")


class KafkaObserver:
    """Asks each broker for its metadata, and the controllers for their leader."""

    def __init__(self, cluster: Cluster, network: Network, topic: str, quorum: ModuleType = describe_quorum) -> None:
        """quorum: kio's module of the DescribeQuorum version to ask for."""
        self._cluster = cluster
        self._network = network
        self._topic = topic
        self._quorum = quorum

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
        request = describe_quorum_request(self._quorum)
        controllers = self._cluster.controllers
        answers = await asyncio.gather(
            *(self._ask(node.controller_address or node.address, request) for node in controllers)
        )
        partitions = [p for answer in answers if answer for topic in answer.topics for p in topic.partitions]
        newest = max(partitions, key=lambda partition: partition.leader_epoch, default=None)
        return None if newest is None or newest.leader_id < 0 else int(newest.leader_id)

    async def _ask(self, address: tuple[str, int], request: Any) -> Any | None:
        return await ask(self._network, address, request)


def describe_quorum_request(module: ModuleType) -> Any:
    """module: kio's, of the version to ask for."""
    partition = module.PartitionData(partition_index=i32(0))
    return module.DescribeQuorumRequest(topics=(module.TopicData(topic_name=METADATA_TOPIC, partitions=(partition,)),))


async def ask(network: Network, address: tuple[str, int], request: Any) -> Any | None:
    """The response, or None from a node that does not answer. A new connection each time: after a fault an old one may
    be dead without either end knowing."""
    try:
        connection = await network.connect(Address(*address), client_id="chaos-observer", timeout=REQUEST_TIMEOUT_S)
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
