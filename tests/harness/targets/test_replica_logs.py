from __future__ import annotations

from pathlib import Path
from typing import Any

from cluster_image.storage.disk import LocalDisk
from cluster_image.storage.records import build_batch, encode_int64s, with_offset_and_epoch
from harness.targets.kafka_api.replica_logs import record_replica_logs


class Rows:
    def __init__(self) -> None:
        self.logs: dict[tuple[str, str, int], list[tuple[int, int, int]]] = {}

    def add_replica_log(self, node: str, topic: str, partition: int, *columns: Any) -> None:
        offsets, epochs, values = (column.tolist() for column in columns)
        self.logs[node, topic, partition] = list(zip(offsets, epochs, values, strict=True))


def _batch(values: list[int], offset: int, epoch: int) -> bytes:
    return with_offset_and_epoch(encode_int64s(values, timestamp_ms=1), offset, epoch)


def _write(disks: Path, name: str, *segments: bytes) -> None:
    (disks / name).mkdir(parents=True)
    for number, segment in enumerate(segments):
        (disks / name / f"{number:020d}.log").write_bytes(segment)


def test_every_record_of_the_topic_with_its_offset_and_epoch(tmp_path: Path) -> None:
    control = with_offset_and_epoch(build_batch([b"marker"], timestamp_ms=1, control=True), 2, 1)
    _write(tmp_path, "broker-1/chaos-0", _batch([70, 71], 0, 1) + control, _batch([72], 3, 4))
    _write(tmp_path, "broker-2/chaos-10", b"")
    _write(tmp_path, "broker-2/chaos-other-1", _batch([1], 0, 0))
    _write(tmp_path, "broker-2/__cluster_metadata-0", b"not records")
    rows = Rows()
    pieces = record_replica_logs(tmp_path, "chaos", rows)
    assert [(each.node, each.what, each.records, each.problem) for each in pieces] == [
        ("broker-1", "disk", 1, None), ("broker-1", "replica log", 3, None),
        ("broker-2", "disk", 1, None), ("broker-2", "replica log", 0, None),
    ]  # fmt: skip
    assert rows.logs == {
        ("broker-1", "chaos", 0): [(0, 1, 70), (1, 1, 71), (3, 4, 72)],
        ("broker-2", "chaos", 10): [],
    }


def test_a_batch_at_an_offset_that_there_cannot_be_costs_its_own_log_alone(tmp_path: Path) -> None:
    """The CRC does not cover where a batch stands."""
    _write(tmp_path, "broker-1/chaos-0", _batch([5], 0, 0), _batch([6, 7], (1 << 63) - 1, 0))
    _write(tmp_path, "broker-2/chaos-0", _batch([5], 0, 0))
    rows = Rows()
    pieces = [each for each in record_replica_logs(tmp_path, "chaos", rows) if each.what == "replica log"]
    assert [(each.node, each.records, each.problem is None) for each in pieces] == [
        ("broker-1", 1, False), ("broker-2", 1, True),
    ]  # fmt: skip
    assert set(map(tuple, rows.logs.values())) == {((0, 0, 5),)}


def test_a_damaged_log_is_named_and_kept_up_to_the_damage(tmp_path: Path) -> None:
    torn = bytearray(_batch([5, 6], 1, 0))
    torn[-1] ^= 1
    _write(tmp_path, "broker-1/chaos-3", _batch([4], 0, 0) + bytes(torn) + _batch([7], 3, 0))
    rows = Rows()
    _, piece = record_replica_logs(tmp_path, "chaos", rows)
    assert piece.problem and "chaos-3 on broker-1" in piece.problem and "CRC" in piece.problem
    assert (piece.topic, piece.partition, piece.records) == ("chaos", 3, 1)
    assert rows.logs["broker-1", "chaos", 3] == [(0, 0, 4)]


def test_disks_that_are_no_directories_are_read_through_their_own_methods(tmp_path: Path) -> None:
    class Broken(LocalDisk):
        def list(self, directory: str) -> list[str]:
            raise OSError("input/output error")

    class HalfBroken(LocalDisk):
        def read(self, path: str) -> bytes:
            if path.endswith("1.log"):
                raise OSError("input/output error")
            return super().read(path)

    _write(tmp_path, "a/chaos-0", _batch([70, 71], 0, 1), _batch([72], 2, 1))
    (tmp_path / "a" / "chaos-0" / "leader-epoch-checkpoint").write_bytes(b"no batches")
    _write(tmp_path, "a/chaos-x", b"not a partition")
    disks = {"broker-2": Broken("/"), "broker-1": LocalDisk(tmp_path / "a"), "broker-3": HalfBroken(tmp_path / "a")}
    rows = Rows()
    problems = [each.problem for each in record_replica_logs(disks, "chaos", rows) if each.problem]
    whole = [(0, 1, 70), (1, 1, 71), (2, 1, 72)]
    assert rows.logs == {("broker-1", "chaos", 0): whole, ("broker-3", "chaos", 0): whole[:2]}
    assert problems == [
        "the disk of broker-2 could not be read: input/output error",
        "the log of chaos-0 on broker-3 could not be read to its end: input/output error",
    ]
