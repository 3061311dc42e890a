"""Power loss: what the page cache held is gone, directory entries included.

With acks=all the protocol keeps acknowledged records through MinISR - 1 lossy unclean shutdowns at a time. So most
of these cut one failure domain and wait until its replicas are back in sync before the next; `cluster` deliberately
cuts every broker at the same moment.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, ClassVar

from harness.cluster import Cluster, Evidence, Node
from nemesis import Common, Draw, Nemesis, Situation, by_node, knob, pick, pinned
from nemesis.at_operation import PowerAtOperation
from nemesis.groups import all_or_none, next_in_turn

LOST = ("unsynced_bytes", "unsynced_files", "unsynced_records")


class PowerOutage(Common):
    """Cuts the power of one rack at a time: its brokers and its controllers."""

    name = "power-outage"
    summary = "cuts the power of one rack at a time, the next one only when its brokers are back in every ISR"
    waits_for_isr = True

    def draw(self, random: Random) -> Draw:
        return Draw(
            gap=random.uniform(6.0, 9.0),
            duration=random.uniform(2.0, 3.0),
            choice={
                "rack": round(random.random(), 6),
                "in_write": _draw_in_write(random),
                "late_s": _draw_late(random),
            },
        )

    def choose(self, choice: Mapping[str, Any], situation: Situation) -> Sequence[Node]:
        if (named := pinned(choice, situation)) is not None:
            return named
        return self.struck(choice, situation)

    def struck(self, choice: Mapping[str, Any], situation: Situation) -> Sequence[Node]:
        cluster = situation.cluster
        rack = pick(sorted({node.rack for node in cluster.brokers}), choice["rack"])
        return all_or_none([node for node in cluster.nodes if node.rack == rack], situation)

    async def inject(self, cluster: Cluster, nodes: Sequence[Node], choice: Mapping[str, Any]) -> Evidence:
        cuts = (node.cut_power(in_write=choice["in_write"], late_s=choice["late_s"]) for node in nodes)
        return by_node(nodes, await asyncio.gather(*cuts))

    async def heal(self, cluster: Cluster, nodes: Sequence[Node]) -> Evidence:
        await asyncio.gather(*(node.restore_power() for node in nodes))
        return {}

    def effective(self, evidence: Evidence) -> bool:
        return any(evidence.get(key, 0) > 0 for key in LOST)


class PowerOutageCluster(PowerOutage):
    """Cuts the power of all brokers at the same moment."""

    name = "power-outage-cluster"
    summary = "cuts the power of all brokers at the same moment: beyond what replication alone survives"

    def draw(self, random: Random) -> Draw:
        return Draw(
            gap=random.uniform(8.0, 11.0),
            duration=random.uniform(2.0, 4.0),
            choice={"in_write": _draw_in_write(random), "late_s": _draw_late(random)},
        )

    def struck(self, choice: Mapping[str, Any], situation: Situation) -> Sequence[Node]:
        return all_or_none(situation.cluster.brokers, situation)


class OneNode(PowerOutage):
    name = "power:node"
    summary = "cuts the power of one node, broker or controller"

    def struck(self, choice: Mapping[str, Any], situation: Situation) -> Sequence[Node]:
        one = pick(situation.free_among(situation.cluster.nodes), choice["rack"])
        return [one] if one else []


class Rack(PowerOutage):
    name = "power:rack"


class Leader(PowerOutage):
    name = "power:leader"
    summary = "cuts the power of the broker that leads most partitions"

    def struck(self, choice: Mapping[str, Any], situation: Situation) -> Sequence[Node]:
        leader = situation.most_leading()
        return [leader] if leader else []


class LastInIsr(PowerOutage):
    """What is only in its page cache then, nobody else need have; the others may at most be in the ELR."""

    into_outages = True

    name = "power:last-in-isr"
    summary = "cuts the power of a broker that is alone in the ISR of a partition, once there is one"

    def struck(self, choice: Mapping[str, Any], situation: Situation) -> Sequence[Node]:
        alone = Counter(broker for isr in situation.isrs.values() if len(isr) == 1 for broker in isr)
        free = [node for node in situation.free_among(situation.cluster.brokers) if alone[node.id]]
        last = max(free, key=lambda node: alone[node.id], default=None)
        return [last] if last else []


class AllBrokers(PowerOutageCluster):
    name = "power:cluster"


class Rolling(PowerOutage):
    name = "power:rolling"
    summary = "cuts the power of one broker after the other, in turn, each when the one before is back in every ISR"

    def struck(self, choice: Mapping[str, Any], situation: Situation) -> Sequence[Node]:
        return next_in_turn(situation)


@dataclass
class DuringRecovery(PowerOutage):
    """What a recovery has begun, truncated and fetched again, the second cut takes again."""

    name = "power:during-recovery"
    summary = "cuts the power of one broker, and again while it recovers"
    up_s: float = knob(1.0, 0.0, 60.0, help="seconds from power on to the second cut")

    def struck(self, choice: Mapping[str, Any], situation: Situation) -> Sequence[Node]:
        broker = pick(situation.free_among(situation.cluster.brokers), choice["rack"])
        return [broker] if broker else []

    async def inject(self, cluster: Cluster, nodes: Sequence[Node], choice: Mapping[str, Any]) -> Evidence:
        first = await super().inject(cluster, nodes, choice)
        await super().heal(cluster, nodes)
        await asyncio.sleep(self.up_s)
        second = await super().inject(cluster, nodes, {**choice, "late_s": 0.0})
        both = {name: _both(first["nodes"][name], seen) for name, seen in second["nodes"].items()}
        return {**by_node(nodes, [both[node.name] for node in nodes]), "cuts": 2}


def _both(first: Evidence, second: Evidence) -> Evidence:
    """Of two cuts of one node: what they lost together, the facts of the second, and those of the first by
    themselves."""
    lost: dict[str, Any] = {key: first.get(key, 0) + second.get(key, 0) for key in LOST if key in {**first, **second}}
    if "lost_by_partition" in first or "lost_by_partition" in second:
        by_partition: Counter[str] = Counter(first.get("lost_by_partition", {}))
        by_partition.update(second.get("lost_by_partition", {}))
        lost["lost_by_partition"] = dict(by_partition)
    return {**second, **lost, "first_cut": first}


class Power(PowerOutage):
    name = "power"
    variants: ClassVar[Mapping[str, type[Nemesis]]] = {
        "node": OneNode, "rack": Rack, "leader": Leader, "last-in-isr": LastInIsr, "cluster": AllBrokers,
        "rolling": Rolling, "during-recovery": DuringRecovery, "at-operation": PowerAtOperation,
    }  # fmt: skip


def _draw_in_write(random: Random) -> int:
    """See Node.cut_power. Half of the cuts come at once; the others tear one of the node's next few operations."""
    return random.randint(1, 8) if random.random() < 0.5 else 0


def _draw_late(random: Random) -> float:
    """See Node.cut_power. In half of the cuts, most of them so long that some words come after the machine is back."""
    return round(random.uniform(1.0, 6.0), 3) if random.random() < 0.5 else 0.0
