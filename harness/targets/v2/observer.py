"""What a live cluster with ZooKeeper says of itself: its brokers as any that speak Kafka's protocol, and which of
ZooKeeper's servers leads the others."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from kio.schema.describe_log_dirs.v4.request import DescribeLogDirsRequest

from cluster_image.network import Address, Foreign, Network
from cluster_image.network.tcp import TcpNetwork
from harness.cluster import Cluster, Node
from harness.targets.kafka_api.observer import REQUEST_TIMEOUT_S, KafkaObserver, why_out_of_sync
from harness.targets.v2.zookeeper.messages import Status
from harness.targets.view import ClusterView


class V2Observer(KafkaObserver):
    """idle_checks: v2.idle.checks. Without them an ISR grows only while something is produced, and so nobody may wait
    for that before or after. Then whoever is outside of an ISR is as ready as it gets once its log holds what its
    leader's held a moment before: one whose fetcher stands still (004) never does."""

    def __init__(self, cluster: Cluster, network: Network, topic: str, *, idle_checks: bool) -> None:
        super().__init__(cluster, network, topic)
        self._idle_checks = self._waits_for_isrs = idle_checks
        self._sizes: Mapping[tuple[int, int], int] = {}  # bytes by broker and partition, when they were asked for last

    async def view(self) -> ClusterView:
        view = await super().view()
        if self._idle_checks or view.out_of_sync is None:
            return view
        everything = {
            broker: {index: replace(state, isr=state.replicas) for index, state in partitions.items()}
            for broker, partitions in view.partitions.items()
        }
        why = why_out_of_sync(self._cluster.brokers, everything)
        return replace(view, out_of_sync=why or await self._who_lags(view))

    async def _who_lags(self, view: ClusterView) -> str | None:
        brokers, before = self._cluster.brokers, self._sizes
        answers = await asyncio.gather(
            *(self._ask(node.address, DescribeLogDirsRequest(topics=None)) for node in brokers)
        )
        now = self._sizes = {
            (node.id, int(partition.partition_index)): int(partition.partition_size)
            for node, answer in zip(brokers, answers, strict=True)
            for log_dir in (answer.results if answer else ())
            for topic in log_dir.topics
            if topic.name == self._topic
            for partition in topic.partitions
        }
        for index, state in sorted(view.newest.items()):
            for broker in sorted(state.replicas - state.isr):
                own, leaders = now.get((broker, index)), before.get((state.leader, index))
                if own is None or leaders is None or own < leaders:
                    return (
                        f"broker {broker} is not in the ISR of partition {index} and has {own} bytes of it; broker "
                        f"{state.leader}, which leads it, has {now.get((state.leader, index))}"
                    )
        return None

    async def _active_controller(self) -> int | None:
        """The id of the node that is ZooKeeper's leader."""
        servers = self._cluster.controllers
        leads = await asyncio.gather(*(self._leads(node) for node in servers))
        return next((node.id for node, does in zip(servers, leads, strict=True) if does), None)

    async def _has_leader(self) -> bool | None:
        return await self._active_controller() is not None

    async def _leads(self, node: Node) -> bool:
        if isinstance(self._network, TcpNetwork):
            return "Mode: leader" in await four_letters(node.address, "srvr")
        return await self._model_leads(node)

    async def _model_leads(self, node: Node) -> bool:
        try:
            connection = await self._network.connect(
                Address(*node.address), client_id="chaos-observer", timeout=REQUEST_TIMEOUT_S
            )
        except (OSError, TimeoutError):
            return False
        try:
            answer: Any = await connection.request(Foreign(Status(False), 4), timeout=REQUEST_TIMEOUT_S)
            return bool(answer.content.leads)
        except (OSError, TimeoutError):
            return False
        finally:
            connection.close()


async def four_letters(address: tuple[str, int], command: str) -> str:
    """What Apache ZooKeeper answers to one of its commands; "": nothing."""
    with suppress(OSError, TimeoutError):
        async with asyncio.timeout(REQUEST_TIMEOUT_S):
            reader, writer = await asyncio.open_connection(*address)
            try:
                writer.write(command.encode())
                return (await reader.read()).decode(errors="replace")
            finally:
                writer.close()
    return ""
