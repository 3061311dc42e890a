"""Incremental fetch sessions, the follower's side (KIP-227): what a request must say, given what the leader knows.

Whatever goes wrong ends the session, and the next request says everything again.
"""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode
from kio.schema.fetch.v17.request import FetchPartition, FetchTopic, ForgottenTopic

from cluster_image.wire.integers import i32, i64

from .fetch_session import INITIAL_EPOCH, NO_SESSION, next_epoch
from .replica import Change, PartitionKey, Replica


class Followed:
    """A partition that a fetcher fetches. asked: as the leader's session has it, None: not in it. delayed_until: not
    to be fetched before this time, seconds. leaders_watermark: as of the last answer, None: none yet. caught_up: when
    it last had all below that, seconds. max_bytes: that the next request asks for, None: as of any partition.
    Implements replica.Watcher."""

    __slots__ = ("_due", "asked", "caught_up", "delayed_until", "leaders_watermark", "max_bytes", "partition")

    def __init__(self, partition: Replica, due: dict[Followed, None]) -> None:
        self.partition = partition
        self.asked: FetchPartition | None = None
        self.delayed_until = 0.0
        self.leaders_watermark: int | None = None
        self.caught_up = float("-inf")
        self.max_bytes: int | None = None
        self._due = due

    def keeps_up(self, now: float, max_lag: float) -> bool:
        """Has it all below the leader's high watermark, or had it so many seconds ago or less? A new one does not."""
        if self.leaders_watermark is not None and self.partition.log.end_offset >= self.leaders_watermark:
            self.caught_up = now
        return now - self.caught_up <= max_lag

    def note(self, change: Change) -> None:
        self._due[self] = None


class FetchSessionHandler:
    """max_bytes: of one partition."""

    def __init__(self, max_bytes: int) -> None:
        self.id = NO_SESSION
        self.epoch = INITIAL_EPOCH  # of the next request
        self.followed: dict[PartitionKey, Followed] = {}
        self._max_bytes = max_bytes
        self._due: dict[Followed, None] = {}  # who may have to be named in the next request
        self._delayed: dict[Followed, None] = {}
        self._forgotten: dict[PartitionKey, None] = {}

    def add(self, partition: Replica) -> Followed:
        followed = self.followed[partition.key] = Followed(partition, self._due)
        partition.watchers[followed] = None
        self._due[followed] = None
        return followed

    def remove(self, key: PartitionKey) -> FetchPartition | None:
        """What was asked of it last."""
        followed = self.followed.pop(key, None)
        if followed is None:
            return None
        followed.partition.watchers.pop(followed, None)
        self._due.pop(followed, None)
        self._delayed.pop(followed, None)
        asked = followed.asked
        self._forget(followed)
        return asked

    def delay(self, followed: Followed, until: float) -> None:
        """It is not fetched before this time, in seconds."""
        followed.delayed_until = until
        self._delayed[followed] = None
        self._forget(followed)

    def any_to_fetch(self, now: float) -> bool:
        if self._delayed:
            for followed in [each for each in self._delayed if each.delayed_until <= now]:
                del self._delayed[followed]
                self._due[followed] = None
        return len(self.followed) > len(self._delayed)

    def fetched(self) -> list[Followed]:
        """Those that are not delayed."""
        return [each for each in self.followed.values() if each not in self._delayed]

    def delay_ends(self) -> float | None:
        """When the first that is delayed may be fetched; None: none is."""
        return min((each.delayed_until for each in self._delayed), default=None)

    def next_request(self, now: float) -> tuple[tuple[FetchTopic, ...], tuple[ForgottenTopic, ...]]:
        """The topics of a request for those whose time has come, and those to forget."""
        full = self.epoch == INITIAL_EPOCH
        self.any_to_fetch(now)
        topics: dict[Any, list[FetchPartition]] = {}
        for each in list(self.followed.values() if full else self._due):
            if each in self._delayed:
                continue
            partition, asked = each.partition, each.asked
            epoch, (end, start, last_epoch) = partition.leader_epoch, partition.position
            if (
                full
                or asked is None
                or asked.fetch_offset != end
                or asked.current_leader_epoch != epoch
                or asked.last_fetched_epoch != last_epoch
                or asked.log_start_offset != start
            ):
                each.asked = FetchPartition(
                    partition=i32(partition.index),
                    current_leader_epoch=i32(epoch),
                    fetch_offset=i64(end),
                    last_fetched_epoch=i32(last_epoch),
                    log_start_offset=i64(start),
                    partition_max_bytes=i32(self._max_bytes if each.max_bytes is None else each.max_bytes),
                )
                each.max_bytes = None
                topics.setdefault(partition.key[0], []).append(each.asked)
                self._forgotten.pop(partition.key, None)
        self._due.clear()
        if full:
            self._forgotten.clear()
        forgotten: dict[Any, list[int]] = {}
        for topic_id, index in self._forgotten:
            forgotten.setdefault(topic_id, []).append(index)
        self._forgotten.clear()
        return (
            tuple(FetchTopic(topic_id=t, partitions=tuple(ps)) for t, ps in topics.items()),
            tuple(ForgottenTopic(topic_id=t, partitions=tuple(map(i32, ps))) for t, ps in forgotten.items()),
        )

    def _forget(self, followed: Followed) -> None:
        """It is no longer fetched, at least for a while: the next request says so."""
        if followed.asked is not None:
            followed.asked = None
            self._forgotten[followed.partition.key] = None

    def answered(self, error: ErrorCode, session_id: int) -> None:
        """The answer to the last request is here, with this error and session id at its top."""
        if error is ErrorCode.fetch_session_id_not_found:
            self.id, self.epoch = NO_SESSION, INITIAL_EPOCH
        elif error is not ErrorCode.none:
            self.lost()
        else:
            self.epoch = next_epoch(self.epoch) if session_id != NO_SESSION else INITIAL_EPOCH
            self.id = session_id

    def lost(self) -> None:
        """Nobody knows whether the last request arrived. The next one ends the session, and asks for a new one."""
        self.epoch = INITIAL_EPOCH
