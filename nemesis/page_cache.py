"""The page cache of one broker is lost, and its process; the rest of its host lives on.

Less than a power cut: peers are told that the connections have ended, and the rack's other nodes go on. Least of all is
a cache that is only cold: what it held is on the disk, and has to be read from there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, ClassVar

from harness.cluster import Cluster, Evidence, Node
from nemesis import MACHINES, Common, Draw, Nemesis, Situation, by_node, choose_broker
from nemesis.power import LOST


class _Broker(Common):
    """Strikes one broker, with targets=leaders the one that leads most partitions."""

    name: str
    summary: str

    def draw(self, random: Random) -> Draw:
        return Draw(
            gap=random.uniform(4.0, 7.0), duration=random.uniform(1.0, 3.0), choice={"node": round(random.random(), 6)}
        )

    def choose(self, choice: Mapping[str, Any], situation: Situation) -> Sequence[Node]:
        return choose_broker(choice, situation)


class Clean(_Broker):
    """Simulated disks do not know it: their reads take no time, wherever the bytes are."""

    name = "page-cache:clean"
    summary = "drops what the page cache of one broker holds and its disk has too: nothing is lost, reads get slower"
    runtimes = MACHINES

    async def inject(self, cluster: Cluster, nodes: Sequence[Node], choice: Mapping[str, Any]) -> Evidence:
        return by_node(nodes, await asyncio.gather(*(node.drop_clean_pages() for node in nodes)))

    async def heal(self, cluster: Cluster, nodes: Sequence[Node]) -> Evidence:
        return {}

    def effective(self, evidence: Evidence) -> bool:
        return bool(evidence.get("dropped_bytes", 0) > 0)


class PageCache(_Broker):
    """Kills one broker and drops what its page cache had not written."""

    name = "page-cache"
    summary = "kills one broker and loses what its page cache had not written, then starts it again"
    waits_for_isr = True
    variants: ClassVar[Mapping[str, type[Nemesis]]] = {"clean": Clean}

    async def inject(self, cluster: Cluster, nodes: Sequence[Node], choice: Mapping[str, Any]) -> Evidence:
        return by_node(nodes, await asyncio.gather(*(node.lose_page_cache() for node in nodes)))

    async def heal(self, cluster: Cluster, nodes: Sequence[Node]) -> Evidence:
        await asyncio.gather(*(node.start() for node in nodes))
        return {}

    def effective(self, evidence: Evidence) -> bool:
        return any(evidence.get(key, 0) > 0 for key in LOST)
