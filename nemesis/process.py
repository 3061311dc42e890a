"""Faults of a process: `kill` ends it, `pause` freezes it. The page cache survives both.

A killed leader loses the records that no follower had fetched; a paused one may come back believing that it still
leads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

from harness.cluster import Cluster, Evidence, Node
from nemesis import EVERYWHERE, Draw, Situation, Targets, by_node, choose_node, draw_node, each


class Kill:
    """SIGKILL, and a start a little later."""

    name = "kill"
    summary = "kills one process with SIGKILL and starts it again"
    preferred_targets: Targets = "leaders"
    waits_for_isr = False
    runtimes = EVERYWHERE

    def draw(self, random: Random) -> Draw:
        return Draw(gap=random.uniform(2.0, 4.0), duration=random.uniform(1.0, 3.0), choice=draw_node(random))

    def choose(self, choice: Mapping[str, Any], situation: Situation) -> Sequence[Node]:
        return choose_node(choice, situation)

    async def inject(self, cluster: Cluster, nodes: Sequence[Node], choice: Mapping[str, Any]) -> Evidence:
        return by_node(nodes, await asyncio.gather(*(node.kill() for node in nodes)))

    async def heal(self, cluster: Cluster, nodes: Sequence[Node]) -> Evidence:
        await asyncio.gather(*(node.start() for node in nodes))
        return {}

    def effective(self, evidence: Evidence) -> bool:
        return any(seen.get("exit_status") is not None for seen in each(evidence))


class Pause:
    """Freezes a node for longer than a session lasts, or shorter: both matter."""

    name = "pause"
    summary = "freezes one node for 1 to 8 s, sometimes for longer than its session lasts"
    preferred_targets: Targets = "random"
    waits_for_isr = False
    runtimes = EVERYWHERE

    def draw(self, random: Random) -> Draw:
        # Half of them outlast broker.session.timeout.ms (3 s by default) and so cost the node its leaderships.
        short = random.random() < 0.5
        duration = random.uniform(1.0, 3.0) if short else random.uniform(3.5, 8.0)
        return Draw(gap=random.uniform(2.0, 5.0), duration=duration, choice=draw_node(random))

    def choose(self, choice: Mapping[str, Any], situation: Situation) -> Sequence[Node]:
        return choose_node(choice, situation)

    async def inject(self, cluster: Cluster, nodes: Sequence[Node], choice: Mapping[str, Any]) -> Evidence:
        return by_node(nodes, await asyncio.gather(*(node.pause() for node in nodes)))

    async def heal(self, cluster: Cluster, nodes: Sequence[Node]) -> Evidence:
        return by_node(nodes, await asyncio.gather(*(node.resume() for node in nodes)))

    def effective(self, evidence: Evidence) -> bool:
        return bool(evidence.get("frozen_ns", 0) > 0)
