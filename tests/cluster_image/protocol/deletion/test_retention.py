"""retention.ms and retention.bytes: what of a log is deleted, and by whom."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import ClassVar

import pytest

from cluster_image.replication.retention import Retention, interval
from cluster_image.storage.log import LogConfig
from cluster_image.storage.records import build_batch
from harness.runtimes.simulation.loop import VirtualLoop
from tests.cluster_image.kraft.broker.test_partition import config, future
from tests.cluster_image.protocol.replication.group import Group

BATCH = len(build_batch([b"v"], timestamp_ms=0))


def written(directory: Path, times: list[int], committed: int | None = None, **settings: str) -> Group:
    """A group of one, which leads, with a record of each of these times (ms), two a segment; the first `committed` are
    committed."""
    group = Group(directory, (1,), min_isr=1, **settings)
    partition = group.partitions[1]
    partition.log.config = LogConfig(segment_bytes=2 * BATCH)
    group.tell(1, (1,), leader_epoch=1)
    for number, time in enumerate(times):
        batch = build_batch([b"v"], timestamp_ms=time)
        if committed is None or number < committed:
            partition.append(batch, 1, future)
        else:
            partition.log.append_as_leader(batch, 1)
    return group


def test_segments_that_are_out_of_date_are_deleted(tmp_path: Path) -> None:
    group = written(tmp_path, [0, 10, 20, 30, 40, 50], log_retention_ms="100")
    group.partitions[1].apply_retention(110)
    assert group.starts() == [0], "one of the first segment's records is not older than that"
    group.partitions[1].apply_retention(131)
    assert group.starts() == [4]


def test_a_segment_stays_behind_one_that_is_kept(tmp_path: Path) -> None:
    group = written(tmp_path, [0, 900, 0, 0, 0], log_retention_ms="100")
    group.partitions[1].apply_retention(500)
    assert group.starts() == [0]


def test_the_newest_segment_goes_too_where_all_is_out_of_date(tmp_path: Path) -> None:
    group = written(tmp_path, [0, 10, 20], log_retention_ms="100")
    log = group.partitions[1].log
    group.partitions[1].apply_retention(1000)
    assert (log.start_offset, log.end_offset) == (3, 3)
    log.remove_obsolete_segments()
    assert log.size == 0
    group.write(1, "a", acks=1)
    assert group.log(1) == [(1, "a")]


def test_a_time_that_is_not_known_is_not_old(tmp_path: Path) -> None:
    group = written(tmp_path, [-1, -1, -1], log_retention_ms="100")
    group.partitions[1].apply_retention(1000)
    assert group.starts() == [0]


def test_the_oldest_segments_go_where_the_others_have_enough_bytes(tmp_path: Path) -> None:
    group = written(tmp_path, [0] * 7, log_retention_bytes=str(3 * BATCH))
    group.partitions[1].apply_retention(0)
    assert group.starts() == [4], "of seven batches two a segment, three are left"


def test_the_newest_segment_is_not_too_large(tmp_path: Path) -> None:
    group = written(tmp_path, [0], log_retention_bytes="0")
    group.partitions[1].apply_retention(0)
    assert group.starts() == [0]


def test_what_is_not_committed_is_not_deleted(tmp_path: Path) -> None:
    group = written(tmp_path, [0] * 6, committed=3, log_retention_ms="100")
    group.partitions[1].apply_retention(1000)
    assert group.starts() == [2]


def test_only_the_leader_deletes(tmp_path: Path) -> None:
    group = written(tmp_path, [0] * 6, log_retention_ms="100", log_retention_bytes="0")
    group.tell(2, (1, 2), leader_epoch=2)
    group.partitions[1].apply_retention(1000)
    assert group.starts() == [0]


@pytest.mark.parametrize(("policy", "start"), [("compact", 0), ("delete,compact", 6)])
def test_a_topic_that_is_only_compacted_keeps_its_records(tmp_path: Path, policy: str, start: int) -> None:
    group = written(tmp_path, [0] * 6, log_retention_ms="100", log_cleanup_policy=policy)
    group.partitions[1].apply_retention(1000)
    assert group.starts() == [start]


@pytest.mark.parametrize(
    ("settings", "seconds"),
    [
        ({}, 300.0),
        ({"log_retention_ms": "10000"}, 10.0),
        ({"log_retention_ms": "10"}, 2.0),
        ({"log_retention_ms": "10", "log_retention_check_interval_ms": "50"}, 0.05),
        ({"log_retention_bytes": "1000"}, 2.0),
        ({"log_retention_ms": "-1"}, None),
        ({"log_retention_ms": "10", "log_cleanup_policy": "compact"}, None),
    ],
)
def test_logs_are_looked_at_as_often_as_something_may_be_old(settings: dict[str, str], seconds: float | None) -> None:
    assert interval(config(**settings)) == seconds


def test_it_is_applied_again_and_again_until_it_is_stopped() -> None:
    class Retained:
        config = config(log_retention_ms="10", log_retention_check_interval_ms="1000")
        seen: ClassVar[list[int]] = []

        def apply_retention(self, now: int) -> None:
            self.seen.append(now)

    loop = VirtualLoop()
    retained = Retained()

    async def run() -> None:
        retention = Retention(lambda: [retained], lambda: 5.0 + loop.time(), pytest.fail)
        retention.wanted(config())
        retention.wanted(retained.config)
        await asyncio.sleep(3.5)
        retention.stop()
        await asyncio.sleep(3)

    loop.run_until_complete(run())
    loop.close()
    assert retained.seen == [6000, 7000, 8000]
