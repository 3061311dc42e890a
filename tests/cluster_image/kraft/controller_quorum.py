"""A controller to be asked directly, for tests: every step is committed at once, as its log would hold it. What it
decides of brokers' requests can be judged as in simulation (BrokerAnswered)."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

from kio.schema.alter_partition.v3.request import AlterPartitionRequest, BrokerState, PartitionData, TopicData
from kio.schema.broker_heartbeat.v1.request import BrokerHeartbeatRequest
from kio.schema.broker_registration.v4.request import BrokerRegistrationRequest, Listener
from kio.schema.create_topics.v7.request import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from kio.schema.errors import ErrorCode

from checkers.inside.kraft.simulated.answering.deciding import DecidingOracle
from cluster_image.kraft.controller.controller import Controller
from cluster_image.kraft.controller.term import Step
from cluster_image.kraft.metadata.image import MetadataImage, PartitionRegistration
from cluster_image.kraft.metadata.records import decode, encode
from cluster_image.wire.messages import milliseconds
from tests.cluster_image.kraft.broker.test_partition import config

SESSION = 3.0


class Quorum:
    """A controller whose every step is committed at once, as its log would hold it."""

    #: Not where a rule is replaced: what comes of that is told by the test.
    judges = False

    def __init__(self, **changes: str) -> None:
        settings = config(broker_session_timeout_ms=str(int(SESSION * 1000)), **changes)
        self.controller = Controller(MetadataImage(), settings, "test", Random(1), now=0.0)
        self.epochs: dict[int, int] = {}
        self._oracle = DecidingOracle(2, deletes_topics=True, session_s=SESSION)

    @property
    def image(self) -> MetadataImage:
        return self.controller.image

    def do(self, steps: Step | Iterator[Step]) -> Any:
        """The answer."""
        answer = None
        for step in [steps] if isinstance(steps, Step) else steps:
            for record in step.records:
                self.image.replay(self.image.end_offset, decode(encode(record)))
            answer = step.answer
        return answer

    def judged(self, request: Any, step: Step, now: float = 0.0) -> Step:
        if not self.judges:
            return step
        self._oracle.decided("controller-1", request, self.image, step, now)
        self._oracle.raise_found()
        return step

    def register(
        self,
        broker: int,
        now: float = 0.0,
        incarnation: int | None = None,
        previous_epoch: int = -1,
        listeners: int = 1,
    ) -> ErrorCode:
        request = BrokerRegistrationRequest(
            broker_id=broker,
            cluster_id="test",
            incarnation_id=uuid.UUID(int=incarnation or broker),
            listeners=(Listener(name="P", host="h", port=9092, security_protocol=0),) * listeners,
            features=(),
            rack=f"rack-{broker}",
            previous_broker_epoch=previous_epoch,
        )
        answer = self.do(self.judged(request, self.controller.register_broker(request, now), now))
        if answer.error_code is ErrorCode.none:
            self.epochs[broker] = answer.broker_epoch
        error: ErrorCode = answer.error_code
        return error

    def heartbeat(self, broker: int, now: float, offset: int | None = None, **wants: bool) -> Any:
        request = self.beat(broker, offset, **wants)
        return self.do(self.judged(request, self.controller.heartbeat(request, now), now))

    def beat(self, broker: int, offset: int | None = None, **wants: bool) -> BrokerHeartbeatRequest:
        return BrokerHeartbeatRequest(
            broker_id=broker,
            broker_epoch=self.epochs[broker],
            current_metadata_offset=self.image.end_offset - 1 if offset is None else offset,
            want_fence=wants.get("want_fence", False),
            want_shut_down=wants.get("want_shut_down", False),
        )

    def fence_expired(self, now: float) -> None:
        while (step := self.controller.fence_one_expired(now)).records:
            self.do(step)

    def create(self, partitions: int = 1, replication: int = 3) -> ErrorCode:
        answer = self.do(
            self.controller.create_topics(
                CreateTopicsRequest(
                    topics=(
                        CreatableTopic(
                            name="t",
                            num_partitions=partitions,
                            replication_factor=replication,
                            assignments=(),
                            configs=(),
                        ),
                    ),
                    timeout=milliseconds(1000),
                )
            )
        )
        error: ErrorCode = answer.topics[0].error_code
        return error

    def create_on(self, *replicas: Sequence[int], name: str = "t", **settings: str) -> ErrorCode:
        """replicas: of each partition."""
        topic = CreatableTopic(
            name=name,
            num_partitions=-1,
            replication_factor=-1,
            assignments=tuple(
                CreatableReplicaAssignment(partition_index=index, broker_ids=tuple(brokers))
                for index, brokers in enumerate(replicas)
            ),
            configs=tuple(CreatableTopicConfig(name=n.replace("_", "."), value=v) for n, v in settings.items()),
        )
        answer = self.do(
            self.controller.create_topics(CreateTopicsRequest(topics=(topic,), timeout=milliseconds(1000)))
        )
        error: ErrorCode = answer.topics[0].error_code
        return error

    def partition(self) -> PartitionRegistration:
        return self.image.topics["t"].partitions[0]

    def alter(self, sender: int, isr: dict[int, int], **changes: int) -> ErrorCode:
        """isr: broker epoch by broker id."""
        request = self.proposal(sender, isr, **changes)
        answer = self.do(self.judged(request, self.controller.alter_partition(request)))
        error: ErrorCode = answer.topics[0].partitions[0].error_code
        return error

    def proposal(self, sender: int, isr: dict[int, int], **changes: int) -> AlterPartitionRequest:
        """isr: broker epoch by broker id."""
        current = self.partition()
        proposed = PartitionData(
            partition_index=0,
            leader_epoch=changes.get("leader_epoch", current.leader_epoch),
            partition_epoch=changes.get("partition_epoch", current.partition_epoch),
            leader_recovery_state=changes.get("leader_recovery_state", 0),
            new_isr_with_epochs=tuple(BrokerState(broker_id=r, broker_epoch=e) for r, e in isr.items()),
        )
        return AlterPartitionRequest(
            broker_id=sender,
            broker_epoch=self.epochs[sender],
            topics=(TopicData(topic_id=current.topic_id, partitions=(proposed,)),),
        )

    def join(self, *brokers: int) -> ErrorCode:
        """The leader proposes to add these to the ISR."""
        partition = self.partition()
        return self.alter(partition.leader, {b: self.epochs[b] for b in (*partition.isr, *brokers)})

    def state(self) -> tuple[int, tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        """Leader, ISR, ELR and LastKnownELR, as 002 writes them."""
        partition = self.partition()
        return partition.leader, partition.isr, partition.elr, partition.last_known_elr

    def fence(self, broker: int, now: float) -> None:
        """This broker's session runs out, and no other's."""
        for other in self.epochs:
            if other != broker and not self.image.brokers[other].fenced:
                self.heartbeat(other, now)
        self.fence_expired(now)

    def comes_back(self, broker: int, now: float, clean: bool = False) -> None:
        """Registers anew and is unfenced."""
        previous_epoch = self.epochs[broker] if clean else -1
        assert self.register(broker, now, 1000 + int(now), previous_epoch) is ErrorCode.none
        self.heartbeat(broker, now)


def unfenced(*brokers: int, **settings: str) -> Quorum:
    """These brokers, and no topic."""
    quorum = Quorum(**settings)
    for broker in brokers:
        quorum.register(broker)
        quorum.heartbeat(broker, 0.0)
    return quorum


def three_brokers(**settings: str) -> Quorum:
    """Unfenced, and one partition led by 1; MinISR is 2."""
    quorum = unfenced(1, 2, 3, **settings)
    assert quorum.create() is ErrorCode.none
    assert quorum.partition().leader == 1
    return quorum
