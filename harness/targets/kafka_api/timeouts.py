"""Kafka's time-outs that faults and waits go by (--timeouts): its own, or such that a minute shows something."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from harness.targets.target import ClusterPlan

#: Kafka's defaults.
KAFKA: Final[Mapping[str, str]] = {
    "replica.lag.time.max.ms": "30000",
    "broker.session.timeout.ms": "9000",
    "broker.heartbeat.interval.ms": "2000",
    "controller.quorum.election.timeout.ms": "1000",
    "controller.quorum.fetch.timeout.ms": "2000",
}
#: What is different of the short ones.
SHORT: Final[Mapping[str, str]] = {
    "replica.lag.time.max.ms": "4000",
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
}


def given(plan: ClusterPlan) -> Mapping[str, str]:
    """What nodes are given whose defaults are Kafka's."""
    return SHORT if plan.timeouts == "short" else {}


def in_force(plan: ClusterPlan) -> Mapping[str, str]:
    return {**KAFKA, **given(plan), **plan.settings}
