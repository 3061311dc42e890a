"""What breaks the cluster: one module a fault family, one class a nemesis.

A nemesis draws its faults from a seed before the run (`draw`), says against the live cluster whom each one strikes
(`choose`), and then does it and undoes it (`inject`, `heal`). It keeps no state: who is struck when is the business
of harness/injector.py, which also sees to it that no two faults fight over a node.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Literal, Protocol, TypeVar

from harness.cluster import Cluster, Evidence, Node

Targets = Literal["random", "leaders"]
T = TypeVar("T")

EVERYWHERE = frozenset({"docker", "simulation"})
SIMULATION = frozenset({"simulation"})


@dataclass(frozen=True)
class Draw:
    """One fault as the seed has it: everything but who is struck, which depends on the live cluster."""

    gap: float  # seconds since the previous fault of this nemesis was healed
    duration: float  # seconds from injected to healed
    choice: Mapping[str, Any]  # JSON: how the targets are chosen, for choose(), and knobs for inject()


@dataclass(frozen=True)
class Situation:
    """The live cluster at the moment a fault is about to strike."""

    cluster: Cluster
    free: frozenset[str]  # names of nodes that no other fault holds
    targets: Targets = "random"
    leaders: Mapping[int, int] = field(default_factory=dict)  # broker id: partitions that it leads
    active_controller: int | None = None  # node id; None: not known

    def free_among(self, nodes: Sequence[Node]) -> list[Node]:
        return [node for node in nodes if node.name in self.free]

    def most_leading(self) -> Node | None:
        """The free broker that leads most partitions, the first of equals; None if no free one leads any."""
        leading = [node for node in self.free_among(self.cluster.brokers) if self.leaders.get(node.id)]
        return max(leading, key=lambda node: self.leaders[node.id], default=None)


class Nemesis(Protocol):
    """One kind of fault."""

    name: str
    summary: str  # one line, for `chaos list nemeses`
    preferred_targets: Targets  # when --targets is not given
    #: May lose data: strikes only once the brokers of the last such fault are back in every ISR, so that MinISR - 1
    #: lossy shutdowns at a time are not exceeded.
    waits_for_isr: bool
    runtimes: frozenset[str]  # where it works: EVERYWHERE or SIMULATION

    def draw(self, random: Random) -> Draw:
        """The next fault of this nemesis. `random` is this fault's own stream."""

    def choose(self, choice: Mapping[str, Any], situation: Situation) -> Sequence[Node]:
        """Whom to strike, all of them free; empty if nobody can be struck now. What pinned() says comes first."""

    async def inject(self, cluster: Cluster, nodes: Sequence[Node], choice: Mapping[str, Any]) -> Evidence:
        """Break them."""

    async def heal(self, cluster: Cluster, nodes: Sequence[Node]) -> Evidence:
        """Make them whole again. Must work however far inject() came, and again once they are whole."""

    def effective(self, evidence: Evidence) -> bool:
        """Does the evidence of inject() and heal(), merged, show that the fault took effect?"""


def pick(candidates: Sequence[T], draw: float) -> T | None:
    """The candidate at the fraction `draw` in [0, 1) of the sequence; None if it is empty."""
    return candidates[int(draw * len(candidates))] if candidates else None


def draw_node(random: Random) -> dict[str, Any]:
    """A choice for choose_node(). Two brokers for each controller, whatever their numbers: clients see data only."""
    role = "broker" if random.random() < 2 / 3 else "controller"
    return {"role": role, "node": round(random.random(), 6)}


def pinned(choice: Mapping[str, Any], situation: Situation) -> Sequence[Node] | None:
    """The nodes that a choice names under `targets`, whoever else might be meant: none while one of them is not free.
    None: it names no nodes. A schedule that is being shrunk names them all, for what is left of it must go on to strike
    the same nodes."""
    if (names := choice.get("targets")) is None:
        return None
    nodes = [node for node in situation.cluster.nodes if node.name in names]
    return nodes if len(situation.free_among(nodes)) == len(names) else []


def choose_node(choice: Mapping[str, Any], situation: Situation) -> Sequence[Node]:
    """One node: with targets=leaders the broker leading most partitions, else as drawn, among those free."""
    if (nodes := pinned(choice, situation)) is not None:
        return nodes
    if situation.targets == "leaders":
        node = situation.most_leading()
    else:
        role = situation.cluster.brokers if choice["role"] == "broker" else situation.cluster.controllers
        node = pick(situation.free_among(role), choice["node"])
    return [node] if node else []


def by_node(nodes: Sequence[Node], evidence: Sequence[Evidence]) -> Evidence:
    """Evidence of several nodes as one: each node's own under `nodes`, and the sums of what can be added."""
    total: dict[str, Any] = {"nodes": {node.name: dict(seen) for node, seen in zip(nodes, evidence, strict=True)}}
    for key in _ADDED:
        if any(key in seen for seen in evidence):
            total[key] = sum(seen.get(key, 0) for seen in evidence)
    return total


_ADDED = (
    "unsynced_bytes", "unsynced_files", "unsynced_records", "frozen_ns", "packets_dropped", "refused_writes",
    "failed_operations",
)  # fmt: skip


def merge(first: Mapping[str, Any], second: Mapping[str, Any]) -> Evidence:
    """Both, nested mappings merged; `second` wins."""
    merged = dict(first)
    for key, value in second.items():
        both = isinstance(value, Mapping) and isinstance(merged.get(key), Mapping)
        merged[key] = merge(merged[key], value) if both else value
    return merged


def each(evidence: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The evidence of every single node."""
    yield from evidence.get("nodes", {}).values()
