"""A broker's requests: what each API is answered with. Administrators' commands are carried out by the broker that is
asked, by way of ZooKeeper (administration/)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Mapping
from random import Random
from typing import Any, Final
from uuid import UUID

from kio.schema.errors import ErrorCode
from kio.schema.types import TopicName

from cluster_image import wire
from cluster_image.config import Config
from cluster_image.config.v2 import IDENTITY, SETTINGS
from cluster_image.network import Entity, Peer, Versions
from cluster_image.replication.answers import describe_configs as configs
from cluster_image.replication.answers.describe import describe_cluster, describe_topic_partitions, find_coordinator
from cluster_image.replication.answers.describe_log_dirs import describe_log_dirs
from cluster_image.replication.answers.metadata import LOOK_S, STARTING_S, MetadataHandler
from cluster_image.replication.fetch import FetchHandler
from cluster_image.replication.offsets import OffsetsHandler
from cluster_image.replication.produce import ProduceHandler
from cluster_image.replication.served import Refused
from cluster_image.wire.integers import BrokerId, i32
from cluster_image.wire.messages import NO_THROTTLE, is_topic_name, make, repeated, response_module, shortened

from .administration.admin import Admin
from .administration.command import AdminError
from .metadata.view import Cluster, View
from .partition.replica import Partition
from .replicas import Replicas
from .topics import topic_id

#: What its listener answers: of what brokers with KRaft do, what 001 has something for.
SERVED: Final[Versions] = {
    key: versions
    for key, versions in wire.SUPPORTED["broker"].items()
    if key in (0, 1, 2, 3, 10, 17, 18, 19, 20, 23, 32, 35, 36, 37, 43, 45, 46, 60, 64, 75)
}
#: Settings of topics that are taken and mean nothing: 001 acknowledges what the ISR has, however small that is.
_WITHOUT_EFFECT: Final = ("min.insync.replicas",)
#: However long a request allows.
_MOST_S: Final = 120.0


class BrokerApi:
    def __init__(self, config: Config, replicas: Replicas, view: View, admin: Admin, random: Random) -> None:
        self._config = config
        self._replicas = replicas
        self._view = view
        self._admin = admin
        self._random = random
        self._produce = ProduceHandler(replicas.topics, self._find)
        self._offsets = OffsetsHandler(self._find_by_name, lambda: True)
        self._fetch = FetchHandler(
            config,
            replicas.topics,
            self._find,
            lambda *_: True,
            lambda: None,
            replicas.quotas.leader,
            random,
        )

    @property
    def fetch_sessions(self) -> int:
        return len(self._fetch.sessions)

    async def handle(self, request: Any, peer: Peer) -> Entity | None:
        match type(request).__name__:
            case "ProduceRequest":
                return await self._produce.handle(request, peer.aside, peer.only_waits)
            case "FetchRequest":
                return await self._fetch.handle(request, peer.room)
            case "ListOffsetsRequest":
                return await self._offsets.list_offsets(request, peer.aside)
            case "OffsetForLeaderEpochRequest":
                return await self._offsets.offset_for_leader_epoch(request)
            case "MetadataRequest":
                return await self._metadata(request)
            case "FindCoordinatorRequest":
                return await find_coordinator(request)
            case "DescribeClusterRequest":
                cluster = await self._view.cluster(())
                return describe_cluster(cluster, self._config["cluster.id"], self._some_broker(cluster), request)
            case "DescribeTopicPartitionsRequest":
                names = {str(topic.name) for topic in request.topics} or None
                return await describe_topic_partitions(await self._view.cluster(names), request)
            case "DescribeConfigsRequest":
                return await self._describe_configs(request)
            case "DescribeLogDirsRequest":
                return await describe_log_dirs(self._config["log.dirs"], self._replicas.partitions, request)
            case "CreateTopicsRequest":
                return await self._create_topics(request)
            case "CreatePartitionsRequest":
                return await self._create_partitions(request)
            case "DeleteTopicsRequest":
                return await self._delete_topics(request)
            case "AlterPartitionReassignmentsRequest":
                return await self._reassign(request)
            case "ListPartitionReassignmentsRequest":
                return await self._list_reassignments(request)
            case "ElectLeadersRequest":
                return await self._elect_leaders(request)
            case "UnregisterBrokerRequest":
                return await self._unregister(request)
            case name:
                raise ConnectionError(f"{name} is not for a broker of this generation")

    def _find(self, topic: Any, index: int) -> Partition | None:
        return self._replicas.get((topic, index))

    def _find_by_name(self, topic: str, index: int) -> Partition:
        """Raises Refused: this broker has no replica of it."""
        partition = self._find(topic_id(topic), index)
        if partition is None:
            raise Refused(ErrorCode.not_leader_or_follower)
        return partition

    def _some_broker(self, cluster: Cluster) -> int:
        """Who passes for the controller: there is none, and any broker does what administrators ask for."""
        live = [broker.id for broker in cluster.brokers.values() if not broker.fenced]
        return self._random.choice(live) if live else -1

    # -- what is told -----------------------------------------------------------------------------------------

    async def _metadata(self, request: Any) -> Entity:
        names: list[str] | None = None
        if request.topics is not None and (request.topics or request.__version__ > 0):
            names = [str(topic.name) for topic in request.topics if topic.name]
            ids = [each for topic in request.topics if isinstance(each := getattr(topic, "topic_id", None), UUID)]
            if ids:
                names += await self._view.named(ids)
        loop = asyncio.get_running_loop()
        until = loop.time() + STARTING_S
        while True:
            cluster = await self._view.cluster(names)
            if any(not broker.fenced for broker in cluster.brokers.values()) or loop.time() >= until:
                break
            await asyncio.sleep(LOOK_S)
        handler = MetadataHandler(self._config, cluster, lambda: self._some_broker(cluster), None, waits=False)
        return await handler.handle(request)

    async def _describe_configs(self, request: Any) -> Entity:
        asked = {str(each.resource_name) for each in request.resources if each.resource_type == configs.TOPIC}
        topics = (await self._view.cluster(asked)).topics

        def of_topic(name: str) -> Iterable[configs.Known]:
            if name not in topics:
                raise configs.no_topic(name)
            return ()  # topics have no settings of their own

        def of_broker(name: str) -> Iterable[configs.Known]:
            return configs.of_node(self._config, SETTINGS, IDENTITY) if name else ()

        return configs.describe_configs(request, self._config, of_topic, of_broker)

    # -- administrators ---------------------------------------------------------------------------------------

    @staticmethod
    def _time(request: Any) -> float:
        return float(min(max(request.timeout.total_seconds(), 0.0), _MOST_S))

    @staticmethod
    async def _outcome(command: Awaitable[None]) -> tuple[ErrorCode, str | None]:
        try:
            await command
        except AdminError as error:
            return error.error, str(error)
        return ErrorCode.none, None

    async def _create_topics(self, request: Any) -> Entity:
        module = response_module(request)
        outcomes = await asyncio.gather(*(self._create_topic(topic, request) for topic in request.topics))
        results = tuple(
            make(
                module.CreatableTopicResult, name=topic.name, error_code=error, error_message=message,
                topic_id=topic_id(topic.name) if error is ErrorCode.none else None,
                topic_config_error_code=ErrorCode.none, num_partitions=-1, replication_factor=-1, configs=None,
            )
            for topic, (error, message) in zip(request.topics, outcomes, strict=True)
        )  # fmt: skip
        return make(module.CreateTopicsResponse, throttle_time=NO_THROTTLE, topics=results)

    async def _create_topic(self, topic: Any, request: Any) -> tuple[ErrorCode, str | None]:
        if not is_topic_name(topic.name):
            return ErrorCode.invalid_topic_exception, shortened(f"{topic.name!r} is not a valid topic name")
        unknown = [each.name for each in topic.configs if each.name not in _WITHOUT_EFFECT]
        if unknown:
            names = ", ".join(unknown)
            return ErrorCode.invalid_config, f"topics have no settings of their own here: {names}"
        if getattr(request, "validate_only", False):
            return ErrorCode.none, None
        assignment = {int(a.partition_index): tuple(map(int, a.broker_ids)) for a in topic.assignments} or None
        partitions = self._config["num.partitions"] if topic.num_partitions < 0 else int(topic.num_partitions)
        factor = int(topic.replication_factor)
        factor = self._config["default.replication.factor"] if factor < 0 else factor
        return await self._outcome(
            self._admin.create_topic(topic.name, partitions, factor, assignment, self._time(request))
        )

    async def _create_partitions(self, request: Any) -> Entity:
        module = response_module(request)
        results = []
        for topic in request.topics:
            assignment = None
            if topic.assignments is not None:
                assignment = [tuple(map(int, each.broker_ids)) for each in topic.assignments]
            error, message = await self._outcome(
                self._admin.add_partitions(topic.name, int(topic.count), assignment, self._time(request))
            )
            results.append(
                make(module.CreatePartitionsTopicResult, name=topic.name, error_code=error, error_message=message)
            )
        return make(module.CreatePartitionsResponse, throttle_time=NO_THROTTLE, results=tuple(results))

    async def _delete_topics(self, request: Any) -> Entity:
        module = response_module(request)
        names: list[str | None] = []
        if request.__version__ < 6:
            names += map(str, request.topic_names)
        else:
            for topic in request.topics:
                known = [topic.name] if topic.name else await self._view.named([topic.topic_id])
                names += known or [None]
        twice = repeated(name for name in names if name is not None)
        responses = []
        for name in names:
            error, message = ErrorCode.unknown_topic_id, None
            if name in twice:
                error, message = ErrorCode.invalid_request, "the topic stands twice in the request"
            elif name is not None:
                error, message = await self._outcome(self._admin.delete_topic(name, self._time(request)))
            responses.append(
                make(
                    module.DeletableTopicResult, name=None if name is None else TopicName(name),
                    topic_id=None if name is None else topic_id(name), error_code=error, error_message=message,
                )
            )  # fmt: skip
        return make(module.DeleteTopicsResponse, throttle_time=NO_THROTTLE, responses=tuple(responses))

    async def _reassign(self, request: Any) -> Entity:
        module = response_module(request)
        responses = []
        for topic in request.topics:
            partitions = []
            for asked in topic.partitions:
                index = int(asked.partition_index)
                command = (
                    self._admin.cancel_reassignment(topic.name, index, self._time(request))
                    if asked.replicas is None
                    else self._admin.reassign(topic.name, index, tuple(map(int, asked.replicas)), self._time(request))
                )
                error, message = await self._outcome(command)
                partitions.append(
                    make(
                        module.ReassignablePartitionResponse, partition_index=asked.partition_index, error_code=error,
                        error_message=message,
                    )
                )  # fmt: skip
            responses.append(module.ReassignableTopicResponse(name=topic.name, partitions=tuple(partitions)))
        return make(
            module.AlterPartitionReassignmentsResponse, throttle_time=NO_THROTTLE, error_code=ErrorCode.none,
            error_message=None, responses=tuple(responses), allow_replication_factor_change=True,
        )  # fmt: skip

    async def _list_reassignments(self, request: Any) -> Entity:
        module = response_module(request)
        under_way: Mapping[tuple[str, int], Any] = await self._admin.reassignments()
        topics: dict[str, list[Any]] = {}
        for (topic, index), (assigned, coming) in sorted(under_way.items()):
            topics.setdefault(topic, []).append(
                module.OngoingPartitionReassignment(
                    partition_index=i32(index),
                    replicas=tuple(map(BrokerId, dict.fromkeys((*coming, *assigned)))),
                    adding_replicas=tuple(BrokerId(r) for r in coming if r not in assigned),
                    removing_replicas=tuple(BrokerId(r) for r in assigned if r not in coming),
                )
            )
        return module.ListPartitionReassignmentsResponse(
            throttle_time=NO_THROTTLE, error_code=ErrorCode.none, error_message=None,
            topics=tuple(
                module.OngoingTopicReassignment(name=TopicName(name), partitions=tuple(partitions))
                for name, partitions in topics.items()
            ),
        )  # fmt: skip

    async def _elect_leaders(self, request: Any) -> Entity:
        """By 001 a leader gives way to the preferred replica by itself, when something is produced: there is no command
        for it, and what this answers is that nothing is to be done."""
        module = response_module(request)
        return make(
            module.ElectLeadersResponse, throttle_time=NO_THROTTLE, error_code=ErrorCode.none,
            replica_election_results=(),
        )  # fmt: skip

    async def _unregister(self, request: Any) -> Entity:
        error, message = await self._outcome(self._admin.remove_broker(int(request.broker_id)))
        return make(
            response_module(request).UnregisterBrokerResponse, throttle_time=NO_THROTTLE, error_code=error,
            error_message=message,
        )  # fmt: skip
