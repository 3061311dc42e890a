"""Swarm testing: each seed of an exploration runs with settings of its own.

What one configuration never reaches is common in another (Groce et al., "Swarm Testing", ISSTA 2012): an ISR shrinks by
lag only if faults outlast replica.lag.time.max.ms, a follower stays behind for a while only if it fetches little at a
time, recovery meets several segments only if they are small.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, Final

from harness.plan.plan import Plan

#: Settings that are drawn together, and what for. The first of each is the default.
_CHOICES: Final[Sequence[Sequence[Mapping[str, str]]]] = (
    ({}, {"replica.lag.time.max.ms": "1500"}, {"replica.lag.time.max.ms": "500"}),
    ({}, {"broker.session.timeout.ms": "1200", "broker.heartbeat.interval.ms": "200"},
     {"broker.session.timeout.ms": "9000", "broker.heartbeat.interval.ms": "2000"}),
    ({}, {"replica.fetch.max.bytes": "200"}, {"replica.fetch.max.bytes": "1000"}),
    ({}, {"replica.fetch.wait.max.ms": "50"}, {"replica.fetch.wait.max.ms": "2000"}),
    ({}, {"log.segment.bytes": "2048"}),
    ({}, {"log.flush.interval.messages": "7"}, {"log.flush.interval.ms": "1000"}),
    ({}, {"controller.quorum.fetch.timeout.ms": "600", "controller.quorum.election.timeout.ms": "300",
          "controller.quorum.election.backoff.max.ms": "300"}),
    ({}, {"request.timeout.ms": "30000", "replica.socket.timeout.ms": "30000"}),
    ({}, {"replica.high.watermark.checkpoint.interval.ms": "500"}),
)  # fmt: skip

#: Likewise, but each drawn from a stream of its own, named by its first setting. Whatever is added belongs here: the
#: draws of all others stay what they were.
_LATER_CHOICES: Final[Sequence[Sequence[Mapping[str, str]]]] = (
    ({}, {"num.replica.fetchers": "2"}, {"num.replica.fetchers": "3"}),
    ({}, {"max.incremental.fetch.session.cache.slots": "1"}, {"max.incremental.fetch.session.cache.slots": "0"}),
    ({}, {"metadata.log.max.record.bytes.between.snapshots": "600", "metadata.log.segment.bytes": "1024"},
     {"metadata.log.max.record.bytes.between.snapshots": "3000", "metadata.log.segment.bytes": "1024"}),
    ({}, {"leader.imbalance.check.interval.seconds": "3"}),
)  # fmt: skip

#: Average latency of the network: of one room, of one region, and of a continent.
_LATENCIES_MS: Final = (0.5, 5.0, 25.0)


def plan_of(plan: Plan, seed: int, *, draw_settings: bool, draw_latency: bool) -> Plan:
    """The plan of one seed of an exploration. draw_settings: those that `plan` does not have."""
    changes: dict[str, Any] = {"run": f"s{seed}", "seed": seed}
    if draw_settings:
        changes["settings"] = _settings(seed, plan.settings)
    if draw_latency:
        changes["latency_ms"] = Random(f"{seed}/latency").choice(_LATENCIES_MS)
    return plan.model_copy(update=changes)


def _settings(seed: int, given: Mapping[str, str]) -> dict[str, str]:
    random = Random(f"{seed}/settings")
    drawn: dict[str, str] = {}
    for choices in _CHOICES:
        # Half of the time the default: what users have must be tested most.
        choice = random.choice(choices[1:])
        if random.random() < 0.5 and not given.keys() & choice.keys():
            drawn |= choice
    for choices in _LATER_CHOICES:
        own = Random(f"{seed}/settings/{next(iter(choices[1]))}")
        if own.random() < 0.5 and not given.keys() & choices[1].keys():
            drawn |= own.choice(choices[1:])
    return drawn | dict(given)
