"""What bugs of idempotent producers change, in one log."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cluster_image.storage.errors import NonContiguousAppend, OutOfOrderSequence
from cluster_image.storage.log import Log, LogConfig
from cluster_image.storage.records import encode_int64s, iter_batches, with_offset_and_epoch
from tests.cluster_image.storage.simulated_disk import simulated_disk


def batch(sequence: int) -> bytes:
    return encode_int64s([sequence], timestamp_ms=0, producer_id=7, producer_epoch=0, base_sequence=sequence)


def check(log: Log, sequence: int) -> Any:
    _, _, header = next(iter_batches(batch(sequence)))
    try:
        found = log.producers.check(header)
    except OutOfOrderSequence:
        return "out of order"
    return found and found.base_offset


def retry_after_a_crash(directory: Path) -> Any:
    """The batch is in the older of two segments, below the recovery point."""
    disk = simulated_disk()
    log = Log.open(disk, "t-0", LogConfig(segment_bytes=100))
    log.append_as_leader(batch(0), 1)
    log.append_as_leader(encode_int64s([1], timestamp_ms=0), 1)
    log.flush()
    return check(Log.open(disk, "t-0", LogConfig(segment_bytes=100), recovery_point=2), 0)


def retry_of_five_in_flight(directory: Path) -> Any:
    log = Log.open(simulated_disk(), "t-0")
    for sequence in range(6):
        log.append_as_leader(batch(sequence), 1)
    return [check(log, sequence) for sequence in range(7)]


def producer_unknown_to_a_follower(directory: Path) -> Any:
    log = Log.open(simulated_disk(), "t-0")
    log.truncate_fully_and_start_at(3)
    try:
        log.append_as_follower(with_offset_and_epoch(batch(3), 3, 1))
    except NonContiguousAppend:
        return "refused"
    return log.end_offset
