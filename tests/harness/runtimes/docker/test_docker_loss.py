"""What a power cut lost is told exactly: the agent's comparison of a directory before and after."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.runtimes.agent.volume import loss

HEADER = struct.Struct(">qiibIhiqqqhii")


def batch(records: int, payload: bytes = b"payload") -> bytes:
    return HEADER.pack(0, HEADER.size - 12 + len(payload), 0, 2, 0, 0, 0, 0, 0, -1, -1, -1, records) + payload


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    (tmp_path / "chaos-3").mkdir()
    return tmp_path


def survey(disk: Path) -> loss.Survey:
    return loss.final(disk)


def test_header_layout_is_that_of_record_batch_v2() -> None:
    from cluster_image.storage.records import build_batch

    real = build_batch([b"a", b"bb", b"ccc"], timestamp_ms=0)
    fd = os.memfd_create("segment")
    try:
        os.write(fd, real * 2)
        assert [end for end, _ in loss._batches(fd, 0)] == [len(real), 2 * len(real)]
        segment = loss.Segment()
        segment.add(len(real), real)
        assert (list(segment.records), list(segment.offsets(0))) == ([3], [(0, 3, -1)])
    finally:
        os.close(fd)


@given(
    batches=st.lists(st.integers(1, 100), max_size=8),
    kept=st.integers(0, 1 << 12),
    torn=st.integers(0, 60),
)
def test_truncated_segment_loses_what_lies_past_the_last_whole_batch(
    tmp_path_factory: pytest.TempPathFactory, batches: list[int], kept: int, torn: int
) -> None:
    disk = tmp_path_factory.mktemp("disk")
    (disk / "chaos-3").mkdir()
    segment = disk / "chaos-3" / "0.log"
    whole = [batch(records, b"x" * records) for records in batches]
    content = b"".join(whole) + b"\0" * torn
    segment.write_bytes(content)
    before = survey(disk)
    kept = min(kept, len(content))
    segment.write_bytes(content[:kept])

    found = loss.lost(before, survey(disk))

    end, surviving = 0, 0
    while surviving < len(whole) and end + len(whole[surviving]) <= kept:
        end += len(whole[surviving])
        surviving += 1
    in_torn_tail = surviving == len(whole)
    assert found["unsynced_bytes"] == len(content) - (kept if in_torn_tail else end)
    assert found["unsynced_records"] == sum(batches[surviving:])
    assert found["lost_by_partition"] == ({"chaos-3": sum(batches[surviving:])} if surviving < len(whole) else {})
    assert found["unsynced_files"] == (kept < len(content))


def test_what_was_lost_is_told_by_offset_and_leader_epoch(disk: Path) -> None:
    from cluster_image.storage.records import build_batch, with_offset_and_epoch

    whole = [build_batch([b"a", b"b"], timestamp_ms=0) for _ in range(4)]
    whole = [with_offset_and_epoch(each, 2 * number, 7 if number < 3 else 8) for number, each in enumerate(whole)]
    segment = disk / "chaos-3" / "0.log"
    segment.write_bytes(b"".join(whole))
    before = survey(disk)
    segment.write_bytes(whole[0])
    found = loss.lost(before, survey(disk))
    assert found["lost_offsets"] == {"chaos-3": [(2, 6, 7), (6, 8, 8)]} and found["lost_by_partition"] == {"chaos-3": 6}
    assert list(loss.batches_in(b"".join(whole)))[1] == (len(whole[0]) * 2, 2)


def test_zeroed_batch_is_lost_though_the_size_is_the_same(disk: Path) -> None:
    segment = disk / "chaos-3" / "0.log"
    one = batch(5)
    segment.write_bytes(one * 3)
    before = survey(disk)
    segment.write_bytes(one + bytes(2 * len(one)))
    found = loss.lost(before, survey(disk))
    assert (found["unsynced_records"], found["unsynced_bytes"]) == (10, 2 * len(one))


def test_missing_segment_and_checkpoint_are_lost_whole(disk: Path) -> None:
    (disk / "chaos-3" / "0.log").write_bytes(batch(5))
    (disk / "checkpoint").write_bytes(b"12345")
    before = survey(disk)
    (disk / "chaos-3" / "0.log").unlink()
    (disk / "checkpoint").write_bytes(b"129")
    found = loss.lost(before, survey(disk))
    assert found["unsynced_files"] == 2
    assert found["unsynced_bytes"] == len(batch(5)) + 3


def test_empty_file_that_vanished_counts_as_a_file(disk: Path) -> None:
    (disk / "chaos-3" / "0.log").touch()
    before = survey(disk)
    (disk / "chaos-3" / "0.log").unlink()
    found = loss.lost(before, survey(disk))
    assert (found["unsynced_files"], found["unsynced_bytes"]) == (1, 0)


def test_metadata_records_are_told_apart(disk: Path) -> None:
    folder = disk / "__cluster_metadata-0"
    folder.mkdir()
    (folder / "0.log").write_bytes(batch(4))
    before = survey(disk)
    (folder / "0.log").write_bytes(b"")
    found = loss.lost(before, survey(disk))
    assert (found["unsynced_metadata_records"], found["unsynced_records"]) == (4, 0)
    assert found["lost_by_partition"] == {}


def test_what_is_appended_after_the_first_look_counts(disk: Path) -> None:
    segment = disk / "chaos-3" / "0.log"
    segment.write_bytes(batch(1) + batch(2)[:30])  # the second is being written
    before = loss.Survey(disk)
    segment.write_bytes(batch(1) + batch(2) + batch(3))
    (disk / "chaos-3" / "6.log").write_bytes(batch(4))
    before.complete()
    segment.write_bytes(batch(1))
    (disk / "chaos-3" / "6.log").unlink()
    assert loss.lost(before, survey(disk))["unsynced_records"] == 9


def test_what_was_truncated_after_the_first_look_does_not_count(disk: Path) -> None:
    segment = disk / "chaos-3" / "0.log"
    segment.write_bytes(batch(1) + batch(2) + batch(3))
    before = loss.Survey(disk)
    final = batch(1) + batch(7, b"another leader's") + batch(8)
    segment.write_bytes(final)
    before.complete()
    assert loss.lost(before, survey(disk))["unsynced_records"] == 0
    segment.write_bytes(batch(1))
    assert loss.lost(before, survey(disk))["unsynced_records"] == 15


def test_segments_larger_than_a_window_are_read_to_their_end(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loss, "_WINDOW", 200)
    segment = disk / "chaos-3" / "0.log"
    segment.write_bytes(batch(1) * 5 + batch(2, b"y" * 1000) + batch(3) * 4)
    before = survey(disk)
    segment.unlink()
    assert loss.lost(before, survey(disk))["unsynced_records"] == 5 + 2 + 12


def test_garbage_in_place_of_a_length_ends_the_segment(disk: Path) -> None:
    for garbage in (b"\xff" * 100, b"\0" * 100, b"\0" * 8 + struct.pack(">i", 2**31 - 1) + bytes(88)):
        segment = disk / "chaos-3" / "0.log"
        segment.write_bytes(batch(1) + garbage)
        assert list(survey(disk).segments["chaos-3/0.log"].records) == [1]
