"""A broker's requests: what each API is answered with. Produce and Fetch have modules of their own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any, Final

from kio.schema.allocate_producer_ids.v0.request import AllocateProducerIdsRequest
from kio.schema.errors import ErrorCode
from kio.schema.types import BrokerId, ProducerId, TopicName

from ..config import Config
from ..integers import i16, i32, i64
from ..messages import NO_THROTTLE, make, repeated, response_module
from ..metadata.image import MetadataImage, Topic
from ..network import Entity, Peer
from ..records import iter_batches
from ..unanswered import error_answer
from .channel import ControllerChannel
from .describe import describe_cluster, describe_quorum, describe_topic_partitions
from .describe_configs import describe_configs
from .fetch import FetchHandler
from .lifecycle import Lifecycle
from .partition import Partition, Refused
from .produce import ProduceHandler
from .replica_log_info import replica_log_info
from .replica_manager import ReplicaManager

LATEST: Final = -1
EARLIEST: Final = -2
#: What administrators ask any broker for, and only the active controller can do.
_FOR_THE_CONTROLLER: Final = frozenset(
    {
        "CreateTopicsRequest",
        "CreatePartitionsRequest",
        "DeleteTopicsRequest",
        "ElectLeadersRequest",
        "AlterPartitionReassignmentsRequest",
        "ListPartitionReassignmentsRequest",
    }
)
_NO_AUTHORIZED_OPERATIONS: Final = i32(-2147483648)


class BrokerApi:
    def __init__(
        self,
        config: Config,
        image: MetadataImage,
        replicas: ReplicaManager,
        lifecycle: Lifecycle,
        controller: ControllerChannel,
        isr_changed: Callable[[], None],
        random: Random,
    ) -> None:
        self._config = config
        self._image = image
        self._replicas = replicas
        self._lifecycle = lifecycle
        self._controller = controller
        self._random = random
        self._forwarding = asyncio.Lock()
        self._producer_ids = iter(range(0))
        self._produce = ProduceHandler(image, self._find)
        self._fetch = FetchHandler(config, image, self._find, replicas.is_eligible, isr_changed, random)

    @property
    def fetch_sessions(self) -> int:
        return len(self._fetch.sessions)

    async def handle(self, request: Any, peer: Peer) -> Entity | None:
        match type(request).__name__:
            case "ProduceRequest":
                return await self._produce.handle(request)
            case "FetchRequest":
                return await self._fetch.handle(request)
            case "ListOffsetsRequest":
                return self._list_offsets(request)
            case "MetadataRequest":
                return self._metadata(request)
            case "InitProducerIdRequest":
                return await self._init_producer_id(request)
            case "DescribeConfigsRequest":
                return describe_configs(self._image, self._config, request)
            case "DescribeClusterRequest":
                return describe_cluster(self._image, self._config["cluster.id"], self._some_broker(), request)
            case name if name in _FOR_THE_CONTROLLER:
                return await self._pass_on(request)
            case "OffsetForLeaderEpochRequest":
                return self._offset_for_leader_epoch(request)
            case "DescribeTopicPartitionsRequest":
                return describe_topic_partitions(self._image, request)
            case "DescribeQuorumRequest":
                async with self._forwarding:
                    return await describe_quorum(request, self._controller.request)
            case "GetReplicaLogInfoRequest":
                return replica_log_info(self._image, self._replicas.get, self._lifecycle.broker_epoch, request)
            case name:
                raise ConnectionError(f"{name} is not for a broker")

    def _find(self, topic_id: Any, index: int) -> Partition | None:
        return self._replicas.get((topic_id, index))

    def _find_by_name(self, topic: str, index: int) -> Partition | None:
        known = self._image.topics.get(topic)
        return self._find(known.id, index) if known is not None else None

    def _missing(self, topic: str, index: int) -> ErrorCode:
        """Why this broker has no such partition: there is none, or others have it."""
        known = self._image.topics.get(topic)
        exists = known is not None and index in known.partitions
        return ErrorCode.not_leader_or_follower if exists else ErrorCode.unknown_topic_or_partition

    # -- ListOffsets, OffsetForLeaderEpoch --------------------------------------------------------------------

    def _list_offsets(self, request: Any) -> Entity:
        module = response_module(request)
        twice = repeated((t.name, p.partition_index) for t in request.topics for p in t.partitions)
        topics = []
        for topic in request.topics:
            answers = []
            for data in topic.partitions:
                error, offset, timestamp, epoch = ErrorCode.none, -1, -1, -1
                try:
                    if (topic.name, data.partition_index) in twice:
                        raise Refused(ErrorCode.invalid_request)
                    offset, timestamp, epoch = self._offset_at(topic.name, data)
                except Refused as refused:
                    error = refused.error
                answers.append(
                    make(
                        module.ListOffsetsPartitionResponse,
                        partition_index=data.partition_index,
                        error_code=error,
                        timestamp=i64(timestamp),
                        offset=i64(offset),
                        leader_epoch=i32(epoch),
                    )
                )
            topics.append(module.ListOffsetsTopicResponse(name=topic.name, partitions=tuple(answers)))
        return make(module.ListOffsetsResponse, throttle_time=NO_THROTTLE, topics=tuple(topics))

    def _offset_at(self, topic: str, data: Any) -> tuple[int, int, int]:
        """Offset, timestamp (ms) and leader epoch for one partition of ListOffsets. Raises Refused."""
        index = int(data.partition_index)
        partition = self._find_by_name(topic, index)
        if partition is None:
            raise Refused(self._missing(topic, index))
        timestamp = int(data.timestamp)
        leader_epoch = int(getattr(data, "current_leader_epoch", -1))
        if timestamp == EARLIEST:
            return partition.start_of_log(leader_epoch), -1, partition.leader_epoch
        end = partition.end_of_committed_log(leader_epoch, self._lifecycle.holds_lease())
        if timestamp == LATEST:
            return end, -1, partition.leader_epoch
        if timestamp < 0:
            raise Refused(ErrorCode.unsupported_for_message_format)
        return _first_batch_since(partition, timestamp, end)

    def _offset_for_leader_epoch(self, request: Any) -> Entity:
        module = response_module(request)
        topics = []
        for topic in request.topics:
            answers = []
            for data in topic.partitions:
                error, epoch, end = ErrorCode.none, -1, -1
                try:
                    partition = self._find_by_name(topic.topic, int(data.partition))
                    if partition is None:
                        raise Refused(self._missing(topic.topic, int(data.partition)))
                    epoch, end = partition.end_offset_for_epoch(
                        int(data.leader_epoch), int(getattr(data, "current_leader_epoch", -1))
                    )
                except Refused as refused:
                    error = refused.error
                answers.append(
                    make(
                        module.EpochEndOffset,
                        error_code=error,
                        partition=data.partition,
                        leader_epoch=i32(epoch),
                        end_offset=i64(end),
                    )
                )
            topics.append(module.OffsetForLeaderTopicResult(topic=topic.topic, partitions=tuple(answers)))
        return make(module.OffsetForLeaderEpochResponse, throttle_time=NO_THROTTLE, topics=tuple(topics))

    # -- Metadata ---------------------------------------------------------------------------------------------

    def _metadata(self, request: Any) -> Entity:
        module = response_module(request)
        brokers = [b for b in self._image.brokers.values() if not b.fenced]
        every = request.topics is None or (request.__version__ == 0 and not request.topics)
        topics: list[Entity] = []
        if every:
            topics = [self._topic_metadata(module, t.name, t.id, t) for t in self._image.topics.values()]
        else:
            # Each once, as Apache Kafka: a topic takes a few bytes to name, and its partitions many to tell of.
            for name, topic_id in dict.fromkeys((t.name, getattr(t, "topic_id", None)) for t in request.topics):
                if name:
                    known = self._image.topics.get(name)
                else:
                    known = self._image.topics_by_id.get(topic_id) if topic_id else None
                topics.append(self._topic_metadata(module, name, topic_id, known))
        return make(
            module.MetadataResponse,
            throttle_time=NO_THROTTLE,
            brokers=tuple(
                make(
                    module.MetadataResponseBroker,
                    node_id=BrokerId(b.id),
                    host=b.address.host,
                    port=i32(b.address.port),
                    rack=b.rack,
                )
                for b in brokers
            ),
            cluster_id=self._config["cluster.id"],
            controller_id=BrokerId(self._some_broker()),
            topics=tuple(topics),
            cluster_authorized_operations=_NO_AUTHORIZED_OPERATIONS,
            error_code=ErrorCode.none,
        )

    def _some_broker(self) -> int:
        """Who passes for the controller: as with KRaft any broker, which passes on what is for the controller. -1 if
        none is available."""
        available = [b.id for b in self._image.brokers.values() if not b.fenced]
        return self._random.choice(available) if available else -1

    def _topic_metadata(self, module: Any, name: str | None, topic_id: Any, topic: Topic | None) -> Entity:
        missing = ErrorCode.unknown_topic_or_partition if name else ErrorCode.unknown_topic_id
        return make(
            module.MetadataResponseTopic,
            error_code=ErrorCode.none if topic is not None else missing,
            name=TopicName(topic.name) if topic is not None else name,
            topic_id=topic.id if topic is not None else topic_id,
            is_internal=False,
            partitions=tuple(self._partition_metadata(module, p) for p in topic.partitions.values()) if topic else (),
            topic_authorized_operations=_NO_AUTHORIZED_OPERATIONS,
        )

    def _partition_metadata(self, module: Any, partition: Any) -> Entity:
        brokers = self._image.brokers
        offline = [r for r in partition.replicas if r not in brokers or brokers[r].fenced]
        return make(
            module.MetadataResponsePartition,
            error_code=ErrorCode.none if partition.leader >= 0 else ErrorCode.leader_not_available,
            partition_index=i32(partition.index),
            leader_id=BrokerId(partition.leader),
            leader_epoch=i32(partition.leader_epoch),
            replica_nodes=tuple(BrokerId(r) for r in partition.replicas),
            isr_nodes=tuple(BrokerId(r) for r in partition.isr),
            offline_replicas=tuple(BrokerId(r) for r in offline),
        )

    # -- through the controller -------------------------------------------------------------------------------

    async def _pass_on(self, request: Any) -> Entity:
        """The controller's answer is this broker's."""
        try:
            async with self._forwarding:
                answer: Entity = await self._controller.request(request)
                return answer
        except (ConnectionError, TimeoutError):
            return error_answer(
                request,
                ErrorCode.request_timed_out,
                "the controller did not answer: the request may or may not have been carried out",
            )

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
        async with self._forwarding:
            for producer_id in self._producer_ids:
                return producer_id
            answer = await self._controller.request(
                AllocateProducerIdsRequest(
                    broker_id=BrokerId(self._config["node.id"]), broker_epoch=i64(self._lifecycle.broker_epoch)
                )
            )
            if answer.error_code is not ErrorCode.none:
                raise ConnectionError(f"no producer ids: {answer.error_code.name}")
            first = int(answer.producer_id_start)
            self._producer_ids = iter(range(first + 1, first + int(answer.producer_id_len)))
            return first


def _first_batch_since(partition: Partition, timestamp: int, end: int) -> tuple[int, int, int]:
    """The first committed batch with a record of this time (ms) or later: its offset, time and leader epoch."""
    offset = partition.log.start_offset
    while offset < end:
        chunk = partition.log.read(offset, 1 << 20, end)
        if not chunk:
            break
        for _, _, header in iter_batches(chunk):
            if header.max_timestamp >= timestamp:
                return header.base_offset, header.max_timestamp, header.leader_epoch
            offset = header.next_offset
    return -1, -1, -1
