"""The voters of the metadata quorum change while it works, as when operators replace a controller (KIP-853)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from harness.cluster import Cluster, Evidence, Node, NotAvailable
from harness.targets.admin import Admin, Quorum
from nemesis import MACHINES, Common, Draw, Layout, Situation, knob, pick, pinned
from nemesis.membership.restoration import POLL_S, NotRestored

#: Until the quorum shows a change that it has agreed to: an active controller that is removed first goes on to lead
#: until that is committed, and then there is an election.
SEEN_PATIENCE_S: Final = 10.0
#: A refusal need not be the whole truth: a removal that had no answer in time is repeated, and then "there is no such
#: voter".
REFUSED_PATIENCE_S: Final = 1.0
#: For an addition: the controller must be found among the observers, and have caught up.
ADD_PATIENCE_S: Final = 40.0


@dataclass
class ControllerChange(Common):
    """Other faults may strike the node meanwhile, and the others: until it is added again there is one voter less."""

    name = "membership:controller"
    summary = "removes a controller from the voters of the metadata quorum, and adds it again (KIP-853)"
    runtimes = MACHINES
    exclusive = False
    heals_last = True
    who: str = knob("drawn", "drawn", "active", "other", help="the active controller, or another")

    def draw(self, random: Random) -> Draw:
        who = "active" if random.random() < 1 / 3 else "other"
        choice = {"who": who if self.who == "drawn" else self.who, "node": round(random.random(), 6)}
        return Draw(random.uniform(2.0, 5.0), random.uniform(2.0, 5.0), choice)

    def impossible(self, layout: Layout) -> str | None:
        return "there is one controller, and no quorum without it" if layout.controllers == 1 else None

    def choose(self, choice: Mapping[str, Any], situation: Situation) -> Sequence[Node]:
        if (named := pinned(choice, situation)) is not None:
            return named
        free = situation.free_among(situation.cluster.controllers)
        others = [node for node in free if node.id != situation.active_controller]
        node = situation.controller() if choice["who"] == "active" else pick(others, choice["node"])
        return [node] if node else []

    async def inject(self, cluster: Cluster, nodes: Sequence[Node], choice: Mapping[str, Any]) -> Evidence:
        admin, node = cluster.admin, nodes[0]
        before = await admin.quorum()
        if (directory := before.voters.get(node.id)) is None:
            raise NotAvailable(f"not available here: {node.name} is no voter of the metadata quorum")
        refused = await admin.remove_voter(node.id, directory)
        deadline = asyncio.get_running_loop().time() + (REFUSED_PATIENCE_S if refused else SEEN_PATIENCE_S)
        while node.id in (after := await admin.quorum()).voters:
            if asyncio.get_running_loop().time() > deadline:
                break
            await asyncio.sleep(POLL_S)
        stays = node.id in after.voters
        return {
            "voters": {"before": sorted(before.voters), "while": sorted(after.voters)},
            "was_active": before.leader == node.id, **({"refused": [refused]} if refused and stays else {}),
        }  # fmt: skip

    async def heal(self, cluster: Cluster, nodes: Sequence[Node]) -> Evidence:
        try:
            async with asyncio.timeout(ADD_PATIENCE_S):
                voters = [await _added(cluster.admin, node) for node in nodes]
        except TimeoutError:
            raise NotRestored(f"{nodes[0].name} is no voter again after {ADD_PATIENCE_S:g} s") from None
        return {"voters": {"healed": sorted(voters[-1].voters)}}

    def effective(self, evidence: Evidence) -> bool:
        seen = evidence.get("voters", {})
        return len(seen.get("while", ())) == len(seen.get("before", ())) - 1


async def _added(admin: Admin, node: Node) -> Quorum:
    """Once it is a voter."""
    assert node.quorum_address is not None
    while node.id not in (quorum := await admin.quorum()).voters:
        if (directory := quorum.observers.get(node.id)) is not None:
            await admin.add_voter(node.id, directory, node.quorum_address)  # refused until it has caught up
        await asyncio.sleep(POLL_S)
    return quorum
