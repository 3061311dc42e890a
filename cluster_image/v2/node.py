"""One broker of a cluster with ZooKeeper: wires it to its seams. Implements cluster_image.node.Node."""

from __future__ import annotations

import logging
from random import Random

from cluster_image.config import Config
from cluster_image.network import Network
from cluster_image.network.tasks import Failed
from cluster_image.storage.disk import Disk
from cluster_image.telemetry.trace import Trace, no_trace

from .server import BrokerServer
from .zookeeper import ZooKeeper

log = logging.getLogger(__name__)


class Node:
    """zookeeper: a client that is not started. random: the source of every random choice."""

    def __init__(
        self,
        config: Config,
        disk: Disk,
        network: Network,
        zookeeper: ZooKeeper,
        random: Random,
        failed: Failed,
        trace: Trace = no_trace,
    ) -> None:
        self._config = config
        self._network = network
        self._trace = trace
        self.broker = BrokerServer(config, disk, network, zookeeper, random, failed, trace)

    async def start(self) -> None:
        self._trace("start", node_id=self._config["node.id"], voters=())
        await self.broker.start()

    async def shut_down(self) -> None:
        log.info("shutting down")
        await self.broker.shut_down()
        await self._network.close()
        log.info("stopped")
