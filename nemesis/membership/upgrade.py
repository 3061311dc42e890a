"""A rolling upgrade, as operators do it: one node after the other stops and comes back with the other release,
controllers first; once all have it, metadata.version is raised, then ELR is switched on (Kafka's documentation, section
Upgrading).

Each step is a fault of its own, so that others may strike in between and at the same time: the node that is upgraded is
held, and no other. How far it has come is told by the nodes (Node.switches) and the admin (Admin.raised).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from harness.cluster import Cluster, Evidence, Node
from harness.targets.admin import Admin
from nemesis import MACHINES, Common, Draw, Layout, Situation, by_node, each, knob, pinned, start_the_dead

#: In the order in which they are raised, each as far as every broker goes.
FEATURES: Final = ("metadata.version", "eligible.leader.replicas.version")
#: Until a node that was started tells what it can do.
SERVES_PATIENCE_S: Final = 20.0
POLL_S: Final = 0.25


@dataclass
class Upgrade(Common):
    name = "membership:upgrade"
    summary = (
        "gives one node after the other the release of --upgrade-to, controllers first, then raises metadata.version, "
        "then switches on ELR"
    )
    waits_for_isr = True
    runtimes = MACHINES
    back: str = knob("no", "no", "yes", help="then gives all nodes the old release again, and raises nothing")

    def draw(self, random: Random) -> Draw:
        return Draw(gap=random.uniform(0.5, 1.5), duration=random.uniform(0.5, 2.0), choice={})

    def impossible(self, layout: Layout) -> str | None:
        return None if layout.upgrade_to else "there is no release to upgrade to; say which by --upgrade-to"

    def steps(self, layout: Layout) -> int:
        nodes = layout.brokers + (0 if layout.combined else layout.controllers)
        return nodes * self._turns + (0 if self.back == "yes" else len(FEATURES))

    @property
    def _turns(self) -> int:
        return 2 if self.back == "yes" else 1

    def finished(self, situation: Situation) -> bool:
        nodes = situation.cluster.nodes
        everywhere = all(node.switches >= self._turns for node in nodes)
        return everywhere and (self.back == "yes" or set(FEATURES) <= situation.cluster.admin.raised.keys())

    def choose(self, choice: Mapping[str, Any], situation: Situation) -> Sequence[Node]:
        if (named := pinned(choice, situation)) is not None:
            return named
        if self.finished(situation):
            return []
        nodes = situation.cluster.nodes
        if (turn := min(node.switches for node in nodes)) >= self._turns:
            one = situation.controller() or next(iter(situation.free_among(situation.cluster.controllers)), None)
            return [one] if one else []
        due = [node for node in _in_order(situation, back=turn == 1) if node.switches == turn]
        controllers = [node for node in due if node in situation.cluster.controllers]
        alike = [node for node in due if (node in controllers) == (due[0] in controllers)]
        free = [node for node in alike if node.name in situation.free]
        if free and free[0].id == situation.active_controller and len(controllers) > 1:
            return []  # those before it are held, and it is the last
        return free[:1]

    async def inject(self, cluster: Cluster, nodes: Sequence[Node], choice: Mapping[str, Any]) -> Evidence:
        if min(node.switches for node in cluster.nodes) >= self._turns:
            return {**await _raise_the_next(cluster.admin), **self._left(cluster)}
        switched = by_node(nodes, await asyncio.gather(*(_switch(cluster.admin, node) for node in nodes)))
        return {**switched, **self._left(cluster)}

    async def heal(self, cluster: Cluster, nodes: Sequence[Node]) -> Evidence:
        await start_the_dead(nodes)
        serves = await asyncio.gather(*(_serves(cluster.admin, node) for node in nodes))
        return by_node(nodes, [{"serves": levels} for levels in serves])

    def effective(self, evidence: Evidence) -> bool:
        if "raised" in evidence:
            return True
        return any(seen.get("exit_status") is not None and seen.get("software") and seen.get("serves")
                   for seen in each(evidence))  # fmt: skip

    def _left(self, cluster: Cluster) -> Evidence:
        steps = sum(max(self._turns - node.switches, 0) for node in cluster.nodes)
        if self.back == "no":
            steps += len(set(FEATURES) - cluster.admin.raised.keys())
        return {"steps_left": steps}


def _in_order(situation: Situation, *, back: bool) -> Sequence[Node]:
    """Controllers first, of these the active one last; brokers first on the way back."""
    controllers = sorted(situation.cluster.controllers, key=lambda node: node.id == situation.active_controller)
    brokers = [node for node in situation.cluster.brokers if node not in controllers]
    return [*brokers, *controllers] if back else [*controllers, *brokers]


async def _switch(admin: Admin, node: Node) -> Evidence:
    served = await admin.supported(node.address)
    stopped = await node.terminate()
    return {**stopped, **await node.switch_release(), **({"served": served} if served else {})}


async def _serves(admin: Admin, node: Node) -> Mapping[str, int]:
    """What it tells of the levels that it supports, once it serves. Nothing: it has not said it in time."""
    deadline = asyncio.get_running_loop().time() + SERVES_PATIENCE_S
    while not (levels := await admin.supported(node.address)) and asyncio.get_running_loop().time() < deadline:
        await asyncio.sleep(POLL_S)
    return levels


async def _raise_the_next(admin: Admin) -> Evidence:
    """The first of FEATURES that is not yet as high as it can be."""
    for name in FEATURES:
        if name in admin.raised:
            continue
        before = await admin.features()
        supported, finalized = before.get(name, (0, 0))
        if supported <= finalized:
            admin.raised[name] = finalized
            continue
        refused = await admin.raise_feature(name, supported)
        if refused:
            return {"feature": name, "refused": [refused]}
        admin.raised[name] = supported
        return {"feature": name, "raised": [finalized, supported]}
    return {}
