"""Brokers of v2 in one process, over loopback and a directory each, on Apache ZooKeeper."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from random import Random

from cluster_image.config.v2 import parse
from cluster_image.network import Address
from cluster_image.network.tcp import TcpNetwork
from cluster_image.storage.disk import LocalDisk
from cluster_image.telemetry.trace import Trace, no_trace
from cluster_image.v2.node import Node
from cluster_image.v2.zookeeper.kazoo_client import KazooZooKeeper
from tests.clusters.local_cluster import free_ports
from tests.clusters.real_zookeeper import RealZooKeeper


class LocalV2:
    """Brokers 1.. ."""

    def __init__(
        self, directory: Path, zookeeper: RealZooKeeper, brokers: int = 3, trace: Trace = no_trace, **settings: str
    ) -> None:
        self._directory = directory
        self._zookeeper = zookeeper
        self._settings = settings
        self._trace = trace
        self.ports = dict(zip(range(1, brokers + 1), free_ports(brokers), strict=True))
        self.nodes: dict[int, Node] = {}

    def address(self, broker: int) -> Address:
        return Address("127.0.0.1", self.ports[broker])

    async def start(self, *ids: int) -> None:
        """These brokers, or all. Returns when they are registered."""
        async with asyncio.timeout(60), asyncio.TaskGroup() as group:
            for broker in ids or self.ports:
                group.create_task(self._start(broker))

    async def _start(self, broker: int) -> None:
        directory = self._directory / str(broker)
        directory.mkdir(parents=True, exist_ok=True)
        properties: Mapping[str, str] = {
            "node.id": str(broker),
            "cluster.id": "local",
            "zookeeper.connect": ",".join(map(str, self._zookeeper.addresses.values())),
            "listeners": str(self.address(broker)),
            "broker.rack": f"rack-{broker}",
            "log.dirs": str(directory),
            **self._settings,
        }
        config = parse("".join(f"{name}={value}\n" for name, value in properties.items()))
        zookeeper = KazooZooKeeper(config["zookeeper.connect"], config.seconds("zookeeper.session.timeout.ms"))
        node = self.nodes[broker] = Node(
            config, LocalDisk(str(directory)), TcpNetwork(), zookeeper, Random(broker), _fail,
            self._trace,
        )  # fmt: skip
        await node.start()

    async def stop(self, *ids: int) -> None:
        """As an operator does it."""
        for broker in ids or list(self.nodes):
            await self.nodes.pop(broker).shut_down()


def _fail(error: BaseException) -> None:
    raise error
