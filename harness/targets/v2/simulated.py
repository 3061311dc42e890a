"""The target `v2` in simulation: its brokers' own code, and a model of ZooKeeper's servers."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager
from random import Random
from typing import Any

from checkers.inside.v2.simulated import Invariants
from cluster_image import node
from cluster_image.config import v2
from cluster_image.network import Address
from cluster_image.telemetry.log_lines import JsonFormatter
from cluster_image.telemetry.trace import TraceLines
from cluster_image.v2 import bugs
from cluster_image.v2.node import Node
from harness.targets.target import ClusterPlan, SimulatedProcess
from harness.targets.v2 import properties
from harness.targets.v2.zookeeper.server import ZooKeeperServer
from harness.targets.v2.zookeeper.session import ModelZooKeeper

_SERVER = "server."


class BrokerProcess(Node):
    """Implements harness.targets.target.SimulatedProcess."""

    @property
    def loaded(self) -> bool:
        return self.broker.loaded

    async def run(self, stop: Any) -> None:
        await node.run(self, stop)


class SimulatedV2:
    """Implements harness.targets.target.Simulated."""

    logger = "cluster_image"
    judged_by_traces = True

    def __init__(self, plan: ClusterPlan) -> None:
        self._plan = plan

    def process(
        self, configuration: str, disk: Any, network: Any, random: Random, failed: Callable[[BaseException], None],
        trace: Callable[..., None], wall_clock: Callable[[], float],
    ) -> SimulatedProcess:  # fmt: skip
        given = properties.read(configuration)
        if properties.NUMBER in given:
            servers = _servers(given)
            return ZooKeeperServer(
                int(given[properties.NUMBER]), servers, disk, network, random, failed, trace, wall_clock=wall_clock
            )
        config = v2.parse(configuration)
        session_timeout = config.seconds("zookeeper.session.timeout.ms")
        zookeeper = ModelZooKeeper(config["zookeeper.connect"], network, random, session_timeout)
        return BrokerProcess(config, disk, network, zookeeper, random, failed, trace)

    def invariants(self) -> Invariants:
        return Invariants()

    def switched_on(self) -> AbstractContextManager[None]:
        return bugs.switched_on(self._plan.bug)

    def log_formatter(self, clock_ns: Callable[[], int]) -> logging.Formatter:
        return JsonFormatter(clock_ns)

    def trace_lines(self, node_id: int, write: Callable[[str], object], clock_ns: Callable[[], int]) -> TraceLines:
        return TraceLines(node_id, write, clock_ns)


def _servers(given: Any) -> dict[int, Address]:
    """The model's servers talk to each other where they serve clients."""
    found = {}
    for name, value in given.items():
        if name.startswith(_SERVER):
            host, _, rest = value.partition(":")
            found[int(name.removeprefix(_SERVER))] = Address(host, int(rest.rpartition(":")[2]))
    return found
