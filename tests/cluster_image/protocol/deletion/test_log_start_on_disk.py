"""What is on the disk of logs whose begin was deleted, at any moment."""

from __future__ import annotations

from random import Random
from uuid import UUID

import pytest

from cluster_image.replication.log_manager import LogManager
from cluster_image.storage.checkpoints import LEADER_EPOCH_FILE, LOG_START_FILE
from cluster_image.storage.disk import Disk
from cluster_image.storage.log import Log
from cluster_image.storage.records import build_batch, decode_values
from harness.runtimes.simulation.disk.disk import SimulatedDisk
from tests.cluster_image.kraft.broker.test_partition import config
from tests.cluster_image.storage.simulated_disk import PowerLoss, simulated_disk

TOPIC = UUID(int=1)
#: A batch of one a segment.
CONFIG = config(log_segment_bytes="1024")
VALUE = b"v" * 1000
LAST = 9


def started(disk: Disk) -> LogManager:
    logs = LogManager(CONFIG, disk)
    logs.load()
    return logs


def log_of(logs: LogManager) -> Log:
    return logs.get("t", TOPIC, 0, CONFIG)


def write(log: Log, count: int, epoch: int = 0) -> None:
    for _ in range(count):
        log.append_as_leader(build_batch([b"%d" % log.end_offset + VALUE], timestamp_ms=0), epoch)


def offsets(log: Log) -> list[int]:
    """Of all records from the log's start on, each of which is the one that was written there."""
    found = []
    offset = log.start_offset
    while data := log.read(offset, 1 << 20):
        for at, _, value in decode_values(data):
            assert value == b"%d" % at + VALUE
            found.append(at)
        offset = found[-1] + 1
    return found


def delete(disk: SimulatedDisk, interrupt_at: int | None = None) -> int:
    """Ten records; those below 7 are deleted, in two steps, each followed by a checkpoint: how many operations these
    take."""
    logs = started(disk)
    log = log_of(logs)
    write(log, LAST + 1)
    log.flush()
    logs.checkpoint({("t", 0): LAST + 1})
    count = 0

    def interrupt(operation: str, path: str) -> None:
        nonlocal count
        count += 1
        if count == interrupt_at:
            raise PowerLoss

    disk.before = interrupt
    try:
        for start in (4, 7):
            log.raise_start_to(start)
            logs.checkpoint({("t", 0): LAST + 1})
    except PowerLoss:
        disk.lose_power()
    finally:
        disk.before = lambda operation, path: None
    return count


OPERATIONS = delete(simulated_disk())


@pytest.mark.parametrize("checkpoint_is_lost", [False, True])
def test_power_cuts_while_segments_are_deleted(checkpoint_is_lost: bool) -> None:
    """At every operation: nothing from the start on is missing, and the start is none that was never asked for."""
    for at in range(1, OPERATIONS + 1):
        for seed in range(4):
            disk = SimulatedDisk(Random(seed * 1000 + at), sector=64)
            delete(disk, at)
            if checkpoint_is_lost and disk.exists(LOG_START_FILE):
                disk.remove(LOG_START_FILE)
            log = log_of(started(disk))
            assert log.start_offset <= 7 and offsets(log) == list(range(log.start_offset, LAST + 1)), (at, seed)


def test_a_log_starts_where_the_last_checkpoint_says() -> None:
    """Within a segment, too, which is still there as a whole."""
    disk = simulated_disk()
    logs = started(disk)
    log = log_of(logs)
    log.append_as_leader(build_batch([b"v"] * 5, timestamp_ms=0), 0)
    log.raise_start_to(3)
    logs.checkpoint({})
    log.raise_start_to(4)
    log.flush()
    disk.lose_power()
    again = log_of(started(disk))
    assert (again.start_offset, again.end_offset) == (3, 5)


def test_files_go_with_a_checkpoint_and_not_before() -> None:
    disk = simulated_disk()
    logs = started(disk)
    log = log_of(logs)
    write(log, 4)
    before = log.size
    log.raise_start_to(2)
    assert log.size == before
    logs.checkpoint({})
    assert log.size < before and offsets(log) == [2, 3]
    assert len([name for name in disk.list("t-0") if name.endswith(".log")]) == 2


def test_a_start_that_falls_is_forgotten_before_anything_is_written_below_it() -> None:
    """An unclean election has cut the log below its start. What is written there then is no deleted record."""
    disk = simulated_disk()
    logs = started(disk)
    log = log_of(logs)
    write(log, 4)
    log.raise_start_to(3)
    logs.checkpoint({("t", 0): 4})
    log.truncate_fully_and_start_at(1)
    write(log, 4, epoch=2)
    log.flush()
    disk.lose_power()
    again = log_of(started(disk))
    assert again.start_offset == 1 and offsets(again) == [1, 2, 3, 4]


def test_so_is_one_in_a_batch_that_is_cut_off() -> None:
    disk = simulated_disk()
    logs = started(disk)
    log = log_of(logs)
    log.append_as_leader(build_batch([b"0" + VALUE], timestamp_ms=0), 0)
    log.append_as_leader(build_batch([b"x"] * 5, timestamp_ms=0), 0)
    log.raise_start_to(4)
    logs.checkpoint({("t", 0): 6})
    log.truncate_to(5)
    assert (log.start_offset, log.end_offset) == (1, 1)
    write(log, 4, epoch=2)
    log.flush()
    disk.lose_power()
    again = log_of(started(disk))
    assert again.start_offset == 1 and offsets(again) == [1, 2, 3, 4]


def test_the_epoch_of_the_record_before_the_start_is_known_after_a_restart() -> None:
    """Of a log that holds nothing any more nothing else would tell that it is up to date."""
    disk = simulated_disk()
    logs = started(disk)
    log = log_of(logs)
    write(log, 2, epoch=3)
    write(log, 2, epoch=5)
    log.raise_start_to(4)
    log.roll()
    logs.checkpoint({("t", 0): 4})
    disk.lose_power()
    again = log_of(started(disk))
    assert (again.start_offset, again.end_offset, again.last_epoch, again.size) == (4, 4, 5, 0)
    assert again.end_offset_for_epoch(5) == (5, 4)


def test_a_damaged_note_of_epochs_changes_nothing() -> None:
    disk = simulated_disk()
    logs = started(disk)
    log = log_of(logs)
    write(log, 2, epoch=3)
    write(log, 2, epoch=5)
    log.flush()
    log.raise_start_to(3)
    logs.checkpoint({("t", 0): 4})
    disk.write_atomically(f"t-0/{LEADER_EPOCH_FILE}", b"0\n1\n9 0\n")
    disk.lose_power()
    again = log_of(started(disk))
    assert offsets(again) == [3] and again.last_epoch == 5


def test_a_log_that_lost_more_than_was_deleted_is_empty_at_its_start() -> None:
    disk = simulated_disk()
    logs = started(disk)
    log = log_of(logs)
    log.append_as_leader(build_batch([b"v"] * 3, timestamp_ms=0), 0)
    log.flush()
    log.append_as_leader(build_batch([b"v"] * 3, timestamp_ms=0), 0)
    log.raise_start_to(5)
    logs.checkpoint({("t", 0): 6})
    disk.lose_power()
    again = log_of(started(disk))
    assert again.start_offset == 5 and again.end_offset in (5, 6)


def test_times_below_the_start_do_not_count() -> None:
    log = log_of(started(simulated_disk()))
    for time in (900, 100, 300, 200):
        log.append_as_leader(build_batch([b"v"], timestamp_ms=time), 0)
    log.raise_start_to(1)
    assert log.latest_timestamp(4) == 300 and log.latest_timestamp(2) == 100
    assert log.offset_since(800) in (None, 1), "the search goes on from there, and finds none"
    log.raise_start_to(4)
    assert log.latest_timestamp(4) is None


def test_a_log_whose_first_files_are_lost_lacks_its_begin_until_it_has_begun_anew() -> None:
    disk = simulated_disk()
    delete(disk)
    assert log_of(started(disk)).lacks_from is None
    for name in disk.list("t-0")[:2]:
        disk.remove(f"t-0/{name}")
    for _ in range(2):  # a start that is not known to be right is not noted
        logs = started(disk)
        log = log_of(logs)
        assert (log.start_offset, log.lacks_from) == (9, 7)
        logs.checkpoint({("t", 0): LAST + 1})
    log.truncate_fully_and_start_at(7)
    write(log, 2)
    logs.checkpoint({("t", 0): 7})
    log = log_of(started(disk))
    assert (log.start_offset, log.lacks_from) == (7, None)
