"""The settings of each node of a run, by Kafka's names: what a runtime gives its processes."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from harness.cluster import Node
from harness.targets.target import DATA, TRACE, ClusterPlan, NodeSpec

FIRST_CONTROLLER_ID = 101
#: Where brokers serve, and where the quorum is served.
BROKER_PORT, CONTROLLER_PORT = 9092, 9093


def node_specs(plan: ClusterPlan) -> Sequence[NodeSpec]:
    """See Target.nodes()."""
    both = plan.controllers if plan.combined else 0
    brokers = (
        NodeSpec(f"broker-{n}", n, "broker", f"rack-{n}", BROKER_PORT, CONTROLLER_PORT if n <= both else None)
        for n in range(1, plan.brokers + 1)
    )
    controllers = (
        NodeSpec(f"controller-{n}", FIRST_CONTROLLER_ID - 1 + n, "controller", f"rack-{n}", CONTROLLER_PORT)
        for n in range(1, plan.controllers + 1 - both)
    )
    return [*brokers, *controllers]


def jaas_config() -> str:
    """What the nodes of a new cluster prove to each other by, as Kafka writes it."""
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    return f'{module} required username="node" password="{secrets.token_urlsafe(24)}";'


def node_properties(
    plan: ClusterPlan, nodes: Sequence[Node], cluster_id: str, *, trusted: bool
) -> Mapping[str, Mapping[str, str]]:
    """By node name. trusted: whoever asks is taken for a node, and no trace is written to a file."""
    voters = ",".join(f"{node.id}@{_text(address)}" for node in nodes if (address := node.quorum_address))
    proof = {} if trusted else {"sasl.jaas.config": jaas_config(), "chaos.trace": TRACE}
    return {node.name: {**_properties(plan, node, voters, cluster_id), **proof} for node in nodes}


def as_file(properties: Mapping[str, str]) -> str:
    return "".join(f"{name}={value}\n" for name, value in properties.items())


def changed(text: str, changes: Mapping[str, str]) -> str:
    """The properties of a file, some of them with other values."""
    lines = [line.partition("=") for line in text.splitlines()]
    return as_file({name: changes.get(name, value) for name, _, value in lines})


def _properties(plan: ClusterPlan, node: Node, voters: str, cluster_id: str) -> Mapping[str, str]:
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
