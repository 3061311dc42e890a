"""Kafka's time-outs that faults and waits go by (--timeouts): its own, or such that a minute shows something."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from harness.targets.target import ClusterPlan
from harness.targets.timing import Timing

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


def timing(plan: ClusterPlan, start: float = 0.0) -> Timing:
    """start: see Timing."""
    in_force = {**KAFKA, **given(plan), **plan.settings}
    return Timing(_seconds(in_force, "broker.session.timeout.ms"), _seconds(in_force, "replica.lag.time.max.ms"), start)


def _seconds(settings: Mapping[str, str], name: str) -> float:
    """What is no number, nodes refuse."""
    value = settings[name]
    return int(value if value.isdecimal() else KAFKA[name]) / 1000
