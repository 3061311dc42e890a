"""Follower fetching: one fetcher for each broker that leads partitions which this broker follows (000, 2.2).

A fetcher sends one request at a time with all its partitions, each from its own log end offset, and hands what comes
back to the partitions that it was asked for: whether it still counts there is theirs to say, by one rule
(rules.may_apply_fetch). A partition in error waits a little and is left out meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any

from kio.schema.errors import ErrorCode
from kio.schema.fetch.v17.request import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from kio.schema.types import BrokerId

from ..config import Config
from ..integers import i32, i64
from ..messages import milliseconds
from ..metadata.image import PartitionKey
from ..network import Address, Connection, Network
from ..records import RecordError
from ..storage.errors import NonContiguousAppend
from ..tasks import Failed, start_task
from .partition import Partition

log = logging.getLogger(__name__)


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
        self._config = config
        self._network = network
        self._address = address
        self._broker_epoch = broker_epoch
        self._partitions: dict[PartitionKey, Partition] = {}
        self._delayed_until: dict[PartitionKey, float] = {}
        self._changed = asyncio.Event()
        self._connection: Connection | None = None
        self._task = start_task(self._run(), failed)

    def add(self, partition: Partition) -> None:
        """Fetch this partition, from its log end offset, in its present leader epoch."""
        if not self._partitions:
            self._hang_up()  # what it may wait for was asked in an earlier epoch, perhaps of a process that is gone
        self._partitions[partition.key] = partition
        self._delayed_until.pop(partition.key, None)
        self._changed.set()

    def remove(self, key: PartitionKey) -> None:
        self._partitions.pop(key, None)
        self._delayed_until.pop(key, None)

    def close(self) -> None:
        self._task.cancel()
        self._hang_up()

    def _hang_up(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    async def _run(self) -> None:
        backoff = self._config.seconds("replica.fetch.backoff.ms")
        while True:
            asked = self._due()
            if not asked:
                if not self._partitions:
                    self._hang_up()
                self._changed.clear()
                try:
                    async with asyncio.timeout(backoff if self._partitions else None):
                        await self._changed.wait()
                except TimeoutError:
                    pass
                continue
            request = self._request(asked)
            try:
                response = await (await self._connected()).request(
                    request, timeout=self._config.seconds("replica.socket.timeout.ms")
                )
            except (ConnectionError, TimeoutError):
                await asyncio.sleep(backoff)
                continue
            self._apply(request, {p.key: p for p in asked}, response)

    async def _connected(self) -> Connection:
        if self._connection is None or self._connection.closed:
            self._connection = await self._network.connect(
                self._address(),
                client_id=f"replica-{self._config['node.id']}",
                timeout=self._config.seconds("replica.socket.timeout.ms"),
            )
        return self._connection

    def _due(self) -> list[Partition]:
        now = asyncio.get_running_loop().time()
        return [p for key, p in self._partitions.items() if self._delayed_until.get(key, now) <= now]

    def _request(self, partitions: list[Partition]) -> FetchRequest:
        topics: dict[Any, list[FetchPartition]] = {}
        max_bytes = self._config["replica.fetch.max.bytes"]
        for p in partitions:
            topics.setdefault(p.key[0], []).append(
                FetchPartition(
                    partition=i32(p.index),
                    current_leader_epoch=i32(p.leader_epoch),
                    fetch_offset=i64(p.log.end_offset),
                    last_fetched_epoch=i32(p.last_fetched_epoch),
                    log_start_offset=i64(p.log.start_offset),
                    partition_max_bytes=i32(max_bytes),
                )
            )
        return FetchRequest(
            cluster_id=self._config["cluster.id"],
            replica_state=ReplicaState(
                replica_id=BrokerId(self._config["node.id"]), replica_epoch=i64(self._broker_epoch())
            ),
            max_wait=milliseconds(self._config["replica.fetch.wait.max.ms"]),
            min_bytes=i32(self._config["replica.fetch.min.bytes"]),
            max_bytes=i32(self._config["replica.fetch.response.max.bytes"]),
            topics=tuple(FetchTopic(topic_id=t, partitions=tuple(ps)) for t, ps in topics.items()),
            forgotten_topics_data=(),
        )

    def _apply(self, request: FetchRequest, partitions: Mapping[PartitionKey, Partition], response: Any) -> None:
        asked = {(t.topic_id, int(p.partition)): p for t in request.topics for p in t.partitions if t.topic_id}
        now = asyncio.get_running_loop().time()
        backoff = self._config.seconds("replica.fetch.backoff.ms")
        if response.error_code is not ErrorCode.none:
            log.warning("fetch refused", extra={"leader": self.leader, "error": response.error_code.name})
            self._delayed_until.update(dict.fromkeys(asked, now + backoff))
            return
        for topic in response.responses:
            for data in topic.partitions:
                key = (topic.topic_id, int(data.partition_index))
                partition = partitions.get(key)
                if partition is not None and not self._apply_one(partition, asked[key], data):
                    self._delayed_until[key] = now + backoff

    def _apply_one(self, partition: Partition, asked: FetchPartition, data: Any) -> bool:
        """False: ask for this partition again only after a while."""
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
            )
        except (RecordError, NonContiguousAppend) as error:
            log.error(
                "records refused", extra={"partition": str(partition), "leader": self.leader, "error": str(error)}
            )
            return False
        return True
