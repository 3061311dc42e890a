"""Network partitions: packets that do not arrive, by link and direction. Nobody is told of it.

Unless clients are meant, they still reach every node: a deposed leader must refuse them by itself. Partitions may
overlap, each with rules of its own, and what each rule dropped is the evidence.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, ClassVar

from harness.cluster import CLIENTS, Cluster, Evidence, Link, Node
from nemesis import Common, Draw, Nemesis, Situation, knob, pick, pinned


class _Links(Common):
    """A fault of some links: who is struck is chosen first, and which links follows from that."""

    name: str
    summary: str
    exclusive = False

    def draw(self, random: Random) -> Draw:
        return Draw(
            gap=random.uniform(3.0, 6.0),
            duration=random.uniform(self.timing.session, self.timing.session + 5.0),
            choice={"node": round(random.random(), 6)},
        )

    def choose(self, choice: Mapping[str, Any], situation: Situation) -> Sequence[Node]:
        if (named := pinned(choice, situation)) is not None:
            return named
        struck = self.struck(choice, situation)
        return struck if any(self.links(situation.cluster, struck, choice)) else []

    def struck(self, choice: Mapping[str, Any], situation: Situation) -> Sequence[Node]:
        raise NotImplementedError

    def links(self, cluster: Cluster, nodes: Sequence[Node], choice: Mapping[str, Any]) -> Iterable[Link]:
        """What is cut when these nodes are struck."""
        raise NotImplementedError

    async def inject(self, cluster: Cluster, nodes: Sequence[Node], choice: Mapping[str, Any]) -> Evidence:
        links = list(self.links(cluster, nodes, choice))
        await cluster.block(self.name, links)
        return self.describe(cluster, nodes, choice, links)

    def describe(
        self, cluster: Cluster, nodes: Sequence[Node], choice: Mapping[str, Any], links: Sequence[Link]
    ) -> Evidence:
        """What was cut, for the record."""
        return {"links": [f"{source} > {target}" for source, target in links]}

    async def heal(self, cluster: Cluster, nodes: Sequence[Node]) -> Evidence:
        return await cluster.unblock(self.name)

    def effective(self, evidence: Evidence) -> bool:
        return bool(evidence.get("packets_dropped", 0) > 0)


def _between(some: Iterable[Node], others: Iterable[Node], direction: str = "both") -> list[Link]:
    """direction, as `some` see it: outgoing is what they send."""
    there = [(a.name, b.name) for a in some for b in others if a is not b]
    back = [(b, a) for a, b in there]
    return [*(there if direction != "incoming" else ()), *(back if direction != "outgoing" else ())]


def _rest(cluster: Cluster, nodes: Sequence[Node]) -> list[Node]:
    return [node for node in cluster.nodes if node not in nodes]


class _CutOff(_Links):
    """Those who are struck, away from all other nodes, in the direction of the choice."""

    def links(self, cluster: Cluster, nodes: Sequence[Node], choice: Mapping[str, Any]) -> Iterable[Link]:
        return _between(nodes, _rest(cluster, nodes), choice.get("direction", "both"))

    def describe(
        self, cluster: Cluster, nodes: Sequence[Node], choice: Mapping[str, Any], links: Sequence[Link]
    ) -> Evidence:
        groups = [[node.name for node in group] for group in (nodes, _rest(cluster, nodes))]
        return {"groups": groups, "direction": choice.get("direction", "both")}


class One(_CutOff):
    name = "partition:one"
    summary = "one node away from all others"

    def struck(self, choice: Mapping[str, Any], situation: Situation) -> Sequence[Node]:
        one = pick(situation.cluster.nodes, choice["node"])
        return [one] if one else []


class Halves(_CutOff):
    name = "partition:halves"
    summary = "the racks in two halves, in their order"

    def struck(self, choice: Mapping[str, Any], situation: Situation) -> Sequence[Node]:
        racks = sorted({node.rack for node in situation.cluster.nodes})
        return [node for node in situation.cluster.nodes if node.rack in racks[: len(racks) // 2]]


class RandomHalves(_CutOff):
    name = "partition:random-halves"
    summary = "the nodes in two halves, drawn"

    def struck(self, choice: Mapping[str, Any], situation: Situation) -> Sequence[Node]:
        nodes = situation.cluster.nodes
        half = Random(choice["node"]).sample(range(len(nodes)), len(nodes) // 2)
        return [nodes[i] for i in sorted(half)]


class Minority(_CutOff):
    name = "partition:minority"
    summary = "fewer than half of the racks, drawn, away from the others"

    def struck(self, choice: Mapping[str, Any], situation: Situation) -> Sequence[Node]:
        racks = sorted({node.rack for node in situation.cluster.nodes})
        fewer = Random(choice["node"]).sample(racks, (len(racks) - 1) // 2)
        return [node for node in situation.cluster.nodes if node.rack in fewer]


class Leader(_CutOff):
    name = "partition:leader"
    summary = "the broker that leads most partitions, away from all other nodes"

    def struck(self, choice: Mapping[str, Any], situation: Situation) -> Sequence[Node]:
        broker = situation.most_leading()
        return [broker] if broker else []


class Controller(_CutOff):
    name = "partition:controller"
    summary = "the active controller, away from all other nodes"

    def struck(self, choice: Mapping[str, Any], situation: Situation) -> Sequence[Node]:
        active = situation.controller()
        return [active] if active else []


@dataclass
class OneWay(_CutOff):
    """The two directions break different things: a node that is not heard, and one that hears nothing."""

    name = "partition:one-way"
    summary = "what one node sends is lost and it hears the others, or it is heard and hears nothing"
    direction: str = knob("drawn", "drawn", "outgoing", "incoming", help="what is lost, as the node sees it")

    def draw(self, random: Random) -> Draw:
        drawn = super().draw(random)
        direction = random.choice(["outgoing", "incoming"])
        return Draw(
            drawn.gap,
            drawn.duration,
            {**drawn.choice, "direction": direction if self.direction == "drawn" else self.direction},
        )

    def struck(self, choice: Mapping[str, Any], situation: Situation) -> Sequence[Node]:
        if situation.targets == "leaders":
            return Leader().struck(choice, situation)
        return One().struck(choice, situation)


class Between(_Links):
    name = "partition:between"
    summary = "two nodes from each other: with targets=leaders a leader and another broker, else any two"

    def check(self, choice: Mapping[str, Any], targets: Sequence[str]) -> None:
        if targets and len(targets) != 2:
            raise ValueError("it parts two targets, no fewer and no more")

    def struck(self, choice: Mapping[str, Any], situation: Situation) -> Sequence[Node]:
        leader = situation.most_leading()
        if situation.targets == "leaders" and leader:
            other = pick([node for node in situation.cluster.brokers if node is not leader], choice["node"])
            return [leader, other] if other else []
        return Random(choice["node"]).sample(list(situation.cluster.nodes), 2)

    def links(self, cluster: Cluster, nodes: Sequence[Node], choice: Mapping[str, Any]) -> Iterable[Link]:
        return _between(nodes[:1], nodes[1:])


class Followers(Leader):
    """Unlike a leader that is cut off, it goes on leading."""

    name = "partition:followers"
    summary = "the broker that leads most partitions, away from all other brokers: controllers and clients reach it"

    def links(self, cluster: Cluster, nodes: Sequence[Node], choice: Mapping[str, Any]) -> Iterable[Link]:
        return _between(nodes, [node for node in cluster.brokers if node not in nodes])

    def describe(
        self, cluster: Cluster, nodes: Sequence[Node], choice: Mapping[str, Any], links: Sequence[Link]
    ) -> Evidence:
        return _Links.describe(self, cluster, nodes, choice, links)


class Bridge(_Links):
    name = "partition:bridge"
    summary = "two halves that do not see each other, and one node between that sees both"

    def struck(self, choice: Mapping[str, Any], situation: Situation) -> Sequence[Node]:
        """The bridge; the halves follow from it."""
        return One().struck(choice, situation)

    def links(self, cluster: Cluster, nodes: Sequence[Node], choice: Mapping[str, Any]) -> Iterable[Link]:
        rest = _rest(cluster, nodes)
        Random(choice["node"]).shuffle(rest)
        return _between(rest[: len(rest) // 2], rest[len(rest) // 2 :])


class MajoritiesRing(_Links):
    """As Jepsen's: the nodes in a ring; each hears as many of its neighbours as make a majority with it."""

    name = "partition:majorities-ring"
    summary = "each node hears a majority, and no two nodes the same one"

    def struck(self, choice: Mapping[str, Any], situation: Situation) -> Sequence[Node]:
        return situation.cluster.nodes

    def links(self, cluster: Cluster, nodes: Sequence[Node], choice: Mapping[str, Any]) -> Iterable[Link]:
        ring = list(nodes)
        Random(choice["node"]).shuffle(ring)
        size, majority = len(ring), len(ring) // 2 + 1
        for start in range(size):
            heard = [ring[(start + step) % size] for step in range(majority)]
            node = heard[majority // 2]
            for other in nodes:
                if other not in heard:
                    yield other.name, node.name


class Clients(_Links):
    name = "partition:clients"
    summary = "clients from one broker, which all other nodes still reach"

    def struck(self, choice: Mapping[str, Any], situation: Situation) -> Sequence[Node]:
        leader = situation.most_leading() if situation.targets == "leaders" else None
        broker = leader or pick(situation.cluster.brokers, choice["node"])
        return [broker] if broker else []

    def links(self, cluster: Cluster, nodes: Sequence[Node], choice: Mapping[str, Any]) -> Iterable[Link]:
        for node in nodes:
            yield CLIENTS, node.name
            yield node.name, CLIENTS


class Partition(_CutOff):
    """Parts the nodes in two groups: one node alone, halves, or a leader away from all others.

    Half of the partitions are one-way: what the smaller group sends is lost and it still hears the others
    (`outgoing`), or it is heard and hears nothing (`incoming`).
    """

    name = "partition"
    summary = "parts the network, both ways or one: one node off, halves, or the leader of partitions or of the quorum"
    exclusive = True
    variants: ClassVar[Mapping[str, type[Nemesis]]] = {
        "one": One, "halves": Halves, "random-halves": RandomHalves, "minority": Minority, "leader": Leader,
        "controller": Controller, "one-way": OneWay, "followers": Followers, "between": Between, "bridge": Bridge,
        "majorities-ring": MajoritiesRing, "clients": Clients,
    }  # fmt: skip

    def draw(self, random: Random) -> Draw:
        variant = random.choice(["one", "halves", "leader", "active-controller"])
        return Draw(
            gap=random.uniform(3.0, 6.0),
            duration=random.uniform(self.timing.session, self.timing.session + 5.0),
            choice={
                "variant": variant,
                "node": round(random.random(), 6),
                "direction": random.choice(["both", "both", "outgoing", "incoming"]),
            },
        )

    def struck(self, choice: Mapping[str, Any], situation: Situation) -> Sequence[Node]:
        """The smaller group, which is cut off from all other nodes."""
        free = situation.free_among(situation.cluster.nodes)
        variant = choice["variant"]
        if variant == "active-controller":
            return Controller().struck(choice, situation)
        if variant == "leader" or situation.targets == "leaders":
            return Leader().struck(choice, situation)
        if variant == "halves":
            group = RandomHalves().struck(choice, situation)
            return group if all(node in free for node in group) else []
        one = pick(free, choice["node"])
        return [one] if one else []
