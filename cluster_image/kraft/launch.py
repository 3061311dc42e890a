"""A node with KRaft as a process of its own: see cluster_image.__main__."""

from __future__ import annotations

import asyncio
import random
import time
from contextlib import AbstractContextManager

from cluster_image.config import Config
from cluster_image.config import parse as parse
from cluster_image.network import Address, Network
from cluster_image.network.tasks import Failed
from cluster_image.storage.disk import Disk
from cluster_image.telemetry.trace import Trace

from . import bugs
from .node import Node


def switched_on(config: Config) -> AbstractContextManager[None]:
    """The bug that the configuration gives it is in the code for so long."""
    return bugs.switched_on(config["chaos.bug"] or None)


def node(config: Config, disk: Disk, network: Network, failed: Failed, trace: Trace) -> Node:
    if not config["metrics.port"]:
        return Node(config, disk, network, random.Random(), failed, wall_clock=time.time, trace=trace)
    from cluster_image.telemetry import scraping  # here: most nodes are better off without the library

    from . import metrics

    events = metrics.Events(config["node.id"], trace)
    counting = scraping.CountingNetwork(network)
    started = Node(config, disk, counting, random.Random(), failed, wall_clock=time.time, trace=events)
    collector = metrics.NodeCollector(started, config, events, counting.requests, asyncio.get_running_loop())
    scraping.serve(collector, Address(config.listener(config["process.roles"][0]).host, config["metrics.port"]))
    return started
