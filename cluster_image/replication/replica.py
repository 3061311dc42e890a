"""What a replica is in any role, and what it does as a follower (000, 2.2.2; description 3.2)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from enum import Enum
from typing import Final, NamedTuple, Protocol
from uuid import UUID

from cluster_image.config import Config
from cluster_image.storage.log import Log
from cluster_image.telemetry.trace import Trace, no_trace

from . import rules

#: A topic's id, and the partition's index.
PartitionKey = tuple[UUID, int]



class Change(Enum):
    """Of a partition, as those hear of it who fetch it."""

    LOG = "the log has grown, or was cut"
    HIGH_WATERMARK = "the high watermark has moved"
    LOG_START = "the log start offset has moved"
    METADATA = "the metadata log told something of it: its replicas, its ISR, a leader epoch"
    ROLE = "it leads no longer, or in another epoch, or the replica is gone"


class Watcher(Protocol):
    def note(self, change: Change) -> None: ...


class Position(NamedTuple):
    """Of a follower's log: its end, its start, and the leader epoch of its last record (-1: none, or not named)."""

    offset: int
    log_start: int
    last_epoch: int


class FollowerStart(NamedTuple):
    """How a replica brings its log into line with that of the leader it begins to follow."""

    end_offset: int  # where it cuts its own log, before it has heard from the leader
    names_epoch: bool  # do its fetches name its last record's epoch, for the leader to see where the logs part?


class Replica(ABC):
    """What a generation adds is how a replica comes to lead, and what it does then."""

    def __init__(
        self,
        key: PartitionKey,
        topic: str,
        replicas: tuple[int, ...],
        log: Log,
        config: Config,
        broker_id: int,
        trace: Trace = no_trace,
    ) -> None:
        self.key: Final = key
        self.topic: Final = topic
        self.index: Final = key[1]
        self.log: Final = log
        self.replicas = replicas
        self.leader = -1
        self.leader_epoch = -1
        self.partition_epoch = -1
        self.isr: frozenset[int] = frozenset()
        self._config = config
        self._me: Final = broker_id
        self._high_watermark = 0
        self._trace = trace
        self._names_epoch = True
        self._name: Final = f"{self.topic}-{self.index}"
        #: This broker has no replica any more; nothing here changes again.
        self.removed = False
        self.watchers: dict[Watcher, None] = {}  # a dict, for its order

    def __str__(self) -> str:
        return self._name

    @property
    @abstractmethod
    def is_leader(self) -> bool:
        """Does it take records, and serve them?"""

    @property
    def config(self) -> Config:
        """With its topic's own settings."""
        return self._config

    @property
    def high_watermark(self) -> int:
        return self._high_watermark

    def restore_high_watermark(self, checkpointed: int) -> None:
        """At start-up: as the checkpoint says, within what recovery has left of the log."""
        self._trace("replica", self._name, end=self.log.end_offset)
        self._set_high_watermark(min(max(checkpointed, self.log.start_offset), self.log.end_offset))
        if self.log.start_offset > 0:
            self._trace("log start", self._name, offset=self.log.start_offset)

    def _set_isr(self, isr: Sequence[int], partition_epoch: int) -> None:
        self.isr = frozenset(isr)
        self.partition_epoch = partition_epoch
        self._tell(Change.METADATA)

    def _take_isr(self, isr: Sequence[int], partition_epoch: int, new_role: bool) -> None:
        self._set_isr(isr, partition_epoch)
        if new_role:
            self._trace(
                "role",
                self._name,
                leader=self.leader,
                leader_epoch=self.leader_epoch,
                partition_epoch=partition_epoch,
                isr=tuple(sorted(isr)),
                end=self.log.end_offset,
                high_watermark=self._high_watermark,
            )
        else:
            self._trace(
                "isr",
                self._name,
                isr=tuple(sorted(isr)),
                leader_epoch=self.leader_epoch,
                partition_epoch=partition_epoch,
            )

    def _set_high_watermark(self, offset: int) -> None:
        if offset != self._high_watermark:
            self._high_watermark = offset
            self._trace("high watermark", self._name, offset=offset)
            self._tell(Change.HIGH_WATERMARK)

    def _set_log_start(self, offset: int) -> None:
        """Within the log."""
        if offset != self.log.start_offset:
            self.log.raise_start_to(offset)
            self._trace("log start", self._name, offset=offset)
            self._tell(Change.LOG_START)

    # -- following --------------------------------------------------------------------------------------------

    def _become_follower(self, start: FollowerStart) -> None:
        self._names_epoch = start.names_epoch
        if start.end_offset < self.log.end_offset:
            self._truncate_to(start.end_offset)

    @property
    def last_fetched_epoch(self) -> int:
        """Of the last record, for a fetch to name; -1: none."""
        return self.log.last_epoch if self._names_epoch else -1

    @property
    def position(self) -> Position:
        """What a fetch says of this follower's log. One that lacks its begin passes for empty there, so that it gets
        all anew; what it has stays until a leader has answered, as this replica may yet have to lead."""
        log = self.log
        if log.lacks_from is not None:
            return Position(log.lacks_from, log.lacks_from, -1)
        is_empty = log.end_offset == log.start_offset
        return Position(log.end_offset, log.start_offset, log.last_epoch if is_empty else self.last_fetched_epoch)

    def apply_fetch(
        self,
        requested_epoch: int,
        requested_offset: int,
        records: bytes,
        leaders_watermark: int,
        diverging: tuple[int, int] | None,
        leaders_start: int = 0,
    ) -> bool:
        """A leader's answer to this follower's fetch: truncate or append. False: it came too late and was dropped."""
        following = not self.is_leader and self.leader >= 0
        if not rules.may_apply_fetch(
            requested_epoch, self.leader_epoch, requested_offset, self.position.offset, following
        ):
            return False
        if self.log.lacks_from is not None:
            self._begin_anew_at(self.log.lacks_from)
        if diverging is not None:
            offset = rules.truncation_offset(diverging, self.log.end_offset_for_epoch(diverging[0]))
            log_start = self.log.start_offset
            end_if_cut = self.log.end_if_cut_at(offset) if offset >= log_start else offset
            if rules.keeps_nothing(end_if_cut, log_start):
                self._begin_anew_at(leaders_start)
                return True
            self._truncate_to(offset)
            if self._high_watermark > self.log.end_offset:
                self._set_high_watermark(self.log.end_offset)
            return True
        if records:
            self.log.append_as_follower(records)
            self._tell(Change.LOG)
            self._trace("append", self._name, end=self.log.end_offset)
        # The leader's word, even if lower than before: it is the leader's knowledge (description 6.4).
        self._set_high_watermark(max(min(leaders_watermark, self.log.end_offset), self.log.start_offset))
        self._follow_log_start(leaders_start)
        return True

    def _follow_log_start(self, told: int) -> None:
        """Another replica's log starts there: the leader's, or a follower's that has deleted more than its leader knows
        of."""
        self._set_log_start(rules.next_log_start_offset(self.log.start_offset, told, self._high_watermark))

    def _truncate_to(self, offset: int) -> None:
        self.log.truncate_to(min(offset, self.log.end_offset))
        self._tell(Change.LOG)
        self._trace("truncate", self._name, end=self.log.end_offset)

    def leader_starts_at(
        self, requested_epoch: int, requested_offset: int, log_start_offset: int, epoch_before: int
    ) -> None:
        """The leader does not go on from this follower's end: that lies below the start of its log, or this log is
        empty (rules.begins_elsewhere). Begin anew at its start, after a record of `epoch_before` (-1: not known)."""
        offset, start, last_epoch = self.position
        outdated = requested_epoch != self.leader_epoch or requested_offset != offset
        if outdated or self.is_leader or log_start_offset < 0:
            return
        is_empty = offset == start
        if offset < log_start_offset or (is_empty and (offset, last_epoch) != (log_start_offset, epoch_before)):
            self._begin_anew_at(log_start_offset, epoch_before)

    def _begin_anew_at(self, offset: int, epoch_before: int = -1) -> None:
        self.log.truncate_fully_and_start_at(offset, epoch_before)
        self._tell(Change.LOG)
        self._trace("truncate", self._name, end=offset)
        self._set_high_watermark(rules.watermark_of_begun_anew(self._high_watermark, offset))
        self._trace("log start", self._name, offset=offset)

    # -- who fetches ------------------------------------------------------------------------------------------

    def _tell(self, change: Change) -> None:
        for watcher in self.watchers:
            watcher.note(change)
