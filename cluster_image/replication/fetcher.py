"""Follower fetching: for each broker that leads partitions which this broker follows, num.replica.fetchers fetchers
(000, 2.2.1), each with its share of the partitions.

A fetcher sends one request at a time with all its partitions, each from its own log end offset, and hands what comes
back to the partitions that it was asked for: whether it still counts there is theirs to say, by one rule
(rules.may_apply_fetch). A partition in error waits a little and is left out meanwhile, and so is a throttled one while
the follower's quota is exceeded (KIP-73).
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable
from typing import Any, Final

from kio.schema.errors import ErrorCode
from kio.schema.fetch.v17.request import FetchPartition, FetchRequest, ReplicaState

from cluster_image.config import Config
from cluster_image.network import Address, Connection, Network
from cluster_image.network.tasks import Failed, start_task
from cluster_image.storage.errors import NonContiguousAppend
from cluster_image.storage.records import RecordError
from cluster_image.wire.integers import BrokerId, i32, i64
from cluster_image.wire.messages import milliseconds

from . import rules
from .fetch_session_handler import FetchSessionHandler, Followed
from .quotas import ReplicationQuota
from .replica import PartitionKey, Replica

log = logging.getLogger(__name__)

#: The leader has lost track of the session: everything is said again, at once.
_SESSION_ERRORS: Final = frozenset(
    {
        ErrorCode.fetch_session_id_not_found,
        ErrorCode.invalid_fetch_session_epoch,
        ErrorCode.fetch_session_topic_id_error,
    }
)


#: A throttled partition is looked at again after so many seconds at most: the quota may be another by then.
_LONGEST_HOLD_S: Final = 1.0


def fetcher_of(key: PartitionKey, fetchers: int) -> int:
    """Which of the fetchers from one broker to another has this partition: a topic's partitions take turns."""
    topic_id, index = key
    return (topic_id.int + index) % fetchers


class Fetcher:
    def __init__(
        self,
        config: Config,
        network: Network,
        leader: int,
        address: Callable[[], Address],
        broker_epoch: Callable[[], int],
        quota: ReplicationQuota,
        failed: Failed,
        before_asking: Callable[[], None],
    ) -> None:
        """before_asking: is done before each request, which tells the leader what this broker's logs hold."""
        self.leader = leader
        self._quota = quota
        self._before_asking = before_asking
        self._node_id = BrokerId(config["node.id"])
        self._backoff = config.seconds("replica.fetch.backoff.ms")
        self._max_lag = config.seconds("replica.lag.time.max.ms")
        self._request_timeout = config.seconds("replica.socket.timeout.ms")
        self._connect_timeout = config.seconds("socket.connection.setup.timeout.ms")
        self._same_in_all = {
            "cluster_id": config["cluster.id"],
            "max_wait": milliseconds(config["replica.fetch.wait.max.ms"]),
            "min_bytes": i32(config["replica.fetch.min.bytes"]),
            "max_bytes": i32(config["replica.fetch.response.max.bytes"]),
        }
        self._network = network
        self._address = address
        self._broker_epoch = broker_epoch
        #: Removed while a request is under way: its answer still comes to them.
        self._late: dict[PartitionKey, tuple[Replica, FetchPartition]] = {}
        self._max_bytes: Final[int] = config["replica.fetch.max.bytes"]
        self._session = FetchSessionHandler(self._max_bytes)
        self._changed = asyncio.Event()
        self._connection: Connection | None = None
        #: The request under way was given up to ask anew: nothing failed that is worth a wait.
        self._asks_anew = False
        self._task = start_task(self._run(), failed)

    def add(self, partition: Replica) -> None:
        """Fetch this partition, from its log end offset, in its present leader epoch."""
        if not self._session.followed:
            self._hang_up()  # what it may wait for was asked in an earlier epoch, perhaps of a process that is gone
            self._asks_anew = True
        self._session.add(partition)
        self._changed.set()

    @property
    def replicas(self) -> list[Replica]:
        """What is fetched by it."""
        return [followed.partition for followed in self._session.followed.values()]

    def remove(self, key: PartitionKey) -> None:
        followed = self._session.followed.get(key)
        asked = self._session.remove(key)
        if followed is not None and asked is not None:
            self._late[key] = followed.partition, asked

    def close(self) -> None:
        self._task.cancel()
        self._hang_up()

    def _hang_up(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            if not self._any_to_fetch(loop.time()):
                if not self._session.followed:
                    self._hang_up()
                self._changed.clear()
                try:
                    async with asyncio.timeout(self._pause(loop.time()) if self._session.followed else None):
                        await self._changed.wait()
                except TimeoutError:
                    pass
                continue
            self._late.clear()
            request, self._asks_anew = self._request(loop.time()), False
            try:
                response = await (await self._connected()).request(request, timeout=self._request_timeout)
            except (ConnectionError, TimeoutError):
                self._session.lost()
                if not self._asks_anew:
                    await asyncio.sleep(self._backoff)
                continue
            self._session.answered(response.error_code, int(response.session_id))
            self._apply(response, loop.time())

    def _any_to_fetch(self, now: float) -> bool:
        return self._session.any_to_fetch(now) and (not self._keep_to_quota(now) or self._session.any_to_fetch(now))

    def _keep_to_quota(self, now: float) -> bool:
        """Ask for no more than the quota allows, and delay what is not to be fetched before it does. True: some are
        delayed."""
        quota, any_held = self._quota, False
        if not quota.limited:
            return False
        exceeded, portion = quota.is_exceeded(now), min(quota.portion(now), self._max_bytes)
        until = now + min(quota.wait(now), _LONGEST_HOLD_S)
        for each in self._session.fetched():
            if quota.applies_to(each.partition.key):
                in_isr = self._node_id in each.partition.isr
                keeps_up = each.keeps_up(now, self._max_lag)
                if rules.is_throttled_on_follower(exceeded, in_isr, keeps_up):
                    self._session.delay(each, until)
                    any_held = True
                elif not (in_isr or keeps_up):
                    each.max_bytes = portion
        return any_held

    def _pause(self, now: float) -> float:
        """While all are delayed: seconds until one may be fetched, or it is worth a look."""
        ends = self._session.delay_ends() if self._quota.limited else None
        return self._backoff if ends is None else min(self._backoff, max(0.0, ends - now))

    async def _connected(self) -> Connection:
        if self._connection is None or self._connection.closed:
            self._connection = await self._network.connect(
                self._address(),
                client_id=f"replica-{self._node_id}",
                timeout=self._connect_timeout,
            )
        return self._connection

    def _request(self, now: float) -> FetchRequest:
        self._before_asking()
        session = self._session
        session_id, session_epoch = session.id, session.epoch
        topics, forgotten = session.next_request(now)
        values = self._same_in_all
        if self._quota.limited and (ends := session.delay_ends()) is not None:
            # The leader must not keep this request, for what is not delayed, beyond the time to ask for what is.
            milliseconds_left = max(1, math.ceil((ends - now) * 1000))
            values = {**values, "max_wait": min(values["max_wait"], milliseconds(milliseconds_left))}
        return FetchRequest(
            **values,
            replica_state=ReplicaState(replica_id=self._node_id, replica_epoch=i64(self._broker_epoch())),
            session_id=i32(session_id),
            session_epoch=i32(session_epoch),
            topics=topics,
            forgotten_topics_data=forgotten,
        )

    def _apply(self, response: Any, now: float) -> None:
        delayed_until = now + self._backoff
        if response.error_code is not ErrorCode.none:
            log.info("fetch refused", extra={"leader": self.leader, "error": response.error_code.name})
            if response.error_code not in _SESSION_ERRORS:
                for each in self._session.followed.values():
                    self._session.delay(each, delayed_until)
            return
        for topic in response.responses:
            for data in topic.partitions:
                key = (topic.topic_id, int(data.partition_index))
                followed = self._session.followed.get(key)
                if followed is not None and followed.asked is not None:
                    self._note_quota(followed, data, now)
                    if not self._apply_one(followed.partition, followed.asked, data):
                        self._session.delay(followed, delayed_until)
                elif key in self._late:
                    self._apply_one(*self._late[key], data)

    def _note_quota(self, followed: Followed, data: Any, now: float) -> None:
        partition = followed.partition
        if data.error_code is ErrorCode.none:
            followed.leaders_watermark = int(data.high_watermark)
        if data.records and self._quota.applies_to(partition.key) and self._node_id not in partition.isr:
            self._quota.record(len(data.records), now)

    def _apply_one(self, partition: Replica, asked: FetchPartition, data: Any) -> bool:
        """False: ask for this partition again only after a while."""
        if partition.removed:
            return False
        if data.error_code is ErrorCode.offset_out_of_range:
            start, before = int(data.log_start_offset), data.diverging_epoch
            partition.leader_starts_at(
                int(asked.current_leader_epoch),
                int(asked.fetch_offset),
                start,
                int(before.epoch) if before.end_offset == start else -1,
            )
            return False
        if data.error_code is not ErrorCode.none:
            return False
        diverging = None
        if data.diverging_epoch.end_offset >= 0:
            diverging = (int(data.diverging_epoch.epoch), int(data.diverging_epoch.end_offset))
            log.info(
                "diverged", extra={"partition": str(partition), "end": partition.log.end_offset, "leaders": diverging}
            )
        try:
            partition.apply_fetch(
                int(asked.current_leader_epoch),
                int(asked.fetch_offset),
                data.records or b"",
                int(data.high_watermark),
                diverging,
                int(data.log_start_offset),
            )
        except (RecordError, NonContiguousAppend) as error:
            log.error(
                "records refused", extra={"partition": str(partition), "leader": self.leader, "error": str(error)}
            )
            return False
        return True
