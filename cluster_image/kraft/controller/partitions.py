"""Partitions' leaders and ISRs, as leaders, administrators and unclean recovery ask for changes (000, 2.8, 2.9.2)."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Any, Final

from kio.schema.alter_partition.v3 import request as alter_request
from kio.schema.alter_partition.v3 import response as alter_response
from kio.schema.errors import ErrorCode

from cluster_image.network import Entity
from cluster_image.replication.replica import PartitionKey
from cluster_image.wire.integers import BrokerId, i8, i32
from cluster_image.wire.messages import NO_THROTTLE, make, repeated, response_module

from ..metadata import rules as isr_rules
from ..metadata.image import PartitionRegistration, Topic, changed_partition
from ..metadata.records import NO_LEADER, MetadataRecord, PartitionChangeRecord
from . import partition_change, rules
from .term import Refused, Step, Term
from .unclean_recovery import UncleanRecovery

#: Types of election (Kafka's ElectionType).
PREFERRED: Final = 0
UNCLEAN: Final = 1
#: In one batch, when leaderships go back to the preferred leaders (as Apache Kafka).
MAX_PREFERRED_ELECTIONS: Final = 1000


# -- AlterPartition (000, 2.9.2) ------------------------------------------------------------------------------


def alter(term: Term, request: alter_request.AlterPartitionRequest) -> Step:
    """A leader proposes a new ISR for some of its partitions."""
    sender = int(request.broker_id)
    broker = term.image.brokers.get(sender)
    if broker is None or broker.epoch != request.broker_epoch:
        return Step((), alter_response.AlterPartitionResponse(
            throttle_time=NO_THROTTLE, error_code=ErrorCode.stale_broker_epoch, topics=()
        ))  # fmt: skip
    twice = repeated((t.topic_id, p.partition_index) for t in request.topics for p in t.partitions)
    records: list[MetadataRecord] = []
    topics = []
    for topic in request.topics:
        answers = []
        for proposal in topic.partitions:
            try:
                if (topic.topic_id, proposal.partition_index) in twice:
                    # The second would be decided on the state before the first.
                    raise Refused(ErrorCode.invalid_request)
                record, answer = _alter_one(term, sender, topic.topic_id, proposal)
                if record is not None:
                    records.append(record)
            except Refused as refused:
                answer = _refusal(proposal.partition_index, refused.error)
            answers.append(answer)
        topics.append(alter_response.TopicData(topic_id=topic.topic_id, partitions=tuple(answers)))
    return Step(records, alter_response.AlterPartitionResponse(
        throttle_time=NO_THROTTLE, error_code=ErrorCode.none, topics=tuple(topics)
    ))  # fmt: skip


def _alter_one(
    term: Term, sender: int, topic_id: uuid.UUID | None, proposal: alter_request.PartitionData
) -> tuple[MetadataRecord | None, Any]:
    if topic_id not in term.image.topics_by_id:
        raise Refused(ErrorCode.unknown_topic_id)
    partition = term.image.partition(topic_id, int(proposal.partition_index))
    if partition is None:
        raise Refused(ErrorCode.unknown_topic_or_partition)
    epochs = {int(s.broker_id): int(s.broker_epoch) for s in proposal.new_isr_with_epochs}
    isr = tuple(int(s.broker_id) for s in proposal.new_isr_with_epochs)
    refusal = rules.refuse_alter_partition(
        partition,
        sender,
        int(proposal.leader_epoch),
        int(proposal.partition_epoch),
        isr,
        lambda replica: isr_rules.may_be_in_isr(epochs[replica], term.image.brokers.get(replica)),
        int(proposal.leader_recovery_state),
    )
    if refusal is not None:
        raise Refused(refusal)
    record = partition_change.change(
        partition, isr, term.electorate(), recovery_state=int(proposal.leader_recovery_state)
    )
    after = partition if record is None else changed_partition(partition, record)
    if after.leader != sender:
        # A reassignment is complete, and has taken this leader out: the metadata log tells it the rest.
        return record, _refusal(proposal.partition_index, ErrorCode.new_leader_elected)
    return record, _answer(after)


def _refusal(index: i32, error: ErrorCode) -> Entity:
    return alter_response.PartitionData(
        partition_index=index,
        error_code=error,
        leader_id=BrokerId(-1),
        leader_epoch=i32(-1),
        isr=(),
        partition_epoch=i32(-1),
    )


def _answer(partition: PartitionRegistration) -> Entity:
    return alter_response.PartitionData(
        partition_index=i32(partition.index),
        error_code=ErrorCode.none,
        leader_id=BrokerId(partition.leader),
        leader_epoch=i32(partition.leader_epoch),
        isr=tuple(BrokerId(r) for r in partition.isr),
        leader_recovery_state=i8(partition.leader_recovery_state),
        partition_epoch=i32(partition.partition_epoch),
    )


# -- elections that are asked for -----------------------------------------------------------------------------


def elect_leaders(term: Term, request: Any, recovered: Collection[PartitionKey] = ()) -> Step:
    """ElectLeaders: of the partitions asked for, or of all, where the answer names only those that need it.

    An unclean election takes more than one step (unclean_recovery.py): this is the last one, which answers. recovered:
    the partitions that have got a leader by the steps before."""
    module = response_module(request)
    kind = int(getattr(request, "election_type", PREFERRED))
    if kind not in (PREFERRED, UNCLEAN):
        return Step((), make(
            module.ElectLeadersResponse, throttle_time=NO_THROTTLE, error_code=ErrorCode.invalid_request,
            replica_election_results=(),
        ))  # fmt: skip
    every = request.topic_partitions is None
    if every:
        asked = [(topic.name, sorted(topic.partitions)) for topic in term.image.topics.values()]
    else:
        asked = [(t.topic, [int(i) for i in t.partitions]) for t in request.topic_partitions]
    twice = repeated((topic, index) for topic, indexes in asked for index in indexes)
    records: list[MetadataRecord] = []
    results = []
    for topic, indexes in asked:
        answers = []
        for index in indexes:
            error, message = ErrorCode.none, None
            try:
                if (topic, index) in twice:
                    raise Refused(ErrorCode.invalid_request, "the partition stands twice in the request")
                record = _elect(term, term.image.topics.get(topic), index, kind, recovered)
                if record is not None:
                    records.append(record)
            except Refused as refused:
                error, message = refused.error, refused.message
            if not (every and error is ErrorCode.election_not_needed):
                answers.append(module.PartitionResult(partition_id=i32(index), error_code=error, error_message=message))
        if answers or not every:
            results.append(module.ReplicaElectionResult(topic=topic, partition_result=tuple(answers)))
    return Step(records, make(
        module.ElectLeadersResponse, throttle_time=NO_THROTTLE, error_code=ErrorCode.none,
        replica_election_results=tuple(results),
    ))  # fmt: skip


def _elect(
    term: Term, topic: Topic | None, index: int, kind: int, recovered: Collection[PartitionKey]
) -> PartitionChangeRecord | None:
    """None for what has been done. Raises Refused."""
    partition = None if topic is None else topic.partitions.get(index)
    if partition is None:
        raise Refused(ErrorCode.unknown_topic_or_partition, "there is no such partition")
    if kind == UNCLEAN and (partition.topic_id, index) in recovered:
        return None
    needed = partition.leader != partition.replicas[0] if kind == PREFERRED else partition.leader == NO_LEADER
    if not needed:
        raise Refused(ErrorCode.election_not_needed, f"broker {partition.leader} leads")
    if kind == UNCLEAN:
        raise Refused(
            ErrorCode.eligible_leaders_not_available, "no replica that is available has told of its log in time"
        )
    record = _elect_preferred(term, partition)
    if record is None:
        raise Refused(
            ErrorCode.preferred_leader_not_available,
            f"broker {partition.replicas[0]} is not in sync or not available",
        )
    return record


def _elect_preferred(term: Term, partition: PartitionRegistration) -> PartitionChangeRecord | None:
    """The election of the first replica, None if it may not lead. It is no unclean one: it must be a candidate."""
    record = partition_change.change(partition, partition.isr, replace(term.electorate(), preferred=True))
    return record if record is not None and record.leader == partition.replicas[0] else None


def ask_for_recovery(term: Term, recovery: UncleanRecovery, request: Any) -> list[PartitionKey]:
    """The first step of ElectLeaders, type UNCLEAN: the partitions whose recovery begins now at the operator's word."""
    asked: list[PartitionRegistration | None]
    if request.topic_partitions is None:
        asked = list(term.image.partitions())
    else:
        topics = term.image.topics
        asked = [
            topics[t.topic].partitions.get(int(i))
            for t in request.topic_partitions
            for i in t.partitions
            if t.topic in topics
        ]
    return [(p.topic_id, p.index) for p in asked if p is not None and recovery.request(p)]


def elect_preferred_leaders(term: Term) -> Step:
    """Leaderships go back to the preferred leaders that may lead again (auto.leader.rebalance.enable)."""
    return Step(list(_preferred_elections(term, term.image.partitions())))


def _preferred_elections(term: Term, partitions: Iterable[PartitionRegistration]) -> Iterable[MetadataRecord]:
    left = MAX_PREFERRED_ELECTIONS
    for partition in partitions:
        if left and partition.leader not in (NO_LEADER, partition.replicas[0]):
            record = _elect_preferred(term, partition)
            if record is not None:
                left -= 1
                yield record
