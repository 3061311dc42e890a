"""A broker with ZooKeeper as a process of its own: see cluster_image.__main__."""

from __future__ import annotations

import asyncio
import random
from contextlib import AbstractContextManager

from cluster_image.config import Config
from cluster_image.config.v2 import parse as parse
from cluster_image.network import Address, Network
from cluster_image.network.tasks import Failed
from cluster_image.storage.disk import Disk
from cluster_image.telemetry.trace import Trace

from . import bugs
from .node import Node
from .zookeeper.kazoo_client import KazooZooKeeper


def switched_on(config: Config) -> AbstractContextManager[None]:
    """The bug that the configuration gives it is in the code for so long."""
    return bugs.switched_on(config["chaos.bug"] or None)


def node(config: Config, disk: Disk, network: Network, failed: Failed, trace: Trace) -> Node:
    zookeeper = KazooZooKeeper(config["zookeeper.connect"], config.seconds("zookeeper.session.timeout.ms"))
    if not config["metrics.port"]:
        return Node(config, disk, network, zookeeper, random.Random(), failed, trace=trace)
    from cluster_image.telemetry import scraping  # here: most nodes are better off without the library

    from . import metrics

    completed, counting = metrics.Completed(trace), scraping.CountingNetwork(network)
    started = Node(config, disk, counting, zookeeper, random.Random(), failed, trace=completed)
    collector = metrics.NodeCollector(started.broker, completed, counting.requests, asyncio.get_running_loop())
    scraping.serve(collector, Address(config.listener("broker").host, config["metrics.port"]))
    return started
