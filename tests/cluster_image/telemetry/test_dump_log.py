"""dump-log on damaged files: it says where, shows the rest, and never raises."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster_image.kraft.metadata.records import TopicRecord, encode
from cluster_image.kraft.raft import snapshots
from cluster_image.storage import CleanShutdownFile, Log, LogConfig
from cluster_image.storage.disk import LocalDisk
from cluster_image.storage.records import build_batch, iter_batches
from cluster_image.tools import main


def segment(offset: int) -> str:
    return f"{offset:020d}.log"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Log t-0, with segments at 0, 4 and 8 of two batches of two records, a metadata log, and the small files."""
    path = tmp_path_factory.mktemp("data")
    disk = LocalDisk(path)
    log = Log.open(disk, "t-0", LogConfig(segment_bytes=200))
    for epoch in range(6):
        log.append_as_leader(build_batch([b"some", b"value"], timestamp_ms=1000), epoch)
    log.close()
    metadata = Log.open(disk, "__cluster_metadata-0")
    metadata.append_as_leader(build_batch([encode(TopicRecord(name="t", topic_id=None))], timestamp_ms=1), 1)
    metadata.append_as_leader(build_batch([b"\1\x63\0"], timestamp_ms=1), 1)
    metadata.close()
    CleanShutdownFile(disk).write(7)
    assert [name for name in disk.list("t-0") if name.endswith(".log")] == [segment(0), segment(4), segment(8)]
    return path


def dump(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, list[dict[str, object]]]:
    code = main(["dump-log", "--json", *map(str, arguments)])
    return code, [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_a_whole_data_directory(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, items = dump(capsys, data / "t-0", data / ".kafka_cleanshutdown")
    assert code == 0
    assert [i["base_offset"] for i in items if i["kind"] == "batch"] == [0, 2, 4, 6, 8, 10]
    assert [(i["epoch"], i["start_offset"]) for i in items if i["kind"] == "epoch"] == [(e, 2 * e) for e in range(6)]
    assert items[-1]["fields"] == {"version": 0, "brokerEpoch": 7}


def test_where_there_is_nothing_it_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "other.txt").write_text("no log")
    assert main(["dump-log", str(tmp_path)]) == 2
    assert capsys.readouterr().err == f"dump-log: {tmp_path} holds no log segment, snapshot or checkpoint\n"


def test_partition_metadata_that_is_none_is_damage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "partition.metadata").write_text("version: 0\njunk\n")
    code, items = dump(capsys, tmp_path)
    assert code == 1 and items[-1]["reason"] == "it has a line that is not name: value"


def test_an_unknown_metadata_record_is_told(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, items = dump(capsys, "--records", data / "__cluster_metadata-0")
    assert code == 1
    assert [i["fields"] for i in items if i["kind"] == "record"] == [{"name": "t", "topic_id": None}]
    assert [i["reason"] for i in items if i["kind"] == "damage"] == [
        "unknown metadata record: frame 1, type 99, version 0"
    ]


@pytest.mark.parametrize(
    ("name", "at", "change", "position", "reason", "batches"),
    [
        (segment(0), 70, b"\xff", 0, "CRC of the batch at offset 0 does not match its content", 6),
        (segment(0), None, b"\0" * 90, 168, "zeros where a batch should be", 6),
        (segment(8), -1, None, 84, "a batch of 84 bytes, at offset 10: 83 are left", 5),
        (segment(4), 84 + 8, b"\x7f", 84, "a batch of 213", 5),
        (segment(4), 8, b"\x80", 0, "a batch of -", 4),
        (segment(4), 0, None, None, "it starts at offset 8, the segment before ends at 4", 4),
        (segment(8), 3, None, 0, "3 bytes at the end are no batch", 4),
        (segment(8), 12, b"\0\0\0\0", 0, "leader epoch 0 after 3", 6),
        (segment(8), 7, b"\x09", 0, "offset 9 where 8 is next", 6),
        ("leader-epoch-checkpoint", 0, b"7", None, "it is no checkpoint", 6),
    ],
)
def test_damage_is_located(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    name: str, at: int | None, change: bytes | None, position: int | None, reason: str, batches: int,
) -> None:  # fmt: skip
    """at: None is the end; change: None cuts the file off there."""
    shutil.copytree(data / "t-0", tmp_path / "t-0")
    path = tmp_path / "t-0" / name
    content = bytearray(path.read_bytes())
    if at is None:
        content += change or b""
    elif change is None:
        del content[at:]
    else:
        content[at : at + len(change)] = change
    path.write_bytes(content)
    code, items = dump(capsys, tmp_path / "t-0")
    damage = [i for i in items if i["kind"] == "damage"]
    assert code == 1
    assert damage[0]["position"] == position and str(damage[0]["reason"]).startswith(reason), damage
    assert sum(i["kind"] == "batch" for i in items) == batches
    assert main(["dump-log", str(tmp_path)]) == 1
    assert f"DAMAGED{'' if position is None else f' at byte {position}'}: {reason}" in capsys.readouterr().out


def test_a_snapshot_is_complete_or_not(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content = snapshots.encode([encode(TopicRecord(name="t", topic_id=None))], 3, 1)
    path = tmp_path / "__cluster_metadata-0" / "00000000000000000010-0000000003.checkpoint"
    path.parent.mkdir()
    path.write_bytes(content)
    code, items = dump(capsys, "--records", path)
    types = [i["type"] for i in items if i["kind"] == "record"]
    assert (code, types) == (0, ["SnapshotHeaderRecord", "TopicRecord", "SnapshotFooterRecord"])
    *_, footer = (start for start, _, _ in iter_batches(content))
    path.write_bytes(content[:footer])
    code, items = dump(capsys, path)
    assert (code, items[-1]["reason"]) == (1, "it is not complete: there is no footer at its end")
    assert {i["kind"] for i in items} == {"file", "batch", "damage"}


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=300), st.sampled_from([segment(0), ".kafka_cleanshutdown", "quorum-state"]), st.booleans())
def test_any_bytes_are_shown_or_told(
    tmp_path_factory: pytest.TempPathFactory, noise: bytes, name: str, as_json: bool
) -> None:
    directory = tmp_path_factory.getbasetemp() / "noise"
    os.makedirs(directory, exist_ok=True)
    (directory / name).write_bytes(noise)
    assert main(["dump-log", "--records", *(["--json"] if as_json else []), str(directory / name)]) in (0, 1)
