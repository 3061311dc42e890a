"""What cannot work is refused before a cluster starts: nemeses that find nobody to strike in a cluster of this shape.

Each nemesis is asked whom it would strike, in a cluster that is there in name only, with all nodes free, somebody
leading everything, and every ISR full or down to one broker. One that never finds anybody has no target at all. What
depends on more than who there is, a nemesis says itself (Nemesis.impossible).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from types import SimpleNamespace
from typing import Any, Final, cast

from harness.cluster import Cluster
from harness.errors import BadArguments
from harness.plan import registry
from harness.plan.plan import Plan
from harness.targets.target import NodeSpec
from nemesis import Nemesis, Situation
from nemesis.composites import Composite

_DRAWS: Final = 40


@dataclass(frozen=True)
class _Node:
    """What a nemesis may ask of a node before it strikes."""

    name: str
    id: int
    own_id: int
    role: str
    rack: str
    controller_address: tuple[str, int] | None = None
    switches: int = 0
    member: bool = True


@dataclass(frozen=True)
class _Named:
    """A cluster of which there are only the names."""

    machines: Sequence[_Node]
    nodes: Sequence[_Node] = field(init=False)
    brokers: Sequence[_Node] = field(init=False)
    controllers: Sequence[_Node] = field(init=False)
    admin: Any = field(default_factory=lambda: SimpleNamespace(movers={}, raised={}))  # nobody moves anything

    def __post_init__(self) -> None:
        members = [node for node in self.machines if node.member]
        object.__setattr__(self, "nodes", members)
        object.__setattr__(self, "brokers", [node for node in members if node.role == "broker"])
        controllers = [node for node in members if node.role == "controller" or node.controller_address]
        object.__setattr__(self, "controllers", controllers)


def check_targets(nemeses: Mapping[str, Nemesis], plan: Plan) -> None:
    """Raises BadArguments naming the first that cannot strike in a cluster of the plan's shape, and why."""
    shape = (
        f"a cluster of {plan.brokers} brokers and {plan.controllers} controllers{', combined,' * plan.combined} with "
        f"replication factor {plan.replication_factor}"
    )
    situations = list(_situations(_cluster(plan), plan))
    unsupported = registry.make_target(plan.target).unsupported
    for name, nemesis in nemeses.items():
        for each in _strikers(nemesis):
            impossible = getattr(each, "impossible", None)  # a user's own may have none
            why = next((unsupported[name] for name in _with_families(each.name) if name in unsupported), None)
            if why is None and impossible is not None:
                why = impossible(plan)
            if why is None and not _finds_somebody(each, situations):
                why = "it finds nobody to strike"
            if why is not None:
                of = "" if each is nemesis else f" (its part {each.name})"
                raise BadArguments(f"nemesis {name}{of} cannot work in {shape}: {why}")


def _with_families(name: str) -> list[str]:
    """A nemesis with its knobs, without them, its family."""
    parts = name.split(":")
    return [":".join(parts[:count]) for count in range(len(parts), 0, -1)]


def _strikers(nemesis: Nemesis) -> list[Nemesis]:
    """Of a composite its parts, but of one that draws them each time, none: it has others."""
    if not isinstance(nemesis, Composite):
        return [nemesis]
    times = [[part.nemesis for part in nemesis.parts(Random(f"{number}"))] for number in range(8)]
    names = {tuple(each.name for each in parts) for parts in times}
    return times[0] if len(names) == 1 else []


def _finds_somebody(nemesis: Nemesis, situations: Sequence[Situation]) -> bool:
    for number in range(_DRAWS):
        choice = nemesis.draw(Random(f"feasible/{number}")).choice
        for situation in situations:
            try:
                if nemesis.choose(choice, situation):
                    return True
            except Exception:  # a user's own may ask for more than names: it is tried when it strikes
                return True
    return False


def _cluster(plan: Plan) -> _Named:
    def named(spec: NodeSpec) -> _Node:
        quorum = None if spec.controller_port is None else ("", spec.controller_port)
        return _Node(spec.name, spec.id, spec.id, spec.role, spec.rack, quorum, member=not spec.spare)

    return _Named([named(spec) for spec in registry.make_target(plan.target).nodes(plan)])


def _situations(cluster: _Named, plan: Plan) -> Iterator[Situation]:
    everybody = frozenset(node.name for node in cluster.machines)
    replicas = frozenset(node.id for node in cluster.brokers[: plan.replication_factor])
    for broker in cluster.brokers[: plan.replication_factor]:
        for isr in (replicas, frozenset({broker.id})):
            known: dict[str, Any] = {"leaders": {broker.id: plan.partitions}, "isrs": {0: isr}}
            yield Situation(
                cast(Cluster, cluster), free=everybody, targets=plan.strike,
                active_controller=cluster.controllers[0].id if cluster.controllers else None, **known,
            )  # fmt: skip
