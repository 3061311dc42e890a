"""FetchAnswered: brokers that tell who fetches nothing, too early, too late or what is not so are found by its name."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any, Final

import pytest
from kio.schema.errors import ErrorCode

from checkers.inside.kraft.simulated.answering import fetching
from checkers.inside.violation import Violated
from cluster_image.kraft.broker import rules
from cluster_image.kraft.broker.partition import Partition
from cluster_image.replication import fetch
from cluster_image.replication.fetch import FetchHandler
from cluster_image.replication.fetch_session import FetchedPartitions
from cluster_image.replication.replica import Change
from cluster_image.storage.errors import OffsetOutOfRange

from ..lies import EXPLORED, Lies, check_found

MOVING: Final = EXPLORED.model_copy(
    update={"nemesis": ("membership:reassign", "kill"), "brokers": 4, "short_lived_topics": 1.0}
)
#: Followers wait as long for news as a broker may be kept waiting.
ELECTING: Final = EXPLORED.model_copy(
    update={"nemesis": ("membership:preferred-election", "pause"), "rate": 2.0,
            "settings": {"replica.fetch.wait.max.ms": "1000"}}
)  # fmt: skip
#: Logs that are deleted to their ends, and checkpoints that are damaged.
DAMAGED: Final = EXPLORED.model_copy(
    update={"nemesis": ("disk:corrupt-stopped", "disk:corrupt", "power-outage", "partition"), "delete_records": 1.0,
            "rate": 10.0, "partitions": 3, "time_limit": 30.0}
)  # fmt: skip


def silent(patch: pytest.MonkeyPatch) -> None:
    """Nothing is said of what is not here."""
    patch.setattr(
        FetchHandler, "_record",
        lambda self, partitions, found, now, record=FetchHandler._record: (
            record(self, [asked for asked in partitions if self._partition(asked) is not None], found, now)
        ),
    )  # fmt: skip
    read_one = FetchHandler._read_one
    patch.setattr(
        FetchHandler, "_read_one",
        lambda self, asked, found: None if self._partition(asked) is None else read_one(self, asked, found),
    )  # fmt: skip


def not_told(patch: pytest.MonkeyPatch) -> None:
    """Who waits is not told that the broker leads no more."""
    tell = Partition._tell
    patch.setattr(Partition, "_tell", lambda self, change: None if change is Change.ROLE else tell(self, change))


def at_once(patch: pytest.MonkeyPatch) -> None:
    """Nobody waits for news."""

    async def lie(self: FetchHandler, request: Any, asked: Any, found: Any, loop: Any) -> None:
        readable = list(asked.partitions.due)
        if found.replica >= 0:
            readable = self._record(readable, found, loop.time())
        await self._read(asked, readable, found)

    patch.setattr(FetchHandler, "_find_enough", lie)


def old_watermark(patch: pytest.MonkeyPatch) -> None:
    told = fetch._partition_data
    patch.setattr(
        fetch, "_partition_data",
        lambda module, asked, result, watermark, start: told(module, asked, result, max(watermark - 1, -1), start),
    )  # fmt: skip


def fences_its_own(patch: pytest.MonkeyPatch) -> None:
    """The leader epoch that stands is taken for one that has passed."""

    def lie(self: Partition, leader_epoch: int) -> ErrorCode | None:
        return ErrorCode.fenced_leader_epoch if leader_epoch == self.leader_epoch else None

    patch.setattr(Partition, "_refuse_epoch", lie)


def passed_epochs_are_unknown(patch: pytest.MonkeyPatch) -> None:
    """Who asks in a leader epoch that has passed is to wait, as if it were yet to come."""

    def lie(self: Partition, leader_epoch: int) -> ErrorCode | None:
        return None if leader_epoch in (-1, self.leader_epoch) else ErrorCode.unknown_leader_epoch

    patch.setattr(Partition, "_refuse_epoch", lie)


def refuses_the_end(patch: pytest.MonkeyPatch) -> None:
    """A consumer that has read everything has gone too far."""
    read = Partition.read_as_consumer

    def lie(self: Partition, leader_epoch: int, offset: int, most: int) -> bytes:
        if offset == self.high_watermark > 0:
            raise OffsetOutOfRange(offset, 0, offset)
        return read(self, leader_epoch, offset, most)

    patch.setattr(Partition, "read_as_consumer", lie)


def told_of_news_late(patch: pytest.MonkeyPatch) -> None:
    """Who waits is told no sooner than its time is up."""
    wait = FetchedPartitions.wait
    patch.setattr(FetchedPartitions, "wait", lambda self, remaining, pause: wait(self, remaining, 1.0))


def errors_with_ends(patch: pytest.MonkeyPatch) -> None:
    """Whoever is refused is told where the log begins."""
    result = fetch._Result
    patch.setattr(
        fetch, "_Result",
        lambda error=ErrorCode.none, records=b"", diverging=None, **more: result(
            error, records=records, diverging=(0, 0) if error is not ErrorCode.none else diverging, **more
        ),
    )  # fmt: skip


def goes_on_from_nowhere(patch: pytest.MonkeyPatch) -> None:
    """A follower that has nothing, and knows nothing of what came before, may go on from where it is."""
    patch.setattr(rules, "begins_elsewhere", lambda *given: False)


LIES: Lies = {
    "nothing is said of what is not here": (silent, "FetchAnswered", 1),
    "who waits is not told": (not_told, "FetchAnswered", 0),
    "nobody waits": (at_once, "FetchAnswered", 0),
    "an old high watermark": (old_watermark, "FetchAnswered", 0),
    "the present leader epoch is fenced": (fences_its_own, "FetchAnswered", 0),
    "a leader epoch that has passed is yet to come": (passed_epochs_are_unknown, "FetchAnswered", 6),
    "the end of the log is refused": (refuses_the_end, "FetchAnswered", 0),
    "news is told late": (told_of_news_late, "FetchAnswered", 1),
    "a follower that has nothing may go on": (goes_on_from_nowhere, "FetchAnswered", 4),
    "an error with an epoch's end": (errors_with_ends, "FetchAnswered", 0),
}
PLANS: Final = {
    "nothing is said of what is not here": MOVING, "who waits is not told": ELECTING,
    "a leader epoch that has passed is yet to come": MOVING, "a follower that has nothing may go on": DAMAGED,
}  # fmt: skip


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_is_found_by_the_name_of_what_it_breaks(monkeypatch: pytest.MonkeyPatch, lie: str) -> None:
    check_found(LIES, lie, monkeypatch, PLANS.get(lie, EXPLORED))


@pytest.mark.parametrize(
    ("offset", "start", "epoch", "wrong"),
    [
        (5, 5, -1, False),  # nobody knows what came before
        (5, 5, 3, True),
        (5, 0, -1, True),
        (0, 5, 3, False),  # the log was cut at its begin while the fetch waited; the next one is told
    ],
)
def test_where_a_follower_that_has_nothing_may_go_on(offset: int, start: int, epoch: int, wrong: bool) -> None:
    log = SimpleNamespace(start_offset=start, epoch_before=lambda at: epoch)
    asked = fetching._Asked(2, None, 0.0, 0.0)
    data = SimpleNamespace(fetch_offset=offset, log_start_offset=offset, last_fetched_epoch=-1)
    with pytest.raises(Violated, match="is empty at offset 5") if wrong else nullcontext():
        fetching._check_begin("broker-1", "t-0", asked, data, SimpleNamespace(log=log))  # type: ignore[arg-type]
    fetching._check_begin("broker-1", "t-0", asked._replace(replica=-1), data, SimpleNamespace(log=log))  # type: ignore[arg-type]


def test_what_a_process_that_waits_for_its_disk_comes_to_at_once_counts_once() -> None:
    assert fetching._times([20.131, 20.131, 20.131, 20.1312, 20.132]) == 1 < fetching._TIMES
    assert fetching._times([19.78, 19.78, 20.13, 20.25]) == 3
    assert fetching._times([]) == 0


@pytest.mark.parametrize(
    ("was_known", "is_known", "wrong"), [(False, False, True), (False, True, False), (True, False, False)]
)
def test_a_topic_that_is_gone_has_no_other_leader(was_known: bool, is_known: bool, wrong: bool) -> None:
    """One that the broker has only just heard of, or that has just gone, may have (seed 433 of --nemesis all)."""
    topics = [{"id"} if known else set() for known in (was_known, is_known)]
    node: Any = SimpleNamespace(broker=SimpleNamespace(image=SimpleNamespace(topics_by_id=topics[0]), partitions={}))
    oracle = fetching.Fetching(lambda name, partition: -1)
    for now in (1.0, 2.0):
        oracle.look({"broker-1": node}, now)
    node.broker.image.topics_by_id = topics[1]
    told = SimpleNamespace(error_code=ErrorCode.not_leader_or_follower)
    asked = fetching._Asked(-1, None, 2.0, 2.05)
    with pytest.raises(Violated) if wrong else nullcontext():
        oracle._check_told_why("broker-1", node.broker, asked, ("id", 0), "id-0", told)  # type: ignore[arg-type]
