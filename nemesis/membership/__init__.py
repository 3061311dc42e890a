"""Faults that operators cause in a running cluster: controlled shutdowns, preferred elections, reassignments, a broker
replaced by one with a new id, and a cluster that grows, shrinks or is rebalanced.

Each fault but a controlled shutdown moves replicas or leaders by what it asks of the controller, and its healing asks
for the assignment back that the run began with. So there is one of these at a time, whatever their names, and they are
healed last (Common.heals_last). Evidence is the metadata before, while and after, as brokers tell it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, ClassVar, Final

from harness.cluster import Cluster, Evidence, Node, NotAvailable
from harness.targets.admin import Admin, Ids, Metadata, Place, changed, newest
from nemesis import Draw, Layout, Nemesis, Situation, by_node, each, knob, pick, start_the_dead
from nemesis.membership.controller import ControllerChange
from nemesis.membership.mover import SEEN_PATIENCE_S, Kind, Mover, joined
from nemesis.membership.resizing import Add, Rebalance, Remove
from nemesis.membership.restoration import POLL_S, reported, survivors
from nemesis.membership.upgrade import Upgrade

#: A broker that takes the place of broker 3 is 1003, then 2003: an id is never used twice.
ID_STEP: Final = 1000


class ControlledShutdown(Kind):
    """As kill:term of a leader, and what became of its leaderships."""

    name = "membership:controlled-shutdown"
    summary = "asks a broker that leads to stop (SIGTERM), which hands its leaderships over, and starts it again"

    def struck(self, choice: Mapping[str, Any], situation: Situation) -> Sequence[Node]:
        if situation.targets == "leaders":
            node = situation.most_leading()
        else:
            brokers = situation.free_among(situation.cluster.brokers)
            node = pick([broker for broker in brokers if situation.leaders.get(broker.id)], choice["node"])
        return [node] if node else []

    async def inject(self, cluster: Cluster, nodes: Sequence[Node], choice: Mapping[str, Any]) -> Evidence:
        admin = cluster.admin
        before = await admin.metadata()
        evidence = by_node(nodes, await asyncio.gather(*(_terminate(admin, node) for node in nodes)))
        after = await admin.metadata()
        ids = {node.id for node in nodes}
        led = [place for place, state in before.partitions.items() if state.leader in ids]
        moved = [place for place in changed(before.partitions, after.partitions, "leader") if place in led]
        metadata = {"before": reported(before, led), "after": reported(after, led)}
        return {**evidence, "leaders_moved": len(moved), "metadata": metadata}

    async def heal(self, cluster: Cluster, nodes: Sequence[Node]) -> Evidence:
        await start_the_dead(nodes)
        return {}

    def effective(self, evidence: Evidence) -> bool:
        clean = all(seen.get("exit_status") == 0 for seen in each(evidence))
        return clean and bool(evidence.get("leaders_moved", 0) > 0)


async def _terminate(admin: Admin, node: Node) -> Evidence:
    """moved_ns: from SIGTERM until some broker's metadata showed that it leads nothing any more."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    stopping = asyncio.create_task(node.terminate())
    evidence: Evidence = {}
    try:
        while not stopping.done():
            seen = [view for view in await admin.views() if view is not None]
            if seen and all(state.leader != node.id for state in newest(seen).partitions.values()):
                evidence["moved_ns"] = round((loop.time() - began) * 1e9)
                break
            await asyncio.wait((stopping,), timeout=POLL_S)
    finally:  # a node that ends later would be taken for one that was healed
        stopped = await stopping
    return {**stopped, **evidence}


class PreferredElection(Mover):
    """Replicas are put in another order first, or there would most often be nothing to elect."""

    name = "membership:preferred-election"
    summary = "makes another replica in sync the preferred leader of each partition, and asks for preferred elections"

    async def move(self, cluster: Cluster, node: Node, choice: Mapping[str, Any], before: Metadata) -> Evidence:
        admin = cluster.admin
        targets: dict[Place, Ids] = {}
        for place, state in before.partitions.items():
            others = [replica for replica in state.replicas if replica in state.isr and replica != state.leader]
            first = node.id if node.id in others else pick(others, choice["node"])
            if first is not None:
                targets[place] = (first, *(replica for replica in state.replicas if replica != first))
        evidence = await self.ask(admin, before, targets)
        await admin.elect_preferred()
        deadline = asyncio.get_running_loop().time() + SEEN_PATIENCE_S
        while True:
            after = await admin.metadata()
            moved = [
                place for place in changed(before.partitions, after.partitions, "leader")
                if place in targets and after.partitions[place].leader == targets[place][0]
            ]  # fmt: skip
            if len(moved) >= len(targets) or asyncio.get_running_loop().time() > deadline:
                break
            await asyncio.sleep(POLL_S)
        metadata = {**evidence["metadata"], "after": reported(after, admin.movers[self.name])}
        return {**evidence, "replicas_moved": 0, "leaders_moved": len(moved), "metadata": metadata}


@dataclass
class Reassign(Mover):
    name = "membership:reassign"
    summary = "gives some partitions other replicas, one fewer, or the same in another order, and the old ones again"
    how: str = knob("drawn", "drawn", "move", "shrink", "order", help="to another broker, to none, or only the order")

    def draw(self, random: Random) -> Draw:
        how = random.choice(["move", "move", "shrink", "order"])
        choice = {
            "node": round(random.random(), 6), "how": how if self.how == "drawn" else self.how,
            "share": round(random.random(), 6),
        }  # fmt: skip
        return Draw(random.uniform(3.0, 6.0), random.uniform(2.0, 5.0), choice)

    def impossible(self, layout: Layout) -> str | None:
        if self.how == "move" and layout.replication_factor >= layout.brokers:
            return "every broker has a replica of every partition, so none can move to another; give more --brokers"
        if layout.replication_factor == 1 and (self.how in ("shrink", "order") or layout.brokers == 1):
            return "a partition has one replica, and no other broker to go to"
        if self.how == "shrink" and layout.min_insync_replicas >= layout.replication_factor:
            return "with one replica fewer there are less than min.insync.replicas"
        return None

    async def move(self, cluster: Cluster, node: Node, choice: Mapping[str, Any], before: Metadata) -> Evidence:
        admin = cluster.admin
        held = [place for place, state in before.partitions.items() if node.id in state.replicas]
        number = max(1, round(choice["share"] * len(held)))
        chosen = sorted(Random(choice["node"]).sample(held, min(number, len(held))))
        least = {topic: await admin.min_insync_replicas(topic) for topic in {topic: None for topic, _ in chosen}}
        targets = {place: _other_replicas(before, place, node.id, choice["how"], least[place[0]]) for place in chosen}
        targets = {place: ids for place, ids in targets.items() if ids != before.partitions[place].replicas}
        if not targets:
            raise NotAvailable(f"not available here: no partition of broker {node.id} can have other replicas")
        did = Counter(_what(before.partitions[place].replicas, ids) for place, ids in targets.items())
        return {"reassigned": dict(did), **await self.ask(admin, before, targets)}


def _what(before: Ids, after: Ids) -> str:
    """Which of the three it came to: where no broker is spare, a replica goes without another that comes."""
    return "shrink" if len(after) < len(before) else "order" if set(after) == set(before) else "move"


def _other_replicas(metadata: Metadata, place: Place, broker: int, how: str, least: int) -> Ids:
    """A broker more for one that goes, one fewer, or another order: whatever of it there can be, in this order."""
    replicas = metadata.partitions[place].replicas
    rest = tuple(replica for replica in replicas if replica != broker)
    spare = [each for each in metadata.brokers if each not in replicas]
    if spare and (how == "move" or not rest):
        return (*rest, spare[place[1] % len(spare)])
    if how in ("move", "shrink") and rest and len(rest) >= min(least, len(replicas)):
        return rest
    return (*rest, broker) if replicas[-1] != broker else (broker, *rest)


@dataclass
class NewId(Mover):
    """As an operator replaces a broken machine. The old one's disk is out of reach meanwhile, so this is a fault that
    costs a replica; it strikes only where the new one can be emptied again."""

    name = "membership:new-id"
    summary = "a broker stops, and comes back with a new id and an empty disk, to which its partitions are reassigned"
    exclusive = True
    waits_for_isr = True
    stop: str = knob("drawn", "drawn", "terminate", "kill", help="how the old one ends: SIGTERM or SIGKILL")

    def draw(self, random: Random) -> Draw:
        stop = random.choice(["terminate", "kill"])
        choice = {"node": round(random.random(), 6), "stop": stop if self.stop == "drawn" else self.stop}
        return Draw(random.uniform(4.0, 7.0), random.uniform(3.0, 7.0), choice)

    def struck(self, choice: Mapping[str, Any], situation: Situation) -> Sequence[Node]:
        """No controller: the quorum's voters have their ids for good."""
        free = situation.free_among(situation.cluster.brokers)
        able = [node for node in free if node.controller_address is None and node.id == node.own_id]
        leading = situation.most_leading() if situation.targets == "leaders" else None
        node = leading if leading in able else pick(able, choice["node"])
        return [node] if node else []

    def impossible(self, layout: Layout) -> str | None:
        if layout.replication_factor <= layout.min_insync_replicas:
            return "while a broker is replaced there are less than min.insync.replicas of its partitions"
        return None

    async def move(self, cluster: Cluster, node: Node, choice: Mapping[str, Any], before: Metadata) -> Evidence:
        admin, old = cluster.admin, node.own_id
        held = [place for place, state in before.partitions.items() if old in state.replicas]
        for place in held:
            least = min(await admin.min_insync_replicas(place[0]), len(before.partitions[place].replicas))
            if len(survivors(before, admin.original[place], place, {old})) < least:
                raise NotAvailable(f"not available here: no {least} other brokers can take over {place[0]}-{place[1]}")
        new = next(id for turn in range(1, ID_STEP) if (id := old + turn * ID_STEP) not in before.registered)
        evidence = await (node.kill() if choice.get("stop") == "kill" else node.terminate())
        await node.replace(new)
        await node.start()
        await joined(admin, new)
        targets = {
            place: tuple(new if replica == old else replica for replica in before.partitions[place].replicas)
            for place in held
        }
        return {**by_node([node], [evidence]), "new_id": new, **await self.ask(admin, before, targets, seen=(new,))}

    def effective(self, evidence: Evidence) -> bool:
        return "new_id" in evidence  # it has joined, if it had replicas or not


_VARIANTS: Final[Mapping[str, type[Kind]]] = {
    "controlled-shutdown": ControlledShutdown, "preferred-election": PreferredElection, "reassign": Reassign,
    "new-id": NewId,
}  # fmt: skip


class Membership(Mover):
    """Any of the variants whose healing is the same: not an upgrade, nor a change of the quorum's voters; and of those
    that need no spare brokers."""

    name = "membership"
    summary = (
        "shuts a leader down, elects preferred leaders, reassigns, gives a broker a new id, removes one, rebalances"
    )
    exclusive = True
    waits_for_isr = True
    variants: ClassVar[Mapping[str, type[Nemesis]]] = {
        **_VARIANTS, "add": Add, "remove": Remove, "rebalance": Rebalance, "controller": ControllerChange,
        "upgrade": Upgrade,
    }  # fmt: skip

    def draw(self, random: Random) -> Draw:
        variant = random.choice(list(_VARIANTS))
        drawn = self._as(variant).draw(random)
        return Draw(drawn.gap, drawn.duration, {"variant": variant, **drawn.choice})

    def struck(self, choice: Mapping[str, Any], situation: Situation) -> Sequence[Node]:
        return self._as(choice["variant"]).struck(choice, situation)

    async def inject(self, cluster: Cluster, nodes: Sequence[Node], choice: Mapping[str, Any]) -> Evidence:
        cluster.admin.movers[self.name] = ()  # healing restores, whatever the variant
        return await self._as(choice["variant"]).inject(cluster, nodes, choice)

    def effective(self, evidence: Evidence) -> bool:
        return "new_id" in evidence or super().effective(evidence)

    def _as(self, variant: str) -> Kind:
        """Under this one's name: it is this one that is healed."""
        kind = _VARIANTS[variant]()
        kind.name = self.name
        return kind
