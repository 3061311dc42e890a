"""Links that let packets pass, but late, twice, out of order, at a rate, or not all of them.

As with partitions, who is struck is chosen first and the links follow from that. Unless clients are meant, their own
links stay as they are. Faults may overlap: what they do to a link adds up.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from random import Random
from typing import Any, ClassVar, Final

from harness.cluster import CLIENTS, Cluster, Evidence, Link, Node, Shape
from nemesis import Common, Draw, Nemesis, Situation, knob, pick, pinned
from nemesis.at_operation import AtMessage

LINKS: Final = ("node", "leader", "controller", "between", "all")
#: Of these the links are drawn if nobody says which. `controller` strikes nobody while there is none.
_DRAWN: Final = ("node", "leader", "between", "all")
_DIRECTIONS: Final = ("both", "both", "outgoing", "incoming")
#: A delay counts once the round trips have grown by this share of it: jitter and luck may have taken the rest.
_GROWN: Final = 0.5
#: And by this share of it however large the jitter: to have grown by nothing proves nothing.
_GROWN_AT_LEAST: Final = 0.25


@dataclass
class _Shaped(Common):
    """A shape of some links."""

    name = ""
    summary = ""
    exclusive = False
    links: str = knob("drawn", "drawn", *LINKS, help="of one node, of the broker that leads most partitions, of the "
                      "active controller, between two nodes, or all")  # fmt: skip
    direction: str = knob("drawn", "drawn", "both", "outgoing", "incoming", help="as those who are struck see it")
    clients: str = knob("without", "without", "with", "only", help="the links to clients: as they are, too, or alone")

    def draw(self, random: Random) -> Draw:
        gap, duration = random.uniform(3.0, 6.0), random.uniform(3.0, 8.0)
        links, direction = random.choice(_DRAWN), random.choice(_DIRECTIONS)
        choice = {
            "node": round(random.random(), 6),
            "links": links if self.links == "drawn" else self.links,
            "direction": direction if self.direction == "drawn" else self.direction,
            "clients": self.clients,
            "shape": {name: value for name, value in asdict(self.shape(random)).items() if value},
        }
        return Draw(gap, duration, choice)

    def shape(self, random: Random) -> Shape:
        raise NotImplementedError

    def check(self, choice: Mapping[str, Any], targets: Sequence[str]) -> None:
        for name, value in choice["shape"].items():
            most = _MOST.get(name)
            if most is None:
                raise ValueError(f"its shape has {name!r}; there are {', '.join(_MOST)}")
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= most:
                raise ValueError(f"{name} of its shape is {value!r}; valid: a number from 0 to {most:g}")
        if choice["links"] == "between" and targets and len(targets) != 2:
            raise ValueError("the links between nodes are those of two targets, no fewer and no more")

    def choose(self, choice: Mapping[str, Any], situation: Situation) -> Sequence[Node]:
        if (named := pinned(choice, situation)) is not None:
            return sorted(named, key=lambda node: choice["targets"].index(node.name))  # of two, one comes first
        nodes = situation.cluster.nodes
        leader = situation.most_leading()
        match choice["links"]:
            case "all":
                return nodes
            case "controller":
                active = situation.controller()
                return [active] if active else []
            case "between" if len(nodes) < 2:
                return []
            case "between" if situation.targets != "leaders":
                return Random(choice["node"]).sample(list(nodes), 2)
            case "between":
                other = pick([node for node in situation.cluster.brokers if node is not leader], choice["node"])
                return [leader, other] if leader and other else []
            case "node" if situation.targets != "leaders":
                one = pick(nodes, choice["node"])
                return [one] if one else []
        return [leader] if leader else []

    async def inject(self, cluster: Cluster, nodes: Sequence[Node], choice: Mapping[str, Any]) -> Evidence:
        links = list(_links(cluster, nodes, choice))
        measured = await cluster.shape(self.name, links, Shape(**choice["shape"]))
        return {"shape": dict(choice["shape"]), "shaped_links": [f"{a} > {b}" for a, b in links], **measured}

    async def heal(self, cluster: Cluster, nodes: Sequence[Node]) -> Evidence:
        return await cluster.unshape(self.name)

    def effective(self, evidence: Evidence) -> bool:
        """Everything that the shape asks for has been seen. Where packets overtake others, most may not be late, and
        round trips need not grow: the counters alone tell, of those that were late and of those let ahead."""
        shape = Shape(**evidence.get("shape", {}))
        seen = [evidence.get(what, 0) > 0 for wanted, what in _SEEN.items() if getattr(shape, wanted)]
        if shape.delay_ms and not shape.reorder:
            trip = evidence.get("round_trip_ms", {})
            grown = trip["while"] - trip["before"] if len(trip) == 2 else 0.0
            asked = max(_GROWN * (shape.delay_ms - shape.jitter_ms), _GROWN_AT_LEAST * shape.delay_ms)
            seen.append(grown >= asked or "unanswered_ms" in evidence)
        return bool(seen) and all(seen)


#: Of each part of a shape the highest value.
_MOST: Final = {
    "delay_ms": 10_000, "jitter_ms": 10_000, "loss": 1, "duplicate": 1, "reorder": 1, "rate_kbit": 1_000_000,
}  # fmt: skip
#: What of a shape shows in which counter.
_SEEN: Final = {
    "delay_ms": "packets_delayed", "jitter_ms": "packets_delayed", "loss": "packets_dropped",
    "duplicate": "packets_duplicated", "reorder": "packets_reordered", "rate_kbit": "throttled",
}  # fmt: skip


def _links(cluster: Cluster, nodes: Sequence[Node], choice: Mapping[str, Any]) -> Iterable[Link]:
    """direction, as those who are struck see it; of two, as the first does."""
    if choice["links"] == "between":
        struck, others = nodes[:1], nodes[1:]
    else:
        struck, others = nodes, cluster.nodes
    there = [(a.name, b.name) for a in struck for b in others if a is not b] if choice["clients"] != "only" else []
    there += [(node.name, CLIENTS) for node in nodes] if choice["clients"] != "without" else []
    back = [(b, a) for a, b in there]
    by_direction = {"both": [*there, *back], "outgoing": there, "incoming": back}
    return dict.fromkeys(by_direction[choice["direction"]])


@dataclass
class Delay(_Shaped):
    name = "network:delay"
    summary = "packets of some links are late"
    needs = frozenset({"netem"})
    delay_ms: float = knob(100.0, 1.0, 10_000.0, help="ms that each packet is late, one way")
    jitter_ms: float = knob(20.0, 0.0, 10_000.0, help="ms that each may be later or less late than that")

    def __post_init__(self) -> None:
        if self.jitter_ms > self.delay_ms:
            raise ValueError("jitter_ms is above delay_ms; a packet cannot be early")

    def shape(self, random: Random) -> Shape:
        return Shape(delay_ms=self.delay_ms, jitter_ms=self.jitter_ms)


@dataclass
class Loss(_Shaped):
    name = "network:loss"
    summary = "packets of some links are lost, by chance"
    loss: float = knob(0.1, 0.001, 0.99, help="share of the packets")

    def shape(self, random: Random) -> Shape:
        return Shape(loss=self.loss)


@dataclass
class Duplicate(_Shaped):
    name = "network:duplicate"
    summary = "packets of some links come twice, by chance"
    duplicate: float = knob(0.2, 0.001, 1.0, help="share of the packets")

    def shape(self, random: Random) -> Shape:
        return Shape(duplicate=self.duplicate)


@dataclass
class Reorder(_Shaped):
    """Those that are not late overtake those that are."""

    name = "network:reorder"
    summary = "packets of some links overtake others, by chance"
    needs = frozenset({"netem"})
    reorder: float = knob(0.25, 0.001, 0.999, help="share of the packets that overtake those before them")
    delay_ms: float = knob(20.0, 1.0, 10_000.0, help="ms that the others are late")

    def shape(self, random: Random) -> Shape:
        return Shape(reorder=self.reorder, delay_ms=self.delay_ms)


@dataclass
class Rate(_Shaped):
    name = "network:rate"
    summary = "some links pass so many bits a second and no more"
    rate_kbit: float = knob(32.0, 1.0, 1_000_000.0, help="1000 bits a second, each link for itself")

    def shape(self, random: Random) -> Shape:
        return Shape(rate_kbit=self.rate_kbit)


@dataclass
class Network(_Shaped):
    """Draws one of those that every machine has, so that a schedule does the same everywhere."""

    name = "network"
    summary = "some links are slow or lose packets: those of one node or a leader, between two, or all"
    variants: ClassVar[Mapping[str, type[Nemesis]]] = {
        "delay": Delay, "loss": Loss, "duplicate": Duplicate, "reorder": Reorder, "rate": Rate,
        "at-message": AtMessage,
    }  # fmt: skip

    def shape(self, random: Random) -> Shape:
        # As many between 2 % and 5 % as between 10 % and 25 %: what they break lies at any scale. Likewise the rates.
        loss, rate = 0.02 * 15 ** random.random(), 8 * 16 ** random.random()
        return Shape(loss=round(loss, 3)) if random.random() < 0.5 else Shape(rate_kbit=round(rate))
