"""What nodes say and store is for the harness' user alone; what of it is not as it should be is told, not lost."""

from __future__ import annotations

import errno
import os
import stat
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from checkers.inside.collected import must_hold_the_final_log
from harness.record import results
from harness.record.collected import Collected, with_problems
from harness.runtimes.docker import trace_files
from harness.targets.kafka_api.replica_logs import record_replica_logs
from harness.targets.kafka_api.trace_files import read_traces

NODE_USER = 10001


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture(autouse=True)
def usual_umask() -> Any:
    before = os.umask(0o022)
    yield
    os.umask(before)


def test_a_runs_directory_is_closed_to_other_users(tmp_path: Path) -> None:
    assert mode(results.create(tmp_path / "results", ("kill",), 1)) == 0o750


def test_a_trace_is_writable_by_its_node_and_nobody_else(tmp_path: Path) -> None:
    made = trace_files.make_traces(["broker-1"], tmp_path / "trace", NODE_USER)["broker-1"]
    assert mode(tmp_path / "trace") == 0o700 and not mode(made) & 0o007
    assert made.stat().st_uid == os.getuid()
    if os.getuid() == 0:
        wrote = {user: _can_write(made, user) for user in (NODE_USER, NODE_USER + 1)}
        assert wrote == {NODE_USER: True, NODE_USER + 1: False}


def _can_write(path: Path, user: int) -> bool:
    """Where no folder is in the way, as in a container that has the file itself mounted: with its folder as root."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            path.parent.chmod(0o711)
            os.chroot(path.parent)
            os.setgroups([])
            os.setgid(user)
            os.setuid(user)
            os.close(os.open(f"/{path.name}", os.O_WRONLY | os.O_APPEND))
            status = 0
        except OSError as error:
            status = 1 if error.errno == errno.EACCES else 2
        finally:
            os._exit(status)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status in (0, 1)
    return status == 0


def test_without_access_control_lists_the_folder_keeps_others_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP))

    given: list[int] = []
    monkeypatch.setattr(os, "setxattr", refuse)
    monkeypatch.setattr(os, "chown", lambda _, user, group: given.append(user))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    made = trace_files.make_traces(["broker-1"], tmp_path / "as-root", NODE_USER)["broker-1"]
    assert given == [NODE_USER] and mode(made) == 0o600
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    made = trace_files.make_traces(["broker-1"], tmp_path / "as-user", NODE_USER)["broker-1"]
    assert mode(made) == 0o622 and mode(tmp_path / "as-user") == 0o700


def test_a_trace_too_large_to_be_read_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.targets.kafka_api.trace_files._MOST_BYTES", 100)
    (tmp_path / "broker-1.jsonl").write_bytes(b"x" * 101)
    (tmp_path / "broker-2.jsonl").write_bytes(b"")
    reported = {piece.node: piece.problem for piece in read_traces(tmp_path).pieces}
    assert reported["broker-1"] == "the trace of broker-1 has 101 bytes, more than the 100 that are read"
    assert reported["broker-2"] is None


def test_partitions_that_there_cannot_be_are_told(tmp_path: Path) -> None:
    for name in ("t-0", f"t-{1 << 31}", "t-٣"):
        (tmp_path / "disks" / "broker-1" / name).mkdir(parents=True)

    class Recorder:
        partitions: list[int] = []  # noqa: RUF012

        def add_replica_log(self, node: str, topic: str, partition: int, *_: Any) -> None:
            self.partitions.append(partition)

    disk, log = record_replica_logs(tmp_path / "disks", "t", Recorder())
    assert disk.records == 1 and f"t-{1 << 31}" in str(disk.problem) and log.partition == 0
    assert Recorder.partitions == [0]


def test_why_a_disk_is_not_whole_is_told_of_its_piece() -> None:
    pieces = [Collected("a", "disk", 2), Collected("b", "disk", 1, "broken"), Collected("a", "trace", 3)]
    assert with_problems(pieces, {"a": "left out", "b": "links", "c": "gone"}) == [
        Collected("a", "disk", 2, "left out"), Collected("b", "disk", 1, "broken; links"), Collected("a", "trace", 3),
        Collected("c", "disk", problem="gone"),
    ]  # fmt: skip
    assert with_problems(pieces, {}) == pieces


def test_what_the_logs_of_a_disk_that_is_not_whole_lack_is_held_against_nobody() -> None:
    """Else a copy that found no room would be a violation: missing on a replica."""
    pieces = [Collected(node, "replica log", 5, topic="t", partition=0) for node in ("a", "b")]
    reported = with_problems([*pieces, Collected("a", "metadata log", 3)], {"a": "no room"})
    assert [piece.problem is None for piece in reported] == [False, True, False, False]
    assert must_hold_the_final_log([asdict(piece) for piece in reported], None) == {"t-0": {"a": False, "b": True}}
