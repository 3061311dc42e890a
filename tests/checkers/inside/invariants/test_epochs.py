"""LeaderEpochCheckpoint: who takes the leader epochs of a log for others than its batches' is found by this name. And a
log whose batches cannot be read."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Final

import pytest

from checkers.inside.kraft.simulated.logs import Registry, Replica
from checkers.inside.violation import Violated
from cluster_image.storage.epoch_cache import EpochCache, EpochEntry
from tests.checkers.inside.invariants.lies import Lies, check_found


def forgets_what_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """A log is cut, and epochs go that begin below."""

    def lie(self: EpochCache, end_offset: int) -> bool:
        self._entries = [entry for entry in self._entries if entry.start_offset >= end_offset]
        return True

    monkeypatch.setattr(EpochCache, "truncate_from_end", lie)


def begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each batch begins its epoch, as where Apache Kafka drops what contradicts it, its own epoch's entry included."""

    def lie(self: EpochCache, epoch: int, start_offset: int) -> bool:
        self._entries = [entry for entry in self._entries if entry.epoch < epoch and entry.start_offset < start_offset]
        self._entries.append(EpochEntry(epoch, start_offset))
        return True

    monkeypatch.setattr(EpochCache, "assign", lie)


def ends_later(monkeypatch: pytest.MonkeyPatch) -> None:
    end = EpochCache.end_offset_for

    def lie(self: EpochCache, epoch: int, log_end_offset: int) -> tuple[int, int]:
        known, offset = end(self, epoch, log_end_offset)
        return known, min(offset + 1, log_end_offset)

    monkeypatch.setattr(EpochCache, "end_offset_for", lie)


LIES: Final[Lies] = {
    "forgets what stays": (forgets_what_stays, "LeaderEpochCheckpoint", 1),
    "begins anew": (begins_anew, "LeaderEpochCheckpoint", 0),
    "ends later": (ends_later, "LeaderEpochCheckpoint", 0),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_is_found_by_the_name_of_what_it_breaks(monkeypatch: pytest.MonkeyPatch, lie: str) -> None:
    check_found(LIES, lie, monkeypatch)


@pytest.mark.parametrize("damaged", [False, True])
def test_regression_a_log_that_has_no_batch_where_it_takes_one_to_be(damaged: bool) -> None:
    """M59, seed 2000: appended after a write that had failed half way. It was told as a failure of the harness."""
    log_: Any = SimpleNamespace(start_offset=0, end_offset=1, read=lambda *_: bytes(100), directory="t-0")
    replica = Replica("broker-1")
    replica.damaged = damaged  # bits of its disk are others: whoever reads it finds that
    registry = Registry("LogMatching", "t-0")
    if damaged:
        assert registry.absorb(replica, log_) == 0 and not replica.known
        return
    with pytest.raises(Violated, match="broker-1 cannot read its own log from offset 0 on: batch length 0") as violated:
        registry.absorb(replica, log_)
    assert violated.value.property == "LogMatching"
