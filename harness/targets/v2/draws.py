"""The settings that each seed of an exploration draws for itself (harness/explore/swarm.py)."""

from __future__ import annotations

from typing import Final

from harness.targets.target import Choices, Draws

_TOGETHER: Final[Choices] = (
    ({}, {"replica.lag.time.max.ms": "1500"}, {"replica.lag.time.max.ms": "500", "replica.fetch.wait.max.ms": "100"}),
    ({}, {"zookeeper.session.timeout.ms": "1200"}, {"zookeeper.session.timeout.ms": "6000"}),
    ({}, {"replica.fetch.max.bytes": "200"}, {"replica.fetch.max.bytes": "1000"}),
    ({}, {"replica.fetch.wait.max.ms": "50"}, {"replica.fetch.wait.max.ms": "400"}),  # less than any lag
    ({}, {"log.segment.bytes": "2048"}),
    ({}, {"v2.preferred.replica.time.ms": "100"}, {"v2.preferred.replica.time.ms": "1000"}),
    ({}, {"replica.high.watermark.checkpoint.interval.ms": "500"}),
    ({}, {"num.replica.fetchers": "2"}),
)  # fmt: skip

DRAWS: Final = Draws(_TOGETHER)
