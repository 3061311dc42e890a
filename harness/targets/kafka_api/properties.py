"""The nodes of a cluster with Kafka's roles, and their settings as Kafka's property files have them."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Final

from harness.cluster import Node
from harness.targets.target import ClusterPlan, NodeSpec

FIRST_CONTROLLER_ID: Final = 101
#: Where brokers serve, and where the quorum is served.
BROKER_PORT: Final = 9092
CONTROLLER_PORT: Final = 9093
#: As listener names have it.
CONTROLLER_LISTENER: Final = "CONTROLLER"


def node_specs(plan: ClusterPlan) -> Sequence[NodeSpec]:
    """See Target.nodes()."""
    both = plan.controllers if plan.combined else 0
    brokers = (
        NodeSpec(f"broker-{n}", n, "broker", rack(plan, n), BROKER_PORT, CONTROLLER_PORT if n <= both else None)
        for n in range(1, plan.brokers + 1)
    )
    last = plan.brokers + plan.spare_brokers
    spares = (
        NodeSpec(f"broker-{n}", n, "broker", rack(plan, n), BROKER_PORT, spare=True)
        for n in range(plan.brokers + 1, last + 1)
    )
    controllers = (
        NodeSpec(f"controller-{n}", FIRST_CONTROLLER_ID - 1 + n, "controller", rack(plan, n), CONTROLLER_PORT)
        for n in range(1, plan.controllers + 1 - both)
    )
    return [*brokers, *spares, *controllers]


def rack(plan: ClusterPlan, number: int) -> str:
    """Of the node with this number in its role: they are dealt out."""
    return f"rack-{number if plan.racks is None else (number - 1) % plan.racks + 1}"


def roles(node: Node) -> str:
    """As process.roles has them."""
    return "broker,controller" if node.controller_address else node.role


def quorum_voters(nodes: Sequence[Node]) -> str:
    """As controller.quorum.voters has them."""
    return ",".join(f"{node.id}@{in_words(address)}" for node in nodes if (address := node.quorum_address))


def in_words(address: tuple[str, int]) -> str:
    return "{}:{}".format(*address)


def as_file(properties: Mapping[str, str]) -> str:
    return "".join(f"{name}={value}\n" for name, value in properties.items())


def changed(text: str, changes: Mapping[str, str]) -> str:
    """The properties of a file, some of them with other values."""
    lines = [line.partition("=") for line in text.splitlines()]
    return as_file({name: changes.get(name, value) for name, _, value in lines})


def jaas_config() -> str:
    """What the nodes of a new cluster prove to each other by, as Kafka writes it."""
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    return f'{module} required username="node" password="{secrets.token_urlsafe(24)}";'
