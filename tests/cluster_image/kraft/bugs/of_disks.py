"""What leads to the bugs of logs on disks, one function each, and what comes of it."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest

from cluster_image.kraft.raft.snapshots import open_log
from cluster_image.storage.checkpoints import CleanShutdownFile
from cluster_image.storage.log import Log, LogConfig
from tests.cluster_image.kraft.broker.test_partition import batch
from tests.cluster_image.kraft.raft.test_raft_quorum import DIRECTORY
from tests.cluster_image.storage.simulated_disk import simulated_disk


def two_starts_after_one_shutdown(directory: Path) -> Any:
    file = CleanShutdownFile(simulated_disk())
    file.write(7)
    return file.take(), file.take()


def power_cut_after_a_segment_was_flushed(directory: Path) -> Any:
    """Where the log ends then."""
    disk = simulated_disk()
    log = Log.open(disk, "t-0")
    log.append_as_leader(batch(), 0)
    log.roll()
    log.append_as_leader(batch(), 0)
    log.flush()
    disk.root = disk.root.after_power_loss(Random(0), 0.0, 64)  # with nothing that happens to be written back
    return Log.open(disk, "t-0").end_offset


def power_cut_after_a_file_was_replaced(directory: Path) -> Any:
    """What it holds then."""
    disk = simulated_disk()
    disk.write_atomically("checkpoint", b"before")
    disk.write_atomically("checkpoint", b"after")
    disk.root = disk.root.after_power_loss(Random(0), 0.0, 64)  # with nothing that happens to be written back
    return disk.read("checkpoint")


def append_after_one_that_failed(directory: Path) -> Any:
    """Is it taken, and does a start find it?"""
    disk = simulated_disk()
    log = Log.open(disk, "t-0")
    log.append_as_leader(batch(b"first"), 0)
    disk.full = True
    with pytest.raises(OSError):
        log.append_as_leader(batch(b"second" * 20), 0)
    disk.full = False
    try:
        log.append_as_leader(batch(b"third"), 0)
    except OSError:
        return "refused"
    end = log.end_offset
    log.close()
    return end, Log.open(disk, "t-0").end_offset


def metadata_log_of_a_killed_process(directory: Path) -> Any:
    """What it wrote is in the page cache. How much counts as durable after the next start, and how much is?"""
    disk = simulated_disk()
    log, _ = open_log(disk, DIRECTORY, LogConfig())
    log.append_as_leader(batch(), 1)
    log, _ = open_log(disk, DIRECTORY, LogConfig())
    claimed = log.flushed_offset
    disk.lose_power(Random(0))
    log, _ = open_log(disk, DIRECTORY, LogConfig())
    return claimed, log.end_offset
