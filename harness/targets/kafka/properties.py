"""The configuration of each node of Apache Kafka, and what the entry script (image/entry.sh) is told beside it."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from harness.cluster import Node
from harness.errors import BadArguments
from harness.targets.kafka import secrets, versions
from harness.targets.kafka_api import timeouts
from harness.targets.kafka_api.properties import (
    CONTROLLER_LISTENER,
    as_file,
    changed,
    in_words,
    quorum_voters,
    roles,
)
from harness.targets.security import given
from harness.targets.target import DATA, ClusterPlan

#: Of the volume: Kafka refuses the lost+found of a file system's root.
LOGS: Final = "kafka"
#: Not Kafka's own, but what `chaos` does for it.
OWN: Final[Mapping[str, tuple[str, Sequence[str], str]]] = {
    "chaos.format": (
        "synced", ("synced", "unsynced"),
        "unsynced: what `kafka-storage format` wrote is not synced before Kafka starts, as it comes",
    ),
    "chaos.heap": ("512m", (), "of each node's virtual machine, as -Xmx has it, 256m to 4g"),
    "chaos.quorum": (
        "static", ("static", "dynamic"),
        "dynamic: voters of the metadata quorum can be added and removed (KIP-853, Kafka 3.9 and later)",
    ),
}  # fmt: skip
#: Which of two releases a node starts, for the entry script.
_RELEASE: Final = "chaos.release"
#: Given to each node by the harness.
IDENTITY: Final = frozenset({
    "node.id", "broker.id", "process.roles", "cluster.id", "listeners", "advertised.listeners", "log.dirs", "log.dir",
    "metadata.log.dir", "broker.rack", "controller.quorum.voters", "controller.quorum.bootstrap.servers",
    "controller.listener.names",
})  # fmt: skip


def configurations(plan: ClusterPlan, nodes: Sequence[Node], cluster_id: str, release: str) -> Mapping[str, str]:
    """By node name. release: the version as --target has it; "" where only --kafka-home says it."""
    quorum = _Quorum(nodes, cluster_id, dynamic=has_dynamic_quorum(plan))
    return {node.name: as_file(_properties(plan, node, quorum, cluster_id, release)) for node in nodes}


def has_dynamic_quorum(plan: ClusterPlan) -> bool:
    return plan.settings.get("chaos.quorum") == "dynamic"


@dataclass(frozen=True)
class _Quorum:
    """Its first voters, and how a node is told of them."""

    nodes: Sequence[Node]
    cluster_id: str
    dynamic: bool

    @property
    def properties(self) -> Mapping[str, str]:
        if not self.dynamic:
            return {"controller.quorum.voters": quorum_voters(self.nodes)}
        addresses = (in_words(address) for node in self.nodes if (address := node.quorum_address))
        return {"controller.quorum.bootstrap.servers": ",".join(addresses)}

    def format_options(self, node: Node) -> Sequence[str]:
        if not self.dynamic:
            return ()
        if node.quorum_address is None:
            return ("--no-initial-controllers",)
        voters = (
            f"{each.id}@{in_words(address)}:{_directory_id(self.cluster_id, each.id)}"
            for each in self.nodes
            if (address := each.quorum_address)
        )
        return ("--initial-controllers", ",".join(voters))


def _directory_id(cluster_id: str, node_id: int) -> str:
    """Of a log directory, as Kafka writes a UUID."""
    given = uuid.uuid5(uuid.NAMESPACE_OID, f"{cluster_id}/{node_id}")
    return base64.urlsafe_b64encode(given.bytes).decode().rstrip("=")


#: With short time-outs: after which a member of a group by KIP-848 that is not heard of is out (by default 45 s; of the
#: classic protocol members say it themselves), and how soon a new group begins.
_SHORT_GROUPS: Final[Mapping[str, str]] = {
    "group.consumer.min.session.timeout.ms": "6000",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.heartbeat.interval.ms": "1000",
    "group.consumer.heartbeat.interval.ms": "1500",
    "group.initial.rebalance.delay.ms": "500",
}


def _properties(plan: ClusterPlan, node: Node, quorum: _Quorum, cluster_id: str, release: str) -> Mapping[str, str]:
    in_sync = min(3, plan.replication_factor)
    is_secured = given.is_secured(plan.clients)
    properties: dict[str, Any] = {
        "node.id": node.id,
        "process.roles": roles(node),
        **quorum.properties,
        "controller.listener.names": CONTROLLER_LISTENER,
        "listeners": secrets.addresses(node, is_secured),
        "broker.rack": node.rack,
        "log.dirs": log_directory(""),
        "default.replication.factor": plan.replication_factor,
        "min.insync.replicas": plan.min_insync_replicas,
        "auto.create.topics.enable": "false",
        "offsets.topic.replication.factor": in_sync,
        "transaction.state.log.replication.factor": in_sync,
        "transaction.state.log.min.isr": min(2, in_sync),
        **timeouts.given(plan),
        **(_SHORT_GROUPS if plan.timeouts == "short" else {}),
        **(secrets.listeners(plan) if is_secured and node.role == "broker" else {}),
        **{name: default for name, (default, _, _) in OWN.items()},
        _RELEASE: "first",
        "chaos.cluster.id": cluster_id,
        "chaos.format.options": " ".join([*format_options(plan.features, release), *quorum.format_options(node)]),
        **plan.settings,
    }
    return {name: str(value) for name, value in properties.items()}


def log_directory(folder: str) -> str:
    """folder: of the volume; "": the volume itself."""
    return str(Path(DATA, folder, LOGS))


def renumbered(configuration: str, node_id: int, folder: str) -> str:
    """See Target.renumbered()."""
    return changed(configuration, {"node.id": str(node_id), "log.dirs": log_directory(folder)})


def of_release(configuration: str, release: str) -> str:
    """See Target.of_release()."""
    return changed(configuration, {_RELEASE: release})


def format_options(features: Mapping[str, str], release: str) -> Sequence[str]:
    """Of `kafka-storage format`. metadata.version may be a level, or a release such as 3.9 or 3.9-IV0."""
    words = []
    for name, value in features.items():
        if name == versions.METADATA and (not value.isdecimal() or not _levels(release)):
            words += ["--release-version", value]
        else:
            words += ["--feature", f"{name}={value}"]
    return words


def _levels(release: str) -> bool:
    return not release or versions.read(release).features_at_format


def check_own(name: str, value: str) -> None:
    """Raises BadArguments unless it is valid of a setting in OWN."""
    _, words, _ = OWN[name]
    if words and value not in words:
        raise BadArguments(f"--set {name}={value} is not possible; valid: {', '.join(words)}")
    if name == "chaos.heap" and not 256 << 20 <= heap_bytes(value) <= 4 << 30:
        raise BadArguments(f"--set chaos.heap={value} is not possible; valid: 256m to 4g")


def heap_bytes(value: str) -> int:
    """0: it is no size."""
    number, unit = value[:-1], value[-1:].lower()
    return int(number) << {"m": 20, "g": 30}[unit] if number.isdecimal() and unit in ("m", "g") else 0
