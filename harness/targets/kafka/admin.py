"""KafkaAdmin for all of 3.7 to 4.3, whose brokers serve different versions of what is asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from kio.schema.alter_partition_reassignments.v0 import request as reassign
from kio.schema.alter_partition_reassignments.v1 import request as reassign_of_4
from kio.schema.describe_cluster.v0.request import DescribeClusterRequest
from kio.schema.describe_configs.v4 import request as configs
from kio.schema.metadata.v12 import request as metadata

from cluster_image.network import Connection, Network
from cluster_image.wire.integers import i8
from harness.cluster import Node
from harness.targets.admin import Metadata, Partition, Place
from harness.targets.kafka_api.admin import CONNECT_TIMEOUT_S, KafkaAdmin, ids_of
from harness.targets.kafka_api.api_versions import versions
from harness.targets.kafka_api.observer import ask

_ALTER_PARTITION_REASSIGNMENTS: Final = 45
_DESCRIBE_CLUSTER: Final = 60
_DESCRIBE_TOPIC_PARTITIONS: Final = 75
#: The type of a resource, and that of a setting that nobody has defined (ConfigResource, DescribeConfigsResponse).
_BROKER: Final = i8(4)
_UNKNOWN: Final = 0


async def unknown_settings(broker: Node, network: Network, names: Sequence[str]) -> Sequence[str]:
    """Which of these the broker has no definition of. A plugin may read them all the same."""
    resource = configs.DescribeConfigsResource(
        resource_type=_BROKER, resource_name=str(broker.id), configuration_keys=tuple(names)
    )
    answer = await ask(network, broker.address, configs.DescribeConfigsRequest(resources=(resource,)))
    described = [each for result in answer.results for each in result.configs] if answer is not None else []
    return sorted(str(each.name) for each in described if each.config_type == _UNKNOWN)


@dataclass
class ApacheAdmin(KafkaAdmin):
    #: Brokers that were there at any time: before 4.0 those that are fenced are not told of (KIP-1073), and their ids
    #: are not to be used again.
    _seen: set[int] = field(default_factory=set)

    async def fitting(self, connection: Connection, request: Any) -> Any:
        if not isinstance(request, reassign_of_4.AlterPartitionReassignmentsRequest):
            return request
        served = await versions(connection, CONNECT_TIMEOUT_S)
        return request if served.get(_ALTER_PARTITION_REASSIGNMENTS, 0) >= 1 else _of_before_4(request)

    async def told(self, connection: Connection) -> Metadata:
        served = await versions(connection, CONNECT_TIMEOUT_S)
        if served.get(_DESCRIBE_CLUSTER, 0) >= 2 and _DESCRIBE_TOPIC_PARTITIONS in served:
            found = await super().told(connection)
            self._seen |= found.registered
            return found
        answer = await connection.request(
            DescribeClusterRequest(include_cluster_authorized_operations=False), timeout=CONNECT_TIMEOUT_S
        )
        alive = tuple(sorted(int(broker.broker_id) for broker in answer.brokers))
        self._seen |= {*alive}
        return Metadata(alive, frozenset(self._seen), await _partitions(connection))


def _of_before_4(request: reassign_of_4.AlterPartitionReassignmentsRequest) -> Any:
    """Version 0, which has no allow_replication_factor_change: it is allowed."""
    topics = tuple(
        reassign.ReassignableTopic(name=topic.name, partitions=tuple(
            reassign.ReassignablePartition(partition_index=each.partition_index, replicas=each.replicas)
            for each in topic.partitions
        ))
        for topic in request.topics
    )  # fmt: skip
    return reassign.AlterPartitionReassignmentsRequest(timeout=request.timeout, topics=topics)


async def _partitions(connection: Connection) -> dict[Place, Partition]:
    """Without the ELR: where it is not told of there is none."""
    answer = await connection.request(
        metadata.MetadataRequest(
            topics=None, allow_auto_topic_creation=False, include_topic_authorized_operations=False
        ), timeout=CONNECT_TIMEOUT_S,
    )  # fmt: skip
    return {
        (str(topic.name), int(each.partition_index)): Partition(
            int(each.leader_id), int(each.leader_epoch), ids_of(each.replica_nodes), ids_of(each.isr_nodes), ()
        )
        for topic in answer.topics
        for each in topic.partitions
    }
