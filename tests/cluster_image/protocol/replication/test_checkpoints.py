"""What a broker notes of how far its logs are committed (000, 2.7)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from cluster_image.storage.checkpoints import HIGH_WATERMARK_FILE, OffsetCheckpoint
from tests.cluster_image.kraft.broker.test_partition import batch, future
from tests.cluster_image.protocol.replication.broker import ME, Broker, living
from tests.cluster_image.protocol.replication.group import Group


async def checkpointed(broker: Broker, expected: int) -> None:
    """Wait until the file has this high watermark; the test's patience is the limit."""
    while OffsetCheckpoint(broker.disk, HIGH_WATERMARK_FILE).read() != {("t", 0): expected}:
        await asyncio.sleep(0.005)


def test_high_watermarks_are_noted_again_and_again() -> None:
    async def story(broker: Broker) -> None:
        broker.manager.start()
        partition = broker.create(0, leader=ME, replicas=(ME,))
        for expected in (1, 2, 3):
            partition.append(batch(), 1, future)
            assert partition.high_watermark == expected
            async with asyncio.timeout(5):
                await checkpointed(broker, expected)

    living(story, replica_high_watermark_checkpoint_interval_ms="20")


def test_a_replica_that_starts_knows_the_high_watermark_that_was_noted() -> None:
    """Before any leader has told it one."""

    async def story(broker: Broker) -> None:
        broker.manager.start()
        partition = broker.create(0, leader=ME, replicas=(ME,))
        for _ in range(3):
            partition.append(batch(), 1, future)
        await checkpointed(broker, 3)
        broker.manager.stop()
        restarted = Broker(disk=broker.disk)
        try:
            partition = restarted.create(0, leader=2)
            assert (partition.log.end_offset, partition.high_watermark) == (3, 3)
        finally:
            restarted.manager.stop()

    living(story, replica_high_watermark_checkpoint_interval_ms="20")


@pytest.mark.parametrize(("noted", "known"), [(0, 0), (1, 1), (2, 2), (9, 2)])
def test_what_was_noted_counts_no_further_than_the_log_goes(tmp_path: Path, noted: int, known: int) -> None:
    """The file is written on its own: a power cut may have left less of the log."""
    group = Group(tmp_path)
    group.put(1, 1, 1)
    group.partitions[1].restore_high_watermark(noted)
    assert group.ends(1) == (2, known)


def test_what_was_noted_counts_no_less_than_where_the_log_begins(tmp_path: Path) -> None:
    """The log began anew after the file was written, and power was cut before it was written again."""
    group = Group(tmp_path)
    group.partitions[1].log.truncate_fully_and_start_at(7)
    group.put(1, 1)
    group.partitions[1].restore_high_watermark(3)
    assert group.ends(1) == (8, 7)
