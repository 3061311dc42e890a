"""The settings of each node of a run, by Kafka's names: what a runtime gives its processes."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from harness.cluster import Node
from harness.plan.plan import Plan

FIRST_CONTROLLER_ID = 101
#: Where a node's volume is, as its process sees it.
DATA = "/data"


def jaas_config() -> str:
    """What the nodes of a new cluster prove to each other by, as Kafka writes it."""
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    return f'{module} required username="node" password="{secrets.token_urlsafe(24)}";'


def node_properties(
    plan: Plan, nodes: Sequence[Node], cluster_id: str, jaas: str = ""
) -> Mapping[str, Mapping[str, str]]:
    """By node name. jaas: see jaas_config(); without it whoever asks is taken for a node."""
    voters = ",".join(f"{node.id}@{_text(address)}" for node in nodes if (address := quorum_address(node)))
    proof = {"sasl.jaas.config": jaas} if jaas else {}
    return {node.name: {**_properties(plan, node, voters, cluster_id), **proof} for node in nodes}


def as_file(properties: Mapping[str, str]) -> str:
    return "".join(f"{name}={value}\n" for name, value in properties.items())


def quorum_address(node: Node) -> tuple[str, int] | None:
    """Where it serves the quorum; None if it is no controller."""
    return node.address if node.role == "controller" else node.controller_address


def _properties(plan: Plan, node: Node, voters: str, cluster_id: str) -> Mapping[str, str]:
    properties: dict[str, Any] = {
        "node.id": node.id,
        "process.roles": "broker,controller" if node.controller_address else node.role,
        "cluster.id": cluster_id,
        "controller.quorum.voters": voters,
        "listeners": _listeners(node),
        "broker.rack": node.rack,
        "log.dirs": DATA,
        "default.replication.factor": plan.replication_factor,
        "min.insync.replicas": plan.min_insync_replicas,
        **({"chaos.bug": plan.bug} if plan.bug else {}),
        **plan.settings,
    }
    return {name: str(value) for name, value in properties.items()}


def _listeners(node: Node) -> str:
    if node.controller_address is None:
        return _text(node.address)
    return f"PLAINTEXT://{_text(node.address)},CONTROLLER://{_text(node.controller_address)}"


def _text(address: tuple[str, int]) -> str:
    return "{}:{}".format(*address)
