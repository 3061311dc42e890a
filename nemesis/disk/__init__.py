"""Faults of a node's disk while its power stays on. A node whose disk fails it ends by itself; healing starts it again.

A full disk loses nothing that was written: the page cache outlives the process. An I/O error is worse: what a failed
sync was to save is gone, and on that broker the fault is an unclean shutdown like a power cut.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, ClassVar

from harness.cluster import Cluster, ClusterLost, Evidence, Node
from harness.errors import describe
from nemesis import (
    Common,
    Draw,
    Nemesis,
    Situation,
    by_node,
    choose_broker,
    choose_node,
    draw_node,
    each,
    knob,
    start_the_dead,
)
from nemesis.at_operation import ErrorOnce
from nemesis.disk.stopped import CorruptStopped, Replaced, Restored

#: A disk is slow for certain when a write takes so many times as long as before.
_CLEARLY = 2


class _Refusing(Common):
    """A disk that refuses from one moment to another what its node asks of it. The node ends by itself then."""

    name: str
    summary: str
    gap_s: ClassVar[tuple[float, float]] = (3.0, 6.0)
    duration_s: ClassVar[tuple[float, float]] = (1.0, 4.0)
    counted: ClassVar[str] = "refused_writes"  # the evidence of what was refused

    def draw(self, random: Random) -> Draw:
        gap, duration = random.uniform(*self.gap_s), random.uniform(*self.duration_s)
        return Draw(gap, duration, choice=draw_node(random))

    def choose(self, choice: Mapping[str, Any], situation: Situation) -> Sequence[Node]:
        return choose_node(choice, situation)

    async def strike(self, node: Node) -> Evidence:
        raise NotImplementedError

    async def mend(self, node: Node) -> Evidence:
        raise NotImplementedError

    async def inject(self, cluster: Cluster, nodes: Sequence[Node], choice: Mapping[str, Any]) -> Evidence:
        return by_node(nodes, await asyncio.gather(*map(self.strike, nodes)))

    async def heal(self, cluster: Cluster, nodes: Sequence[Node]) -> Evidence:
        evidence = await asyncio.gather(*map(self.mend, nodes))
        await start_the_dead(nodes)
        return by_node(nodes, evidence)

    def effective(self, evidence: Evidence) -> bool:
        return bool(evidence.get(self.counted, 0) > 0)


class DiskFull(_Refusing):
    """No room is left on the disk of one node."""

    name = "disk-full"
    summary = "fills the disk of one node, which ends at its next write, and starts it again when there is room"

    async def strike(self, node: Node) -> Evidence:
        return await node.fill_disk()

    async def mend(self, node: Node) -> Evidence:
        return await node.free_disk()


class DiskError(_Refusing):
    """Every operation on the disk of one node fails."""

    name = "disk-error"
    summary = "fails every operation on the disk of one node, which ends at the first; otherwise as power-outage"
    waits_for_isr = True
    gap_s = (5.0, 8.0)
    duration_s = (1.0, 3.0)
    counted = "failed_operations"

    async def strike(self, node: Node) -> Evidence:
        return await node.fail_disk()

    async def mend(self, node: Node) -> Evidence:
        return await node.repair_disk()


class ReadOnly(_Refusing):
    """The page cache outlives it: everything was written before writes were refused."""

    name = "disk:read-only"
    summary = "mounts the disk of one node read-only, as Linux does after an error; the node ends at its next write"

    async def strike(self, node: Node) -> Evidence:
        return await node.make_disk_read_only()

    async def mend(self, node: Node) -> Evidence:
        return await node.make_disk_writable()


@dataclass
class Slow(Common):
    """A sync keeps the node's only thread: what it owes to others, heartbeats among them, waits meanwhile."""

    name = "disk:slow"
    summary = "limits what the process of one node reads and writes of its disk"
    needs = frozenset({"io-limit"})
    bytes_per_s: float = knob(0, 0, 1 << 30, help="of reads and of writes; 0: drawn, 32 KiB to 1 MiB")
    iops: float = knob(0, 0, 100_000, help="reads and writes a second, of each; 0: drawn, 5 to 50")

    def draw(self, random: Random) -> Draw:
        choice = {
            **draw_node(random),
            "bytes_per_s": int(2 ** random.uniform(15, 20)),
            "iops": random.randint(5, 50),
        }
        asked = {"bytes_per_s": int(self.bytes_per_s), "iops": int(self.iops)}
        return Draw(
            gap=random.uniform(3.0, 6.0),
            duration=random.uniform(5.5, 9.0),  # an idle broker syncs its checkpoints every 5 s
            choice=choice | {key: value for key, value in asked.items() if value},
        )

    def choose(self, choice: Mapping[str, Any], situation: Situation) -> Sequence[Node]:
        return choose_node(choice, situation)

    async def inject(self, cluster: Cluster, nodes: Sequence[Node], choice: Mapping[str, Any]) -> Evidence:
        slowed = (node.slow_disk(choice["bytes_per_s"], choice["iops"]) for node in nodes)
        return by_node(nodes, await asyncio.gather(*slowed))

    async def heal(self, cluster: Cluster, nodes: Sequence[Node]) -> Evidence:
        evidence = await asyncio.gather(*(node.hasten_disk() for node in nodes))
        await start_the_dead(nodes)
        return by_node(nodes, evidence)

    def effective(self, evidence: Evidence) -> bool:
        return evidence.get("slowed_syncs", 0) > 0 or any(
            seen.get("write_ms_while", 0) > _CLEARLY * seen.get("write_ms_before", 0) for seen in each(evidence)
        )


@dataclass
class Corrupt(Common):
    """What a broker reads when it starts is damaged while it is down: killed, so that its start is an unclean one. It
    may find its log shorter than it was, which makes this lossy."""

    name = "disk:corrupt"
    summary = "kills one broker, damages a closed segment or a checkpoint on its disk, and starts it on that"
    waits_for_isr = True
    what: str = knob("drawn", "drawn", "segment", "index", "checkpoint", help="drawn: a closed segment if there is one")
    how: str = knob("drawn", "drawn", "flip", "truncate", help="one bit is another, or the end is gone")

    def draw(self, random: Random) -> Draw:
        what = random.choice([["segment", "checkpoint"], ["segment", "checkpoint"], ["checkpoint"]])
        how = random.choice(["flip", "truncate"])
        drawn = {key: round(random.random(), 6) for key in ("node", "which", "where", "bit")}
        return Draw(
            gap=random.uniform(5.0, 8.0),
            duration=random.uniform(2.0, 5.0),
            choice={
                **drawn,
                "what": what if self.what == "drawn" else [self.what],
                "how": how if self.how == "drawn" else self.how,
            },
        )

    def choose(self, choice: Mapping[str, Any], situation: Situation) -> Sequence[Node]:
        return choose_broker(choice, situation)

    async def inject(self, cluster: Cluster, nodes: Sequence[Node], choice: Mapping[str, Any]) -> Evidence:
        evidence = by_node(nodes, await asyncio.gather(*(node.damage_file(choice) for node in nodes)))
        try:
            await start_the_dead(nodes)
        except ClusterLost:
            raise
        except Exception as error:  # what is damaged counts all the same, and heal() starts it
            evidence["start_failed"] = describe(error)
        return evidence

    async def heal(self, cluster: Cluster, nodes: Sequence[Node]) -> Evidence:
        evidence = await asyncio.gather(*(node.restore_file() for node in nodes))
        await start_the_dead(nodes)
        return by_node(nodes, evidence)

    def effective(self, evidence: Evidence) -> bool:
        return bool(evidence.get("damaged_bytes", 0) > 0)


class Full(DiskFull):
    name = "disk:full"


class Error(DiskError):
    name = "disk:error"


class Disk(DiskFull):
    name = "disk"
    variants: ClassVar[Mapping[str, type[Nemesis]]] = {
        "full": Full, "error": Error, "slow": Slow, "read-only": ReadOnly, "corrupt": Corrupt,
        "error-once": ErrorOnce, "replaced": Replaced, "restored": Restored, "corrupt-stopped": CorruptStopped,
    }  # fmt: skip
