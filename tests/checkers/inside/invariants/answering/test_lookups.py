"""OffsetLookup: lies about what a log has, told to who asks by a time or a leader epoch, are found by this name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest

from cluster_image.kraft.broker import rules
from cluster_image.kraft.broker.partition import Partition
from cluster_image.replication import offsets
from cluster_image.storage.log import Log
from tests.checkers.inside.invariants.lies import EXPLORED, Lies, check_found, explored

LOOKED_UP: Final = EXPLORED.model_copy(
    update={
        "short_lived_topics": 0.3, "delete_records": 3.0, "time_limit": 25.0, "nemesis": ("kill",), "strike": "leaders",
    }
)  # fmt: skip


def ends_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """A leader epoch ends a record later than it does."""
    end = Partition.end_offset_for_epoch

    def lie(self: Partition, epoch: int, current: int) -> tuple[int, int]:
        answered, offset = end(self, epoch, current)
        return answered, offset + (1 if answered < self.leader_epoch else -1)

    monkeypatch.setattr(Partition, "end_offset_for_epoch", lie)


def the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first record of a time is the one after it."""
    found = offsets.record_since

    async def lie(log: Log, timestamp: int, end: int, aside: Any = None) -> tuple[int, int, int]:
        offset, time, epoch = await found(log, timestamp, end)
        return (offset + 1, time, epoch) if 0 <= offset < end - 1 else (offset, time, epoch)

    monkeypatch.setattr(offsets, "record_since", lie)


def an_earlier_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the last time is the first record."""
    monkeypatch.setattr(Log, "latest_timestamp", lambda self, end: 0)


def no_epoch_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    refuse = rules.refuse_leader_epoch
    monkeypatch.setattr(rules, "refuse_leader_epoch", lambda ours, theirs: refuse(ours, -2 if theirs == -1 else theirs))


def _tells(what: int, value: int) -> Callable[[pytest.MonkeyPatch], None]:
    """what: 1: the timestamp, 2: the leader epoch, of what begins or ends a log."""

    def plant(monkeypatch: pytest.MonkeyPatch) -> None:
        find = offsets.OffsetsHandler._offset_at

        async def lie(self: Any, topic: str, data: Any, aside: Any) -> tuple[int, int, int]:
            found = list(await find(self, topic, data, aside))
            if data.timestamp in (offsets.EARLIEST, offsets.LATEST):
                found[what] = value
            return found[0], found[1], found[2]

        monkeypatch.setattr(offsets.OffsetsHandler, "_offset_at", lie)

    return plant


def begins_in_the_leaders_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    find = offsets.OffsetsHandler._offset_at

    async def lie(self: Any, topic: str, data: Any, aside: Any) -> tuple[int, int, int]:
        offset, timestamp, epoch = await find(self, topic, data, aside)
        partition = self._find(topic, int(data.partition_index))
        return offset, timestamp, partition.leader_epoch if data.timestamp == offsets.EARLIEST else epoch

    monkeypatch.setattr(offsets.OffsetsHandler, "_offset_at", lie)


def of_another_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is found by its time is told with a later epoch than that of its batch."""
    found = offsets.record_since

    async def lie(log: Log, timestamp: int, end: int, aside: Any = None) -> tuple[int, int, int]:
        offset, time, epoch = await found(log, timestamp, end)
        return offset, time, epoch + 1 if offset >= 0 else epoch

    monkeypatch.setattr(offsets, "record_since", lie)


LIES: Final[Lies] = {
    "ends later": (ends_later, "OffsetLookup", 0),
    "the next one": (the_next_one, "OffsetLookup", 0),
    "an earlier time": (an_earlier_time, "OffsetLookup", 0),
    "no epoch, no answer": (no_epoch_no_answer, "OffsetLookup", 0),
    "an end has a time": (_tells(1, 0), "OffsetLookup", 0),
    "an end is of no epoch": (_tells(2, -1), "OffsetLookup", 0),
    "begins in the leader's epoch": (begins_in_the_leaders_epoch, "OffsetLookup", 0),
    "of another epoch": (of_another_epoch, "OffsetLookup", 0),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_is_found_by_the_name_of_what_it_breaks(monkeypatch: pytest.MonkeyPatch, lie: str) -> None:
    check_found(LIES, lie, monkeypatch, LOOKED_UP)


def test_who_tells_the_truth_is_not_blamed() -> None:
    done = explored(0, LOOKED_UP)
    assert (done.violation, done.crash) == (None, "") and done.facts["short_lived_topics"]["looked up"] > 3
