"""The target `kraft` in simulation: the cluster's own code, on the simulated network and disks."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager
from random import Random
from typing import Any

from checkers.inside.kraft.simulated import BALANCED, Invariants
from cluster_image import node
from cluster_image.config import parse
from cluster_image.kraft import bugs
from cluster_image.kraft.node import Node
from cluster_image.telemetry.log_lines import JsonFormatter
from cluster_image.telemetry.trace import TraceLines
from harness.targets.kafka_api import timeouts
from harness.targets.target import ClusterPlan


class KraftProcess(Node):
    """Implements harness.targets.target.SimulatedProcess."""

    @property
    def loaded(self) -> bool:
        return self.raft.quorum is not None and (self.broker is None or self.broker.lifecycle is not None)

    async def run(self, stop: Any) -> None:
        await node.run(self, stop)


class SimulatedKraft:
    """Implements harness.targets.target.Simulated."""

    logger = "cluster_image"
    judged_by_traces = False

    def __init__(self, plan: ClusterPlan) -> None:
        self._plan = plan

    def process(
        self, configuration: str, disk: Any, network: Any, random: Random, failed: Callable[[BaseException], None],
        trace: Callable[..., None], wall_clock: Callable[[], float],
    ) -> KraftProcess:  # fmt: skip
        return KraftProcess(parse(configuration), disk, network, random, failed, trace=trace, wall_clock=wall_clock)

    def invariants(self) -> Invariants:
        settings = self._plan.settings
        elr_enabled = settings.get("eligible.leader.replicas.version", "1") != "0"
        strategy = settings.get("unclean.recovery.strategy", BALANCED)
        deletes_topics = settings.get("delete.topic.enable", "true").lower() != "false"
        session_s = timeouts.timing(self._plan).session
        return Invariants(self._plan.min_insync_replicas, elr_enabled, strategy, deletes_topics, session_s)

    def switched_on(self) -> AbstractContextManager[None]:
        return bugs.switched_on(self._plan.bug)

    def log_formatter(self, clock_ns: Callable[[], int]) -> logging.Formatter:
        return JsonFormatter(clock_ns)

    def trace_lines(self, node_id: int, write: Callable[[str], object], clock_ns: Callable[[], int]) -> TraceLines:
        return TraceLines(node_id, write, clock_ns)
