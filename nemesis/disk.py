"""Faults of a node's disk while its power stays on. A node whose disk fails it ends by itself; healing starts it again.

A full disk loses nothing that was written: the page cache outlives the process. An I/O error is worse: what a failed
sync was to save is gone, and on that broker the fault is an unclean shutdown like a power cut.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, ClassVar

from harness.cluster import Cluster, Evidence, Node
from nemesis import Common, Draw, Nemesis, Situation, by_node, choose_node, draw_node


class DiskFull(Common):
    """No room is left on the disk of one node."""

    name = "disk-full"
    summary = "fills the disk of one node, which ends at its next write, and starts it again when there is room"

    def draw(self, random: Random) -> Draw:
        return Draw(gap=random.uniform(3.0, 6.0), duration=random.uniform(1.0, 4.0), choice=draw_node(random))

    def choose(self, choice: Mapping[str, Any], situation: Situation) -> Sequence[Node]:
        return choose_node(choice, situation)

    async def inject(self, cluster: Cluster, nodes: Sequence[Node], choice: Mapping[str, Any]) -> Evidence:
        return by_node(nodes, await asyncio.gather(*(node.fill_disk() for node in nodes)))

    async def heal(self, cluster: Cluster, nodes: Sequence[Node]) -> Evidence:
        evidence = await asyncio.gather(*(node.free_disk() for node in nodes))
        await _start_the_dead(nodes)
        return by_node(nodes, evidence)

    def effective(self, evidence: Evidence) -> bool:
        return bool(evidence.get("refused_writes", 0) > 0)


class DiskError(Common):
    """Every operation on the disk of one node fails."""

    name = "disk-error"
    summary = "fails every operation on the disk of one node, which ends at the first; otherwise as power-outage"
    waits_for_isr = True

    def draw(self, random: Random) -> Draw:
        return Draw(gap=random.uniform(5.0, 8.0), duration=random.uniform(1.0, 3.0), choice=draw_node(random))

    def choose(self, choice: Mapping[str, Any], situation: Situation) -> Sequence[Node]:
        return choose_node(choice, situation)

    async def inject(self, cluster: Cluster, nodes: Sequence[Node], choice: Mapping[str, Any]) -> Evidence:
        return by_node(nodes, await asyncio.gather(*(node.fail_disk() for node in nodes)))

    async def heal(self, cluster: Cluster, nodes: Sequence[Node]) -> Evidence:
        evidence = await asyncio.gather(*(node.repair_disk() for node in nodes))
        await _start_the_dead(nodes)
        return by_node(nodes, evidence)

    def effective(self, evidence: Evidence) -> bool:
        return bool(evidence.get("failed_operations", 0) > 0)


class Full(DiskFull):
    name = "disk:full"


class Error(DiskError):
    name = "disk:error"


class Disk(DiskFull):
    name = "disk"
    variants: ClassVar[Mapping[str, type[Nemesis]]] = {"full": Full, "error": Error}


async def _start_the_dead(nodes: Sequence[Node]) -> None:
    for node in nodes:
        if not await node.is_running():
            await node.start()
