"""What leads to the bugs of retention and log starts, one function each, and what comes of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cluster_image.replication.retention import next_start
from cluster_image.storage.errors import NonContiguousAppend, OffsetOutOfRange
from tests.cluster_image.kraft.broker.test_partition import Replica, batch, config, follow, leaders_batch


def _start(directory: Path, *, leads: bool) -> Any:
    """Three segments of a record each, of which two are committed and one record is to be kept."""
    replica = Replica(directory)
    log = replica.partition.log
    for _ in range(3):
        log.append_as_leader(batch(), 0)
        log.roll()
    return next_start(log, config(log_retention_bytes=0, log_retention_ms=-1), 2, 0, leads)


def log_that_parts_below_its_start(directory: Path) -> Any:
    """The leader, which was elected uncleanly, has nothing of the epoch of all that this one has kept."""
    replica = Replica(directory)
    for _ in range(3):
        replica.partition.log.append_as_leader(batch(), 0)
    replica.partition.log.raise_start_to(2)
    follow(replica, 1, 3)
    try:
        replica.partition.apply_fetch(1, 3, b"", 1, (0, 1), leaders_start=0)
    except NonContiguousAppend:
        return "fails"
    return replica.partition.log.start_offset, replica.partition.log.end_offset


def retention_of_what_is_not_committed(directory: Path) -> Any:
    return _start(directory, leads=True)


def retention_of_a_follower(directory: Path) -> Any:
    return _start(directory, leads=False)


def leader_starts_beyond_the_followers_end(directory: Path) -> Any:
    replica = Replica(directory)
    follow(replica, 1, 0)
    try:
        replica.partition.apply_fetch(1, 0, leaders_batch(0, 1), 1, None, leaders_start=3)
    except OffsetOutOfRange:
        return "fails"
    return replica.partition.log.start_offset
