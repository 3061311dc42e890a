"""When records become durable, and how a broker says that all of them are (002, 5 and 5.1.1)."""

from __future__ import annotations

import asyncio
from random import Random
from unittest.mock import patch

import pytest

from cluster_image.kraft.broker.partition import Partition
from cluster_image.kraft.broker.replica_manager import OPENED_AT_ONCE
from cluster_image.kraft.metadata.image import PartitionRegistration
from cluster_image.kraft.metadata.records import PartitionRecord
from cluster_image.replication.log_manager import LogManager
from cluster_image.storage.checkpoints import CleanShutdownFile
from cluster_image.storage.disk import Disk
from cluster_image.storage.errors import StorageError
from cluster_image.storage.log import Log
from harness.runtimes.simulation.disk import disk as simulated
from harness.runtimes.simulation.disk.disk import SimulatedDisk
from tests.cluster_image.kraft.broker.test_partition import TOPIC, batch, config, future, leaders_batch
from tests.cluster_image.protocol.replication.broker import Broker, living
from tests.cluster_image.storage.simulated_disk import simulated_disk


def started(disk: Disk, **settings: str) -> LogManager:
    logs = LogManager(config(**settings), disk)
    logs.load()
    return logs


def leading_alone(logs: LogManager, **settings: str) -> Partition:
    settings_ = config(min_insync_replicas="1", **settings)
    partition = Partition(registration(-1), logs.get("t", TOPIC, 0, settings_), settings_, 1)
    partition.apply(registration(1, 1), 0.0)
    return partition


def registration(leader: int, epoch: int = 0) -> PartitionRegistration:
    return PartitionRegistration(TOPIC, "t", 0, (1, 2), (1,), leader, epoch, epoch)


def cut_power(disk: SimulatedDisk) -> None:
    """Nothing has reached the platters by itself."""
    with patch.object(simulated, "WRITTEN_BACK", (0.0,)):
        disk.lose_power(Random(0))


def records_after(disk: SimulatedDisk) -> int:
    return Log.open(disk, "t-0").end_offset


def test_every_write_is_durable_before_it_is_committed() -> None:
    disk = simulated_disk()
    every = {"log_flush_interval_messages": "1"}
    partition = leading_alone(started(disk, **every), **every)
    durable_at_commit: list[tuple[int, int]] = []
    partition._trace = lambda event, where="", **fields: (  # type: ignore[assignment]
        durable_at_commit.append((partition.high_watermark, partition.log.flushed_offset))
        if event == "high watermark"
        else None
    )
    for _ in range(3):
        done = partition.append(batch(), -1, future).done
        assert done is not None and done.done()
    assert durable_at_commit == [(1, 1), (2, 2), (3, 3)]
    cut_power(disk)
    assert records_after(disk) == 3


def test_a_followers_write_is_durable_before_it_is_told_to_the_leader() -> None:
    disk = simulated_disk()
    every = {"log_flush_interval_messages": "1"}
    log = started(disk, **every).get("t", TOPIC, 0, config(**every))
    log.append_as_follower(leaders_batch(0, 1))
    assert log.flushed_offset == log.end_offset == 1  # the end is what the next fetch tells


def test_every_nth_write() -> None:
    disk = simulated_disk()
    third = {"log_flush_interval_messages": "3"}
    partition = leading_alone(started(disk, **third), **third)
    seen = []
    for _ in range(7):
        partition.append(batch(), 1, future)
        seen.append((partition.high_watermark, partition.log.flushed_offset))
    assert seen == [(1, 0), (2, 0), (3, 3), (4, 3), (5, 3), (6, 6), (7, 6)], "committed before it is durable"
    cut_power(disk)
    assert records_after(disk) == 6


def test_every_n_milliseconds() -> None:
    disk = simulated_disk()
    timed = {"log_flush_interval_ms": "1000"}
    logs = started(disk, **timed)
    partition = leading_alone(logs, **timed)
    logs.flush_timed(100.0)
    partition.append(batch(), 1, future)
    logs.flush_timed(100.9)
    assert (partition.high_watermark, partition.log.flushed_offset) == (1, 0)
    logs.flush_timed(101.0)
    assert partition.log.flushed_offset == 1


def test_only_when_a_segment_rolls() -> None:
    disk = simulated_disk()
    small = {"log_segment_bytes": "1024"}
    logs = started(disk, **small)
    partition = leading_alone(logs, **small)
    flushed = []
    for i in range(30):
        partition.append(batch(), 1, future)
        logs.flush_timed(1000.0 * i)
        flushed.append(partition.log.flushed_offset)
    segments = sum(name.endswith(".log") for name in disk.list("t-0"))
    assert segments > 2
    assert len(set(flushed)) == segments, "once a roll, and else never"
    assert all(f == 0 or f < i + 1 for i, f in enumerate(flushed)), "the segment that is open is not"
    cut_power(disk)
    assert records_after(disk) == flushed[-1]


def test_a_killed_process_loses_nothing_and_a_power_cut_does() -> None:
    for power in (False, True):
        disk = simulated_disk()
        partition = leading_alone(started(disk))
        for _ in range(5):
            partition.append(batch(), 1, future)
        assert partition.log.flushed_offset == 0
        if power:
            cut_power(disk)
        assert started(disk).get("t", TOPIC, 0, config()).end_offset == (0 if power else 5)


def test_a_controlled_shutdown_flushes_everything_and_then_says_so() -> None:
    """The file is the last thing written, and the power may go right after it."""
    disk = simulated_disk()
    logs = started(disk)
    assert logs.previous_epoch == -1
    partition = leading_alone(logs)
    partition.append(batch(), 1, future)
    with patch.object(CleanShutdownFile, "write", _write_if_durable(partition.log)):
        logs.close({}, broker_epoch=17)
    CleanShutdownFile(disk).write(17)
    cut_power(disk)
    again = started(disk)
    assert again.previous_epoch == 17 and again.get("t", TOPIC, 0, config()).end_offset == 1


def _write_if_durable(log: Log):  # type: ignore[no-untyped-def]
    def write(self: CleanShutdownFile, broker_epoch: int) -> None:
        assert log.flushed_offset == log.end_offset == 1 and broker_epoch == 17

    return write


def test_a_broker_that_stops_makes_no_log_that_the_file_does_not_speak_for() -> None:
    """The metadata log goes on while it stops, and of many new partitions some have yet to be opened. A log made after
    the file was written is one that it does not speak for: the next start would take that for a loss."""

    def new(index: int) -> PartitionRecord:
        return PartitionRecord(partition_id=index, topic_id=TOPIC, replicas=(1, 2), isr=(1, 2), leader=1)

    async def story(broker: Broker) -> None:
        broker.manager.apply(broker.replay(*map(new, range(OPENED_AT_ONCE + 5))))
        here = list(broker.manager.partitions.values())
        assert len(here) == OPENED_AT_ONCE
        here[0].append(batch(), 1, future)
        broker.manager.stop()
        broker.manager.close_cleanly(77)
        broker.manager.apply(broker.replay(new(100)))
        await asyncio.sleep(0.01)
        assert list(broker.manager.partitions.values()) == here
        for partition in here:
            with pytest.raises(StorageError):
                partition.log.append_as_leader(batch(), 0)
        assert sum(name.startswith("t-") for name in broker.disk.list("")) == OPENED_AT_ONCE
        assert started(broker.disk).previous_epoch == 77

    living(story)


def test_nothing_is_said_if_a_log_cannot_be_flushed() -> None:
    disk = simulated_disk()
    logs = started(disk)
    leading_alone(logs).append(batch(), 1, future)
    disk.failing = True
    with pytest.raises(StorageError):
        logs.close({}, broker_epoch=17)
    disk.failing = False
    assert started(disk).previous_epoch == -1


def test_without_the_file_the_shutdown_was_unclean() -> None:
    disk = simulated_disk()
    started(disk).close({}, broker_epoch=17)
    assert started(disk).previous_epoch == 17
    assert started(disk).previous_epoch == -1, "the start before was not shut down"


def test_the_file_is_gone_before_logs_are_loaded() -> None:
    """For good: if the power goes while logs are loaded, the next start finds no file."""
    disk = simulated_disk()
    logs = started(disk)
    leading_alone(logs).append(batch(), 1, future)
    logs.close({}, broker_epoch=17)

    class Gone(Exception): ...

    def no_log(*arguments: object, **more: object) -> Log:
        raise Gone

    with patch.object(Log, "open", no_log), pytest.raises(Gone):
        started(disk)
    cut_power(disk)
    assert started(disk).previous_epoch == -1
