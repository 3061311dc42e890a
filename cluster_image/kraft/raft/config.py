"""The quorum's settings."""

from __future__ import annotations

from dataclasses import dataclass

from cluster_image.config import Config


@dataclass(frozen=True, slots=True)
class QuorumConfig:
    """Times in seconds unless named otherwise. Defaults are Kafka's."""

    election_timeout: float = 1.0
    fetch_timeout: float = 2.0
    election_backoff_max: float = 1.0
    request_timeout: float = 2.0
    retry_backoff: float = 0.02
    fetch_wait_ms: int = 500  # how long a leader may sit on a fetch with nothing to tell
    fetch_bytes: int = 8 << 20  # of a log's records, or of a snapshot
    segment_bytes: int = 64 << 20
    snapshot_bytes: int = 20 << 20  # of the log, after which a snapshot is due
    snapshot_interval: float = 3600.0  # after the first record that no snapshot holds, one is due

    @classmethod
    def of(cls, config: Config) -> QuorumConfig:
        return cls(
            election_timeout=config.seconds("controller.quorum.election.timeout.ms"),
            fetch_timeout=config.seconds("controller.quorum.fetch.timeout.ms"),
            election_backoff_max=config.seconds("controller.quorum.election.backoff.max.ms"),
            request_timeout=config.seconds("controller.quorum.request.timeout.ms"),
            segment_bytes=config["metadata.log.segment.bytes"],
            snapshot_bytes=config["metadata.log.max.record.bytes.between.snapshots"],
            snapshot_interval=config.seconds("metadata.log.max.snapshot.interval.ms"),
        )
