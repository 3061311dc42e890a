"""The active controller's state machine: requests and the passing of time become metadata records.

Every method is synchronous. It looks at `image`, which holds everything this leader has written, committed or not,
and returns the records to append and the answer to give once they are committed. The caller (server.py) appends,
replays them here, and lets no answer out before everything that it was computed from is committed (000, 1.2.1).
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import replace
from random import Random
from typing import Any, Final, NamedTuple

from kio.schema.alter_partition.v3 import request as alter_request
from kio.schema.alter_partition.v3 import response as alter_response
from kio.schema.broker_heartbeat.v1 import request as heartbeat_request
from kio.schema.broker_heartbeat.v1 import response as heartbeat_response
from kio.schema.broker_registration.v4 import request as registration_request
from kio.schema.broker_registration.v4 import response as registration_response
from kio.schema.errors import ErrorCode
from kio.schema.types import BrokerId, ProducerId, TopicName

from ..config import Config, ConfigError, check_topic_settings
from ..integers import i8, i32, i64
from ..messages import NO_THROTTLE, make, response_module
from ..metadata import rules as isr_rules
from ..metadata.image import BrokerRegistration, MetadataImage, PartitionRegistration, changed_partition
from ..metadata.records import (
    BrokerEndpoint,
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    MetadataRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    TopicRecord,
)
from ..network import Entity
from . import partition_change, placement, rules
from .partition_change import Electorate

PRODUCER_ID_BLOCK: Final = 1000
#: Of one topic: what is written in one batch must stay small.
MAX_PARTITIONS: Final = 10_000


class Step(NamedTuple):
    """What a request or a timer leads to: records to append in one batch, and the answer once they are committed."""

    records: Sequence[MetadataRecord]
    answer: Entity | None = None


class Controller:
    """State of one term of office. A new term starts from the committed image."""

    def __init__(self, image: MetadataImage, config: Config, cluster_id: str, random: Random, now: float) -> None:
        self.image = image
        self._config = config
        self._cluster_id = cluster_id
        self._random = random
        # When each broker was last heard of. A new controller has heard of nobody: everyone gets a whole session.
        # It counts from when the controller before, deposed and not knowing it, can last have answered a heartbeat.
        self._heard = dict.fromkeys(image.brokers, now + config.seconds("controller.quorum.fetch.timeout.ms"))
        self._metadata_offsets: dict[int, int] = {}
        self._shutdown_offsets: dict[int, int] = {}

    # -- brokers' life cycle (description 8) ------------------------------------------------------------------

    def session_alive(self, broker: int, now: float) -> bool:
        heard = self._heard.get(broker)
        return heard is not None and now - heard < self._config.seconds("broker.session.timeout.ms")

    def register_broker(self, request: registration_request.BrokerRegistrationRequest, now: float) -> Step:
        broker_id = int(request.broker_id)
        known = self.image.brokers.get(broker_id)
        same_incarnation = known is not None and known.incarnation_id == request.incarnation_id
        if request.cluster_id != self._cluster_id:
            return Step((), self._registration_answer(ErrorCode.inconsistent_cluster_id))
        if not rules.may_register(known, self.session_alive(broker_id, now), same_incarnation):
            return Step((), self._registration_answer(ErrorCode.duplicate_broker_registration))
        if not request.listeners:
            return Step((), self._registration_answer(ErrorCode.invalid_request))
        self._heard[broker_id] = now
        if known is not None and same_incarnation:
            return Step((), self._registration_answer(ErrorCode.none, known.epoch))
        epoch = self.image.end_offset
        self._metadata_offsets.pop(broker_id, None)
        self._shutdown_offsets.pop(broker_id, None)
        registration = RegisterBrokerRecord(
            broker_id=request.broker_id,
            incarnation_id=request.incarnation_id,
            broker_epoch=i64(epoch),
            end_points=tuple(
                BrokerEndpoint(name=e.name, host=e.host, port=e.port, security_protocol=e.security_protocol)
                for e in request.listeners
            ),
            rack=request.rack,
        )
        # The session before may have run out a moment ago and not be fenced yet: it must leave every ISR first.
        unclean = rules.is_unclean(known, int(request.previous_broker_epoch))
        leaving = list(self._leave(broker_id, unclean)) if known is not None else []
        return Step([registration, *leaving], self._registration_answer(ErrorCode.none, epoch))

    @staticmethod
    def _registration_answer(error: ErrorCode, epoch: int = -1) -> Entity:
        return registration_response.BrokerRegistrationResponse(
            throttle_time=NO_THROTTLE, error_code=error, broker_epoch=i64(epoch)
        )

    def heartbeat(self, request: heartbeat_request.BrokerHeartbeatRequest, now: float) -> Step:
        broker_id = int(request.broker_id)
        broker = self.image.brokers.get(broker_id)
        if broker is None or broker.epoch != request.broker_epoch:
            return Step((), self._heartbeat_answer(ErrorCode.stale_broker_epoch))
        self._heard[broker_id] = now
        self._metadata_offsets[broker_id] = int(request.current_metadata_offset)
        if request.want_shut_down:
            return self._controlled_shutdown(broker_id)
        caught_up = request.current_metadata_offset >= broker.epoch
        if not request.want_fence and rules.may_unfence(broker, int(request.current_metadata_offset)):
            change = BrokerRegistrationChangeRecord(
                broker_id=request.broker_id, broker_epoch=request.broker_epoch, fenced=i8(-1)
            )
            electorate = self._electorate(replace(broker, fenced=False))
            elections = list(partition_change.broker_available(self.image, electorate, broker_id))
            return Step([change, *elections], self._heartbeat_answer(ErrorCode.none, caught_up, fenced=False))
        return Step((), self._heartbeat_answer(ErrorCode.none, caught_up, fenced=broker.fenced))

    @staticmethod
    def _heartbeat_answer(
        error: ErrorCode, caught_up: bool = False, fenced: bool = True, should_shut_down: bool = False
    ) -> Entity:
        return heartbeat_response.BrokerHeartbeatResponse(
            throttle_time=NO_THROTTLE,
            error_code=error,
            is_caught_up=caught_up,
            is_fenced=fenced,
            should_shut_down=should_shut_down,
        )

    def _controlled_shutdown(self, broker_id: int) -> Step:
        """Move leaderships away, then let the broker go once every other active broker has seen it (description
        8.3)."""
        broker = self.image.brokers[broker_id]
        records: list[MetadataRecord] = []
        if not broker.in_controlled_shutdown:
            records.append(
                BrokerRegistrationChangeRecord(
                    broker_id=BrokerId(broker_id), broker_epoch=i64(broker.epoch), in_controlled_shutdown=i8(1)
                )
            )
            records += self._leave(broker_id)
            self._shutdown_offsets[broker_id] = self.image.end_offset + len(records)
        offset = self._shutdown_offsets.setdefault(broker_id, self.image.end_offset)
        leads = any(p.leader == broker_id for p in self.image.partitions())
        others_behind = any(
            b.active and b.id != broker_id and self._metadata_offsets.get(b.id, -1) < offset - 1
            for b in self.image.brokers.values()
        )
        if records or leads or others_behind:
            return Step(records, self._heartbeat_answer(ErrorCode.none, True, fenced=broker.fenced))
        # It says no more from here on: its session ends now, so that it can register again at once.
        del self._heard[broker_id]
        if not broker.fenced:
            records.append(
                BrokerRegistrationChangeRecord(
                    broker_id=BrokerId(broker_id), broker_epoch=i64(broker.epoch), fenced=i8(1)
                )
            )
        return Step(records, self._heartbeat_answer(ErrorCode.none, True, should_shut_down=True))

    def _leave(self, broker_id: int, unclean: bool = False) -> Iterable[MetadataRecord]:
        """The partitions' changes when a broker is no longer available."""
        electorate = self._electorate(replace(self.image.brokers[broker_id], fenced=True), unclean)
        return partition_change.broker_gone(self.image, electorate, broker_id)

    def _electorate(self, changed: BrokerRegistration | None = None, unclean: bool = False) -> Electorate:
        """As the image has it, but for this broker."""
        brokers = self.image.brokers if changed is None else {**self.image.brokers, changed.id: changed}
        return Electorate(
            brokers,
            self._min_insync_replicas,
            self._config["eligible.leader.replicas.version"] > 0,
            changed.id if changed is not None and unclean else None,
        )

    def _min_insync_replicas(self, topic: str) -> int:
        minimum: int = self._config.for_topic(self.image.topics[topic].settings)["min.insync.replicas"]
        return minimum

    def fence_one_expired(self, now: float) -> Step:
        """Fence one broker whose session has run out (000, 1.2.2), the longest silent first. One at a time: each
        fencing is decided on the state that the one before has left."""
        expired = [b for b in self.image.brokers.values() if not b.fenced and not self.session_alive(b.id, now)]
        if not expired:
            return Step(())
        broker = min(expired, key=lambda b: (self._heard.get(b.id, float("-inf")), b.id))
        change = BrokerRegistrationChangeRecord(
            broker_id=BrokerId(broker.id), broker_epoch=i64(broker.epoch), fenced=i8(1)
        )
        return Step([change, *self._leave(broker.id)])

    # -- partitions -----------------------------------------------------------------------------------------

    def recover(self, asked: PartitionRegistration, leader: int) -> Step:
        """Unclean recovery has found whose log to go on from (002, 5.3), unless something has changed meanwhile."""
        partition = self.image.partition(asked.topic_id, asked.index)
        if partition != asked:
            return Step(())
        record = partition_change.change(partition, partition.isr, replace(self._electorate(), recovered=leader))
        return Step(() if record is None else [record])

    def alter_partition(self, request: alter_request.AlterPartitionRequest) -> Step:
        """A leader proposes a new ISR for some of its partitions (000, 2.9.2)."""
        sender = int(request.broker_id)
        broker = self.image.brokers.get(sender)
        if broker is None or broker.epoch != request.broker_epoch:
            return Step((), alter_response.AlterPartitionResponse(
                throttle_time=NO_THROTTLE, error_code=ErrorCode.stale_broker_epoch, topics=()
            ))  # fmt: skip
        records: list[MetadataRecord] = []
        topics = []
        for topic in request.topics:
            answers = []
            for proposal in topic.partitions:
                record, answer = self._alter_one(sender, topic.topic_id, proposal)
                if record is not None:
                    records.append(record)
                answers.append(answer)
            topics.append(alter_response.TopicData(topic_id=topic.topic_id, partitions=tuple(answers)))
        return Step(records, alter_response.AlterPartitionResponse(
            throttle_time=NO_THROTTLE, error_code=ErrorCode.none, topics=tuple(topics)
        ))  # fmt: skip

    def _alter_one(
        self, sender: int, topic_id: uuid.UUID | None, proposal: alter_request.PartitionData
    ) -> tuple[MetadataRecord | None, Entity]:
        index = int(proposal.partition_index)
        partition = self.image.partition(topic_id, index)
        if partition is None:
            return None, _alter_refusal(index, ErrorCode.unknown_topic_id)
        epochs = {int(s.broker_id): int(s.broker_epoch) for s in proposal.new_isr_with_epochs}
        isr = tuple(int(s.broker_id) for s in proposal.new_isr_with_epochs)
        refusal = rules.refuse_alter_partition(
            partition,
            sender,
            int(proposal.leader_epoch),
            int(proposal.partition_epoch),
            isr,
            lambda replica: isr_rules.may_be_in_isr(epochs[replica], self.image.brokers.get(replica)),
        )
        if refusal is not None:
            return None, _alter_refusal(index, refusal)
        record = partition_change.change(partition, isr, self._electorate())
        return record, _alter_answer(partition if record is None else changed_partition(partition, record))

    def create_topics(self, request: Any) -> Step:
        """CreateTopics of any version served. All of a request's topics are decided on their own."""
        module = response_module(request)
        records: list[MetadataRecord] = []
        answers = []
        names: set[str] = set()
        for topic in request.topics:
            try:
                if topic.name in names:
                    raise _Refused(ErrorCode.invalid_request, f"topic {topic.name} stands twice in the request")
                names.add(topic.name)
                created, partitions, replication = self._create_topic(topic)
            except _Refused as refused:
                answers.append(make(
                    module.CreatableTopicResult, name=topic.name, error_code=refused.error,
                    error_message=refused.message, topic_id=None, topic_config_error_code=ErrorCode.none,
                    num_partitions=i32(-1), replication_factor=-1, configs=None,
                ))  # fmt: skip
                continue
            if not getattr(request, "validate_only", False):
                records += created
            topic_record = created[0]
            assert isinstance(topic_record, TopicRecord)
            answers.append(make(
                module.CreatableTopicResult, name=topic.name, error_code=ErrorCode.none, error_message=None,
                topic_id=topic_record.topic_id, topic_config_error_code=ErrorCode.none,
                num_partitions=i32(partitions), replication_factor=replication, configs=(),
            ))  # fmt: skip
        answer = make(module.CreateTopicsResponse, throttle_time=NO_THROTTLE, topics=tuple(answers))
        return Step(records, answer)

    def _create_topic(self, topic: Any) -> tuple[list[MetadataRecord], int, int]:
        name = str(topic.name)
        if not _valid_topic_name(name):
            raise _Refused(ErrorCode.invalid_topic_exception, f"{name!r} is not a valid topic name")
        if name in self.image.topics:
            raise _Refused(ErrorCode.topic_already_exists, f"topic {name} exists already")
        settings = {c.name: c.value or "" for c in topic.configs}
        try:
            check_topic_settings(settings)
        except ConfigError as error:
            raise _Refused(ErrorCode.invalid_config, str(error)) from None
        partitions = int(topic.num_partitions)
        replication = int(topic.replication_factor)
        active = [b for b in self.image.brokers.values() if b.active]
        if topic.assignments:
            assigned = {int(a.partition_index): tuple(map(int, a.broker_ids)) for a in topic.assignments}
            known = self.image.brokers
            if sorted(assigned) != list(range(len(assigned))) or any(
                not replicas or len(set(replicas)) != len(replicas) or not set(replicas) <= set(known)
                for replicas in assigned.values()
            ):
                raise _Refused(ErrorCode.invalid_replica_assignment, "replica assignment is not valid")
            replica_lists = [assigned[i] for i in range(len(assigned))]
            partitions, replication = len(replica_lists), len(replica_lists[0])
        else:
            partitions = self._config["num.partitions"] if partitions == -1 else partitions
            replication = self._config["default.replication.factor"] if replication == -1 else replication
            if not 1 <= partitions <= MAX_PARTITIONS:
                raise _Refused(
                    ErrorCode.invalid_partitions, f"{partitions} partitions: 1 to {MAX_PARTITIONS} are valid"
                )
            if replication < 1:
                raise _Refused(ErrorCode.invalid_replication_factor, f"{replication} is not a replication factor")
            try:
                replica_lists = placement.place(active, partitions, replication)
            except ValueError as error:
                raise _Refused(ErrorCode.invalid_replication_factor, str(error)) from None
        topic_id = uuid.UUID(int=self._random.getrandbits(128), version=4)
        records: list[MetadataRecord] = [TopicRecord(name=TopicName(name), topic_id=topic_id)]
        records += [ConfigRecord(resource_name=name, name=key, value=value) for key, value in settings.items()]
        available = {b.id for b in active}
        for index, replicas in enumerate(replica_lists):
            isr = tuple(r for r in replicas if r in available)
            if not isr:
                raise _Refused(ErrorCode.invalid_replica_assignment, f"no replica of partition {index} is available")
            records.append(
                PartitionRecord(
                    partition_id=i32(index),
                    topic_id=topic_id,
                    replicas=tuple(BrokerId(r) for r in replicas),
                    isr=tuple(BrokerId(r) for r in isr),
                    leader=BrokerId(isr[0]),
                )
            )
        return records, partitions, replication

    def allocate_producer_ids(self, request: Any) -> Step:
        """A block of producer ids that no other broker will hand out."""
        module = response_module(request)
        broker = self.image.brokers.get(int(request.broker_id))
        if broker is None or broker.epoch != request.broker_epoch:
            return Step((), make(
                module.AllocateProducerIdsResponse, throttle_time=NO_THROTTLE,
                error_code=ErrorCode.stale_broker_epoch, producer_id_start=ProducerId(-1), producer_id_len=i32(0),
            ))  # fmt: skip
        start = self.image.next_producer_id
        record = ProducerIdsRecord(
            broker_id=request.broker_id,
            broker_epoch=request.broker_epoch,
            next_producer_id=ProducerId(start + PRODUCER_ID_BLOCK),
        )
        return Step([record], make(
            module.AllocateProducerIdsResponse, throttle_time=NO_THROTTLE, error_code=ErrorCode.none,
            producer_id_start=ProducerId(start), producer_id_len=i32(PRODUCER_ID_BLOCK),
        ))  # fmt: skip


class _Refused(Exception):
    def __init__(self, error: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.error = error
        self.message = message


def _valid_topic_name(name: str) -> bool:
    """Kafka's rule: 1 to 249 of ASCII letters, digits, dot, underscore and hyphen, and not a path."""
    allowed = name.isascii() and all(c.isalnum() or c in "._-" for c in name)
    return 0 < len(name) <= 249 and allowed and name not in (".", "..", "__cluster_metadata")


def _alter_refusal(index: int, error: ErrorCode) -> Entity:
    return alter_response.PartitionData(
        partition_index=i32(index),
        error_code=error,
        leader_id=BrokerId(-1),
        leader_epoch=i32(-1),
        isr=(),
        partition_epoch=i32(-1),
    )


def _alter_answer(partition: PartitionRegistration) -> Entity:
    return alter_response.PartitionData(
        partition_index=i32(partition.index),
        error_code=ErrorCode.none,
        leader_id=BrokerId(partition.leader),
        leader_epoch=i32(partition.leader_epoch),
        isr=tuple(BrokerId(r) for r in partition.isr),
        partition_epoch=i32(partition.partition_epoch),
    )
