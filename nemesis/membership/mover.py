"""What faults that move replicas or leaders have in common. See nemesis.membership."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, Final

from harness.cluster import Cluster, Evidence, Node
from harness.targets.admin import Admin, Ids, Metadata, Place, Unanswered, changed
from nemesis import Common, Draw, Situation, pick, pinned, start_the_dead
from nemesis.membership.restoration import POLL_S, reported, restore

#: Until a broker that was just started is registered and unfenced.
JOIN_PATIENCE_S: Final = 20.0
#: Until metadata shows what the controller was asked for, and has agreed to.
SEEN_PATIENCE_S: Final = 3.0


class Kind(Common):
    name: str
    summary: str

    def draw(self, random: Random) -> Draw:
        return Draw(random.uniform(3.0, 6.0), random.uniform(1.0, 3.0), {"node": round(random.random(), 6)})

    def check(self, choice: Mapping[str, Any], targets: Sequence[str]) -> None:
        if len(targets) > 1 or any(not name.startswith("broker-") for name in targets):
            raise ValueError(f"it strikes one broker, and its targets are {', '.join(targets)}")

    def choose(self, choice: Mapping[str, Any], situation: Situation) -> Sequence[Node]:
        if (named := pinned(choice, situation)) is not None:
            return named
        return self.struck(choice, situation)

    def struck(self, choice: Mapping[str, Any], situation: Situation) -> Sequence[Node]:
        raise NotImplementedError

    async def inject(self, cluster: Cluster, nodes: Sequence[Node], choice: Mapping[str, Any]) -> Evidence:
        raise NotImplementedError

    async def heal(self, cluster: Cluster, nodes: Sequence[Node]) -> Evidence:
        raise NotImplementedError

    def effective(self, evidence: Evidence) -> bool:
        raise NotImplementedError


class Mover(Kind):
    """Moves replicas or leaders, and has them moved back. One that stops nodes is exclusive, and starts them again; to
    the others it is all the same whether a node runs: another fault may hold it down."""

    exclusive = False
    heals_last = True

    def choose(self, choice: Mapping[str, Any], situation: Situation) -> Sequence[Node]:
        if situation.cluster.admin.movers:  # its own too: one that could not be healed
            return []
        return super().choose(choice, situation)

    def struck(self, choice: Mapping[str, Any], situation: Situation) -> Sequence[Node]:
        broker = pick(situation.free_among(situation.cluster.brokers), choice["node"])
        return [broker] if broker else []

    async def inject(self, cluster: Cluster, nodes: Sequence[Node], choice: Mapping[str, Any]) -> Evidence:
        admin = cluster.admin
        admin.movers[self.name] = ()
        return await self.move(cluster, nodes[0], choice, await admin.metadata())

    async def move(self, cluster: Cluster, node: Node, choice: Mapping[str, Any], before: Metadata) -> Evidence:
        raise NotImplementedError

    async def heal(self, cluster: Cluster, nodes: Sequence[Node]) -> Evidence:
        admin, own = cluster.admin, nodes if self.exclusive else ()
        if admin.movers.keys() - {self.name}:  # another's turn: what this one moved is back long since
            await start_the_dead(own)
            return {}
        evidence = await restore(admin, own, admin.movers.get(self.name, ()))
        admin.movers.pop(self.name, None)
        return evidence

    def effective(self, evidence: Evidence) -> bool:
        return any(evidence.get(what, 0) > 0 for what in ("replicas_moved", "leaders_moved"))

    async def ask(
        self, admin: Admin, before: Metadata, targets: Mapping[Place, Ids], *, seen: Sequence[int] = ()
    ) -> Evidence:
        """Have the replicas changed, and wait until metadata shows it: with `seen` among the replicas of each, or else
        any change. Evidence as a whole."""
        refused = await admin.reassign(targets)
        granted = [place for place in targets if place not in refused]
        admin.movers[self.name] = granted or list(targets)
        after = before
        deadline = asyncio.get_running_loop().time() + SEEN_PATIENCE_S
        while True:
            after = await admin.metadata()
            moved = [place for place in changed(before.partitions, after.partitions, "replicas") if place in targets]
            done = set(moved) >= set(granted) and all(set(seen) <= set(after.partitions[p].replicas) for p in granted)
            if done or asyncio.get_running_loop().time() > deadline:
                break
            await asyncio.sleep(POLL_S)
        metadata = {"before": reported(before, granted), "after": reported(after, granted, await admin.moves())}
        evidence: Evidence = {"replicas_moved": len(moved), "metadata": metadata}
        return {**evidence, **({"refused": sorted(set(refused.values()))} if refused else {})}


async def joined(admin: Admin, broker: int) -> None:
    """Returns once it is registered and unfenced. Raises Unanswered."""
    deadline = asyncio.get_running_loop().time() + JOIN_PATIENCE_S
    while not any(view is not None and broker in view.brokers for view in await admin.views()):
        if asyncio.get_running_loop().time() > deadline:
            raise Unanswered(f"broker {broker} has not joined the cluster in {JOIN_PATIENCE_S:g} s")
        await asyncio.sleep(POLL_S)
