"""Logs of a broker's data directory: deletion, and what a power cut at any moment leaves of it; timed flushes."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from uuid import UUID

import pytest

from cluster_image.replication.log_manager import LogManager
from cluster_image.storage.checkpoints import OffsetCheckpoint
from cluster_image.storage.disk import Disk
from cluster_image.storage.errors import StorageError
from cluster_image.storage.records import build_batch
from harness.runtimes.simulation.disk.disk import SimulatedDisk
from tests.cluster_image.kraft.broker.test_partition import config
from tests.cluster_image.storage.simulated_disk import PowerLoss, simulated_disk

OLD, NEW = UUID(int=1), UUID(int=2)


def started(disk: Disk) -> LogManager:
    logs = LogManager(config(), disk)
    logs.load()
    return logs


def write(logs: LogManager, topic: str, topic_id: UUID, *values: bytes, index: int = 0) -> None:
    log = logs.get(topic, topic_id, index, config())
    log.append_as_leader(build_batch(values, timestamp_ms=0), 0)
    log.flush()


def values_of(logs: LogManager, topic: str, topic_id: UUID) -> bytes:
    log = logs.get(topic, topic_id, 0, config())
    return log.read(log.start_offset, 1 << 20)


def test_a_deleted_log_is_gone_and_others_stay() -> None:
    disk = simulated_disk()
    logs = started(disk)
    write(logs, "a", OLD, b"1")
    write(logs, "b", NEW, b"2")
    logs.delete([("a", 0)], {("a", 0): 1, ("b", 0): 1})
    assert disk.list("") == ["b-0", "recovery-point-offset-checkpoint", "replication-offset-checkpoint"]
    again = started(disk)
    assert b"2" in values_of(again, "b", NEW) and again.high_watermarks == {("b", 0): 1}


def test_nothing_can_be_written_to_a_deleted_log() -> None:
    logs = started(simulated_disk())
    log = logs.get("a", OLD, 0, config())
    logs.delete([("a", 0)], {})
    with pytest.raises(StorageError):
        log.append_as_leader(build_batch([b"1"], timestamp_ms=0), 0)


def test_a_long_name_has_room_for_what_is_added() -> None:
    disk = simulated_disk()
    logs = started(disk)
    name = "x" * 249
    for index in (0, 1):
        write(logs, name, OLD, b"1", index=index)
    seen: list[str] = []
    disk.before = lambda operation, path: seen.append(path) if operation == "rename" else None
    logs.delete([(name, 0), (name, 1)], {})
    deleted = [path for path in seen if path.endswith("-delete")]
    assert len(set(deleted)) == 2 and all(len(path) <= 255 for path in deleted)


class Interrupted:
    """Counts operations on a disk, and cuts the power at the one wanted."""

    def __init__(self, disk: SimulatedDisk, at: int | None) -> None:
        self.count = 0
        self.at = at
        disk.before = self

    def __call__(self, operation: str, path: str) -> None:
        self.count += 1
        if self.count == self.at:
            raise PowerLoss


def recreate(disk: SimulatedDisk, interrupt_at: int | None = None) -> int:
    """A topic is deleted, and another of its name created and written to: how many operations that takes."""
    logs = started(disk)
    write(logs, "t", OLD, b"old", b"old")
    write(logs, "other", OLD, b"kept")
    logs.checkpoint({("t", 0): 2, ("other", 0): 1})
    interrupted = Interrupted(disk, interrupt_at)
    try:
        logs.delete([("t", 0)], {("t", 0): 2, ("other", 0): 1})
        write(logs, "t", NEW, b"new")
    except PowerLoss:
        disk.lose_power()
    finally:
        disk.before = lambda operation, path: None
    return interrupted.count


OPERATIONS = recreate(simulated_disk())


@pytest.mark.parametrize("seed", range(4))
def test_power_cuts_while_a_topic_is_deleted_and_created_again(seed: int) -> None:
    """At every operation: the old log is whole, and so is deleted as a stray; or nothing of it is ever seen again, its
    high watermark included."""
    for at in range(1, OPERATIONS + 1):
        disk = SimulatedDisk(Random(seed * 1000 + at), sector=64)
        recreate(disk, at)
        logs = started(disk)
        assert logs.high_watermarks.get(("other", 0)) == 1 and b"kept" in values_of(logs, "other", OLD)
        delete_strays(logs, lambda topic_id, index: topic_id == NEW)
        records = values_of(logs, "t", NEW)
        assert b"old" not in records
        assert logs.high_watermarks.get(("t", 0), 0) == 0, "the old log's would commit the new one's records"
        write(logs, "t", NEW, b"after")
        assert not [name for name in disk.list("") if name.endswith("-delete")]
        disk.lose_power()
        logs = started(disk)
        assert b"after" in values_of(logs, "t", NEW) and logs.high_watermarks.get(("t", 0), 0) == 0
        assert not [name for name in disk.list("") if name.endswith("-delete")]


def test_logs_that_are_never_written_to_are_empty_directories_at_most() -> None:
    """Thousands may be created and deleted at once, and each file, and more so each sync, takes milliseconds."""
    disk = simulated_disk()
    logs = started(disk)
    changes: list[str] = []
    disk.before = lambda operation, path: changes.append(f"{operation} {path}")
    for index in range(10):
        log = logs.get("t", OLD, index, config())
        log.flush()
        assert (log.start_offset, log.end_offset, log.size, log.last_epoch, log.read(0, 1)) == (0, 0, 0, -1, b"")
        assert (log.offset_since(0), log.latest_timestamp(0), log.end_offset_for_epoch(3)) == (None, None, (3, 0))
    for index in (0, 0, 8, 11):
        logs.announce(("t", index))
    logs.delete([("t", index) for index in range(5)], {})
    assert changes == ["make_directory t-0", "make_directory t-8", "remove_directory t-0"]
    logs.close({("t", 9): 0}, 7)
    with pytest.raises(StorageError):
        log.append_as_leader(build_batch([b"1"], timestamp_ms=0), 0)
    disk.lose_power()
    logs = started(disk)
    assert logs.previous_epoch == 7 and logs.topics.get(("t", 9)) is None and not logs.high_watermarks


def first_writes(disk: SimulatedDisk, interrupt_at: int | None = None) -> int:
    """A log is created, and written to for the first time: how many operations that takes."""
    interrupted = Interrupted(disk, interrupt_at)
    try:
        logs = started(disk)
        logs.checkpoint({})
        write(logs, "t", OLD, b"a")
        disk.before = lambda operation, path: None
        disk.lose_power()
        assert b"a" in values_of(started(disk), "t", OLD), "it was flushed"
    except PowerLoss:
        disk.before = lambda operation, path: None
        disk.lose_power()
    return interrupted.count


@pytest.mark.parametrize("seed", range(4))
def test_power_cuts_around_a_logs_first_records(seed: int) -> None:
    """At every operation: there is never a record of which it is not known of which topic it is."""
    for at in range(1, first_writes(simulated_disk()) + 1):
        disk = SimulatedDisk(Random(seed * 1000 + at), sector=64)
        first_writes(disk, at)
        logs = started(disk)
        assert logs.topics.get(("t", 0)) in (OLD, None)
        write(logs, "t", OLD, b"after")
        disk.lose_power()
        assert b"after" in values_of(started(disk), "t", OLD)


def test_a_log_whose_first_sync_failed_takes_nothing() -> None:
    disk = simulated_disk()
    log = started(disk).get("t", OLD, 0, config())
    disk.failing = True
    for _ in range(2):
        with pytest.raises(StorageError):
            log.append_as_leader(build_batch([b"1"], timestamp_ms=0), 0)
        disk.failing = False
    assert not log.end_offset
    with pytest.raises(StorageError):
        log.close()


def test_what_has_not_changed_is_not_written_again() -> None:
    """With each checkpoint, two syncs a file, in which the broker stands still."""
    disk = simulated_disk()
    logs = started(disk)
    write(logs, "t", OLD, b"1")
    logs.checkpoint({("t", 0): 0})
    synced: list[str] = []
    disk.before = lambda operation, path: synced.append(path.partition(".")[0]) if operation == "sync" else None
    logs.get("untouched", OLD, 0, config())
    logs.checkpoint({("t", 0): 1, ("untouched", 0): 0})
    assert synced == ["replication-offset-checkpoint"]
    write(logs, "t", OLD, b"2")
    del synced[:]
    logs.checkpoint({("t", 0): 2})
    assert synced == ["replication-offset-checkpoint", "recovery-point-offset-checkpoint"]


def test_a_log_of_another_topic_with_the_same_name_is_not_taken() -> None:
    logs = started(simulated_disk())
    write(logs, "t", OLD, b"old")
    assert values_of(logs, "t", NEW) == b""


def test_strays_are_deleted_and_logs_of_this_broker_are_not() -> None:
    disk = simulated_disk()
    logs = started(disk)
    write(logs, "gone", OLD, b"1")
    write(logs, "here", NEW, b"2")
    logs = started(disk)
    delete_strays(logs, lambda topic_id, index: (topic_id, index) == (NEW, 0))
    assert [name for name in disk.list("") if name.endswith("-0")] == ["here-0"]


def test_a_log_that_cannot_be_told_whose_it_is_stops_the_broker() -> None:
    disk = simulated_disk()
    write(started(disk), "t", OLD, b"1")
    disk.remove("t-0/partition.metadata")
    with pytest.raises(StorageError, match=r"t-0 .*partition\.metadata"):
        started(disk)


def test_the_partition_metadata_file_is_kafkas() -> None:
    disk = simulated_disk()
    write(started(disk), "t", UUID("9d2f4b1c-0a3e-4c5d-8e7f-102030405060"), b"1")
    assert disk.read("t-0/partition.metadata") == b"version: 0\ntopic_id: nS9LHAo-TF2OfxAgMEBQYA\n"


def test_each_log_is_flushed_on_its_own_time() -> None:
    logs = started(simulated_disk())
    fast = logs.get("fast", OLD, 0, config(log_flush_interval_ms="30"))
    slow = logs.get("slow", OLD, 0, config(log_flush_interval_ms="70"))
    never = logs.get("never", OLD, 0, config())
    now, flushed = 100.0, []
    for _ in range(8):
        for log in (fast, slow, never):
            log.append_as_leader(build_batch([b"1"], timestamp_ms=0), 0)
        due = logs.flush_timed(now)
        flushed.append((round((now - 100.0) * 1000), *(log.flushed_offset == log.end_offset for log in (fast, slow))))
        assert never.flushed_offset == 0 and due is not None and due > now
        now = due
    assert flushed == [
        (0, True, True), (30, True, False), (60, True, False), (70, False, True), (90, True, False),
        (120, True, False), (140, False, True), (150, True, False),
    ]  # fmt: skip


def test_without_an_interval_there_is_no_time_to_flush_at() -> None:
    logs = started(simulated_disk())
    logs.get("t", OLD, 0, config())
    assert logs.flush_timed(1.0) is None


# -- what a clean shutdown proves ----------------------------------------------------------------------------------

CHECKPOINT = "recovery-point-offset-checkpoint"
START = "log-start-offset-checkpoint"


def left_cleanly(disk: Disk) -> None:
    """A log with a record, one that has none any more, and one that never had any."""
    logs = started(disk)
    write(logs, "t", OLD, b"1")
    write(logs, "empty", OLD, b"1")
    logs.get("empty", OLD, 0, config()).truncate_to(0)
    logs.get("untouched", OLD, 0, config())
    logs.close({("t", 0): 1}, broker_epoch=17)


def shut_down(disk: SimulatedDisk, interrupt_at: int | None = None) -> int:
    """A broker with a record that is not durable yet stops in an orderly way: how many operations that takes."""
    logs = started(disk)
    write(logs, "t", OLD, b"1")
    logs.checkpoint({("t", 0): 1})
    logs.get("t", OLD, 0, config()).append_as_leader(build_batch([b"2"], timestamp_ms=0), 0)
    interrupted = Interrupted(disk, interrupt_at)
    try:
        logs.close({("t", 0): 2}, broker_epoch=17)
    except PowerLoss:
        disk.lose_power()
    finally:
        disk.before = lambda operation, path: None
    return interrupted.count


@pytest.mark.parametrize("seed", range(4))
def test_power_cuts_while_a_broker_shuts_down(seed: int) -> None:
    """At every operation: the shutdown was unclean; or all is there that it was to leave, the checkpoint by which a
    later loss is noticed included."""
    for at in range(1, shut_down(simulated_disk()) + 1):
        disk = SimulatedDisk(Random(seed * 1000 + at), sector=64)
        shut_down(disk, at)
        logs = started(disk)
        if logs.previous_epoch != -1:
            assert logs.previous_epoch == 17
            assert logs.get("t", OLD, 0, config()).end_offset == 2
            assert logs.high_watermarks == OffsetCheckpoint(disk, CHECKPOINT).read() == {("t", 0): 2}


def lose(disk: Disk, directory: str, *kept: str) -> None:
    for name in disk.list(directory):
        if name not in kept:
            disk.remove(f"{directory}/{name}")


def lose_all(disk: Disk, *directories: str) -> None:
    for directory in directories:
        lose(disk, directory)
        disk.remove_directory(directory)


@pytest.mark.parametrize(
    "damage",
    [
        lambda disk: lose_all(disk, "t-0"),
        lambda disk: lose_all(disk, "empty-0"),
        lambda disk: lose_all(disk, "t-0", "empty-0"),
        lambda disk: lose(disk, "t-0"),
        lambda disk: lose(disk, "t-0", "partition.metadata"),
        lambda disk: disk.remove(CHECKPOINT),
        lambda disk: disk.write_atomically(CHECKPOINT, b""),
        lambda disk: disk.write_atomically(CHECKPOINT, b"0\n1\nt 0 1\n"),
        lambda disk: (disk.remove(CHECKPOINT), lose_all(disk, "t-0", "empty-0")),
    ],
    ids=["log", "empty log", "all logs", "files", "segments", "no checkpoint", "damaged", "another", "everything"],
)
def test_what_the_disk_lost_after_a_clean_shutdown_makes_it_an_unclean_one(damage: Callable[[Disk], None]) -> None:
    """The controller would take an empty log for a complete one, and may elect it (002, 5.1.2)."""
    disk = simulated_disk()
    left_cleanly(disk)
    damage(disk)
    assert started(disk).previous_epoch == -1


def two_segments(disk: Disk, topic: str) -> list[str]:
    """A log whose first batch fills its first segment. Returns the segments' paths."""
    logs = started(disk)
    for value in (b"1", b"2"):
        opened = logs.get(topic, OLD, 0, config(**{"log.segment.bytes": "1024"}))
        opened.append_as_leader(build_batch([value * 1000], timestamp_ms=0), 0)
    logs.close({(topic, 0): 2}, broker_epoch=17)
    directory = f"{topic}-0"
    segments = [f"{directory}/{name}" for name in sorted(disk.list(directory)) if name.endswith(".log")]
    assert len(segments) == 2
    return segments


def test_a_log_that_has_lost_its_first_segment_ends_where_it_did_and_is_incomplete_all_the_same() -> None:
    disk = simulated_disk()
    first, _ = two_segments(disk, "t")
    disk.remove(first)
    logs = started(disk)
    assert logs.previous_epoch == -1
    assert logs.get("t", OLD, 0, config()).start_offset == 1


@pytest.mark.parametrize("remembered", [True, False])
def test_a_log_that_was_left_beginning_above_0_has_lost_nothing(remembered: bool) -> None:
    disk = simulated_disk()
    two_segments(disk, "t")
    logs = started(disk)
    logs.get("t", OLD, 0, config()).advance_start_to(1)
    logs.close({("t", 0): 2}, broker_epoch=18)
    if not remembered:
        disk.remove(START)
    assert started(disk).previous_epoch == (18 if remembered else -1)


@pytest.mark.parametrize("segment", [0, 1], ids=["an older segment", "the newest segment"])
def test_where_something_is_lost_nothing_else_is_believed(segment: int) -> None:
    """A log that looks whole is read once more, in full, also where a checkpoint says that it need not be: what took a
    file may have damaged others."""
    disk = simulated_disk()
    damaged = two_segments(disk, "t")[segment]
    disk.files()[damaged][-1] ^= 1
    logs = started(disk)
    assert logs.get("t", OLD, 0, config()).end_offset == 2, "after a clean shutdown it is believed"
    logs.close({("t", 0): 2}, broker_epoch=17)
    logs = started(disk)
    write(logs, "gone", OLD, b"1")
    logs.close({("t", 0): 2}, broker_epoch=18)
    lose_all(disk, "gone-0")
    logs = started(disk)
    assert logs.previous_epoch == -1
    assert logs.get("t", OLD, 0, config()).end_offset == segment


def delete_a_topic(logs: LogManager) -> None:
    write(logs, "gone", NEW, b"1")
    logs.checkpoint({("gone", 0): 1})
    logs.delete([("gone", 0)], {("gone", 0): 1})


def create_a_topic(logs: LogManager) -> None:
    logs.checkpoint({})
    write(logs, "new", NEW, b"1")


def delete_strays(logs: LogManager, expected: Callable[[UUID, int], bool]) -> None:
    logs.delete(logs.strays(expected), logs.high_watermarks)


def find_a_stray(logs: LogManager) -> None:
    write(logs, "stray", NEW, b"1")
    logs.checkpoint({})
    delete_strays(logs, lambda topic_id, index: topic_id == OLD)


def replace_a_topic(logs: LogManager) -> None:
    write(logs, "t", OLD, b"1", b"2")
    logs.checkpoint({})
    logs.get("t", NEW, 0, config())


@pytest.mark.parametrize(
    "before", [lambda logs: None, delete_a_topic, create_a_topic, find_a_stray, replace_a_topic],
    ids=["nothing", "deleted", "created", "stray", "replaced"],
)  # fmt: skip
@pytest.mark.parametrize("first", [True, False], ids=["empty disk", "used disk"])
def test_a_clean_shutdown_is_believed_again_and_again(before: Callable[[LogManager], None], first: bool) -> None:
    disk = simulated_disk()
    if not first:
        left_cleanly(disk)
    logs = started(disk)
    assert logs.previous_epoch == (-1 if first else 17)
    before(logs)
    logs.close({}, broker_epoch=20)
    disk.lose_power()
    logs = started(disk)
    assert logs.previous_epoch == 20
    logs.close({}, broker_epoch=21)
    assert started(disk).previous_epoch == 21
    assert started(disk).previous_epoch == -1, "the next one ended without a word"


def test_what_is_left_of_creations_and_deletions_is_no_log_that_was_lost() -> None:
    disk = simulated_disk()
    left_cleanly(disk)
    for directory in ("half-0", f"gone-0.{NEW.hex}-delete"):
        disk.make_directory(directory)
    assert started(disk).previous_epoch == 17
    assert [name for name in disk.list("") if "-0" in name] == ["empty-0", "t-0"]


@pytest.mark.parametrize(
    ("recovery_point", "keep", "short"),
    [(None, 1.0, False), (2, 1.0, False), (1, 1.0, False), (3, 1.0, True), (None, 0.75, True), (1, 0.5, False)],
)
def test_a_log_is_short_that_ends_too_early_or_was_repaired(
    recovery_point: int | None, keep: float, short: bool
) -> None:
    disk, segment = simulated_disk(), "t-0/00000000000000000000.log"
    logs = started(disk)
    for value in (b"1", b"2"):
        write(logs, "t", OLD, value)
    content = disk.files()[segment]
    del content[int(keep * len(content)) :]
    points = {} if recovery_point is None else {("t", 0): recovery_point}
    disk.write_atomically(CHECKPOINT, "\n".join(
        ["0", str(len(points)), *(f"{topic} {index} {offset}" for (topic, index), offset in points.items()), ""]
    ).encode())  # fmt: skip
    assert started(disk)._is_short(("t", 0)) is short
