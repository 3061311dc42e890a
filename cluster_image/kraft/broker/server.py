"""A broker process from start to stop (description 8.1 and 8.3)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from random import Random
from uuid import UUID

from cluster_image import wire
from cluster_image.config import Config
from cluster_image.kraft.metadata import snapshot
from cluster_image.kraft.metadata.image import MetadataImage
from cluster_image.kraft.metadata.records import decode
from cluster_image.kraft.raft import RaftClient
from cluster_image.network import Entity, Listening, Network, Peer
from cluster_image.network.authorization import authorized
from cluster_image.network.tasks import Failed
from cluster_image.replication.fetch_session import FetchSession
from cluster_image.replication.log_manager import LogManager
from cluster_image.replication.replica import PartitionKey, Replica
from cluster_image.storage.checkpoints import TopicPartition
from cluster_image.storage.disk import Disk
from cluster_image.storage.errors import StorageError
from cluster_image.storage.log import Log
from cluster_image.telemetry.trace import Trace, no_trace

from .api import BrokerApi
from .channel import ControllerChannel
from .forwarding import Forwarding
from .isr_manager import IsrManager
from .lifecycle import Lifecycle
from .partition import Partition
from .replica_manager import ReplicaManager

log = logging.getLogger(__name__)


class BrokerServer:
    def __init__(
        self,
        config: Config,
        disk: Disk,
        network: Network,
        raft: RaftClient,
        random: Random,
        failed: Failed,
        trace: Trace = no_trace,
        *,
        wall_clock: Callable[[], float],
    ) -> None:
        """wall_clock: seconds since 1970."""
        self._config = config
        self._network = network
        self._raft = raft
        self._image = MetadataImage()
        self._ready = False
        self._replayed = asyncio.Event()
        self._logs = LogManager(config, disk)
        self._random = random
        self._failed = failed
        self._trace = trace
        self._wall_clock = wall_clock
        self._lifecycle: Lifecycle | None = None
        self._api: BrokerApi | None = None
        self._listening: Listening | None = None
        raft.listener = self

    @property
    def partitions(self) -> Mapping[PartitionKey, Partition]:
        return self._replicas.partitions if self._ready else {}

    @property
    def image(self) -> MetadataImage:
        return self._image

    @property
    def broker_epoch(self) -> int:
        """Of this process's registration, -1 before it."""
        return -1 if self._lifecycle is None else self._lifecycle.broker_epoch

    @property
    def previous_epoch(self) -> int:
        """Of the session before, which this process says to have ended in a clean shutdown; -1: it says so of none."""
        return -1 if self._lifecycle is None else self._lifecycle.previous_epoch

    @property
    def lifecycle(self) -> Lifecycle | None:
        """To look at, not to act on. None before start()."""
        return self._lifecycle

    @property
    def acts_on_metadata(self) -> bool:
        """Does it have the replicas that its metadata says? Not before that is as new as its registration."""
        return self._ready

    @property
    def logs(self) -> Mapping[TopicPartition, UUID]:
        """That it has, each of which topic."""
        return self._logs.topics

    @property
    def opened(self) -> Collection[Log]:
        """Of these, all that there are. To look at, not to act on."""
        return self._logs.opened

    @property
    def has_loaded(self) -> bool:
        """Has this process read what its disk holds?"""
        return self._lifecycle is not None

    @property
    def fetch_sessions(self) -> int:
        """How many incremental fetch sessions are kept here (KIP-227)."""
        return 0 if self._api is None else len(self._api.fetch_sessions)

    def fetch_session(self, id: int) -> FetchSession | None:
        """To look at, not to act on."""
        return None if self._api is None else self._api.fetch_sessions.get(id)

    @property
    def replicated(self) -> tuple[int, int]:
        """Bytes that have counted against the quotas of leader and follower since this broker started (KIP-73)."""
        if not self._ready:
            return 0, 0
        quotas = self._replicas.quotas
        return quotas.leader.recorded, quotas.follower.recorded

    @property
    def fetched(self) -> list[tuple[int, Replica]]:
        """From which brokers its replicas are fetched."""
        return self._replicas.fetched if self._ready else []

    @property
    def ready(self) -> bool:
        """Does it act on the metadata?"""
        return self._ready

    def _channel(self, purpose: str, timeout: float | None = None) -> ControllerChannel:
        return ControllerChannel(
            self._network,
            self._raft,
            self._config["controller.quorum.voters"],
            f"broker-{self._config['node.id']}-{purpose}",
            timeout=timeout or self._config.seconds("request.timeout.ms"),
            setup_timeout=self._config.seconds("socket.connection.setup.timeout.ms"),
        )

    async def start(self) -> None:
        """Returns once the controller has unfenced this broker."""
        self._logs.load()
        # A heartbeat that hangs on a dead controller must leave time for one to its successor within the session.
        patience = min(
            self._config.seconds("request.timeout.ms"), self._config.seconds("broker.session.timeout.ms") / 4
        )
        lifecycle = self._lifecycle = Lifecycle(
            self._config,
            self._channel("lifecycle", patience),
            self._random,
            self._logs.previous_epoch,
            lambda: self._image.end_offset - 1,
            self._failed,
        )
        self._isr_manager = IsrManager(
            self._channel("isr"),
            self._config["node.id"],
            lambda: self.broker_epoch,
            lambda: self._replicas.partitions.values(),
            self._failed,
        )
        self._replicas = ReplicaManager(
            self._config,
            self._network,
            self._logs,
            self._image,
            lambda: self.broker_epoch,
            self._isr_manager,
            self._failed,
            self._trace,
            wall_clock=self._wall_clock,
        )
        self._forwarding = Forwarding(lambda: self._channel("forward"), self._config.seconds("request.timeout.ms"))
        self._producer_ids = self._channel("producer-ids")
        api = self._api = BrokerApi(
            self._config,
            self._image,
            self._replicas,
            lifecycle,
            self._forwarding,
            self._producer_ids,
            self._isr_manager.proposals_changed,
            self._random,
        )
        await lifecycle.register()
        while self._image.end_offset <= lifecycle.broker_epoch:
            self._replayed.clear()
            await self._replayed.wait()
        # From here on this broker acts on the metadata: it is no older than its own registration.
        self._ready = True
        self._replicas.delete_strays()
        self._replicas.apply(p_key for p in self._image.partitions() if (p_key := (p.topic_id, p.index)))
        while not self._replicas.all_open:
            await asyncio.sleep(0)
        self._replicas.start()
        self._isr_manager.start()

        async def serve(request: Entity, peer: Peer) -> Entity | None:
            try:
                return await api.handle(request, peer)
            except StorageError as error:
                self._failed(error)  # as the loss of its only log directory ends Kafka's
                raise

        address = self._config.listener("broker")
        self._listening = await self._network.listen(address, authorized(serve), wire.SUPPORTED["broker"])
        lifecycle.run()
        await lifecycle.unfenced.wait()

    # -- what the quorum tells -------------------------------------------------------------------------------

    def on_commit(self, base_offset: int, epoch: int, records: Sequence[bytes]) -> None:
        changed: dict[PartitionKey, None] = {}
        for offset, value in enumerate(records, base_offset):
            changed |= dict.fromkeys(self._image.replay(offset, decode(value)))
        self._replayed.set()
        if self._ready:
            self._replicas.apply(changed)

    def on_snapshot(self, end_offset: int, epoch: int, records: Sequence[bytes]) -> None:
        before = _keys(self._image)
        self._image.become(snapshot.image_of(records, end_offset))
        self._replayed.set()
        if self._ready:
            # What has changed in between is not told; whoever follows the image compares for itself.
            self._replicas.apply(before | _keys(self._image))

    def snapshot(self) -> Sequence[bytes]:
        return snapshot.encoded(self._image)

    def on_leader(self, epoch: int) -> None:
        """Of no concern to a broker, where it shares its process with the controller that leads."""

    def on_resign(self, epoch: int) -> None: ...

    # -- stopping --------------------------------------------------------------------------------------------

    async def shut_down(self) -> None:
        """Controlled shutdown: leaderships first, then every log flushed, then the clean-shutdown file."""
        if self._lifecycle is None:
            return  # a node that is controller as well was told to stop before its broker had begun
        if self._ready and self._config["controlled.shutdown.enable"]:
            await self._lifecycle.shut_down(self._config.seconds("controlled.shutdown.timeout.ms"))
        self._replicas.stop()
        await self._isr_manager.close()
        await self._lifecycle.close()
        assert self._api is not None
        self._api.close()
        self._forwarding.close()
        self._producer_ids.close()
        if self._listening is not None:
            await self._listening.close()
        if self._ready:
            self._replicas.close_cleanly(self._lifecycle.broker_epoch)


def _keys(image: MetadataImage) -> dict[PartitionKey, None]:
    return {(partition.topic_id, partition.index): None for partition in image.partitions()}
