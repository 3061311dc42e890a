"""All replicas of a broker: their logs, their lives (election.py), and the fetchers between them and others."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Final

from kio.schema.errors import ErrorCode

from cluster_image.config import Config
from cluster_image.network import Address, Network
from cluster_image.network.tasks import Failed, start_task
from cluster_image.replication.fetcher import Fetcher, fetcher_of
from cluster_image.replication.log_manager import LogManager
from cluster_image.replication.quotas import ReplicationQuotas
from cluster_image.replication.replica import PartitionKey
from cluster_image.telemetry.trace import Trace, no_trace

from .partition.election import Replicating
from .partition.reassignments import ReassignmentListener
from .partition.replica import Partition
from .state_changes import StateChanges
from .topics import HostedTopics, topic_id
from .zookeeper import ZooKeeper

log = logging.getLogger(__name__)

_LONGEST_SLEEP_S: Final = 3600.0  # event loops take no time that is years away


class Replicas:
    """Implements state_changes.Replicas and election.Fetching."""

    def __init__(
        self,
        config: Config,
        network: Network,
        logs: LogManager,
        zookeeper: ZooKeeper,
        failed: Failed,
        trace: Trace = no_trace,
    ) -> None:
        self._config = config
        self._network = network
        self._logs = logs
        self._zookeeper = zookeeper
        self._failed = failed
        self._trace = trace
        self._me: Final[int] = config["node.id"]
        self._fetchers: dict[tuple[int, int], Fetcher] = {}  # by leader, and number
        self._addresses: dict[int, Address] = {}
        self._flush_wanted = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._replicating: dict[PartitionKey, Replicating] = {}
        self.topics = HostedTopics()
        self.quotas = ReplicationQuotas(self.topics, self._me)
        self.state_changes = StateChanges(zookeeper, config, trace)
        self.reassignments = ReassignmentListener(
            zookeeper, self.state_changes, self._me, config, self.led, self._end_term
        )

    def start(self) -> None:
        interval = self._config.seconds("replica.high.watermark.checkpoint.interval.ms")
        self._tasks += (
            start_task(self._checkpoint_now_and_then(interval), self._failed),
            start_task(self._flush_timed(), self._failed),
            start_task(self.reassignments.run(), self._failed),
        )

    @property
    def partitions(self) -> Mapping[PartitionKey, Partition]:
        return {key: each.partition for key, each in self._replicating.items()}

    def get(self, key: PartitionKey) -> Partition | None:
        found = self._replicating.get(key)
        return None if found is None else found.partition

    def led(self) -> Iterator[Partition]:
        """Those that clients are served of here."""
        return (each.partition for each in self._replicating.values() if each.partition.serves_clients)

    async def _end_term(self, partition: Partition) -> None:
        found = self._replicating.get(partition.key)
        if found is not None:
            await found.end_term()

    def look_again(self) -> None:
        """In a new session nothing is watched, and nothing is led."""
        for each in self._replicating.values():
            each.look_again()
        self.reassignments.look_again()

    # -- replicas ---------------------------------------------------------------------------------------------

    def hosts(self, topic: str, partition: int) -> bool:
        """Has this broker a replica, or the log of one that it has not started?"""
        started = (topic_id(topic), partition) in self._replicating
        return started or self._logs.topics.get((topic, partition)) is not None

    def start_replica(self, topic: str, partition: int) -> None:
        """001, startReplica: recover its log, if it is not here yet, and follow who leads the partition, or lead it."""
        key = (topic_id(topic), partition)
        if key in self._replicating:
            self._replicating[key].look_again()
            return
        opened = self._logs.get(topic, key[0], partition, self._config)
        self._flush_wanted.set()
        if opened.is_untouched:
            self._logs.announce((topic, partition))
        replica = Partition(key, topic, opened, self._config, self._me, self._trace)
        replica.restore_high_watermark(self._logs.high_watermarks.get((topic, partition), 0))
        self.topics.add(topic, partition)
        self._replicating[key] = Replicating(
            replica,
            self._zookeeper,
            self.state_changes,
            self,
            self._me,
            self._config,
            lambda _: self.reassignments.look_again(),
            self._failed,
        )

    async def close_replica(self, topic: str, partition: int) -> None:
        """001, closeReplica: stop it, and delete its log. At start-up there may be the log alone: without its end a new
        topic of that name would begin with the records of the old one."""
        key = (topic_id(topic), partition)
        closing = self._replicating.pop(key, None)
        if closing is not None:
            self.topics.remove(topic, partition)
            await closing.close(ErrorCode.unknown_topic_or_partition)
        if key not in self._replicating and self._logs.topics.get((topic, partition)) is not None:
            self._logs.delete([(topic, partition)], self._high_watermarks())
        log.info("replica closed", extra={"partition": f"{topic}-{partition}"})

    def delete_strays(self) -> None:
        """Logs of partitions that have gone to others, or are gone."""
        strays = self._logs.strays(lambda topic, index: (topic, index) in self._replicating)
        if strays:
            log.warning("stray logs", extra={"logs": [f"{topic}-{index}" for topic, index in strays]})
            self._logs.delete(list(strays), self._high_watermarks())

    # -- fetching ---------------------------------------------------------------------------------------------

    def fetch(self, partition: Partition, leader: int, address: Address) -> None:
        self._addresses[leader] = address
        number = fetcher_of(partition.key, self._config["num.replica.fetchers"])
        if (leader, number) not in self._fetchers:
            self._fetchers[leader, number] = Fetcher(
                self._config,
                self._network,
                leader,
                lambda: self._addresses[leader],
                lambda: -1,
                self.quotas.follower,
                self._failed,
                self._logs.note_starts,
            )
        self._fetchers[leader, number].add(partition)

    def stop(self, partition: Partition) -> None:
        for fetcher in self._fetchers.values():
            fetcher.remove(partition.key)

    # -- timers and the end -----------------------------------------------------------------------------------

    async def _checkpoint_now_and_then(self, interval: float) -> None:
        """001's HW checkpoint threads, of all replicas at once."""
        while True:
            await asyncio.sleep(interval)
            self._logs.checkpoint(self._high_watermarks())

    def _high_watermarks(self) -> dict[tuple[str, int], int]:
        current = {
            (each.partition.topic, each.partition.index): each.partition.high_watermark
            for each in self._replicating.values()
            if each.partition.is_checkpointed
        }
        self._logs.high_watermarks |= current
        return dict(self._logs.high_watermarks)

    async def _flush_timed(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            self._flush_wanted.clear()
            due = self._logs.flush_timed(loop.time())
            with suppress(TimeoutError):
                async with asyncio.timeout_at(None if due is None else min(due, loop.time() + _LONGEST_SLEEP_S)):
                    await self._flush_wanted.wait()

    def shut_down(self) -> None:
        for task in self._tasks:
            task.cancel()
        for each in self._replicating.values():
            each.stop()
        for fetcher in self._fetchers.values():
            fetcher.close()

    def close_cleanly(self) -> None:
        self._logs.close(self._high_watermarks(), -1)
