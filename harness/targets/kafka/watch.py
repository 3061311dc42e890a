"""What Kafka's nodes tell while they run, asked again and again: their nodes leave no trace of their own.

Rows are those of a trace (spark_history.schema.TRACE), of the node that told them, with the time of its answer:

| event | fields |
| --- | --- |
| start | node_id, voters: the first of each node, by the harness |
| metadata | offset: up to where the leader of the quorum takes the metadata log for committed; leader, epoch |
| quorum | epoch, leader, role: who leads it, as the leader says |
| answers, silent | : from now on |
| told | leader, leader_epoch, isr, replicas of a partition, as a broker has them; only what is new |
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import ModuleType
from typing import Any, Final

from kio.schema.metadata.v12 import request as metadata
from kio.schema.types import TopicName

from cluster_image.network import Network
from harness.cluster import Cluster, Node
from harness.targets.kafka_api.observer import ask, describe_quorum_request
from harness.targets.target import Told

METADATA_LOG: Final = "__cluster_metadata-0"


class KafkaWatch:
    """Implements harness.targets.target.Watch."""

    def __init__(self, cluster: Cluster, network: Network, topic: str, quorum: ModuleType) -> None:
        self._cluster = cluster
        self._network = network
        self._topic = topic
        self._quorum = describe_quorum_request(quorum)
        self._started = False
        self._told: dict[tuple[str, str], dict[str, Any]] = {}

    async def ask(self) -> Sequence[Told]:
        rows = [] if self._started else self._starts()
        self._started = True
        brokers, controllers = self._cluster.brokers, self._cluster.controllers
        of_brokers, of_controllers = await asyncio.gather(
            asyncio.gather(*map(self._of_broker, brokers)), asyncio.gather(*map(self._of_controller, controllers))
        )
        told = [*zip(brokers, of_brokers, strict=True), *zip(controllers, of_controllers, strict=True)]
        answers = dict(reversed(told))  # of a broker that is a controller as well, what it is as a broker
        for node, answer in answers.items():
            how = "silent" if answer is None else "answers"
            if self._is_new(node, "", {"how": how}):
                rows.append(Told(node.name, how, "", {}))
        return [*rows, *(row for _, answer in told for row in answer or ())]

    def _is_new(self, node: Node, where: str, told: dict[str, Any]) -> bool:
        if self._told.get((node.name, where)) == told:
            return False
        self._told[node.name, where] = told
        return True

    def _starts(self) -> list[Told]:
        voters = [node.own_id for node in self._cluster.controllers]
        return [
            Told(node.name, "start", "", {"node_id": node.own_id, "voters": voters}) for node in self._cluster.machines
        ]

    async def _of_broker(self, node: Node) -> list[Told] | None:
        """None: it does not answer."""
        topic = metadata.MetadataRequestTopic(topic_id=None, name=TopicName(self._topic))
        answer = await ask(self._network, node.address, metadata.MetadataRequest(
            topics=(topic,), allow_auto_topic_creation=False, include_topic_authorized_operations=False
        ))  # fmt: skip
        if answer is None:
            return None
        rows = []
        for answered in answer.topics:
            for each in answered.partitions:
                where = f"{self._topic}-{int(each.partition_index)}"
                told = {
                    "leader": int(each.leader_id), "leader_epoch": int(each.leader_epoch),
                    "isr": sorted(map(int, each.isr_nodes)), "replicas": list(map(int, each.replica_nodes)),
                }  # fmt: skip
                if self._is_new(node, where, told):
                    rows.append(Told(node.name, "told", where, told))
        return rows

    async def _of_controller(self, node: Node) -> list[Told] | None:
        answer = await ask(self._network, node.controller_address or node.address, self._quorum)
        if answer is None:
            return None
        rows = []
        for each in (partition for topic in answer.topics for partition in topic.partitions):
            leader, epoch, offset = int(each.leader_id), int(each.leader_epoch), int(each.high_watermark)
            if leader != node.own_id or offset < 0:
                continue
            seen = {"leader": leader, "epoch": epoch}
            if self._is_new(node, METADATA_LOG, seen):
                rows.append(Told(node.name, "quorum", METADATA_LOG, {**seen, "role": "leader"}))
            rows.append(Told(node.name, "metadata", METADATA_LOG, {**seen, "offset": offset}))
        return rows
