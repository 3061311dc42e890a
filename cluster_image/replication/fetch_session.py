"""Incremental fetch sessions, the leader's side (KIP-227).

Within a session a request names only the partitions that have changed since the request before, and an answer only
those that have something new. Which request and answer those were is told by the session's epoch: 0 asks for a new
session, -1 for none, 1, 2, … (2^31 - 1, then 1 again) go on with one. Nothing depends on a session being kept: who is
told that it is gone asks for everything again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from random import Random
from typing import Any, Final

from kio.schema.errors import ErrorCode

from .follower_state import FollowerState
from .replica import Change
from .served import ServedPartition

#: Session epochs with a meaning of their own.
INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
#: Of a fetch that belongs to no session.
NO_SESSION: Final = 0
#: A session is safe from newcomers for so long, seconds, and without a request for so long makes room for any.
EVICTION_S: Final = 120.0
#: Of all sessions of consumers together. Each takes some 400 bytes.
MAX_CONSUMED_PARTITIONS: Final = 100_000

#: What a fetch that waits has waited for.
_FOR_FOLLOWERS: Final = (Change.LOG, Change.ROLE)
_FOR_CONSUMERS: Final = (Change.HIGH_WATERMARK, Change.ROLE)

Key = tuple[Any, int]  # topic id, or its name before version 13; index


class FetchedPartition:
    """What a fetch asks of one partition, and what its session has told of it. partition: the replica here, once
    looked up; held: its records wait for the leader's quota, and more of them end no wait. Implements replica.Watcher.
    """

    __slots__ = (
        "_closed", "_follower", "fetch_offset", "fetched", "followers_start", "held", "high_watermark", "index", "key",
        "last_fetched_epoch", "leader_epoch", "log_start_offset", "max_bytes", "partition",
    )  # fmt: skip

    def __init__(self, key: Key, data: Any, fetched: FetchedPartitions) -> None:
        self.key = key
        self.index = key[1]
        self.partition: ServedPartition | None = None
        self.fetched = fetched
        self._follower: FollowerState | None = None  # while this is idle
        self._closed = False
        self.held = False
        self.fetch_offset = int(data.fetch_offset)
        self.leader_epoch = int(getattr(data, "current_leader_epoch", -1))
        self.last_fetched_epoch = int(getattr(data, "last_fetched_epoch", -1))
        self.followers_start = int(getattr(data, "log_start_offset", -1))
        self.max_bytes = int(data.partition_max_bytes)
        #: As the last answer told them; -1: the next must tell them in any case.
        self.high_watermark = -1
        self.log_start_offset = -1

    def update(self, data: Any) -> None:
        """The request names the partition again. If it does not go forward in the same leader epoch, it may not have
        taken what the last answer told."""
        offset, leader_epoch = int(data.fetch_offset), int(getattr(data, "current_leader_epoch", -1))
        if offset <= self.fetch_offset or leader_epoch != self.leader_epoch:
            self.high_watermark = -1
        self.fetch_offset = offset
        self.leader_epoch = leader_epoch
        self.last_fetched_epoch = int(getattr(data, "last_fetched_epoch", -1))
        self.followers_start = int(getattr(data, "log_start_offset", -1))
        self.max_bytes = int(data.partition_max_bytes)

    def found(self, partition: ServedPartition | None) -> None:
        """Which replica it is here, if there is one."""
        self.partition = partition
        if partition is not None and not self._closed:
            partition.watchers[self] = None

    def note(self, change: Change) -> None:
        if self._follower is not None:
            self.set_active()
        self.fetched.note(self, change)

    def set_idle(self, session: FetchSession) -> None:
        """There is nothing to do for it with a request of the session before it is named or has changed."""
        self.fetched.due.pop(self, None)
        if self.partition is not None and self.partition.is_leader:
            self._follower = self.partition.follower(session.replica)
        if self._follower is not None:
            self._follower.set_idle(session)

    def set_active(self) -> None:
        if self._follower is not None:
            self._follower.set_active()
            self._follower = None

    def close(self) -> None:
        """Whoever is still at it hears of no changes any more."""
        self._closed = True
        self.set_active()
        if self.partition is not None:
            self.partition.watchers.pop(self, None)


class FetchedPartitions:
    """All that a fetch asks for, or a session. due: those that have to be looked at. The others are idle: there is
    nothing new. So what a fetch costs depends on what has changed, and not on how many partitions there are."""

    def __init__(self, for_follower: bool) -> None:
        self.for_follower: Final = for_follower
        self.by_key: dict[Key, FetchedPartition] = {}
        self.due: dict[FetchedPartition, None] = {}
        self._ends_wait: Final = _FOR_FOLLOWERS if for_follower else _FOR_CONSUMERS
        self._changed: dict[FetchedPartition, None] = {}
        self._woken: asyncio.Future[None] | None = None

    def __len__(self) -> int:
        return len(self.by_key)

    def take(self, request: Any) -> None:
        """The request names some, and says which to forget."""
        topics: Iterable[Any] = request.topics
        for topic in topics:
            name = topic.topic_id if hasattr(topic, "topic_id") else topic.topic
            for data in topic.partitions:
                key = (name, int(data.partition))
                asked = self.by_key.get(key)
                if asked is None:
                    asked = self.by_key[key] = FetchedPartition(key, data, self)
                else:
                    asked.set_active()
                    asked.update(data)
                self.due[asked] = None
        for topic in getattr(request, "forgotten_topics_data", ()):
            name = topic.topic_id if hasattr(topic, "topic_id") else topic.topic
            for index in topic.partitions:
                asked = self.by_key.pop((name, int(index)), None)
                if asked is not None:
                    asked.close()
                    self.due.pop(asked, None)
                    self._changed.pop(asked, None)

    def note(self, asked: FetchedPartition, change: Change) -> None:
        self.due[asked] = None
        if change in self._ends_wait and not (asked.held and change is Change.LOG):
            self._changed[asked] = None
            self._wake()

    async def wait(self, timeout: float, pause: float) -> None:
        """Until some have changed that changed() has not told, and `pause` seconds longer; at most `timeout` seconds,
        or until another request comes."""
        if not self._changed:
            loop = asyncio.get_running_loop()
            woken = self._woken = loop.create_future()
            timer = loop.call_later(timeout, _end, woken)
            try:
                await woken
            finally:
                timer.cancel()
        if pause > 0:
            await asyncio.sleep(min(pause, timeout))

    def changed(self) -> Iterable[FetchedPartition]:
        """Those that have, since the last call, or since this request came."""
        changed, self._changed = self._changed, {}
        return changed

    def all_due(self) -> None:
        for asked in self.by_key.values():
            asked.set_active()
            self.due[asked] = None

    def served_last(self, asked: FetchedPartition) -> None:
        """Of those that are due, the next time."""
        if asked in self.due:
            del self.due[asked]
            self.due[asked] = None

    def end_wait(self) -> None:
        """Of an earlier request."""
        self._changed.clear()
        self._wake()

    def close(self) -> None:
        for asked in self.by_key.values():
            asked.close()

    def _wake(self) -> None:
        if self._woken is not None:
            _end(self._woken)


def _end(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_result(None)


class FetchSession:
    """replica: whose, -1: a consumer's. by_id: topics are named by id. epoch: of the next request."""

    __slots__ = ("broker_epoch", "by_id", "created", "epoch", "id", "last_used", "partitions", "replica")

    def __init__(
        self, id: int, replica: int, broker_epoch: int, by_id: bool, partitions: FetchedPartitions, now: float
    ) -> None:
        self.id = id
        self.replica = replica
        self.broker_epoch = broker_epoch
        self.by_id = by_id
        self.partitions = partitions
        self.created = self.last_used = now
        self.epoch = 1

    @property
    def worth(self) -> tuple[bool, int, int]:
        """Kafka's order, the least first: consumers before followers, few partitions before many."""
        return (self.replica >= 0, len(self.partitions), self.id)


class Fetch:
    """One request. session: that it belongs to; `wants_session`: it asks for one; epoch: the session's after it."""

    __slots__ = ("by_id", "epoch", "partitions", "session", "wants_session")

    def __init__(
        self,
        partitions: FetchedPartitions,
        by_id: bool,
        session: FetchSession | None = None,
        wants_session: bool = False,
    ) -> None:
        self.partitions = partitions
        self.by_id = by_id
        self.session = session
        self.epoch = session.epoch if session is not None else 0
        self.wants_session = wants_session

    @property
    def superseded(self) -> bool:
        """Has a later request of the same session come meanwhile, or has it ended?"""
        return self.session is not None and self.session.epoch != self.epoch


class FetchSessionCache:
    """slots: max.incremental.fetch.session.cache.slots. random: the sessions' ids are drawn from it."""

    def __init__(self, slots: int, random: Random) -> None:
        self._slots = slots
        self._random = random
        self._sessions: dict[int, FetchSession] = {}  # the longest unused first

    def __len__(self) -> int:
        return len(self._sessions)

    def get(self, id: int) -> FetchSession | None:
        """To look at, not to act on."""
        return self._sessions.get(id)

    def receive(self, request: Any, replica: int, broker_epoch: int, now: float) -> Fetch | ErrorCode:
        """What a request of any version asks for, sessions being brought up to date; or why it is refused."""
        session_id = int(getattr(request, "session_id", NO_SESSION))
        epoch = int(getattr(request, "session_epoch", FINAL_EPOCH))
        by_id = request.__version__ >= 13
        session = self._sessions.get(session_id)
        if session is not None and session.replica != replica:
            session = None  # not the sender's: what it fetches must not be taken for another's progress
        if epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            if session is not None:
                self._end(session)
            partitions = FetchedPartitions(replica >= 0)
            partitions.take(request)
            return Fetch(partitions, by_id, wants_session=epoch == INITIAL_EPOCH)
        if session is None:
            return ErrorCode.fetch_session_id_not_found
        if session.by_id != by_id:
            return ErrorCode.fetch_session_topic_id_error
        if session.broker_epoch != broker_epoch:
            return ErrorCode.fetch_session_id_not_found  # idle ones would be noted for its earlier registration
        if session.epoch != epoch:
            return ErrorCode.invalid_fetch_session_epoch
        session.partitions.end_wait()
        session.partitions.take(request)
        session.epoch = next_epoch(epoch)
        del self._sessions[session_id]
        if not session.partitions or not self._has_room(session):
            session.partitions.all_due()
            return Fetch(session.partitions, by_id)
        session.last_used = now
        self._sessions[session_id] = session
        return Fetch(session.partitions, by_id, session)

    def create(self, fetch: Fetch, replica: int, broker_epoch: int, now: float) -> int:
        """A session for a fetch that wants one: its id, or NO_SESSION if there is no room for it."""
        if not fetch.partitions:
            return NO_SESSION
        new = FetchSession(NO_SESSION, replica, broker_epoch, fetch.by_id, fetch.partitions, now)
        if not self._has_room(new):
            return NO_SESSION
        if len(self._sessions) >= self._slots and not self._evict(new, now):
            return NO_SESSION
        while new.id == NO_SESSION or new.id in self._sessions:
            new.id = self._random.randrange(1, 1 << 31)
        self._sessions[new.id] = fetch.session = new
        fetch.epoch = new.epoch
        return new.id

    def _end(self, session: FetchSession) -> None:
        del self._sessions[session.id]
        session.epoch = FINAL_EPOCH
        session.partitions.end_wait()
        session.partitions.close()

    def _has_room(self, session: FetchSession) -> bool:
        """Beside those that are kept? Of followers there are as many as brokers."""
        if session.replica >= 0:
            return True
        consumed = sum(len(kept.partitions) for kept in self._sessions.values() if kept.replica < 0)
        return consumed + len(session.partitions) <= MAX_CONSUMED_PARTITIONS

    def _evict(self, newcomer: FetchSession, now: float) -> bool:
        """Make room: for the longest unused, if it is that for long; else the least that is worth less."""
        oldest = next(iter(self._sessions.values()), None)
        if oldest is None:
            return False  # no session is ever kept
        if now - oldest.last_used > EVICTION_S:
            self._end(oldest)
            return True
        privileged = newcomer.replica >= 0
        evictable = [
            s for s in self._sessions.values() if now - s.created > EVICTION_S or (privileged and s.replica < 0)
        ]
        least = min(evictable, key=lambda s: s.worth, default=None)
        if least is None or least.worth > newcomer.worth:
            return False
        self._end(least)
        return True


def next_epoch(epoch: int) -> int:
    return 1 if epoch == 0x7FFFFFFF else epoch + 1
