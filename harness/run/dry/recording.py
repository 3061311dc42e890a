"""A stand-in for a cluster on which nemeses inject and heal their faults, so that what is told of them is what they do:
it notes every method that is called, and breaks nothing.

It answers as a cluster would on which all goes well: processes run until they are killed, replicas move at once.
Evidence is empty.
"""

from __future__ import annotations

import inspect
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast

from harness.cluster import Cluster, Node, Role
from harness.plan import registry
from harness.plan.plan import Plan
from harness.targets.admin import REQUESTS, Ids, Load, Metadata, Move, Partition, Place, Quorum, Rebalancing
from harness.targets.target import NodeSpec

#: What nothing is done by.
_ASKING: Final = frozenset({"is_running", "last_words", "leftovers", "facts", "collect", "stop", "heal"})
_ENDING: Final = frozenset({"kill", "terminate", "cut_power", "lose_page_cache", "damage_file"})
_STARTING: Final = frozenset({"start", "restore_power"})


def methods(protocol: type) -> frozenset[str]:
    """Of Cluster or Node, those that do something."""
    found = inspect.getmembers(protocol, inspect.iscoroutinefunction)
    return frozenset(name for name, _ in found if not name.startswith("_")) - _ASKING


_OF_NODES: Final = methods(Node)
_OF_CLUSTERS: Final = methods(Cluster)


@dataclass(frozen=True)
class Call:
    """on: a node's name; "": the cluster. kind: "runtime" (a method of harness.cluster), or "admin" (of Admin, whose
    arguments follow from the live cluster and are left out)."""

    on: str
    method: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    kind: str = "runtime"

    def as_dict(self) -> dict[str, Any]:
        return {"on": self.on or None, "method": self.method, "kind": self.kind, "arguments": dict(self.arguments)}


class RecordingNode:
    """Its process runs until something ends it."""

    def __init__(self, calls: list[Call], spec: NodeSpec) -> None:
        self._calls = calls
        self.name, self.id, self.own_id, self.rack = spec.name, spec.id, spec.id, spec.rack
        self.role: Role = spec.role
        self.address = (spec.name, spec.port)
        self.controller_address = None if spec.controller_port is None else (spec.name, spec.controller_port)
        self.member = not spec.spare
        self.switches = 0
        self.running = self.member

    @property
    def quorum_address(self) -> tuple[str, int] | None:
        return self.address if self.role == "controller" else self.controller_address

    async def is_running(self) -> bool:
        return self.running

    def __getattr__(self, method: str) -> Any:
        if method not in _OF_NODES:
            raise AttributeError(method)

        async def called(*arguments: Any, **named: Any) -> dict[str, Any]:
            self._calls.append(Call(self.name, method, _bound(getattr(Node, method), arguments, named)))
            return self._become(method, *arguments)

        return called

    def _become(self, method: str, *arguments: Any) -> dict[str, Any]:
        if method in _ENDING:
            self.running = False
        elif method in _STARTING:
            self.running = True
        elif method == "replace":
            self.id = arguments[0]
        elif method == "put_back":
            self.id = self.own_id
        elif method == "switch_release":
            self.switches += 1
        return {}


def _bound(method: Any, arguments: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
    found = inspect.signature(method).bind(None, *arguments, **named).arguments
    return {name: value for name, value in found.items() if name != "self"}


class RecordingCluster:
    """Of a plan's shape. calls: what has been done to it so far."""

    def __init__(self, plan: Plan) -> None:
        self.calls: list[Call] = []
        self.machines = [RecordingNode(self.calls, spec) for spec in registry.make_target(plan.target).nodes(plan)]
        self.admin = RecordingAdmin(self, plan)

    @property
    def nodes(self) -> list[RecordingNode]:
        return [node for node in self.machines if node.member]

    @property
    def brokers(self) -> list[RecordingNode]:
        return [node for node in self.nodes if node.role == "broker"]

    @property
    def controllers(self) -> list[RecordingNode]:
        return [node for node in self.nodes if node.quorum_address]

    def as_cluster(self) -> Cluster:
        return cast(Cluster, self)

    def __getattr__(self, method: str) -> Any:
        if method not in _OF_CLUSTERS:
            raise AttributeError(method)

        async def called(*arguments: Any, **named: Any) -> dict[str, Any]:
            self.calls.append(Call("", method, _bound(getattr(Cluster, method), arguments, named)))
            return {}

        return called


class RecordingAdmin:
    """Implements harness.targets.admin.Admin."""

    def __init__(self, cluster: RecordingCluster, plan: Plan) -> None:
        self._cluster = cluster
        self._plan = plan
        ids = [node.id for node in cluster.brokers]
        self._replicas: dict[Place, Ids] = {
            (plan.topic, p): tuple(ids[(p + n) % len(ids)] for n in range(plan.replication_factor))
            for p in range(plan.partitions)
        }
        self.original = dict(self._replicas)
        self.movers: dict[str, Sequence[Place]] = {}
        self.raised: dict[str, int] = {}
        self._voters = {node.id for node in cluster.controllers}

    def __getattr__(self, method: str) -> Any:
        """What changes something, and is done at once."""
        if method not in REQUESTS:
            raise AttributeError(method)

        async def called(*arguments: Any) -> Any:
            self._cluster.calls.append(Call("", method, kind="admin"))
            if method == "reassign":
                self._replicas |= {place: ids for place, ids in arguments[0].items() if ids is not None}
                return {}
            if method in ("add_voter", "remove_voter"):
                (self._voters.add if method == "add_voter" else self._voters.discard)(arguments[0])
            return ""

        return called

    async def metadata(self) -> Metadata:
        ids = tuple(node.id for node in self._cluster.brokers if node.running)
        partitions = {place: Partition(each[0], 1, each, each, ()) for place, each in self._replicas.items()}
        return Metadata(ids, frozenset(ids), partitions)

    async def views(self) -> Sequence[Metadata | None]:
        return [await self.metadata()] * len(self._cluster.brokers)

    async def view(self, address: tuple[str, int]) -> Metadata | None:
        return await self.metadata()

    async def sizes(self, address: tuple[str, int]) -> Mapping[Place, int] | None:
        return dict.fromkeys(self._replicas, 0)

    async def moves(self) -> Mapping[Place, Move]:
        return {}

    async def rebalancing(self, brokers: Collection[int]) -> Rebalancing:
        """What need not be the least, nor as even as the cluster's own plan."""
        ids = sorted(brokers)
        targets = {
            place: tuple(ids[(place[1] + n) % len(ids)] for n in range(min(len(each), len(ids))))
            for place, each in self._replicas.items()
        }
        load = {broker: Load(0, 0) for broker in ids}
        nothing = dict.fromkeys(self._replicas, 0)
        return Rebalancing(targets, 0, 0, None, load, load, dict(self._replicas), nothing, {})

    async def min_insync_replicas(self, topic: str) -> int:
        return self._plan.min_insync_replicas

    async def supported(self, address: tuple[str, int]) -> Mapping[str, int]:
        return {"metadata.version": 2}

    async def features(self) -> Mapping[str, tuple[int, int]]:
        return dict.fromkeys(("metadata.version", "eligible.leader.replicas.version"), (2, 1))

    async def quorum(self) -> Quorum:
        controllers = self._cluster.controllers
        voters = {node.id: "" for node in controllers if node.id in self._voters}
        return Quorum(min(voters, default=-1), voters, {n.id: "" for n in controllers if n.id not in self._voters})
