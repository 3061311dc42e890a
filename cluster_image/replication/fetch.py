"""Fetch of every version, by consumers and followers: read what there is, else wait for it (long poll).

An answer goes out as soon as min_bytes are there, something is wrong, or max_wait has passed. Meanwhile partitions tell
when their log grows (followers) or their high watermark advances (consumers), and those alone are read again. A
follower's progress is noted once, when its request arrives, for every partition in its session: what it did not name
has not changed.

Of a throttled partition, a follower out of sync gets what the leader's quota allows (KIP-73). While it is exceeded the
partition is as one that has nothing new, until the quota allows some again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable
from random import Random
from typing import Any, Final

from kio.schema.errors import ErrorCode

from cluster_image.config import Config
from cluster_image.network import UNLIMITED, Entity, Room
from cluster_image.network.slices import Pauses
from cluster_image.storage.errors import OffsetOutOfRange
from cluster_image.wire.integers import BrokerId, i32, i64
from cluster_image.wire.messages import NO_THROTTLE, make, response_module

from . import rules
from .fetch_session import NO_SESSION, Fetch, FetchedPartition, FetchSessionCache
from .quotas import ReplicationQuota
from .served import Eligible, Refused, ServedPartition, Topics


class _Result:
    """What there is to say of a partition: why it cannot be read, records, or where the follower's log diverges. With
    OFFSET_OUT_OF_RANGE that tells where the leader's log begins, and the epoch of the record before. counts: do the
    records count against the leader's quota?"""

    __slots__ = ("counted", "diverging", "error", "records")

    def __init__(
        self,
        error: ErrorCode = ErrorCode.none,
        records: bytes = b"",
        diverging: tuple[int, int] | None = None,
        counts: bool = False,
    ) -> None:
        self.error = error
        self.records = records
        self.diverging = diverging
        self.counted = len(records) if counts else 0  # bytes

    @property
    def urgent(self) -> bool:
        return self.error is not ErrorCode.none or self.diverging is not None


class _Found:
    """What a fetch has found so far. replica: who fetches, -1: a consumer; budget: bytes of records at most; room: for
    these."""

    __slots__ = ("broker_epoch", "budget", "counted", "held", "replica", "results", "room", "size", "urgent")

    def __init__(self, replica: int, broker_epoch: int, budget: int, room: Room) -> None:
        self.replica = replica
        self.broker_epoch = broker_epoch
        self.budget = budget
        self.room = room
        #: By partition asked for; who has nothing new to say is not in it.
        self.results: dict[FetchedPartition, _Result] = {}
        self.size = 0  # of all records, in bytes
        self.counted = 0  # of those, against the leader's quota
        #: Those that wait for the leader's quota.
        self.held: dict[FetchedPartition, None] = {}
        self.urgent = False  # is any result?

    def put(self, asked: FetchedPartition, result: _Result) -> None:
        """For one that has no result yet."""
        self.results[asked] = result
        self.size += len(result.records)
        self.counted += result.counted
        self.urgent = self.urgent or result.urgent

    def take(self, asked: FetchedPartition) -> None:
        """Its records, if it has any: they are to be read again."""
        result = self.results.get(asked)
        if result is not None and not result.urgent:
            del self.results[asked]
            self.size -= len(result.records)
            self.counted -= result.counted

    def hold(self, asked: FetchedPartition) -> None:
        self.held[asked] = None
        asked.held = True

    def take_held(self) -> list[FetchedPartition]:
        """They are to be read again."""
        held, self.held = list(self.held), {}
        for asked in held:
            asked.held = False
        return held

    def take_records(self) -> list[FetchedPartition]:
        """All of them: whose these were."""
        found = [asked for asked, result in self.results.items() if result.records]
        for asked in found:
            self.take(asked)
        return found


#: However long a request would: it may have an answer before.
LONGEST_WAIT_S: Final = 60.0
#: Between looks at whether a fetch that waits for more than one batch has enough: more and more, up to this.
_SHORTEST_PAUSE_S: Final = 0.01
_LONGEST_PAUSE_S: Final = 0.1


class FetchHandler:
    def __init__(
        self,
        config: Config,
        image: Topics,
        find: Callable[[Any, int], ServedPartition | None],
        eligible: Eligible,
        isr_changed: Callable[[], None],
        quota: ReplicationQuota,
        random: Random,
    ) -> None:
        self._quota = quota
        self._image = image
        self._find = find
        self._eligible = eligible
        self._isr_changed = isr_changed
        self._max_bytes: Final[int] = config["fetch.max.bytes"]
        self.sessions: Final = FetchSessionCache(config["max.incremental.fetch.session.cache.slots"], random)

    async def handle(self, request: Any, room: Room = UNLIMITED) -> Entity:
        """room: for what is read for a consumer."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        replica, broker_epoch = _sender(request)
        fetch = self.sessions.receive(request, replica, broker_epoch, now)
        if isinstance(fetch, ErrorCode):
            return _refusal(request, fetch)
        budget = max(min(getattr(request, "max_bytes", self._max_bytes), self._max_bytes), 1)
        found = _Found(replica, broker_epoch, budget, room if replica < 0 else UNLIMITED)
        try:
            await self._find_enough(request, fetch, found, loop)
            if fetch.superseded:
                return _refusal(request, ErrorCode.invalid_fetch_session_epoch)
            return await self._answer(request, fetch, found)
        finally:
            found.take_held()
            if fetch.session is None:
                fetch.partitions.close()

    async def _find_enough(self, request: Any, fetch: Fetch, found: _Found, loop: asyncio.AbstractEventLoop) -> None:
        now = loop.time()
        deadline = now + min(request.max_wait.total_seconds(), LONGEST_WAIT_S)
        readable: Collection[FetchedPartition] = list(fetch.partitions.due)
        if found.replica >= 0:
            readable = self._record(readable, found, now)
        await self._read(fetch, readable, found)
        wanted = min(request.min_bytes, found.budget)  # it never gets more (as Apache Kafka)
        pause = 0.0
        while not (found.urgent or found.size >= wanted or fetch.superseded or not fetch.partitions):
            remaining = deadline - loop.time()
            if remaining <= 0:
                return
            # Records are read again, and not kept, for as long as somebody chooses to wait for more of them.
            again = found.take_records()
            found.room.hold(0)
            if found.held:
                remaining = min(remaining, max(self._quota.wait(loop.time()), _SHORTEST_PAUSE_S))
            await fetch.partitions.wait(remaining, pause)
            held = found.take_held()
            if again or not held:
                # Who waits for many records is not looked at after each of them.
                pause = min(max(2 * pause, _SHORTEST_PAUSE_S), _LONGEST_PAUSE_S)
            if fetch.superseded:
                return
            await self._read(fetch, dict.fromkeys([*again, *held, *fetch.partitions.changed()]), found)

    def _partition(self, asked: FetchedPartition) -> ServedPartition | None:
        partition = asked.partition
        if partition is None or partition.removed:
            topic_id = asked.key[0]
            if isinstance(topic_id, str):
                known = self._image.topics.get(topic_id)
                topic_id = known.id if known is not None else None
            partition = self._find(topic_id, asked.index)
            asked.found(partition)
        return partition

    def _record(self, partitions: Iterable[FetchedPartition], found: _Found, now: float) -> list[FetchedPartition]:
        """Note how far a follower has come with each of its partitions. Those that it is behind with are returned."""
        behind, joining = [], False
        for asked in partitions:
            partition = self._partition(asked)
            if partition is None:
                found.put(asked, _Result(self._why_missing(asked)))
                continue
            try:
                diverging = partition.record_fetch(
                    found.replica,
                    found.broker_epoch,
                    asked.leader_epoch,
                    asked.fetch_offset,
                    asked.last_fetched_epoch,
                    now,
                    self._eligible,
                    asked.followers_start,
                )
            except Refused as refused:
                elsewhere = refused.error is ErrorCode.offset_out_of_range
                found.put(asked, _Result(refused.error, diverging=partition.begin_of_log if elsewhere else None))
            else:
                if diverging is not None:
                    found.put(asked, _Result(diverging=diverging))
                elif asked.fetch_offset < partition.log.end_offset:
                    behind.append(asked)
                joining = joining or found.replica not in partition.isr
        if joining:
            self._isr_changed()
        return behind

    async def _read(self, fetch: Fetch, partitions: Collection[FetchedPartition], found: _Found) -> None:
        """Read these (again) once there is room for as much as the budget, unless a later request of the session comes
        meanwhile. Each yields at least one batch while the budget is not used up, so that an answer is larger than it
        by one batch at most."""
        if not partitions:
            return
        await found.room.wait()
        found.room.hold(found.budget)
        pauses = Pauses()
        try:
            for asked in partitions:
                await pauses.after(1)
                if fetch.superseded:
                    return
                found.take(asked)
                if asked not in found.results:
                    self._read_one(asked, found)
        finally:
            found.room.hold(found.size)

    def _read_one(self, asked: FetchedPartition, found: _Found) -> None:
        partition = self._partition(asked)
        if partition is None:
            found.put(asked, _Result(self._why_missing(asked)))
            return
        read = partition.read_as_consumer if found.replica < 0 else partition.read_as_follower
        try:
            most = min(max(asked.max_bytes, 1), found.budget - found.size)
            throttled = found.replica >= 0 and self._quota.applies_to(partition.key)
            if throttled:
                most = min(most, self._left_by_quota(asked, partition, found))
            records = read(asked.leader_epoch, asked.fetch_offset, most)
        except Refused as refused:
            found.put(asked, _Result(refused.error))
        except OffsetOutOfRange:
            found.put(asked, _Result(ErrorCode.offset_out_of_range))
        else:
            if records:
                found.put(asked, _Result(records=records, counts=throttled and found.replica not in partition.isr))

    def _left_by_quota(self, asked: FetchedPartition, partition: ServedPartition, found: _Found) -> int:
        """Bytes that a follower may get of a throttled partition now; 0: it waits for them."""
        now = asyncio.get_running_loop().time()
        awaited = partition.awaits(found.replica)
        if rules.is_throttled_on_leader(self._quota.is_exceeded(now, found.counted), awaited):
            found.hold(asked)
            return 0
        return found.budget if awaited else self._quota.portion(now, found.counted)

    def _why_missing(self, asked: FetchedPartition) -> ErrorCode:
        """This broker has no replica: either nobody has one, or its metadata shows who does."""
        topic = asked.key[0]
        by_name = isinstance(topic, str)
        known = self._image.topics.get(topic) if by_name else self._image.topics_by_id.get(topic)
        if known is not None and asked.index in known.partitions:
            return ErrorCode.not_leader_or_follower
        return ErrorCode.unknown_topic_or_partition if by_name else ErrorCode.unknown_topic_id

    async def _answer(self, request: Any, fetch: Fetch, found: _Found) -> Entity:
        """All that was asked for; within a session only what has changed since it was last told."""
        module = response_module(request)
        session = fetch.session
        topics: dict[Any, list[Entity]] = {}
        moved, pauses = [], Pauses()
        for asked in list(fetch.partitions.due):
            await pauses.after(1)
            if fetch.superseded:
                break
            result, partition = found.results.get(asked), asked.partition
            start = partition.log.start_offset if partition is not None else -1
            failed = result is not None and result.error is not ErrorCode.none
            watermark = partition.high_watermark if partition is not None and not failed else -1
            news = watermark != asked.high_watermark or start != asked.log_start_offset
            if session is not None and result is None:
                if partition is not None and _has_everything(asked, partition, found.replica):
                    asked.set_idle(session)
                if not news:
                    continue
            asked.high_watermark = watermark
            asked.log_start_offset = start
            topics.setdefault(asked.key[0], []).append(_partition_data(module, asked, result, watermark, start))
            if result is not None and result.records:
                moved.append(asked)
        if fetch.superseded:
            return _refusal(request, ErrorCode.invalid_fetch_session_epoch)
        for asked in moved:  # whoever got something comes last the next time
            fetch.partitions.served_last(asked)
        if found.counted:
            self._quota.record(found.counted, asyncio.get_running_loop().time())
        session_id = session.id if session is not None else NO_SESSION
        if fetch.wants_session:
            now = asyncio.get_running_loop().time()
            session_id = self.sessions.create(fetch, found.replica, found.broker_epoch, now)
        return make(
            module.FetchResponse,
            throttle_time=NO_THROTTLE,
            error_code=ErrorCode.none,
            session_id=i32(session_id),
            responses=tuple(
                make(module.FetchableTopicResponse, topic=topic, topic_id=topic, partitions=tuple(partitions))
                for topic, partitions in topics.items()
            ),
        )


def _has_everything(asked: FetchedPartition, partition: ServedPartition, replica: int) -> bool:
    """Is there nothing that could be told of it before something has changed?"""
    if not partition.is_leader:
        return False
    if replica < 0:
        return asked.fetch_offset >= partition.high_watermark
    follower = partition.follower(replica)
    return (
        follower is not None
        and replica in partition.isr
        and asked.fetch_offset == follower.end_offset == partition.log.end_offset
    )


def _partition_data(module: Any, asked: FetchedPartition, result: _Result | None, watermark: int, start: int) -> Entity:
    error = ErrorCode.none if result is None else result.error
    values: dict[str, Any] = {}
    if result is not None and result.diverging is not None:
        epoch, end_offset = result.diverging
        values["diverging_epoch"] = module.EpochEndOffset(epoch=i32(epoch), end_offset=i64(end_offset))
    moved = error in (ErrorCode.not_leader_or_follower, ErrorCode.fenced_leader_epoch)
    if moved and asked.partition is not None and hasattr(module, "LeaderIdAndEpoch"):
        values["current_leader"] = module.LeaderIdAndEpoch(
            leader_id=BrokerId(asked.partition.leader), leader_epoch=i32(asked.partition.leader_epoch)
        )
    return make(
        module.PartitionData,
        partition_index=i32(asked.index),
        error_code=error,
        high_watermark=i64(watermark),
        last_stable_offset=i64(watermark),
        log_start_offset=i64(start),
        aborted_transactions=None,
        preferred_read_replica=BrokerId(-1),
        records=b"" if result is None else result.records,
        **values,
    )


def _refusal(request: Any, error: ErrorCode) -> Entity:
    """Of the session, and so of the whole request."""
    return make(
        response_module(request).FetchResponse,
        throttle_time=NO_THROTTLE,
        error_code=error,
        session_id=i32(NO_SESSION),
        responses=(),
    )


def _sender(request: Any) -> tuple[int, int]:
    """Replica id (-1: a consumer) and broker epoch of the fetching broker, in any version."""
    state = getattr(request, "replica_state", None)
    if state is not None:
        return int(state.replica_id), int(state.replica_epoch)
    return int(request.replica_id), -1
