"""Reassignments: a partition's replicas are replaced by first growing, then, once all are in sync, shrinking (000, 2.3;
description 4 and 6.7).

Here they begin and are cancelled. What completes them is the leader's AlterPartition, in partition_change.change().
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kio.schema.errors import ErrorCode

from cluster_image.wire.integers import BrokerId, i32
from cluster_image.wire.messages import NO_THROTTLE, make, repeated, response_module

from ..metadata.image import PartitionRegistration
from ..metadata.records import MetadataRecord
from . import partition_change, placement, rules
from .partition_change import Assignment
from .term import Refused, Step, Term


def alter(term: Term, request: Any) -> Step:
    """AlterPartitionReassignments: begins a reassignment of each partition, replaces the one under way, or cancels it
    where the request names no replicas."""
    module = response_module(request)
    same_factor = not getattr(request, "allow_replication_factor_change", True)
    twice = repeated((t.name, p.partition_index) for t in request.topics for p in t.partitions)
    records: list[MetadataRecord] = []
    topics = []
    for topic in request.topics:
        answers = []
        for asked in topic.partitions:
            error, message = ErrorCode.none, None
            try:
                if (topic.name, asked.partition_index) in twice:
                    raise Refused(ErrorCode.invalid_request, "the partition stands twice in the request")
                record = _alter_one(term, topic.name, asked, same_factor)
                if record is not None:
                    records.append(record)
            except Refused as refused:
                error, message = refused.error, refused.message
            answers.append(
                module.ReassignablePartitionResponse(
                    partition_index=asked.partition_index, error_code=error, error_message=message
                )
            )
        topics.append(module.ReassignableTopicResponse(name=topic.name, partitions=tuple(answers)))
    return Step(records, make(
        module.AlterPartitionReassignmentsResponse, throttle_time=NO_THROTTLE,
        allow_replication_factor_change=not same_factor, error_code=ErrorCode.none, error_message=None,
        responses=tuple(topics),
    ))  # fmt: skip


def _alter_one(term: Term, topic: str, asked: Any, same_factor: bool) -> MetadataRecord | None:
    known = term.image.topics.get(topic)
    partition = None if known is None else known.partitions.get(int(asked.partition_index))
    if partition is None:
        raise Refused(
            ErrorCode.unknown_topic_or_partition, f"there is no partition {asked.partition_index} of topic {topic}"
        )
    present = partition_change.assignment_of(partition)
    minimum = min(term.min_insync_replicas(topic), len(present.before))
    if asked.replicas is None:
        if not present.in_progress:
            raise Refused(ErrorCode.no_reassignment_in_progress, "no reassignment is under way")
        assignment = Assignment(present.before)
    else:
        assignment = _assignment(term, present, tuple(map(int, asked.replicas)), minimum, same_factor)
    dropped = [r for r in present.replicas if r not in assignment.replicas]
    isr = tuple(r for r in partition.isr if r not in dropped)
    candidates = [r for r in dropped if r in (*partition.isr, *partition.elr, *partition.last_known_elr)]
    if not rules.may_drop_replicas(candidates, len(isr), minimum):
        raise Refused(
            ErrorCode.invalid_replica_assignment,
            f"without the added replicas {candidates}, {len(isr)} would be in sync, and {minimum} must be",
        )
    return partition_change.change(partition, isr, term.electorate(), assignment)


def _assignment(
    term: Term, present: Assignment, target: tuple[int, ...], minimum: int, same_factor: bool
) -> Assignment:
    """Both the target's replicas, first, and those that the partition had. What a reassignment under way has added, and
    this one does not want, is dropped. Raises Refused."""
    try:
        placement.check(target, term.image.brokers, len(target))
    except ValueError as error:
        raise Refused(ErrorCode.invalid_replica_assignment, str(error)) from None
    if same_factor and len(target) != len(present.before):
        raise Refused(
            ErrorCode.invalid_replication_factor,
            f"{len(present.before)} replicas would become {len(target)}, which the request does not allow",
        )
    if len(target) < minimum:
        # It could never be completed.
        raise Refused(
            ErrorCode.invalid_replica_assignment, f"{len(target)} replicas are fewer than the {minimum} to be in sync"
        )
    removing = tuple(r for r in present.before if r not in target)
    return Assignment((*target, *removing), tuple(r for r in target if r not in present.before), removing)


def list_ongoing(term: Term, request: Any) -> Step:
    """ListPartitionReassignments: of the partitions asked for, or of all, those whose reassignment is under way."""
    module = response_module(request)
    if request.topics is None:
        asked = [(topic, sorted(topic.partitions)) for topic in term.image.topics.values()]
    else:
        asked = [
            (term.image.topics[t.name], [int(i) for i in t.partition_indexes])
            for t in request.topics
            if t.name in term.image.topics
        ]
    topics = []
    for topic, indexes in asked:
        ongoing = _ongoing(module, [topic.partitions[i] for i in indexes if i in topic.partitions])
        if ongoing:
            topics.append(module.OngoingTopicReassignment(name=topic.name, partitions=ongoing))
    return Step((), module.ListPartitionReassignmentsResponse(
        throttle_time=NO_THROTTLE, error_code=ErrorCode.none, error_message=None, topics=tuple(topics)
    ))  # fmt: skip


def _ongoing(module: Any, partitions: Sequence[PartitionRegistration]) -> tuple[Any, ...]:
    return tuple(
        module.OngoingPartitionReassignment(
            partition_index=i32(p.index),
            replicas=tuple(BrokerId(r) for r in p.replicas),
            adding_replicas=tuple(BrokerId(r) for r in p.adding),
            removing_replicas=tuple(BrokerId(r) for r in p.removing),
        )
        for p in partitions
        if partition_change.assignment_of(p).in_progress
    )
