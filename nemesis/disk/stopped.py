"""What becomes of a broker's disk while the broker is down, after a clean shutdown: a file is damaged, files or the
whole disk are lost, or an older copy of it is put back.

The broker has said that it left its logs complete. Within the contract each counts as one lossy shutdown, of the
partitions that it took something of: the broker must say so when it registers, or be found out by the broker epoch in
its clean-shutdown file (KAFKA-15582). Of a voter of the metadata quorum neither a lost disk nor an older one is
survived: it would forget its votes, and what it has acknowledged.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, ClassVar, Final

from harness.cluster import Cluster, Evidence, Node
from nemesis import SIMULATION, Common, Draw, Layout, Situation, by_node, choose_broker, each, knob, start_the_dead
from nemesis.at_operation import LOST

#: Of a broker that is started, to have registered before its disk is copied or it is stopped again.
_SETTLED_S: Final = 1.0


class _Stopped(Common):
    name: str
    summary: str
    runtimes = SIMULATION
    waits_for_isr = True

    def drawn(self, random: Random) -> dict[str, Any]:
        """More of a choice."""
        raise NotImplementedError

    def draw(self, random: Random) -> Draw:
        return Draw(
            gap=random.uniform(5.0, 8.0),
            duration=random.uniform(2.0, 4.0),
            choice={"node": round(random.random(), 6), **self.drawn(random)},
        )

    def choose(self, choice: Mapping[str, Any], situation: Situation) -> Sequence[Node]:
        return choose_broker(choice, situation)

    async def strike(self, node: Node, choice: Mapping[str, Any]) -> Evidence:
        raise NotImplementedError

    async def inject(self, cluster: Cluster, nodes: Sequence[Node], choice: Mapping[str, Any]) -> Evidence:
        return by_node(nodes, await asyncio.gather(*(self.strike(node, choice) for node in nodes)))

    async def heal(self, cluster: Cluster, nodes: Sequence[Node]) -> Evidence:
        await start_the_dead(nodes)
        return {}

    def effective(self, evidence: Evidence) -> bool:
        return any(evidence.get(key, 0) > 0 for key in LOST)


@dataclass
class Replaced(_Stopped):
    """The clean-shutdown file goes with the disk; a log directory goes from beside it."""

    name = "disk:replaced"
    summary = "stops one broker (SIGTERM), empties its disk or removes the log of one partition, and starts it on that"
    what: str = knob("drawn", "drawn", "disk", "log", help="what is lost: all of its disk, or the log of one partition")

    def drawn(self, random: Random) -> dict[str, Any]:
        what, which = random.choice(["disk", "log"]), round(random.random(), 6)
        return {"what": what if self.what == "drawn" else self.what, "which": which}

    def impossible(self, layout: Layout) -> str | None:
        return _of_voters(layout)

    async def strike(self, node: Node, choice: Mapping[str, Any]) -> Evidence:
        stopped = await node.terminate()
        lost = await node.lose_files(choice["what"], choice["which"])
        await node.start()
        return {**stopped, **lost}


@dataclass
class Restored(_Stopped):
    """A copy that was made of a stopped broker has a clean-shutdown file: of a session that is not its last."""

    name = "disk:restored"
    summary = "stops one broker (SIGTERM), puts back a copy of its disk from some seconds before, and starts it on that"
    copy: str = knob(
        "drawn", "drawn", "stopped", "running",
        help="of a broker that was stopped for the copy, or of one that ran, as a power cut leaves it",
    )  # fmt: skip

    def drawn(self, random: Random) -> dict[str, Any]:
        copy = random.choice(["stopped", "stopped", "running"])
        return {"copy": copy if self.copy == "drawn" else self.copy, "age_s": round(random.uniform(2.0, 5.0), 3)}

    def impossible(self, layout: Layout) -> str | None:
        return _of_voters(layout)

    async def strike(self, node: Node, choice: Mapping[str, Any]) -> Evidence:
        if choice["copy"] == "stopped":
            await node.terminate()
        await node.snapshot_disk()
        await node.start()
        await asyncio.sleep(_SETTLED_S + choice["age_s"])
        stopped = await node.terminate()
        lost = await node.restore_disk()
        await node.start()
        return {**stopped, **lost}


@dataclass
class CorruptStopped(_Stopped):
    """A bit that flips in a record nobody finds at a clean start, Apache Kafka neither: who reads the record does."""

    name = "disk:corrupt-stopped"
    summary = "stops one broker (SIGTERM), damages a closed segment or a checkpoint, and starts it on that"
    what: str = knob("drawn", "drawn", "segment", "checkpoint", help="drawn: a closed segment if there is one")
    how: str = knob("drawn", "drawn", "flip", "truncate", help="one bit is another, or the end is gone")
    files: ClassVar[Sequence[Sequence[str]]] = (["segment", "checkpoint"], ["segment", "checkpoint"], ["checkpoint"])

    def drawn(self, random: Random) -> dict[str, Any]:
        what, how = random.choice(self.files), random.choice(["flip", "truncate"])
        places = {key: round(random.random(), 6) for key in ("which", "where", "bit")}
        return {
            **places,
            "what": list(what) if self.what == "drawn" else [self.what],
            "how": how if self.how == "drawn" else self.how,
        }

    async def strike(self, node: Node, choice: Mapping[str, Any]) -> Evidence:
        stopped = await node.terminate()
        damaged = await node.damage_file(choice)
        await node.start()
        return {**damaged, **stopped}

    async def heal(self, cluster: Cluster, nodes: Sequence[Node]) -> Evidence:
        evidence = await asyncio.gather(*(node.restore_file() for node in nodes))
        await start_the_dead(nodes)
        return by_node(nodes, evidence)

    def effective(self, evidence: Evidence) -> bool:
        return any(seen.get("damaged_bytes", 0) > 0 for seen in each(evidence))


def _of_voters(layout: Layout) -> str | None:
    if layout.combined:
        return "brokers that are controllers as well have their votes on the same disk, and must not forget them"
    return None
