"""The settings that each seed of an exploration draws for itself (harness/explore/swarm.py)."""

from __future__ import annotations

from typing import Final

from harness.targets.target import Choices, Draws

#: Settings that are drawn together, and what for. The first of each is the default.
_TOGETHER: Final[Choices] = (
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
_APART: Final[Choices] = (
    ({}, {"num.replica.fetchers": "2"}, {"num.replica.fetchers": "3"}),
    ({}, {"max.incremental.fetch.session.cache.slots": "1"}, {"max.incremental.fetch.session.cache.slots": "0"}),
    ({}, {"metadata.log.max.record.bytes.between.snapshots": "600", "metadata.log.segment.bytes": "1024"},
     {"metadata.log.max.record.bytes.between.snapshots": "3000", "metadata.log.segment.bytes": "1024"}),
    ({}, {"leader.imbalance.check.interval.seconds": "3"}),
)  # fmt: skip

DRAWS: Final = Draws(_TOGETHER, _APART)
