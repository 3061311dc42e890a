"""Damage to what a node keeps beside its records: each was found by fuzzing, or could have been."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import pytest

from cluster_image.config import parse
from cluster_image.kraft.raft.state import QuorumStateError, QuorumStateStore
from cluster_image.replication.log_manager import LogManager
from cluster_image.storage import CleanShutdownFile, Log
from cluster_image.storage.disk import LocalDisk
from cluster_image.storage.records import build_batch
from tests import ROOT
from tests.cluster_image.storage.simulated_disk import simulated_disk

_GARBAGE = [b"", b"null", b"[]", b"\xff\xfe", b"[" * 100_000, b"9" * 5000]


@pytest.mark.parametrize(
    "content",
    [
        *_GARBAGE,
        *(b'{"brokerEpoch": %s}' % epoch for epoch in (b"true", b"1e999", b"-1", b"9223372036854775808", b'"7"')),
    ],
)
def test_a_damaged_clean_shutdown_file_proves_nothing(content: bytes) -> None:
    disk = simulated_disk()
    disk.write_atomically(".kafka_cleanshutdown", content)
    assert CleanShutdownFile(disk).take() is None
    assert not disk.exists(".kafka_cleanshutdown")


@pytest.mark.parametrize(
    "content",
    [
        *_GARBAGE,
        b'{"leaderEpoch": 1e999, "leaderId": 1, "votedId": 1}',
        b'{"leaderEpoch": 2147483648, "leaderId": 1, "votedId": 1}',
        b'{"leaderEpoch": -1, "leaderId": 1, "votedId": 1}',
        b'{"leaderEpoch": 1, "leaderId": 1, "votedId": 4294967296}',
    ],
)
def test_a_damaged_quorum_state_is_told_as_such(content: bytes) -> None:
    """Votes that it forgets it could cast twice: a node must not go on without it."""
    disk = simulated_disk()
    disk.make_directory("m")
    disk.write_atomically("m/quorum-state", content)
    with pytest.raises(QuorumStateError, match="m/quorum-state is damaged"):
        QuorumStateStore(disk, "m").read()


@pytest.mark.parametrize(
    "name", [f"{10**20 - 1}.log", f"{2**63}.log", "\N{ARABIC-INDIC DIGIT ONE}" * 20 + ".log", "1.log"]
)
def test_what_no_log_has_named_is_no_segment(name: str) -> None:
    disk = simulated_disk()
    Log.open(disk, "t-0").append_as_leader(build_batch([b"value"], timestamp_ms=1), 0)
    disk.write_atomically(f"t-0/{name}", b"anything")
    log = Log.open(disk, "t-0")
    assert (log.start_offset, log.end_offset, log.recovery.removed_segments) == (0, 1, 0)
    assert disk.exists(f"t-0/{name}")


def test_directories_that_are_no_logs_are_left_alone(tmp_path: Path) -> None:
    config = parse(
        "node.id=1\nprocess.roles=broker\ncluster.id=c\ncontroller.quorum.voters=101@h:1\nlisteners=h:2\nlog.dirs=/d"
    )
    manager = LogManager(config, LocalDisk(tmp_path))
    manager.load()
    manager.get("t", UUID(int=1), 0, config).append_as_leader(build_batch([b"value"], timestamp_ms=1), 0)
    others = ["t-\N{SUPERSCRIPT TWO}", "t-00", "-0", "t-x", "lost+found", "t-99999999999"]
    for name in others:
        (tmp_path / name).mkdir()
    again = LogManager(config, LocalDisk(tmp_path))
    again.load()
    assert again.get("t", UUID(int=1), 0, config).end_offset == 1
    assert all((tmp_path / name).exists() for name in others)


def test_a_batch_that_takes_less_than_its_records_is_found_again_after_a_restart() -> None:
    """Compressed, a thousand equal records take next to nothing; what is not compressed cannot."""
    disk = simulated_disk()
    batch = (ROOT / "tests/fuzz/inputs/batches/many-compressed-records").read_bytes()[4:]
    log = Log.open(disk, "t-0")
    log.append_as_leader(batch, 0)
    assert log.end_offset == 1000
    assert Log.open(disk, "t-0").end_offset == 1000
