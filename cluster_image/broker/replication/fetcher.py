"""Follower fetching: for each broker that leads partitions which this broker follows, num.replica.fetchers fetchers
(000, 2.2.1), each with its share of the partitions.

A fetcher sends one request at a time with all its partitions, each from its own log end offset, and hands what comes
back to the partitions that it was asked for: whether it still counts there is theirs to say, by one rule
(rules.may_apply_fetch). A partition in error waits a little and is left out meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final

from kio.schema.errors import ErrorCode
from kio.schema.fetch.v17.request import FetchPartition, FetchRequest, ReplicaState

from cluster_image.config import Config
from cluster_image.kraft.metadata.image import PartitionKey
from cluster_image.network import Address, Connection, Network
from cluster_image.storage.errors import NonContiguousAppend
from cluster_image.storage.records import RecordError
from cluster_image.tasks import Failed, start_task
from cluster_image.wire.integers import BrokerId, i32, i64
from cluster_image.wire.messages import milliseconds

from .fetch_session_handler import FetchSessionHandler
from .partition import Partition

log = logging.getLogger(__name__)

#: The leader has lost track of the session: everything is said again, at once.
_SESSION_ERRORS: Final = frozenset(
    {
        ErrorCode.fetch_session_id_not_found,
        ErrorCode.invalid_fetch_session_epoch,
        ErrorCode.fetch_session_topic_id_error,
    }
)


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
        failed: Failed,
    ) -> None:
        self.leader = leader
        self._node_id = BrokerId(config["node.id"])
        self._backoff = config.seconds("replica.fetch.backoff.ms")
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
        self._late: dict[PartitionKey, tuple[Partition, FetchPartition]] = {}
        self._session = FetchSessionHandler(config["replica.fetch.max.bytes"])
        self._changed = asyncio.Event()
        self._connection: Connection | None = None
        self._task = start_task(self._run(), failed)

    def add(self, partition: Partition) -> None:
        """Fetch this partition, from its log end offset, in its present leader epoch."""
        if not self._session.followed:
            self._hang_up()  # what it may wait for was asked in an earlier epoch, perhaps of a process that is gone
        self._session.add(partition)
        self._changed.set()

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
            if not self._session.any_to_fetch(loop.time()):
                if not self._session.followed:
                    self._hang_up()
                self._changed.clear()
                try:
                    async with asyncio.timeout(self._backoff if self._session.followed else None):
                        await self._changed.wait()
                except TimeoutError:
                    pass
                continue
            self._late.clear()
            request = self._request(loop.time())
            try:
                response = await (await self._connected()).request(request, timeout=self._request_timeout)
            except (ConnectionError, TimeoutError):
                self._session.lost()
                await asyncio.sleep(self._backoff)
                continue
            self._session.answered(response.error_code, int(response.session_id))
            self._apply(response, loop.time())

    async def _connected(self) -> Connection:
        if self._connection is None or self._connection.closed:
            self._connection = await self._network.connect(
                self._address(),
                client_id=f"replica-{self._node_id}",
                timeout=self._connect_timeout,
            )
        return self._connection

    def _request(self, now: float) -> FetchRequest:
        session = self._session
        session_id, session_epoch = session.id, session.epoch
        topics, forgotten = session.next_request(now)
        return FetchRequest(
            **self._same_in_all,
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
                    if not self._apply_one(followed.partition, followed.asked, data):
                        self._session.delay(followed, delayed_until)
                elif key in self._late:
                    self._apply_one(*self._late[key], data)

    def _apply_one(self, partition: Partition, asked: FetchPartition, data: Any) -> bool:
        """False: ask for this partition again only after a while."""
        if partition.removed:
            return False
        if data.error_code is ErrorCode.offset_out_of_range:
            partition.leader_starts_at(int(asked.current_leader_epoch), int(data.log_start_offset))
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
