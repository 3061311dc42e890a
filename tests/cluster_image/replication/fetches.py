"""A fetch of one partition, as replication/fetch.py makes it of a request: noted on arrival, answered at once."""

from __future__ import annotations

from typing import NamedTuple

from cluster_image.kraft.broker.partition import Eligible, Partition


class FetchRead(NamedTuple):
    """An answer to a fetch of one partition."""

    records: bytes
    high_watermark: int
    log_start_offset: int
    diverging: tuple[int, int] | None = None  # epoch, end offset


def fetch_as_consumer(partition: Partition, offset: int, leader_epoch: int, max_bytes: int) -> FetchRead:
    """Raises Refused."""
    records = partition.read_as_consumer(leader_epoch, offset, max_bytes)
    return FetchRead(records, partition.high_watermark, partition.log.start_offset)


def fetch_as_follower(
    partition: Partition,
    replica: int,
    broker_epoch: int,
    leader_epoch: int,
    offset: int,
    last_fetched_epoch: int,
    max_bytes: int,
    now: float,
    eligible: Eligible,
    log_start_offset: int = -1,
) -> FetchRead:
    """Raises Refused."""
    diverging = partition.record_fetch(
        replica, broker_epoch, leader_epoch, offset, last_fetched_epoch, now, eligible, log_start_offset
    )
    records = partition.read_as_follower(leader_epoch, offset, max_bytes) if diverging is None else b""
    return FetchRead(records, partition.high_watermark, partition.log.start_offset, diverging)
