"""Network partitions between nodes. Clients still reach every node: a deposed leader must refuse them by itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

from harness.cluster import Cluster, Evidence, Node
from nemesis import EVERYWHERE, Draw, Situation, Targets, pick, pinned


class Partition:
    """Parts the nodes in two groups: one node alone, halves, or a leader away from all others.

    Half of the partitions are one-way: what the smaller group sends is lost and it still hears the others
    (`outgoing`), or it is heard and hears nothing (`incoming`).
    """

    name = "partition"
    summary = "parts the network, both ways or one: one node off, halves, or the leader of partitions or of the quorum"
    preferred_targets: Targets = "random"
    waits_for_isr = False
    runtimes = EVERYWHERE

    def draw(self, random: Random) -> Draw:
        variant = random.choice(["one", "halves", "leader", "active-controller"])
        return Draw(
            gap=random.uniform(3.0, 6.0),
            duration=random.uniform(3.0, 8.0),
            choice={
                "variant": variant,
                "node": round(random.random(), 6),
                "direction": random.choice(["both", "both", "outgoing", "incoming"]),
            },
        )

    def choose(self, choice: Mapping[str, Any], situation: Situation) -> Sequence[Node]:
        """The smaller group, which is cut off from all other nodes."""
        if (named := pinned(choice, situation)) is not None:
            return named
        nodes, free = situation.cluster.nodes, situation.free_among(situation.cluster.nodes)
        variant = choice["variant"]
        if variant == "active-controller":
            leader = next((node for node in free if node.id == situation.active_controller), None)
            return [leader] if leader else []
        if variant == "leader" or situation.targets == "leaders":
            broker = situation.most_leading()
            return [broker] if broker else []
        if variant == "halves":
            half = Random(choice["node"]).sample(range(len(nodes)), len(nodes) // 2)
            group = [nodes[i] for i in sorted(half)]
            return group if all(node in free for node in group) else []
        one = pick(free, choice["node"])
        return [one] if one else []

    async def inject(self, cluster: Cluster, nodes: Sequence[Node], choice: Mapping[str, Any]) -> Evidence:
        rest = [node for node in cluster.nodes if node not in nodes]
        direction = choice["direction"]
        groups = [rest, nodes] if direction == "incoming" else [nodes, rest]
        await cluster.partition(groups, one_way=direction != "both")
        return {"groups": [[node.name for node in group] for group in (nodes, rest)], "direction": direction}

    async def heal(self, cluster: Cluster, nodes: Sequence[Node]) -> Evidence:
        return await cluster.heal()

    def effective(self, evidence: Evidence) -> bool:
        return bool(evidence.get("packets_dropped", 0) > 0)
