"""What a live cluster with ZooKeeper says of itself: its brokers as any that speak Kafka's protocol, and which of
ZooKeeper's servers leads the others."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from typing import Any

from cluster_image.network import Address, Foreign, Network
from cluster_image.network.tcp import TcpNetwork
from harness.cluster import Cluster, Node
from harness.targets.kafka_api.observer import REQUEST_TIMEOUT_S, KafkaObserver, why_out_of_sync
from harness.targets.v2.zookeeper.messages import Status
from harness.targets.view import ClusterView


class V2Observer(KafkaObserver):
    """idle_checks: v2.idle.checks. Without them an ISR grows only while something is produced, and so nobody may wait
    for that before or after: what has a leader is as ready as it gets."""

    def __init__(self, cluster: Cluster, network: Network, topic: str, *, idle_checks: bool) -> None:
        super().__init__(cluster, network, topic)
        self._idle_checks = idle_checks

    async def view(self) -> ClusterView:
        view = await super().view()
        if self._idle_checks or view.out_of_sync is None:
            return view
        everything = {
            broker: {index: replace(state, isr=state.replicas) for index, state in partitions.items()}
            for broker, partitions in view.partitions.items()
        }
        return replace(view, out_of_sync=why_out_of_sync(self._cluster.brokers, everything))

    async def _active_controller(self) -> int | None:
        """The id of the node that is ZooKeeper's leader."""
        servers = self._cluster.controllers
        leads = await asyncio.gather(*(self._leads(node) for node in servers))
        return next((node.id for node, does in zip(servers, leads, strict=True) if does), None)

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
