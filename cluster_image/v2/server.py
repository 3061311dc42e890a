"""A broker process from start to stop (001, "Broker startup")."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress
from random import Random
from uuid import UUID

from cluster_image.config import Config
from cluster_image.network import Entity, Listening, Network, Peer
from cluster_image.network.authorization import authorized
from cluster_image.network.tasks import Failed, start_task
from cluster_image.replication.log_manager import LogManager
from cluster_image.replication.replica import PartitionKey
from cluster_image.storage.checkpoints import TopicPartition
from cluster_image.storage.disk import Disk
from cluster_image.storage.errors import StorageError
from cluster_image.telemetry.trace import Trace, no_trace

from .administration.admin import Admin
from .api import SERVED, BrokerApi
from .metadata import paths, reading
from .metadata.paths import Registered
from .metadata.view import View
from .partition.replica import Partition
from .replicas import Replicas
from .state_changes import StateChangeListener
from .topics import topic_id
from .zookeeper import Event, NodeExists, SessionState, ZooKeeper
from .zookeeper.retrying import RetryingZooKeeper

log = logging.getLogger(__name__)


class BrokerServer:
    """zookeeper: a client that is not started."""

    def __init__(
        self,
        config: Config,
        disk: Disk,
        network: Network,
        zookeeper: ZooKeeper,
        random: Random,
        failed: Failed,
        trace: Trace = no_trace,
    ) -> None:
        self._config = config
        self._network = network
        self._random = random
        self._failed = failed
        self.id: int = config["node.id"]
        self._zookeeper = RetryingZooKeeper(zookeeper)
        self._logs = LogManager(config, disk)
        self._replicas = Replicas(config, network, self._logs, self._zookeeper, failed, trace)
        self._listener = StateChangeListener(
            self._zookeeper, self.id, self._replicas.state_changes.queue(self.id), self._replicas, config, trace
        )
        self._listening: Listening | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._new_session = asyncio.Event()
        self.loaded = False  # what its disk holds
        self.ready = False
        self.stops = False

    @property
    def looks_at_idle(self) -> bool:
        """Do leaders here look at partitions that nothing is produced to?"""
        return bool(self._config["v2.idle.checks"])

    @property
    def ends_terms(self) -> bool:
        """Where a reassignment is given up: `rules.ends_term`."""
        return bool(self._config["v2.close.isr"])

    @property
    def checks_isr_version(self) -> bool:
        """Do leaders here write no ISR over what another has written?"""
        return bool(self._config["v2.isr.versioned"])

    @property
    def keep_in_sync(self) -> float:
        """001, KeepInSyncTime, in seconds."""
        return self._config.seconds("replica.lag.time.max.ms")

    @property
    def logs(self) -> Mapping[TopicPartition, UUID]:
        """That it has, each of which topic."""
        return self._logs.topics

    @property
    def partitions(self) -> Mapping[PartitionKey, Partition]:
        return self._replicas.partitions

    def replica(self, topic: str, index: int) -> Partition | None:
        return self._replicas.get((topic_id(topic), index))

    @property
    def backlog(self) -> int:
        """State changes that this broker is asked for and has not come to."""
        return self._listener.backlog

    @property
    def is_connected(self) -> bool:
        return self._zookeeper.state is SessionState.CONNECTED

    async def start(self) -> None:
        """001, brokerStartup. Returns once this broker is registered."""
        self._logs.load()
        self.loaded = True
        await self._zookeeper.start()
        for path in paths.PARENTS:
            with suppress(NodeExists):
                await self._zookeeper.create(path)
        await self._listener.drain()
        for topic, index in await self._assigned():
            self._replicas.start_replica(topic, index)
        self._replicas.delete_strays()
        self._replicas.start()
        self._zookeeper.add_listener(self._hear)
        self._tasks.append(start_task(self._listener.run(), self._failed))
        view = View(self._zookeeper)
        admin = Admin(self._zookeeper, self._replicas.state_changes, self._config)
        api = BrokerApi(self._config, self._replicas, view, admin, self._random)

        async def serve(request: Entity, peer: Peer) -> Entity | None:
            try:
                return await api.handle(request, peer)
            except StorageError as error:
                self._failed(error)
                raise

        self._listening = await self._network.listen(self._config.listener("broker"), authorized(serve), SERVED)
        await self._register()
        self._tasks.append(start_task(self._register_again(), self._failed))
        self.ready = True
        log.info("started")

    async def _assigned(self) -> list[tuple[str, int]]:
        """AR: where this broker has a replica, or is about to."""
        zookeeper = self._zookeeper
        found = []
        for topic in await reading.children(zookeeper, paths.TOPICS):
            for index in paths.numbers(await reading.children(zookeeper, paths.topic(topic))):
                if self.id in await reading.replicas_to_start(zookeeper, topic, index):
                    found.append((topic, index))
        return found

    async def _register(self) -> None:
        """Its node may still be that of an earlier session, of this process or one before: it goes with that."""
        own = Registered(self._config.listener("broker"), self._config["broker.rack"])
        path = paths.broker(self.id)
        while True:
            gone = asyncio.Event()

            def hear(event: Event, gone: asyncio.Event = gone) -> None:
                gone.set()

            try:
                await self._zookeeper.create(path, own.encode(), ephemeral=True)
                log.info("registered", extra={"session": self._zookeeper.session})
                return
            except NodeExists:
                found = await self._zookeeper.exists(path, hear)
                if found is not None and found.owner == self._zookeeper.session:
                    return
                if found is not None:
                    await gone.wait()

    # -- sessions ---------------------------------------------------------------------------------------------

    def _hear(self, state: SessionState) -> None:
        if state is SessionState.EXPIRED:
            self._new_session.set()

    async def _register_again(self) -> None:
        """001 registers a session expiration listener and does not say what it does: the broker registers itself anew,
        and looks anew at who leads what it has a replica of. Until then it goes on as if nothing had happened."""
        while True:
            await self._new_session.wait()
            self._new_session.clear()
            log.warning("session expired")
            await self._register()
            self._replicas.look_again()

    # -- stopping ---------------------------------------------------------------------------------------------

    async def shut_down(self) -> None:
        """Its session ends first, so that others lead at once; then every log is flushed."""
        self.stops = True
        for task in self._tasks:
            task.cancel()
        self._replicas.shut_down()
        await self._zookeeper.close()
        if self._listening is not None:
            await self._listening.close()
        if self.ready:
            self._replicas.close_cleanly()
