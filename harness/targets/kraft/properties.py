"""The settings of each node of a run, by Kafka's names: what a runtime gives its processes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from harness.cluster import Node
from harness.targets.kafka_api import timeouts
from harness.targets.kafka_api.properties import in_words, jaas_config, quorum_voters, roles
from harness.targets.target import DATA, TRACE, ClusterPlan


def node_properties(
    plan: ClusterPlan, nodes: Sequence[Node], cluster_id: str, *, trusted: bool
) -> Mapping[str, Mapping[str, str]]:
    """By node name. trusted: whoever asks is taken for a node, and no trace is written to a file."""
    voters = quorum_voters(nodes)
    proof = {} if trusted else {"sasl.jaas.config": jaas_config(), "chaos.trace": TRACE}
    return {node.name: {**_properties(plan, node, voters, cluster_id), **proof} for node in nodes}


def _properties(plan: ClusterPlan, node: Node, voters: str, cluster_id: str) -> Mapping[str, str]:
    properties: dict[str, Any] = {
        "node.id": node.id,
        "process.roles": roles(node),
        "cluster.id": cluster_id,
        "controller.quorum.voters": voters,
        "listeners": _listeners(node),
        "broker.rack": node.rack,
        "log.dirs": DATA,
        "default.replication.factor": plan.replication_factor,
        "min.insync.replicas": plan.min_insync_replicas,
        **(timeouts.KAFKA if plan.timeouts == "kafka" else {}),  # else its own, which are short
        **({"chaos.bug": plan.bug} if plan.bug else {}),
        **plan.settings,
    }
    return {name: str(value) for name, value in properties.items()}


def _listeners(node: Node) -> str:
    if node.controller_address is None:
        return in_words(node.address)
    return f"PLAINTEXT://{in_words(node.address)},CONTROLLER://{in_words(node.controller_address)}"
