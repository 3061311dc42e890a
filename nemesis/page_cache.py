"""The page cache of one broker is lost, and its process; the rest of its host lives on.

Less than a power cut: peers are told that the connections have ended, and the rack's other nodes go on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

from harness.cluster import Cluster, Evidence, Node
from nemesis import Common, Draw, Situation, by_node, pick, pinned
from nemesis.power import LOST


class PageCache(Common):
    """Kills one broker and drops what its page cache had not written."""

    name = "page-cache"
    summary = "kills one broker and loses what its page cache had not written, then starts it again"
    waits_for_isr = True

    def draw(self, random: Random) -> Draw:
        return Draw(
            gap=random.uniform(4.0, 7.0), duration=random.uniform(1.0, 3.0), choice={"node": round(random.random(), 6)}
        )

    def choose(self, choice: Mapping[str, Any], situation: Situation) -> Sequence[Node]:
        if (named := pinned(choice, situation)) is not None:
            return named
        leader = situation.most_leading() if situation.targets == "leaders" else None
        broker = leader or pick(situation.free_among(situation.cluster.brokers), choice["node"])
        return [broker] if broker else []

    async def inject(self, cluster: Cluster, nodes: Sequence[Node], choice: Mapping[str, Any]) -> Evidence:
        return by_node(nodes, await asyncio.gather(*(node.lose_page_cache() for node in nodes)))

    async def heal(self, cluster: Cluster, nodes: Sequence[Node]) -> Evidence:
        await asyncio.gather(*(node.start() for node in nodes))
        return {}

    def effective(self, evidence: Evidence) -> bool:
        return any(evidence.get(key, 0) > 0 for key in LOST)
