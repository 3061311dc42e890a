"""What the APIs for records ask of a partition and of the metadata: all that a generation has to bring to be served by
them."""

from __future__ import annotations

from asyncio import Future
from collections.abc import Callable, Container, Mapping
from typing import NamedTuple, Protocol
from uuid import UUID

from kio.schema.errors import ErrorCode

from cluster_image.storage.log import Log

from .follower_state import FollowerState
from .replica import PartitionKey, Watcher


class Refused(Exception):
    """A request is answered with this error; nothing has changed."""

    def __init__(self, error: ErrorCode) -> None:
        super().__init__(error.name)
        self.error = error


class Appended(NamedTuple):
    base_offset: int
    #: Set to ErrorCode.none once committed; already done for acks other than all.
    done: Future[ErrorCode] | None



#: Is this broker, in this uptime session, one that may be in an ISR, as far as this broker's metadata tells?
Eligible = Callable[[int, int], bool]


class Topic(Protocol):
    """Of the metadata, as this broker knows it."""

    @property
    def name(self) -> str: ...

    @property
    def id(self) -> UUID: ...

    @property
    def partitions(self) -> Container[int]: ...

    @property
    def settings(self) -> Mapping[str, str]: ...


class Topics(Protocol):
    """All topics that this broker knows, by name and by id; and the brokers' own settings, by their ids, and under ""
    those of all."""

    @property
    def topics(self) -> Mapping[str, Topic]: ...

    @property
    def topics_by_id(self) -> Mapping[UUID, Topic]: ...

    @property
    def broker_settings(self) -> Mapping[str, Mapping[str, str]]: ...


class ServedPartition(Protocol):
    """A replica of this broker, in whatever role: who does not lead refuses."""

    @property
    def key(self) -> PartitionKey: ...

    @property
    def index(self) -> int: ...

    @property
    def log(self) -> Log: ...

    @property
    def removed(self) -> bool:
        """This broker has no replica any more."""

    @property
    def leader(self) -> int:
        """-1: none that is known."""

    @property
    def leader_epoch(self) -> int: ...

    @property
    def isr(self) -> frozenset[int]: ...

    @property
    def watchers(self) -> dict[Watcher, None]: ...

    @property
    def is_leader(self) -> bool: ...

    @property
    def high_watermark(self) -> int: ...

    @property
    def max_message_bytes(self) -> int:
        """Of a batch."""

    def append(self, records: bytes, acks: int, new_future: Callable[[], Future[ErrorCode]]) -> Appended:
        """A producer's batch: one. Raises Refused, and the storage's own errors for a batch that is not valid."""

    def record_fetch(
        self,
        replica: int,
        broker_epoch: int,
        leader_epoch: int,
        offset: int,
        last_fetched_epoch: int,
        now: float,
        eligible: Eligible,
        log_start_offset: int = -1,
    ) -> tuple[int, int] | None:
        """A follower's fetch is its report of how far it has come, as of when it arrives. Returns where its log
        diverges, if it does: epoch and end offset; nothing is noted then. log_start_offset: the follower's, -1: not
        told. Raises Refused."""

    def read_as_follower(self, leader_epoch: int, offset: int, max_bytes: int) -> bytes:
        """Records of a fetch that record_fetch has taken, perhaps a while ago. Raises Refused."""

    def read_as_consumer(self, leader_epoch: int, offset: int, max_bytes: int) -> bytes:
        """Committed records only. max_bytes: 0 or less: none. Raises Refused."""

    def follower(self, replica: int) -> FollowerState | None:
        """What is known of it, while this replica leads."""

    def awaits(self, replica: int) -> bool:
        """Does this leader hold its high watermark back for it?"""

    def start_of_log(self, leader_epoch: int) -> int:
        """ListOffsets earliest. Raises Refused."""

    def end_of_committed_log(self, leader_epoch: int, lease_held: bool) -> int:
        """ListOffsets latest. Raises Refused."""

    @property
    def begin_of_log(self) -> tuple[int, int]:
        """The leader epoch of the record just before the log's start (-1: not known), and the start."""

    def end_offset_for_epoch(self, epoch: int, leader_epoch: int) -> tuple[int, int]:
        """OffsetForLeaderEpoch. Raises Refused."""
