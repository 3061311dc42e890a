"""The nodes of a cluster with ZooKeeper, and their settings: brokers as Kafka's property files have them, ZooKeeper's
servers as its zoo.cfg does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from harness.cluster import Node
from harness.targets.kafka_api import timeouts
from harness.targets.kafka_api.properties import BROKER_PORT, FIRST_CONTROLLER_ID, in_words, jaas_config, rack
from harness.targets.target import DATA, TRACE, ClusterPlan, NodeSpec
from harness.targets.v2.zookeeper import distribution

#: Of a server's configuration: ZooKeeper itself takes what it does not know for a system property.
NUMBER: Final = "chaos.myid"


def node_specs(plan: ClusterPlan) -> Sequence[NodeSpec]:
    """See Target.nodes(). ZooKeeper's servers stand in the controllers' place."""
    last = plan.brokers + plan.spare_brokers
    brokers = (
        NodeSpec(f"broker-{n}", n, "broker", rack(plan, n), BROKER_PORT, spare=n > plan.brokers)
        for n in range(1, last + 1)
    )
    servers = (
        NodeSpec(f"zookeeper-{n}", FIRST_CONTROLLER_ID - 1 + n, "controller", rack(plan, n), distribution.CLIENT_PORT)
        for n in range(1, plan.controllers + 1)
    )
    return [*brokers, *servers]


def number_of(node_id: int) -> int:
    """By which ZooKeeper knows a server."""
    return node_id - FIRST_CONTROLLER_ID + 1


def configurations(
    plan: ClusterPlan, nodes: Sequence[Node], cluster_id: str, *, trusted: bool
) -> Mapping[str, Mapping[str, str]]:
    """By node name. trusted: see Target.configurations()."""
    servers = {number_of(node.id): node for node in nodes if node.role == "controller"}
    connect = ",".join(in_words(node.address) for node in servers.values())
    proof = {} if trusted else {"sasl.jaas.config": jaas_config(), "chaos.trace": TRACE}
    places = {
        number: (node.address[0], distribution.PEER_PORT, distribution.ELECTION_PORT, node.address[1])
        for number, node in servers.items()
    }
    found: dict[str, Mapping[str, str]] = {}
    for node in nodes:
        if node.role == "controller":
            number = number_of(node.id)
            found[node.name] = {**distribution.configuration(number, DATA, places), NUMBER: str(number)}
        else:
            found[node.name] = {**_of_broker(plan, node, connect, cluster_id), **proof}
    return found


def _of_broker(plan: ClusterPlan, node: Node, connect: str, cluster_id: str) -> Mapping[str, str]:
    of_kafka = {"replica.lag.time.max.ms": timeouts.KAFKA["replica.lag.time.max.ms"],
                "zookeeper.session.timeout.ms": "9000"}  # fmt: skip
    properties: dict[str, Any] = {
        "node.id": node.id,
        "cluster.id": cluster_id,
        "zookeeper.connect": connect,
        "listeners": in_words(node.address),
        "broker.rack": node.rack,
        "log.dirs": DATA,
        "default.replication.factor": plan.replication_factor,
        **(of_kafka if plan.timeouts == "kafka" else {}),
        **({"chaos.bug": plan.bug} if plan.bug else {}),
        **plan.settings,
    }
    return {name: str(value) for name, value in properties.items()}


def read(text: str) -> Mapping[str, str]:
    """A configuration, as as_file() wrote it."""
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
