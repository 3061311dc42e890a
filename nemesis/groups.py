"""Whom a fault strikes: groups of nodes, told from the live cluster at the moment of the fault."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, Final, TypeVar

from harness.cluster import Node
from nemesis import Common, Situation, pick, pinned

GROUPS: Final[Mapping[str, str]] = {
    "one": "one node",
    "leader": "the broker that leads most partitions",
    "follower": "a broker that leads fewest partitions",
    "controller": "the active controller",
    "minority": "fewer than half of the racks",
    "majority": "more than half of the racks",
    "all": "every node",
}
T = TypeVar("T", bound=type[Common])


def choose_group(group: str, choice: Mapping[str, Any], situation: Situation) -> Sequence[Node]:
    """The nodes of a group (GROUPS), as `choice["node"]`, in [0, 1), draws them; none unless all of them are free."""
    if (named := pinned(choice, situation)) is not None:
        return named
    nodes = situation.cluster.nodes
    match group:
        case "one":
            one = pick(situation.free_among(nodes), choice["node"])
            return [one] if one else []
        case "leader":
            leader = situation.most_leading()
            return [leader] if leader else []
        case "follower":
            follower = pick(situation.least_leading(), choice["node"])
            return [follower] if follower else []
        case "controller":
            active = situation.controller()
            return [active] if active else []
        case "minority" | "majority":
            racks = sorted({node.rack for node in nodes})
            count = (len(racks) - 1) // 2 if group == "minority" else len(racks) // 2 + 1
            struck = Random(choice["node"]).sample(racks, count)
            return all_or_none([node for node in nodes if node.rack in struck], situation)
        case "all":
            return all_or_none(nodes, situation)
    raise ValueError(f"there is no group {group!r}")


def next_in_turn(situation: Situation) -> Sequence[Node]:
    """Of the brokers in their order, the first that was struck least often; none while it is not free."""
    turn = min(situation.cluster.brokers, key=lambda node: situation.struck.get(node.name, 0), default=None)
    return [turn] if turn and turn.name in situation.free else []


def all_or_none(nodes: Sequence[Node], situation: Situation) -> Sequence[Node]:
    return nodes if len(situation.free_among(nodes)) == len(nodes) else ()


def variants_by_group(kind: T, verb: str) -> dict[str, T]:
    """A variant of this nemesis for each group, which it finds in its attribute `group`."""
    family = kind.__name__.lower()
    made: dict[str, Any] = {}
    for group, whom in GROUPS.items():
        attributes = {"group": group, "name": f"{family}:{group}", "summary": f"{verb} {whom}", "variants": {}}
        made[group] = type(f"{kind.__name__}{group.title()}", (kind,), attributes)
    return made
