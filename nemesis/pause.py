"""Freezes nodes. Whoever was paused may come back believing that it still leads, and with words long since obsolete."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Literal

from harness.cluster import Cluster, Evidence, Node
from nemesis import Common, Draw, Situation, by_node, choose_node, draw_node, knob
from nemesis.groups import choose_group, variants_by_group

MOST_CPU_NS = 5_000_000  # that threads may run between being told to stop and standing still


@dataclass
class Pause(Common):
    """Freezes a node for longer than a session lasts, or shorter: both matter."""

    name = "pause"
    summary = "freezes one node, half of the time for longer than its session lasts"
    group = ""  # of nemesis.groups; none: one node, as --targets says
    how: Literal["freezer", "sigstop"] = knob(
        "freezer", "freezer", "sigstop", help="the cgroup's freezer, or SIGSTOP to the process"
    )

    def draw(self, random: Random) -> Draw:
        # Half of them outlast broker.session.timeout.ms and so cost the node its leaderships.
        session = self.timing.session
        short = random.random() < 0.5
        duration = random.uniform(1.0, session) if short else random.uniform(session + 0.5, session + 5.0)
        return Draw(gap=random.uniform(2.0, 5.0), duration=duration, choice=draw_node(random))

    def choose(self, choice: Mapping[str, Any], situation: Situation) -> Sequence[Node]:
        if self.group:
            return choose_group(self.group, choice, situation)
        return choose_node(choice, situation)

    async def inject(self, cluster: Cluster, nodes: Sequence[Node], choice: Mapping[str, Any]) -> Evidence:
        return by_node(nodes, await asyncio.gather(*(node.pause(self.how) for node in nodes)))

    async def heal(self, cluster: Cluster, nodes: Sequence[Node]) -> Evidence:
        return by_node(nodes, await asyncio.gather(*(node.resume() for node in nodes)))

    def effective(self, evidence: Evidence) -> bool:
        return bool(evidence.get("frozen_ns", 0) > 0 and evidence.get("cpu_ns_while_frozen", 0) < MOST_CPU_NS)


Pause.variants = variants_by_group(Pause, "freezes")
