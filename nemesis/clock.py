"""Faults of a node's wall clock.

Replication may not depend on what time it is: leases, sessions and timeouts count monotonic time. What a wall clock may
reach is only what it stamps on records, and what is told from those stamps.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

from harness.cluster import Cluster, Evidence, Node
from nemesis import SIMULATION, Common, Draw, Situation, by_node, choose_node, draw_node, each


class ClockJump(Common):
    """The clock of one node jumps, by a tenth of a second up to a day, and later back."""

    name = "clock-jump"
    summary = "makes one node's wall clock jump ahead or back by 0.1 s up to a day, and later back to the true time"
    runtimes = SIMULATION

    def draw(self, random: Random) -> Draw:
        # As many jumps between 0.1 s and 1 s as between an hour and ten: what they break lies at any scale.
        offset_s = random.choice([-1, 1]) * 10 ** random.uniform(-1, 4.93)
        return Draw(
            gap=random.uniform(2.0, 5.0),
            duration=random.uniform(2.0, 8.0),
            choice={**draw_node(random), "offset_s": round(offset_s, 3)},
        )

    def choose(self, choice: Mapping[str, Any], situation: Situation) -> Sequence[Node]:
        return choose_node(choice, situation)

    async def inject(self, cluster: Cluster, nodes: Sequence[Node], choice: Mapping[str, Any]) -> Evidence:
        return by_node(nodes, await asyncio.gather(*(node.set_clock(choice["offset_s"]) for node in nodes)))

    async def heal(self, cluster: Cluster, nodes: Sequence[Node]) -> Evidence:
        await asyncio.gather(*(node.set_clock(0.0) for node in nodes))
        return {}  # the offset measured now would stand in the place of the one that was in force

    def effective(self, evidence: Evidence) -> bool:
        return any(seen.get("clock_offset_ms", 0) != 0 for seen in each(evidence))
