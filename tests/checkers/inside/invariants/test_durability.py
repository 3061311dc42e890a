"""Lies about durability, planted one at a time: each is found by the name of the claim, and none is where none is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import pytest

from cluster_image.kraft.raft import rules
from cluster_image.kraft.raft.state import QuorumStateStore
from cluster_image.replication.log_manager import LogManager
from cluster_image.storage.checkpoints import RECOVERY_POINT_FILE, CleanShutdownFile, OffsetCheckpoint
from cluster_image.storage.log import Log
from cluster_image.storage.segment import Segment
from harness.explore.simulate import Simulated, simulate
from harness.explore.swarm import Swarm
from harness.plan.plan import Plan

EXPLORED: Final = Plan(
    run="explore", on="simulation", nemesis=("kill", "power-outage"), rate=40.0, partitions=4, concurrency=2,
    time_limit=20.0,
)  # fmt: skip
RESTARTED: Final = EXPLORED.model_copy(update={"nemesis": ("rolling-restart",), "time_limit": 60.0})
Patch = Callable[[pytest.MonkeyPatch], None]


def recovery_point(monkeypatch: pytest.MonkeyPatch) -> None:
    """A log's end is noted, and not what was flushed of it."""
    write = OffsetCheckpoint.write

    def lie(self: OffsetCheckpoint, offsets: Mapping[tuple[str, int], int]) -> None:
        ends = {key: logs[key].end_offset for key in offsets} if self._path == RECOVERY_POINT_FILE else offsets
        write(self, ends)

    logs: dict[tuple[str, int], Log] = {}
    checkpoint = LogManager.checkpoint

    def noted(self: LogManager, high_watermarks: Mapping[tuple[str, int], int]) -> None:
        logs.clear()
        logs.update(self._logs)
        checkpoint(self, high_watermarks)

    monkeypatch.setattr(OffsetCheckpoint, "write", lie)
    monkeypatch.setattr(LogManager, "checkpoint", noted)


def flushed_offset(monkeypatch: pytest.MonkeyPatch) -> None:
    """A flush syncs nothing."""
    monkeypatch.setattr(Segment, "sync", lambda self: None)


def voter_fetches_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """And makes durable what it has told later, when its segment is full."""
    monkeypatch.setattr(rules, "make_durable_before_fetch", lambda log, is_voter: None)


def votes_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    def lie(self: QuorumStateStore, state: Any) -> None:
        sync, self._disk.sync_directory = self._disk.sync_directory, lambda path: None  # type: ignore[method-assign]
        try:
            write(self, state)
        finally:
            self._disk.sync_directory = sync  # type: ignore[method-assign]

    write = QuorumStateStore.write
    monkeypatch.setattr(QuorumStateStore, "write", lie)


def closed_without_a_flush(monkeypatch: pytest.MonkeyPatch) -> None:
    close = Log.close

    def lie(self: Log) -> None:
        self.flush = lambda: None  # type: ignore[method-assign]
        close(self)

    monkeypatch.setattr(Log, "close", lie)


def clean_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clean-shutdown file is read, and stays."""
    take = CleanShutdownFile.take

    def lie(self: CleanShutdownFile) -> int | None:
        epoch = take(self)
        if epoch is not None:
            self.write(epoch)
        return epoch

    monkeypatch.setattr(CleanShutdownFile, "take", lie)


def clean_without_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever starts again says so of its last session, however that ended."""
    load = LogManager.load

    def lie(self: LogManager) -> None:
        load(self)
        self.previous_epoch = max(self.previous_epoch, 7 if self._logs else -1)

    monkeypatch.setattr(LogManager, "load", lie)


def never_clean(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a clean shutdown has left is taken for what a crash has."""
    monkeypatch.setattr(LogManager, "_is_short", lambda self, key: True)


LIES: Final[Mapping[str, tuple[Patch, Plan, str, int]]] = {
    # the lie, where, the property, a seed that finds it
    "recovery point": (recovery_point, EXPLORED, "RecoveryPointCheckpoint", 1),
    "flushed offset": (flushed_offset, EXPLORED, "FlushedOffset", 1),
    "voter fetches first": (voter_fetches_first, EXPLORED, "VoterEndOffset", 1),
    "votes": (votes_are_forgotten, EXPLORED, "QuorumState", 1),
    "closed without a flush": (closed_without_a_flush, RESTARTED, "CleanShutdown", 1),
    "clean for ever": (clean_for_ever, RESTARTED, "CleanShutdown", 1),
    "never clean": (never_clean, RESTARTED, "CleanShutdown", 1),
    "clean without proof": (clean_without_proof, EXPLORED, "CleanShutdown", 1),
}


def explored(plan: Plan, seed: int) -> Simulated:
    return simulate(Swarm(("settings", "latency_ms"))(plan, seed))


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_is_found_by_the_name_of_the_claim(monkeypatch: pytest.MonkeyPatch, lie: str) -> None:
    plant, plan, property_, seed = LIES[lie]
    plant(monkeypatch)
    done = explored(plan, seed)
    assert not done.crash and done.violation is not None, done.crash or done.problems
    assert done.violation.property == property_, done.violation
    assert done.violation.nodes


@pytest.mark.parametrize("plan", [EXPLORED, RESTARTED], ids=["killed", "restarted"])
def test_who_tells_the_truth_is_not_blamed(plan: Plan) -> None:
    done = explored(plan, 1)
    assert done.violation is None and not done.crash, done.violation or done.crash
