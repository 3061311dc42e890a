"""All partitions of a broker: follows the metadata, runs fetchers and timers, answers who is eligible for an ISR."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from itertools import islice
from uuid import UUID

from kio.schema.errors import ErrorCode

from cluster_image.config import Config
from cluster_image.kraft.metadata import rules
from cluster_image.kraft.metadata.image import MetadataImage, PartitionRegistration, Topic
from cluster_image.network import Network
from cluster_image.network.tasks import Failed, start_task
from cluster_image.replication.fetcher import Fetcher, fetcher_of
from cluster_image.replication.log_manager import LogManager
from cluster_image.replication.quotas import ReplicationQuotas
from cluster_image.replication.replica import PartitionKey, Replica
from cluster_image.replication.retention import Retention
from cluster_image.storage.checkpoints import TopicPartition
from cluster_image.telemetry.trace import Trace, no_trace

from .isr_manager import IsrManager
from .partition import Partition

log = logging.getLogger(__name__)

#: New replicas that are taken in at once: a millisecond or two.
OPENED_AT_ONCE = 8
#: Logs that are deleted at once, some milliseconds each.
DELETED_AT_ONCE = 2
#: After which, for so many seconds, all else has its turn. (At start-up nobody waits for anything else.)
PAUSE_S = 0.004
#: New logs whose directories are made when they are: further ones get theirs at this interval, in seconds, each.
ANNOUNCED_AT_ONCE = 64
ANNOUNCE_EVERY_S = 0.05
_LONGEST_SLEEP_S = 3600.0  # event loops take no time that is years away


class ReplicaManager:
    """image: the broker's own, replaced in place as the metadata log is replayed. wall_clock: seconds since 1970, for
    the age of records."""

    def __init__(
        self,
        config: Config,
        network: Network,
        logs: LogManager,
        image: MetadataImage,
        broker_epoch: Callable[[], int],
        isr_manager: IsrManager,
        failed: Failed,
        trace: Trace = no_trace,
        *,
        wall_clock: Callable[[], float],
    ) -> None:
        self._config = config
        self._network = network
        self._logs = logs
        self._image = image
        self._broker_epoch = broker_epoch
        self._isr_manager = isr_manager
        self._failed = failed
        self._trace = trace
        self._me = config["node.id"]
        self._fetchers: dict[tuple[int, int], Fetcher] = {}  # by leader, and number
        self._flush_wanted = asyncio.Event()  # by a log that is new
        self._tasks: list[asyncio.Task[None]] = []
        self._retention = Retention(lambda: self.partitions.values(), wall_clock, failed)
        self._stopped = False
        self._to_open: dict[PartitionKey, None] = {}
        self._configs: dict[UUID, tuple[Mapping[str, str], Config]] = {}  # by topic, and of which settings
        self._to_delete: dict[TopicPartition, UUID] = {}
        self._to_announce: dict[TopicPartition, None] = {}
        self._announce_at_once = ANNOUNCED_AT_ONCE
        self._resting = False  # from opening and deleting
        self._pause_s = 0.0
        self.partitions: dict[PartitionKey, Partition] = {}
        self.quotas = ReplicationQuotas(image, self._me)

    def start(self) -> None:
        self._pause_s = PAUSE_S
        lag = self._config.seconds("replica.lag.time.max.ms")
        checkpoint = self._config.seconds("replica.high.watermark.checkpoint.interval.ms")
        for action, interval in (
            (self._shrink_isrs, lag / 2),
            (self._checkpoint, checkpoint),
            (self._announce_next, ANNOUNCE_EVERY_S),
        ):
            self._tasks.append(start_task(_every(interval, action), self._failed))
        self._tasks.append(start_task(self._flush_timed(), self._failed))

    def get(self, key: PartitionKey) -> Partition | None:
        return self.partitions.get(key)

    # -- metadata ---------------------------------------------------------------------------------------------

    def apply(self, changed: Iterable[PartitionKey]) -> None:
        """Act on what has become of these partitions (000, 2.3.2). Not after stop(): a log that is closed, or new, must
        not get what the clean-shutdown file knows nothing of."""
        if self._stopped:
            return
        now = asyncio.get_running_loop().time()
        present: list[PartitionKey] = []
        removed: list[PartitionKey] = []
        never_opened = False
        for key in changed:
            if self._is_replica(*key):
                present.append(key)
            elif key in self.partitions:
                removed.append(key)
            elif key in self._to_open:
                del self._to_open[key]
                never_opened = True
        if removed:
            self._remove(removed)  # first: a new topic may have the name of one that is gone
        if never_opened:
            self._to_delete |= self._logs.strays(self._is_replica)  # their logs, if they had some from before
        for key in present:
            if key in self.partitions:
                self._apply(key, now)
            else:
                self._to_open[key] = None
        self._open_and_delete_some()

    def _open_and_delete_some(self) -> None:
        """Of replicas that are new, OPENED_AT_ONCE, and logs of DELETED_AT_ONCE that are gone: they are files, and
        there may be thousands. The others follow little by little. Until then those that are new are not here; what is
        left when this broker stops, the next start takes for strays."""
        if self._stopped or self._resting:
            return
        gone = list(islice(self._to_delete, DELETED_AT_ONCE))
        self._delete({key: self._to_delete.pop(key) for key in gone})
        loop = asyncio.get_running_loop()
        for key in list(islice(self._to_open, OPENED_AT_ONCE)):
            del self._to_open[key]
            if key not in self.partitions and self._is_replica(*key):
                self._apply(key, loop.time())
        if self._to_open or self._to_delete:
            self._resting = True
            # All timers that are due have their turn before anything else, and this takes longer than others rest.
            loop.call_later(self._pause_s, loop.call_soon, self._rested)

    def _rested(self) -> None:
        self._resting = False
        self._open_and_delete_some()

    @property
    def all_open(self) -> bool:
        """Is every replica here that the metadata says is here?"""
        return not self._to_open

    def _apply(self, key: PartitionKey, now: float) -> None:
        registration = self._image.partition(*key)
        assert registration is not None
        partition = self.partitions.get(key)
        if partition is None:
            partition = self.partitions[key] = self._open(registration)
        else:
            self._configure(partition)
        before = (partition.leader, partition.leader_epoch)
        partition.apply(registration, now)
        if before != (partition.leader, partition.leader_epoch):
            self._move(partition)
            log.info(
                "role",
                extra={
                    "partition": str(partition),
                    "leader": partition.leader,
                    "leader_epoch": partition.leader_epoch,
                    "end": partition.log.end_offset,
                    "high_watermark": partition.high_watermark,
                },
            )

    def _is_replica(self, topic_id: UUID, index: int) -> bool:
        registration = self._image.partition(topic_id, index)
        return registration is not None and self._me in registration.replicas

    def _open(self, registration: PartitionRegistration) -> Partition:
        topic = self._image.topics_by_id[registration.topic_id]
        config = self._config_of(topic)
        name = (topic.name, registration.index)
        if name in self._to_delete:  # it was removed, and is added again: with nothing
            self._delete({name: self._to_delete.pop(name)})
        partition_log = self._logs.get(topic.name, topic.id, registration.index, config)
        self._flush_wanted.set()
        if partition_log.is_untouched:
            self._announce(name)
        partition = Partition(registration, partition_log, config, self._me, self._trace)
        partition.lives = self._lives
        partition.restore_high_watermark(self._logs.high_watermarks.get(name, 0))
        self._retention.wanted(config)
        return partition

    def _announce(self, name: TopicPartition) -> None:
        if self._announce_at_once:
            self._announce_at_once -= 1
            self._logs.announce(name)
        else:
            self._to_announce[name] = None

    def _announce_next(self) -> None:
        if self._to_announce:
            name = next(iter(self._to_announce))
            del self._to_announce[name]
            self._logs.announce(name)
        else:
            self._announce_at_once = min(self._announce_at_once + 1, ANNOUNCED_AT_ONCE)

    def _config_of(self, topic: Topic) -> Config:
        """Read once for all partitions of the topic, and again when its settings have changed."""
        settings, config = self._configs.get(topic.id, (None, self._config))
        if settings is not topic.settings:
            config = self._config.for_topic(topic.settings)
            self._configs[topic.id] = (topic.settings, config)
        return config

    def _configure(self, partition: Partition) -> None:
        """As its topic's settings are now."""
        config = self._config_of(self._image.topics_by_id[partition.key[0]])
        if config is not partition.config:
            self._logs.get(partition.topic, partition.key[0], partition.index, config)
            self._flush_wanted.set()
            partition.configure(config)
            self._retention.wanted(config)

    def delete_strays(self) -> None:
        """Before the first apply(): what this broker has missed while it was down."""
        strays = self._logs.strays(self._is_replica)
        if strays:
            log.warning("stray logs", extra={"logs": [f"{topic}-{index}" for topic, index in strays]})
        self._delete(strays)

    def _remove(self, keys: Iterable[PartitionKey]) -> None:
        """These partitions are no longer here: nobody is served from them any more, and their logs go."""
        gone = [self.partitions.pop(key) for key in keys]
        for partition in gone:
            for fetcher in self._fetchers.values():
                fetcher.remove(partition.key)
            exists = self._image.partition(*partition.key) is not None
            partition.remove(ErrorCode.not_leader_or_follower if exists else ErrorCode.unknown_topic_or_partition)
            log.info("replica removed", extra={"partition": str(partition), "topic_exists": exists})
        for topic in {p.key[0] for p in gone} - self._image.topics_by_id.keys():
            self._configs.pop(topic, None)
        self._to_delete |= {(p.topic, p.index): p.key[0] for p in gone}

    def _delete(self, gone: Mapping[TopicPartition, UUID]) -> None:
        """Those of them that still are of the topic that was meant: another of its name may be here by now."""
        for key in gone:
            self._to_announce.pop(key, None)
        meant = [key for key, topic_id in gone.items() if self._logs.topics.get(key) == topic_id]
        if meant:
            self._logs.delete(meant, self._high_watermarks())

    def _move(self, partition: Partition) -> None:
        """To the fetcher of its present leader (000, 2.2.3)."""
        for fetcher in self._fetchers.values():
            fetcher.remove(partition.key)
        if partition.is_leader or partition.leader < 0:
            return
        leader = partition.leader
        number = fetcher_of(partition.key, self._config["num.replica.fetchers"])
        if (leader, number) not in self._fetchers:
            self._fetchers[leader, number] = Fetcher(
                self._config,
                self._network,
                leader,
                lambda: self._image.brokers[leader].address,
                self._broker_epoch,
                self.quotas.follower,
                self._failed,
                self._logs.note_starts,
            )
        self._fetchers[leader, number].add(partition)

    @property
    def fetched(self) -> list[tuple[int, Replica]]:
        """Leader and replica, each as often as it is fetched."""
        return [(leader, each) for (leader, _), fetcher in self._fetchers.items() for each in fetcher.replicas]

    def is_eligible(self, replica: int, broker_epoch: int) -> bool:
        """As far as this broker's metadata tells; the controller decides (KIP-841, KIP-903)."""
        return rules.may_be_in_isr(broker_epoch, self._image.brokers.get(replica))

    def _lives(self, broker: int) -> bool:
        known = self._image.brokers.get(broker)
        return known is not None and not known.fenced

    # -- timers -----------------------------------------------------------------------------------------------

    def _shrink_isrs(self) -> None:
        now = asyncio.get_running_loop().time()
        for partition in self.partitions.values():
            partition.consider_shrinking(now, self.is_eligible)
            partition.consider_deleted()
        self._isr_manager.proposals_changed()

    def _checkpoint(self) -> None:
        self._logs.checkpoint(self._high_watermarks())

    async def _flush_timed(self) -> None:
        """As often as the logs' settings demand."""
        loop = asyncio.get_running_loop()
        while True:
            self._flush_wanted.clear()
            due = self._logs.flush_timed(loop.time())
            with suppress(TimeoutError):
                async with asyncio.timeout_at(None if due is None else min(due, loop.time() + _LONGEST_SLEEP_S)):
                    await self._flush_wanted.wait()

    def _high_watermarks(self) -> dict[tuple[str, int], int]:
        # Logs whose partition the metadata has not brought yet keep their old checkpoint.
        current = {(p.topic, p.index): p.high_watermark for p in self.partitions.values()}
        return {**self._logs.high_watermarks, **current}

    def stop(self) -> None:
        self._stopped = True
        self._retention.stop()
        for task in self._tasks:
            task.cancel()
        for fetcher in self._fetchers.values():
            fetcher.close()

    def close_cleanly(self, broker_epoch: int) -> None:
        """After stop(): everything durable, and the clean-shutdown file that says so."""
        for partition in self.partitions.values():
            partition.close()
        self._logs.close(self._high_watermarks(), broker_epoch)


async def _every(interval: float, action: Callable[[], None]) -> None:
    while True:
        await asyncio.sleep(interval)
        action()
