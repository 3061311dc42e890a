"""Power loss: what the page cache held is gone, directory entries included.

With acks=all the protocol keeps acknowledged records through MinISR - 1 lossy unclean shutdowns at a time. So
`power-outage` cuts one failure domain and waits until its replicas are back in sync before the next;
`power-outage-cluster` deliberately cuts every broker at the same moment.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

from harness.cluster import Cluster, Evidence, Node
from nemesis import EVERYWHERE, Draw, Situation, Targets, by_node, pick, pinned


class PowerOutage:
    """Cuts the power of one rack at a time: its brokers and its controllers."""

    name = "power-outage"
    summary = "cuts the power of one rack at a time, the next one only when its brokers are back in every ISR"
    preferred_targets: Targets = "random"
    waits_for_isr = True
    runtimes = EVERYWHERE

    def draw(self, random: Random) -> Draw:
        return Draw(
            gap=random.uniform(6.0, 9.0),
            duration=random.uniform(2.0, 3.0),
            choice={
                "rack": round(random.random(), 6),
                "in_write": _draw_in_write(random),
                "late_s": _draw_late(random),
            },
        )

    def choose(self, choice: Mapping[str, Any], situation: Situation) -> Sequence[Node]:
        if (named := pinned(choice, situation)) is not None:
            return named
        cluster = situation.cluster
        rack = pick(sorted({node.rack for node in cluster.brokers}), choice["rack"])
        return _all_or_none([node for node in cluster.nodes if node.rack == rack], situation)

    async def inject(self, cluster: Cluster, nodes: Sequence[Node], choice: Mapping[str, Any]) -> Evidence:
        cuts = (node.cut_power(in_write=choice["in_write"], late_s=choice["late_s"]) for node in nodes)
        return by_node(nodes, await asyncio.gather(*cuts))

    async def heal(self, cluster: Cluster, nodes: Sequence[Node]) -> Evidence:
        await asyncio.gather(*(node.restore_power() for node in nodes))
        return {}

    def effective(self, evidence: Evidence) -> bool:
        return any(evidence.get(key, 0) > 0 for key in ("unsynced_bytes", "unsynced_files", "unsynced_records"))


class PowerOutageCluster(PowerOutage):
    """Cuts the power of all brokers at the same moment."""

    name = "power-outage-cluster"
    summary = "cuts the power of all brokers at the same moment: beyond what replication alone survives"

    def draw(self, random: Random) -> Draw:
        return Draw(
            gap=random.uniform(8.0, 11.0),
            duration=random.uniform(2.0, 4.0),
            choice={"in_write": _draw_in_write(random), "late_s": _draw_late(random)},
        )

    def choose(self, choice: Mapping[str, Any], situation: Situation) -> Sequence[Node]:
        if (named := pinned(choice, situation)) is not None:
            return named
        return _all_or_none(situation.cluster.brokers, situation)


def _draw_in_write(random: Random) -> int:
    """See Node.cut_power. Half of the cuts come at once; the others tear one of the node's next few operations."""
    return random.randint(1, 8) if random.random() < 0.5 else 0


def _draw_late(random: Random) -> float:
    """See Node.cut_power. In half of the cuts, most of them so long that some words come after the machine is back."""
    return round(random.uniform(1.0, 6.0), 3) if random.random() < 0.5 else 0.0


def _all_or_none(nodes: Sequence[Node], situation: Situation) -> Sequence[Node]:
    return nodes if len(situation.free_among(nodes)) == len(nodes) else ()
