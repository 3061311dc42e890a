"""A cluster that grows, shrinks, and is rebalanced (003), while other faults strike.

Each follows a plan that moves the least data (Admin.rebalancing), waits until its moves are done, and tells of each of
them. Healing brings back the members and the assignment that the run began with.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from random import Random
from typing import Any, Final

from harness.cluster import Cluster, Evidence, Node, NotAvailable
from harness.targets.admin import Admin, Ids, Load, Metadata, Place, Rebalancing, Unanswered
from nemesis import Draw, Layout, Situation, pick, start_the_dead
from nemesis.membership.mover import SEEN_PATIENCE_S, Mover, joined
from nemesis.membership.restoration import POLL_S, restore

#: Until the moves of a plan are done: other faults may keep replicas from catching up.
MOVES_PATIENCE_S: Final = 25.0
#: Until a broker that has stopped may be unregistered: its session must have ended.
UNREGISTER_PATIENCE_S: Final = 20.0
#: Partitions of a plan whose beginning is told in full.
MOST_TOLD: Final = 200


class _Resizing(Mover):
    """It holds the broker that comes or goes; all others may be struck meanwhile, the controller included."""

    exclusive = True

    def draw(self, random: Random) -> Draw:
        return Draw(random.uniform(3.0, 6.0), random.uniform(2.0, 5.0), {"node": round(random.random(), 6)})

    async def plan(self, admin: Admin, brokers: Collection[int], known: Mapping[Place, Ids]) -> Rebalancing | None:
        """What balances the cluster over these brokers. known: replicas that it must be made from, of partitions that
        there still are: of two views that differ in their order alone nothing tells which is newer. None: brokers do
        not show them in SEEN_PATIENCE_S. Raises Unanswered, NotAvailable."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + SEEN_PATIENCE_S
        while True:
            try:
                plan = await admin.rebalancing(brokers)
            except ValueError as error:
                raise NotAvailable(f"not available here: {error}") from None
            if _are(plan.assignment, known):
                return plan
            if loop.time() > deadline:
                return None
            await asyncio.sleep(POLL_S)

    async def balance(
        self, admin: Admin, brokers: Collection[int], since: float, known: Mapping[Place, Ids] | None = None
    ) -> Evidence:
        """Have the plan carried out that balances the cluster over these brokers. since: when the fault began, by the
        loop's clock. known: see plan(). Raises Unanswered if nobody answers before anything has moved."""
        plan = await self.plan(admin, brokers, known or {})
        if plan is None:
            return {"not_planned": f"not all brokers show what there is in {SEEN_PATIENCE_S:g} s"}
        admin.movers[self.name] = list(plan.targets)
        after = await admin.metadata()
        loop = asyncio.get_running_loop()
        began = loop.time()
        refused: Mapping[Place, str] = {}
        ended: dict[Place, float] = {}
        unanswered = ""
        try:
            refused = await admin.reassign(plan.targets)
            await self._watched(admin, plan.targets.keys() - refused.keys(), began + MOVES_PATIENCE_S, ended)
            await admin.elect_preferred()
            planned = {**plan.assignment, **plan.targets}
            after = await _shown(admin, {p: planned[p] for p in planned if p in ended or p not in plan.targets})
        except Unanswered as error:  # what has moved until then is told
            unanswered = str(error)
        moved = {
            place: at for place, at in ended.items()
            if place in after.partitions and after.partitions[place].replicas == plan.targets[place]
        }  # fmt: skip
        unfinished = len(plan.targets) - len(moved) - len(refused)
        rebalanced = {
            "brokers": sorted(brokers), "planned": plan.replicas, "bytes": plan.bytes, "is_least": plan.is_least,
            "unfinished": unfinished, "after_ns": round((began - since) * 1e9),
            "moving_ns": round((max(ended.values(), default=loop.time()) - began) * 1e9),
            "load": {"before": _told(plan.before), "planned": _told(plan.after), "after": _told(_loads(after, plan))},
            "moves": [
                {
                    "partition": _name(place), "from": list(plan.assignment[place]),
                    "to": list(after.partitions[place].replicas), "moving_ns": round((at - began) * 1e9),
                }
                for place, at in moved.items()
            ],
            **_planned_from(plan),
        }  # fmt: skip
        evidence: Evidence = {"rebalanced": rebalanced}
        if refused:
            evidence["refused"] = sorted(set(refused.values()))
        return {**evidence, "unanswered": unanswered} if unanswered else evidence

    async def _watched(self, admin: Admin, places: Collection[Place], until: float, ended: dict[Place, float]) -> None:
        """Note in `ended` when each of these moves was seen to be done, in that order, until all are, or then. Raises
        Unanswered."""
        loop = asyncio.get_running_loop()
        while True:
            moving = (await admin.moves()).keys()
            ended |= {place: loop.time() for place in sorted(places) if place not in moving and place not in ended}
            if len(ended) == len(places) or loop.time() > until:
                return
            await asyncio.sleep(POLL_S)

    def effective(self, evidence: Evidence) -> bool:
        """Also if it had to be cut short: replicas were moving."""
        return bool(evidence.get("rebalanced", {}).get("moves"))


class Add(_Resizing):
    name = "membership:add"
    summary = "a spare broker (--spare-brokers) joins and gets its share of all partitions; later it is taken out again"

    def struck(self, choice: Mapping[str, Any], situation: Situation) -> Sequence[Node]:
        spares = [node for node in situation.cluster.machines if not node.member and node.role == "broker"]
        spare = pick(situation.free_among(spares), choice["node"])
        return [spare] if spare else []

    def impossible(self, layout: Layout) -> str | None:
        return None if layout.spare_brokers else "there is no spare broker to add; give --spare-brokers"

    async def move(self, cluster: Cluster, node: Node, choice: Mapping[str, Any], before: Metadata) -> Evidence:
        since = _now()
        node.member = True  # healing takes it out again, however far this comes
        await node.start()
        await joined(cluster.admin, node.id)
        return {"added": node.id, **await self.balance(cluster.admin, _ids(cluster), since)}

    async def heal(self, cluster: Cluster, nodes: Sequence[Node]) -> Evidence:
        admin = cluster.admin
        if admin.movers.keys() - {self.name}:
            return {}
        evidence = await restore(admin, (), admin.movers.get(self.name, ()), empty=nodes)
        for node in nodes:  # also one that stopped and could not be unregistered
            await take_out(admin, node)
        admin.movers.pop(self.name, None)
        return evidence


class Remove(_Resizing):
    name = "membership:remove"
    summary = "a broker's partitions move to the others, and it is unregistered and taken away; later it comes back"

    def struck(self, choice: Mapping[str, Any], situation: Situation) -> Sequence[Node]:
        free = [n for n in situation.free_among(situation.cluster.brokers) if n.controller_address is None]
        leading = situation.most_leading() if situation.targets == "leaders" else None
        broker = leading if leading in free else pick(free, choice["node"])
        return [broker] if broker else []

    def impossible(self, layout: Layout) -> str | None:
        if layout.replication_factor >= layout.brokers:
            return "every broker has a replica of every partition, so none can move away; give more --brokers"
        return None

    async def move(self, cluster: Cluster, node: Node, choice: Mapping[str, Any], before: Metadata) -> Evidence:
        admin = cluster.admin
        evidence = {"removed": node.id, **await self.balance(admin, _ids(cluster) - {node.id}, _now())}
        if evidence["rebalanced"]["unfinished"] or "refused" in evidence:
            return evidence  # it still holds something, and stays
        try:
            await take_out(admin, node)
        except NotAvailable as error:
            return {**evidence, "not_unregistered": str(error)}
        return {**evidence, "unregistered": True}

    async def heal(self, cluster: Cluster, nodes: Sequence[Node]) -> Evidence:
        admin = cluster.admin
        if admin.movers.keys() - {self.name}:
            return {}
        for node in nodes:
            node.member = True
            await start_the_dead([node])
            await joined(admin, node.id)
        evidence = await restore(admin, (), admin.movers.get(self.name, ()))
        admin.movers.pop(self.name, None)
        return evidence


class Rebalance(_Resizing):
    name = "membership:rebalance"
    summary = "moves all partitions and leaderships to one broker, then balances the cluster with the least data moved"
    exclusive = False

    def impossible(self, layout: Layout) -> str | None:
        if layout.replication_factor >= layout.brokers:
            return "every broker has a replica of every partition, so none can move; give more --brokers"
        return None

    async def move(self, cluster: Cluster, node: Node, choice: Mapping[str, Any], before: Metadata) -> Evidence:
        admin, since = cluster.admin, _now()
        targets: dict[Place, Ids] = {}
        for place, state in before.partitions.items():
            others = [broker for broker in state.replicas if broker != node.id]
            targets[place] = (node.id, *others[: len(state.replicas) - 1])
        loop = asyncio.get_running_loop()
        admin.movers[self.name] = list(targets)
        refused = await admin.reassign(targets)
        ended: dict[Place, float] = {}
        await self._watched(admin, targets.keys() - refused.keys(), loop.time() + MOVES_PATIENCE_S, ended)
        piled = {place: targets[place] for place in ended}
        return {"piled_up_on": node.id, **await self.balance(admin, _ids(cluster), since, piled)}


async def take_out(admin: Admin, node: Node) -> None:
    """Stop a broker that holds nothing, and have the cluster forget it. Raises NotAvailable: it is not forgotten."""
    if await node.is_running():
        await node.terminate()
    loop = asyncio.get_running_loop()
    deadline = loop.time() + UNREGISTER_PATIENCE_S
    node.member = False  # its process is not to be restarted
    while reason := await admin.unregister(node.id):
        if loop.time() > deadline:
            raise NotAvailable(f"broker {node.id} could not be unregistered: {reason}")
        await asyncio.sleep(POLL_S)


def _now() -> float:
    return asyncio.get_running_loop().time()


def _ids(cluster: Cluster) -> set[int]:
    """Of the brokers that are members, those too that another fault holds down."""
    return {node.id for node in cluster.brokers}


def _loads(metadata: Metadata, plan: Rebalancing) -> dict[int, Load]:
    """By what the plan was made for: topics may come and go meanwhile, and what is gone counts as it was planned."""
    planned = {**plan.assignment, **plan.targets}
    there = {place: state.replicas for place, state in metadata.partitions.items()}
    replicas = [there.get(place, ids) for place, ids in planned.items()]
    brokers = sorted({*metadata.brokers, *(broker for each in replicas for broker in each)})
    return {b: Load(sum(b in each for each in replicas), sum(b == each[0] for each in replicas)) for b in brokers}


def _told(loads: Mapping[int, Load]) -> dict[str, dict[str, int]]:
    return {str(broker): load._asdict() for broker, load in loads.items()}


def _planned_from(plan: Rebalancing) -> Evidence:
    """What the plan was made of, for whoever judges it; of a large cluster it would be too much."""
    if len(plan.assignment) > MOST_TOLD:
        return {}
    return {
        "racks": {str(broker): rack for broker, rack in plan.racks.items()},
        "assignment": {_name(place): list(replicas) for place, replicas in plan.assignment.items()},
        "weights": {_name(place): plan.weights[place] for place in plan.assignment},
    }


async def _shown(admin: Admin, targets: Mapping[Place, Ids]) -> Metadata:
    """Metadata that shows these replicas, or does not in SEEN_PATIENCE_S: brokers learn of it one after the other.
    Raises Unanswered."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + SEEN_PATIENCE_S
    while True:
        shown = await admin.metadata()
        replicas = {place: state.replicas for place, state in shown.partitions.items()}
        if _are(replicas, targets) or loop.time() > deadline:
            return shown
        await asyncio.sleep(POLL_S)


def _are(replicas: Mapping[Place, Ids], known: Mapping[Place, Ids]) -> bool:
    """Of the partitions that are in both."""
    return all(tuple(replicas[place]) == tuple(known[place]) for place in replicas.keys() & known.keys())


def _name(place: Place) -> str:
    return f"{place[0]}-{place[1]}"
