"""Strikes in one operation of a node on its disk, and only in that: just before a rename, in the middle of a write, in
the third read of a start.

So does what breaks a connection in one message, or holds that message back.

Which operation is drawn, or said (`operation`, counted since the fault began to wait for it, or since the node was
started for it): so each can be struck in turn (harness/explore/systematic/). Only the simulation knows of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, ClassVar, Final

from harness.cluster import Cluster, Evidence, Node
from nemesis import SIMULATION, Common, Draw, Situation, by_node, choose_node, draw_node, each, knob

#: Seconds that a node may take to come to the operation.
WITHIN_S: Final = 5.0
#: Of the messages that are drawn.
_MESSAGES: Final = 500
#: Seconds from the end of a process to its start, where that is a part of the fault.
DOWN_S: Final = 0.5

RUNNING, LOADING = "running", "loading"
LOST: Final = ("unsynced_bytes", "unsynced_files", "unsynced_records")


class AtOperation(Common):
    """when: "running", or "loading": the process is killed and started for it. within_s: seconds that it is waited for.
    again: which operation of the start after that is struck, too; 0: none, they are counted."""

    name: str
    summary: str
    what: str  # of Node.strike_operation
    runtimes = SIMULATION
    waits_for_isr = True
    most: ClassVar[tuple[int, int]] = (200, 60)  # of the operations that are drawn: while it runs, and while it loads

    def draw(self, random: Random) -> Draw:
        when = random.choice([RUNNING, RUNNING, LOADING])
        choice: dict[str, Any] = {
            **draw_node(random), "what": self.what, "when": when, "operation": _draw_operation(random, self.most, when),
            "within_s": WITHIN_S,
        }  # fmt: skip
        again = _draw_operation(random, self.most, LOADING)
        if random.random() < 0.3:
            choice["again"] = again
        return Draw(gap=random.uniform(4.0, 6.0), duration=random.uniform(1.0, 2.0), choice=choice)

    def choose(self, choice: Mapping[str, Any], situation: Situation) -> Sequence[Node]:
        return choose_node(choice, situation)

    async def inject(self, cluster: Cluster, nodes: Sequence[Node], choice: Mapping[str, Any]) -> Evidence:
        return by_node(nodes, await asyncio.gather(*(_strike(node, choice) for node in nodes)))

    async def heal(self, cluster: Cluster, nodes: Sequence[Node]) -> Evidence:
        await asyncio.gather(*(node.restore_power() for node in nodes))
        return {}

    def effective(self, evidence: Evidence) -> bool:
        return any("struck" in seen for seen in each(evidence))


def _draw_operation(random: Random, most: tuple[int, int], when: str) -> int:
    """The first ones are likelier: there may not be many."""
    return int(most[when == LOADING] ** random.random())


async def _strike(node: Node, choice: Mapping[str, Any]) -> Evidence:
    starting = choice["when"] == LOADING
    if starting:
        await node.kill()
        await asyncio.sleep(DOWN_S)
    first = await node.strike_operation(choice, choice["within_s"], starting=starting)
    if "again" not in choice or "struck" not in first or await node.is_running():
        return first
    await asyncio.sleep(DOWN_S)
    again = {**choice, "operation": choice["again"]}
    second = await node.strike_operation(again, choice["within_s"], starting=True)
    return _both(first, second)


def _both(first: Evidence, second: Evidence) -> Evidence:
    """Of two strikes of one node: the facts of the first, what both lost, and the second by itself."""
    summed = (*LOST, "failed_operations")
    both: dict[str, Any] = {key: first.get(key, 0) + second.get(key, 0) for key in summed if key in {**first, **second}}
    places = [seen["lost_by_partition"] for seen in (first, second) if "lost_by_partition" in seen]
    if places:
        both["lost_by_partition"] = {
            place: sum(seen.get(place, 0) for seen in places) for seen in places for place in seen
        }
    lost = [seen["lost_offsets"] for seen in (first, second) if "lost_offsets" in seen]
    if lost:
        both["lost_offsets"] = {
            place: [stretch for seen in lost for stretch in seen.get(place, ())] for seen in lost for place in seen
        }
    return {**first, **both, "again": second}


class PowerAtOperation(AtOperation):
    name = "power:at-operation"
    summary = "cuts the power of one node in one operation on its disk, while it runs or while it loads its logs"
    what = "power"


class KillAtOperation(AtOperation):
    name = "kill:at-operation"
    summary = "kills one process in one operation on its disk, while it runs or while it loads its logs"
    what = "kill"


@dataclass
class ErrorOnce(AtOperation):
    """The next operation would succeed. After a failed sync it does, as on Linux, whether or not its pages are written:
    a node must not try again, but end."""

    name = "disk:error-once"
    summary = "fails one operation on the disk of one node: a read, a write, half of a write or a sync"
    most = (60, 20)
    what: str = knob(
        "drawn", "drawn", "error", "read", "write", "short-write", "fsync",
        help="what fails; error: a read or a write; short-write: when half of it is written",
    )  # fmt: skip

    def draw(self, random: Random) -> Draw:
        draw = super().draw(random)
        what = random.choice(["error", "read", "write", "short-write", "fsync"])
        error = random.choice(["EIO", "ENOSPC"])
        pages = random.choice(["kept", "dropped", "evicted"])
        what = what if self.what == "drawn" else self.what
        return Draw(draw.gap, draw.duration, {**draw.choice, "what": what, "error": error, "pages": pages})


@dataclass
class AtMessage(AtOperation):
    """An answer that never comes says nothing of what was done, and one that comes late may speak of what is over."""

    name = "network:at-message"
    summary = "one message that a node sends is lost, and its connection with it, or is late"
    waits_for_isr = False
    what: str = knob("drawn", "drawn", "reset", "late", help="reset: it is lost with its connection; late: for 1.5 s")

    def draw(self, random: Random) -> Draw:
        what = random.choice(["reset", "late"])
        choice: dict[str, Any] = {
            **draw_node(random), "what": what if self.what == "drawn" else self.what, "when": RUNNING,
            "operation": int(_MESSAGES ** random.random()), "within_s": WITHIN_S,
        }  # fmt: skip
        return Draw(gap=random.uniform(2.0, 5.0), duration=random.uniform(0.5, 1.0), choice=choice)

    async def heal(self, cluster: Cluster, nodes: Sequence[Node]) -> Evidence:
        return {}
