"""What breaks the cluster: one module a fault family, one class a nemesis.

A nemesis draws its faults from a seed before the run (`draw`), says against the live cluster whom each one strikes
(`choose`), and then does it and undoes it (`inject`, `heal`). It keeps no state: who is struck when is the business
of harness/run/injector.py, which also sees to it that no two faults fight over a node.

A family has variants, each a class of its own: `partition` draws of all that is common, `partition:bridge` does that
alone. The knobs of a nemesis are fields of its class, made with knob(): `partition:one-way:direction=incoming`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from random import Random
from typing import Any, ClassVar, Literal, Protocol, TypeVar

from harness.cluster import Cluster, Evidence, Node
from harness.targets.timing import Timing

Targets = Literal["random", "leaders"]
T = TypeVar("T")

EVERYWHERE = frozenset({"docker", "simulation", "ssh"})
SIMULATION = frozenset({"simulation"})
MACHINES = frozenset({"docker", "ssh"})  # containers and hosts: processes of their own on a Linux kernel


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
    isrs: Mapping[int, frozenset[int]] = field(default_factory=dict)  # partition: broker ids
    struck: Mapping[str, int] = field(default_factory=dict)  # node name: how often this nemesis has struck it so far

    def free_among(self, nodes: Sequence[Node]) -> list[Node]:
        return [node for node in nodes if node.name in self.free]

    def most_leading(self) -> Node | None:
        """The free broker that leads most partitions, the first of equals; None if no free one leads any."""
        leading = [node for node in self.free_among(self.cluster.brokers) if self.leaders.get(node.id)]
        return max(leading, key=lambda node: self.leaders[node.id], default=None)

    def least_leading(self) -> list[Node]:
        """The free brokers that lead fewest partitions: of a single partition those that do not lead it."""
        leading = {node: self.leaders.get(node.id, 0) for node in self.free_among(self.cluster.brokers)}
        return [node for node, count in leading.items() if count == min(leading.values())]

    def controller(self) -> Node | None:
        """The active controller, if it is known and free."""
        free = self.free_among(self.cluster.nodes)
        return next((node for node in free if node.id == self.active_controller), None)


class Layout(Protocol):
    """How many of what a cluster has: what a nemesis may want to know before there is one."""

    @property
    def brokers(self) -> int: ...

    @property
    def spare_brokers(self) -> int: ...

    @property
    def controllers(self) -> int: ...

    @property
    def replication_factor(self) -> int: ...

    @property
    def min_insync_replicas(self) -> int: ...

    @property
    def combined(self) -> bool: ...

    @property
    def upgrade_to(self) -> str | None: ...

    @property
    def clients(self) -> Mapping[str, str]: ...


class Nemesis(Protocol):
    """One kind of fault."""

    name: str
    summary: str  # one line, for `chaos list nemeses`
    preferred_targets: Targets  # when --strike is not given
    #: May lose data: strikes only once the brokers of the last such fault are back in every ISR, so that MinISR - 1
    #: lossy shutdowns at a time are not exceeded.
    waits_for_isr: bool
    runtimes: frozenset[str]  # where it works: EVERYWHERE, SIMULATION or MACHINES
    #: What not every machine has, or a runtime must prepare (harness.cluster.NEEDS).
    needs: frozenset[str]
    #: Do its faults hold the nodes that they strike, so that no other fault strikes them meanwhile?
    exclusive: bool
    #: Does healing them ask the cluster for something, so that all other faults must be healed before?
    heals_last: bool
    #: What producers ask for (all, 1 or 0), as far as a nemesis draws other faults for it: set by who makes it.
    acks: str
    #: Of the cluster, for faults that are to be longer or shorter than a time-out: set by who makes it.
    timing: Timing
    #: Does it strike where clients are not served already? (Else its faults may have to wait until they are.)
    into_outages: bool
    #: Of a choice, what is any text, and looked at by check() alone.
    free_choices: frozenset[str]
    variants: ClassVar[Mapping[str, type[Nemesis]]]  # by name, more special kinds of this fault

    def draw(self, random: Random) -> Draw:
        """The next fault of this nemesis. `random` is this fault's own stream."""

    def choose(self, choice: Mapping[str, Any], situation: Situation) -> Sequence[Node]:
        """Whom to strike, all of them free; empty if nobody can be struck now. What pinned() says comes first."""

    async def inject(self, cluster: Cluster, nodes: Sequence[Node], choice: Mapping[str, Any]) -> Evidence:
        """Break them."""

    async def heal(self, cluster: Cluster, nodes: Sequence[Node]) -> Evidence:
        """Make them whole again. Must work however far inject() came, and again once they are whole."""

    # One whose fault takes several steps has also
    #   def unfold(self, cluster, nodes, choice) -> AsyncGenerator[Evidence, None]
    # which is used in place of inject(): all evidence so far after each step, and {} now and then while it waits. The
    # fault is healed after the last step, or where it stands once it has lasted for its duration.

    def effective(self, evidence: Evidence) -> bool:
        """Does the evidence of inject() and heal(), merged, show that the fault took effect?"""

    def impossible(self, layout: Layout) -> str | None:
        """Why it cannot do what it is for in such a cluster, as a clause, whoever may be struck."""

    def steps(self, layout: Layout) -> int:
        """How many faults it takes until it has done what it is for."""

    def finished(self, situation: Situation) -> bool:
        """Is there nothing left to do for it? (It has no more faults then.)"""

    def smaller(self, choice: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
        """Choices that do less of the same, one thing less each: what shrinking tries."""

    def changed(self, choice: Mapping[str, Any], random: Random) -> Mapping[str, Any]:
        """A choice that is a little different: what a guided exploration tries of a fault that unfolds."""

    def check(self, choice: Mapping[str, Any], targets: Sequence[str]) -> None:
        """Raises ValueError, with a clause, for a choice written by hand that makes no sense though each part of it is
        of the kind that draw() draws. targets: names of nodes; () if choose() is to choose."""


@dataclass(frozen=True)
class Knob:
    """What can be set about a nemesis. valid: the words it can be, or the lowest and the highest number, a whole one if
    the default is an int."""

    name: str
    default: float | str
    valid: tuple[str, ...] | tuple[float, float]
    help: str

    @property
    def is_number(self) -> bool:
        return not isinstance(self.default, str)

    def read(self, text: str) -> float | str:
        """Raises ValueError with the end of a sentence."""
        if not self.is_number:
            if self.valid and text not in self.valid:
                raise ValueError(f"valid: {', '.join(map(str, self.valid))}")
            return text
        low, high = self.valid
        whole = isinstance(self.default, int)
        try:
            value = float(text)
        except ValueError:
            value = float("nan")
        if not float(low) <= value <= float(high) or (whole and not value.is_integer()):
            raise ValueError(f"valid: a {'whole ' * whole}number from {low:g} to {high:g}")
        return int(value) if whole else value


def knob(default: float | str, *valid: float | str, help: str) -> Any:
    """A field of a nemesis (a dataclass) that its user can set. valid: words, none for any text, or the lowest and the
    highest number."""
    return field(default=default, metadata={"valid": valid, "help": help})


def knobs(nemesis: Nemesis | type[Nemesis]) -> dict[str, Knob]:
    """By name. A user's own nemesis need not be a dataclass, and has none then."""
    if not hasattr(nemesis, "__dataclass_fields__"):
        return {}
    return {
        each.name: Knob(each.name, getattr(nemesis, each.name), each.metadata["valid"], each.metadata["help"])
        for each in fields(nemesis)  # type: ignore[arg-type]
        if "valid" in each.metadata
    }


class Common:
    """What most nemeses have in common: one that derives from it says only what is different."""

    preferred_targets: Targets = "random"
    waits_for_isr = False
    runtimes = EVERYWHERE
    needs: frozenset[str] = frozenset()
    exclusive = True
    heals_last = False
    acks = "all"
    timing = Timing()
    into_outages = False
    free_choices: frozenset[str] = frozenset()
    variants: ClassVar[Mapping[str, type[Nemesis]]] = {}

    def impossible(self, layout: Layout) -> str | None:
        return None

    def steps(self, layout: Layout) -> int:
        return 1

    def finished(self, situation: Situation) -> bool:
        return False

    def smaller(self, choice: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
        yield from ()

    def changed(self, choice: Mapping[str, Any], random: Random) -> Mapping[str, Any]:
        return choice

    def check(self, choice: Mapping[str, Any], targets: Sequence[str]) -> None:
        return None


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
    nodes = [node for node in situation.cluster.machines if node.name in names]
    return nodes if len(situation.free_among(nodes)) == len(names) else []


def choose_node(choice: Mapping[str, Any], situation: Situation) -> Sequence[Node]:
    """One node: with --strike leaders the broker leading most partitions, else as drawn, among those free."""
    if (nodes := pinned(choice, situation)) is not None:
        return nodes
    if situation.targets == "leaders":
        node = situation.most_leading()
    else:
        role = situation.cluster.brokers if choice["role"] == "broker" else situation.cluster.controllers
        node = pick(situation.free_among(role), choice["node"])
    return [node] if node else []


def choose_broker(choice: Mapping[str, Any], situation: Situation) -> Sequence[Node]:
    """One broker: with --strike leaders the one that leads most partitions, else as drawn, among those free."""
    if (nodes := pinned(choice, situation)) is not None:
        return nodes
    leader = situation.most_leading() if situation.targets == "leaders" else None
    broker = leader or pick(situation.free_among(situation.cluster.brokers), choice["node"])
    return [broker] if broker else []


async def start_the_dead(nodes: Sequence[Node]) -> None:
    """Of nodes that this fault holds: what holds others down is not to be cut short."""
    for node in nodes:
        if not await node.is_running():
            await node.start()


def by_node(nodes: Sequence[Node], evidence: Sequence[Evidence]) -> Evidence:
    """Evidence of several nodes as one: each node's own under `nodes`, and the sums of what can be added."""
    total: dict[str, Any] = {"nodes": {node.name: dict(seen) for node, seen in zip(nodes, evidence, strict=True)}}
    for key in _ADDED:
        if any(key in seen for seen in evidence):
            total[key] = sum(seen.get(key, 0) for seen in evidence)
    return total


_ADDED = (
    "unsynced_bytes", "unsynced_files", "unsynced_records", "frozen_ns", "cpu_ns_while_frozen", "packets_dropped",
    "refused_writes", "failed_operations", "dropped_bytes", "slowed_syncs", "damaged_bytes", "restored_bytes",
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
