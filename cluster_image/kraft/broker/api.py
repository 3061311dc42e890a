"""A broker's requests: what each API is answered with. Produce and Fetch have modules of their own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any, Final

from kio.schema.allocate_producer_ids.v0.request import AllocateProducerIdsRequest
from kio.schema.errors import ErrorCode
from kio.schema.types import ProducerId

from cluster_image.config import Config
from cluster_image.kraft.metadata.image import MetadataImage
from cluster_image.network import Entity, Peer
from cluster_image.replication.answers.describe import describe_cluster, describe_topic_partitions, find_coordinator
from cluster_image.replication.answers.describe_log_dirs import describe_log_dirs
from cluster_image.replication.answers.metadata import MetadataHandler
from cluster_image.replication.fetch import FetchHandler
from cluster_image.replication.fetch_session import FetchSessionCache
from cluster_image.replication.offsets import OffsetsHandler
from cluster_image.replication.produce import ProduceHandler
from cluster_image.replication.served import Refused
from cluster_image.wire.integers import BrokerId, i16, i64
from cluster_image.wire.messages import NO_THROTTLE, make, response_module

from .channel import ControllerChannel
from .forwarding import Forwarding
from .handlers.auto_creation import AutoCreation
from .handlers.delete_records import delete_records
from .handlers.describe_configs import describe_configs
from .handlers.describe_quorum import describe_quorum
from .handlers.replica_log_info import replica_log_info
from .lifecycle import Lifecycle
from .partition import Partition
from .replica_manager import ReplicaManager

#: What administrators ask any broker for, and only the active controller can do.
_FOR_THE_CONTROLLER: Final = frozenset(
    {
        "CreateTopicsRequest",
        "CreatePartitionsRequest",
        "DeleteTopicsRequest",
        "ElectLeadersRequest",
        "IncrementalAlterConfigsRequest",
        "AlterPartitionReassignmentsRequest",
        "ListPartitionReassignmentsRequest",
        "UnregisterBrokerRequest",
    }
)


class BrokerApi:
    def __init__(
        self,
        config: Config,
        image: MetadataImage,
        replicas: ReplicaManager,
        lifecycle: Lifecycle,
        forwarding: Forwarding,
        producer_ids: ControllerChannel,
        isr_changed: Callable[[], None],
        random: Random,
    ) -> None:
        self._config = config
        self._image = image
        self._replicas = replicas
        self._lifecycle = lifecycle
        self._forwarding = forwarding
        self._controller_for_ids = producer_ids
        self._random = random
        self._allocating = asyncio.Lock()
        self._producer_ids = iter(range(0))
        self._produce = ProduceHandler(image, self._find)
        self._offsets = OffsetsHandler(self._find_by_name, lifecycle.holds_lease)
        self._auto_creation = AutoCreation(forwarding)
        auto_creation = self._auto_creation if config["auto.create.topics.enable"] else None
        self._metadata = MetadataHandler(config, image, self._some_broker, auto_creation)
        self._fetch = FetchHandler(
            config, image, self._find, replicas.is_eligible, isr_changed, replicas.quotas.leader, random
        )

    def close(self) -> None:
        self._auto_creation.close()

    @property
    def fetch_sessions(self) -> FetchSessionCache:
        """To look at, not to act on."""
        return self._fetch.sessions

    async def handle(self, request: Any, peer: Peer) -> Entity | None:
        match type(request).__name__:
            case "ProduceRequest":
                return await self._produce.handle(request, peer.aside, peer.only_waits)
            case "FetchRequest":
                return await self._fetch.handle(request, peer.room)
            case "ListOffsetsRequest":
                return await self._offsets.list_offsets(request, peer.aside)
            case "DeleteRecordsRequest":
                return await delete_records(request, self._find_by_name, peer.only_waits)
            case "MetadataRequest":
                return await self._metadata.handle(request)
            case "InitProducerIdRequest":
                return await self._init_producer_id(request)
            case "FindCoordinatorRequest":
                return await find_coordinator(request)
            case "DescribeConfigsRequest":
                return describe_configs(self._image, self._config, request)
            case "DescribeLogDirsRequest":
                return await describe_log_dirs(self._config["log.dirs"], self._replicas.partitions, request)
            case "DescribeClusterRequest":
                return describe_cluster(self._image, self._config["cluster.id"], self._some_broker(), request)
            case name if name in _FOR_THE_CONTROLLER:
                return await self._forwarding.pass_on(request, peer.aside, peer.host)
            case "OffsetForLeaderEpochRequest":
                return await self._offsets.offset_for_leader_epoch(request)
            case "DescribeTopicPartitionsRequest":
                return await describe_topic_partitions(self._image, request)
            case "DescribeQuorumRequest":
                return await describe_quorum(request, partial(self._forwarding.request, host=peer.host))
            case "GetReplicaLogInfoRequest":
                return replica_log_info(self._image, self._replicas.get, self._lifecycle.broker_epoch, request)
            case name:
                raise ConnectionError(f"{name} is not for a broker")

    def _find(self, topic_id: Any, index: int) -> Partition | None:
        return self._replicas.get((topic_id, index))

    def _find_by_name(self, topic: str, index: int) -> Partition:
        """Raises Refused: there is none, or others have it."""
        known = self._image.topics.get(topic)
        partition = self._find(known.id, index) if known is not None else None
        if partition is None:
            exists = known is not None and index in known.partitions
            raise Refused(ErrorCode.not_leader_or_follower if exists else ErrorCode.unknown_topic_or_partition)
        return partition

    def _some_broker(self) -> int:
        """Who passes for the controller: as with KRaft any broker, which passes on what is for the controller. -1 if
        none is available."""
        available = [b.id for b in self._image.brokers.values() if not b.fenced]
        return self._random.choice(available) if available else -1

    # -- through the controller -------------------------------------------------------------------------------

    async def _init_producer_id(self, request: Any) -> Entity:
        module = response_module(request)
        error, producer_id = ErrorCode.none, -1
        if request.transactional_id is not None:
            error = ErrorCode.transactional_id_authorization_failed  # there are no transactions here
        else:
            try:
                producer_id = await self._next_producer_id()
            except (ConnectionError, TimeoutError):
                error = ErrorCode.coordinator_load_in_progress  # clients try again
        return make(
            module.InitProducerIdResponse,
            throttle_time=NO_THROTTLE,
            error_code=error,
            producer_id=ProducerId(producer_id),
            producer_epoch=i16(0 if producer_id >= 0 else -1),
        )

    async def _next_producer_id(self) -> int:
        async with self._allocating:
            for producer_id in self._producer_ids:
                return producer_id
            answer = await self._controller_for_ids.request(
                AllocateProducerIdsRequest(
                    broker_id=BrokerId(self._config["node.id"]), broker_epoch=i64(self._lifecycle.broker_epoch)
                )
            )
            if answer.error_code is not ErrorCode.none:
                raise ConnectionError(f"no producer ids: {answer.error_code.name}")
            first = int(answer.producer_id_start)
            self._producer_ids = iter(range(first + 1, first + int(answer.producer_id_len)))
            return first
