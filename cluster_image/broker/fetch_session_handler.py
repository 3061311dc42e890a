"""Incremental fetch sessions, the follower's side (KIP-227): what a request must say, given what the leader knows.

Whatever goes wrong ends the session, and the next request says everything again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kio.schema.errors import ErrorCode
from kio.schema.fetch.v17.request import FetchPartition, FetchTopic, ForgottenTopic

from ..integers import i32, i64
from ..metadata.image import PartitionKey
from .fetch_session import INITIAL_EPOCH, NO_SESSION, next_epoch
from .partition import Partition


class Followed:
    """A partition that a fetcher fetches. asked: as the leader's session has it, None: not in it. delayed_until: not
    to be fetched before this time, seconds."""

    __slots__ = ("asked", "delayed_until", "partition")

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.asked: FetchPartition | None = None
        self.delayed_until = 0.0


class FetchSessionHandler:
    """max_bytes: of one partition."""

    def __init__(self, max_bytes: int) -> None:
        self.id = NO_SESSION
        self.epoch = INITIAL_EPOCH  # of the next request
        self._max_bytes = max_bytes
        self._forgotten: dict[PartitionKey, None] = {}

    def next_request(
        self, followed: Iterable[Followed], now: float
    ) -> tuple[tuple[FetchTopic, ...], tuple[ForgottenTopic, ...]]:
        """The topics of a request for those of `followed` whose time has come, and those to forget."""
        full = self.epoch == INITIAL_EPOCH
        topics: dict[Any, list[FetchPartition]] = {}
        for each in followed:
            partition, asked = each.partition, each.asked
            if each.delayed_until > now:
                if asked is not None:
                    self.forget(each)
                continue
            log = partition.log
            end, start = log.end_offset, log.start_offset
            epoch, last_epoch = partition.leader_epoch, partition.last_fetched_epoch
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
                    partition_max_bytes=i32(self._max_bytes),
                )
                topics.setdefault(partition.key[0], []).append(each.asked)
                self._forgotten.pop(partition.key, None)
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

    def forget(self, followed: Followed) -> None:
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
