"""Topics: created, given more partitions, deleted. What a request asks of each topic is decided on its own."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from typing import Any, Final

from kio.schema.errors import ErrorCode
from kio.schema.types import TopicName

from cluster_image.config import ConfigError
from cluster_image.config.topic_settings import check_topic_settings
from cluster_image.placement.spread import Spread
from cluster_image.wire.integers import BrokerId, i32
from cluster_image.wire.messages import NO_THROTTLE, is_topic_name, make, repeated, response_module

from ..metadata.image import Topic
from ..metadata.records import ConfigRecord, MetadataRecord, PartitionRecord, RemoveTopicRecord, TopicRecord
from . import placement
from .term import Refused, Step, Term

#: Of one topic.
MAX_PARTITIONS: Final = 10_000
#: Of all topics of one request: what is decided at once, and what brokers have to make, must stay small.
MAX_NEW_PARTITIONS: Final = 1_000
#: With what else there is of the last one's topic. Every node applies a step at once, and has other things to do.
RECORDS_IN_STEP: Final = 8


# -- CreateTopics ---------------------------------------------------------------------------------------------


def create(term: Term, request: Any) -> Iterator[Step]:
    """CreateTopics of any version served, some of the topics in each step; the last step has the answer."""
    module = response_module(request)
    twice = repeated(topic.name for topic in request.topics)
    only_validated = getattr(request, "validate_only", False)
    records: list[MetadataRecord] = []
    answers = []
    budget = MAX_NEW_PARTITIONS
    taken, spread = _names_of_metrics(term), placement.spread_of(term.image)
    for topic in request.topics:
        if len(records) >= RECORDS_IN_STEP:
            yield Step(() if only_validated else records)
            records, taken = [], _names_of_metrics(term) | (taken if only_validated else {})
            spread = placement.spread_of(term.image)
        try:
            if topic.name in twice:
                raise Refused(ErrorCode.invalid_request, f"topic {topic.name} stands twice in the request")
            topic_id, created, replica_lists = _create(term, topic, budget, taken, spread)
        except Refused as refused:
            answers.append(make(
                module.CreatableTopicResult, name=topic.name, error_code=refused.error,
                error_message=refused.message, topic_id=None, topic_config_error_code=ErrorCode.none,
                num_partitions=i32(-1), replication_factor=-1, configs=None,
            ))  # fmt: skip
            continue
        budget -= len(replica_lists)
        records += created
        taken[_metric_name(topic.name)] = str(topic.name)
        answers.append(make(
            module.CreatableTopicResult, name=topic.name, error_code=ErrorCode.none, error_message=None,
            topic_id=topic_id, topic_config_error_code=ErrorCode.none,
            num_partitions=i32(len(replica_lists)), replication_factor=len(replica_lists[0]), configs=(),
        ))  # fmt: skip
    answer = make(module.CreateTopicsResponse, throttle_time=NO_THROTTLE, topics=tuple(answers))
    yield Step(() if only_validated else records, answer)


def _names_of_metrics(term: Term) -> dict[str, str]:
    """Topics, by the names that their metrics have."""
    return {_metric_name(name): name for name in term.image.topics}


def _create(
    term: Term, topic: Any, budget: int, taken: dict[str, str], spread: Spread
) -> tuple[uuid.UUID, list[MetadataRecord], list[tuple[int, ...]]]:
    """The topic's id, its records, and its partitions' replicas. taken: see _names_of_metrics. spread: of all
    partitions; where the controller places the new ones, they are added to it. Raises Refused."""
    name = str(topic.name)
    if not is_topic_name(name):
        raise Refused(ErrorCode.invalid_topic_exception, f"{name!r} is not a valid topic name")
    if name in term.image.topics:
        raise Refused(ErrorCode.topic_already_exists, f"topic {name} exists already")
    if (other := taken.get(_metric_name(name), name)) != name:
        raise Refused(ErrorCode.invalid_topic_exception, f"topic {name} collides with topic {other}")
    settings = {c.name: c.value or "" for c in topic.configs}
    try:
        check_topic_settings(settings, term.elr_enabled)
    except ConfigError as error:
        raise Refused(ErrorCode.invalid_config, str(error)) from None
    replica_lists = _assigned(term, topic) if topic.assignments else _placed(term, topic, budget, spread)
    _check_budget(len(replica_lists), budget)
    topic_id = uuid.UUID(int=term.random.getrandbits(128), version=4)
    records: list[MetadataRecord] = [TopicRecord(name=TopicName(name), topic_id=topic_id)]
    records += [ConfigRecord(resource_name=name, name=key, value=value) for key, value in settings.items()]
    records += _new_partitions(term, topic_id, 0, replica_lists)
    return topic_id, records, replica_lists


def _check_budget(partitions: int, budget: int) -> None:
    if partitions > budget:
        raise Refused(ErrorCode.policy_violation, f"more than {MAX_NEW_PARTITIONS} new partitions in one request")


def _assigned(term: Term, topic: Any) -> list[tuple[int, ...]]:
    """The replicas that the request gives, by partition. Raises Refused."""
    if topic.num_partitions != -1 or topic.replication_factor != -1:
        raise Refused(
            ErrorCode.invalid_request, "with a manual assignment, partitions and replication factor must be -1"
        )
    if len(topic.assignments) > MAX_PARTITIONS:
        raise Refused(ErrorCode.invalid_partitions, _range_of_partitions(len(topic.assignments)))
    if repeated(a.partition_index for a in topic.assignments):
        raise Refused(ErrorCode.invalid_replica_assignment, "a partition is assigned twice")
    by_index = sorted(topic.assignments, key=lambda a: int(a.partition_index))
    if [int(a.partition_index) for a in by_index] != list(range(len(by_index))):
        raise Refused(ErrorCode.invalid_replica_assignment, "partitions must be numbered from 0 without a gap")
    return _checked(term, [a.broker_ids for a in by_index], len(by_index[0].broker_ids))


def _checked(term: Term, assignments: Sequence[Sequence[BrokerId]], replication: int) -> list[tuple[int, ...]]:
    replica_lists = [tuple(map(int, replicas)) for replicas in assignments]
    for replicas in replica_lists:
        try:
            placement.check(replicas, term.image.brokers, replication)
        except ValueError as error:
            raise Refused(ErrorCode.invalid_replica_assignment, str(error)) from None
    return replica_lists


def _placed(term: Term, topic: Any, budget: int, spread: Spread) -> list[tuple[int, ...]]:
    """Where the controller puts the replicas. Raises Refused, before it places more than the request may ask for."""
    partitions, replication = int(topic.num_partitions), int(topic.replication_factor)
    partitions = term.config["num.partitions"] if partitions == -1 else partitions
    replication = term.config["default.replication.factor"] if replication == -1 else replication
    if not 1 <= partitions <= MAX_PARTITIONS:
        raise Refused(ErrorCode.invalid_partitions, _range_of_partitions(partitions))
    if replication < 1:
        raise Refused(ErrorCode.invalid_replication_factor, f"{replication} is not a replication factor")
    _check_budget(partitions, budget)
    return _place(term, str(topic.name), partitions, replication, spread)


def _place(term: Term, topic: str, partitions: int, replication: int, spread: Spread) -> list[tuple[int, ...]]:
    try:
        return placement.place(term.image, topic, partitions, replication, spread)
    except ValueError as error:
        raise Refused(ErrorCode.invalid_replication_factor, str(error)) from None


def _range_of_partitions(partitions: int) -> str:
    return f"{partitions} partitions: 1 to {MAX_PARTITIONS} are valid"


def _new_partitions(
    term: Term, topic_id: uuid.UUID, first: int, replica_lists: Sequence[tuple[int, ...]]
) -> list[MetadataRecord]:
    """Led by the first available replica, with all available ones in sync: nothing is written yet."""
    records: list[MetadataRecord] = []
    for index, replicas in enumerate(replica_lists, first):
        isr = tuple(BrokerId(r) for r in replicas if term.image.brokers[r].active)
        if not isr:
            raise Refused(ErrorCode.invalid_replica_assignment, f"no replica of partition {index} is available")
        records.append(
            PartitionRecord(
                partition_id=i32(index),
                topic_id=topic_id,
                replicas=tuple(BrokerId(r) for r in replicas),
                isr=isr,
                leader=isr[0],
            )
        )
    return records


def _metric_name(topic: str) -> str:
    """Names of metrics have no dots: `a.b` and `a_b` would share theirs (Apache Kafka's Topic.hasCollision)."""
    return topic.replace(".", "_")


# -- CreatePartitions -----------------------------------------------------------------------------------------


def create_partitions(term: Term, request: Any) -> Step:
    """CreatePartitions: more partitions for topics that there are. What has a key may then go elsewhere than before."""
    module = response_module(request)
    twice = repeated(topic.name for topic in request.topics)
    records: list[MetadataRecord] = []
    answers = []
    budget = MAX_NEW_PARTITIONS
    for topic in request.topics:
        error, message = ErrorCode.none, None
        try:
            if topic.name in twice:
                raise Refused(ErrorCode.invalid_request, f"topic {topic.name} stands twice in the request")
            created = _add_partitions(term, topic, budget)
            budget -= len(created)
            records += created
        except Refused as refused:
            error, message = refused.error, refused.message
        answers.append(
            make(module.CreatePartitionsTopicResult, name=topic.name, error_code=error, error_message=message)
        )
    answer = make(module.CreatePartitionsResponse, throttle_time=NO_THROTTLE, results=tuple(answers))
    return Step(() if request.validate_only else records, answer)


def _add_partitions(term: Term, asked: Any, budget: int) -> list[MetadataRecord]:
    topic = term.image.topics.get(asked.name)
    if topic is None:
        raise Refused(ErrorCode.unknown_topic_or_partition, f"there is no topic {asked.name}")
    present, wanted = len(topic.partitions), int(asked.count)
    if not present < wanted <= MAX_PARTITIONS:
        raise Refused(
            ErrorCode.invalid_partitions,
            f"topic {topic.name} has {present} partitions: {present + 1} to {MAX_PARTITIONS} are valid",
        )
    _check_budget(wanted - present, budget)
    replication = len(topic.partitions[0].replicas) - len(topic.partitions[0].adding)
    if asked.assignments is None:
        spread = placement.spread_of(term.image)
        replica_lists = _place(term, topic.name, wanted - present, replication, spread)
    elif len(asked.assignments) != wanted - present:
        raise Refused(
            ErrorCode.invalid_replica_assignment,
            f"{len(asked.assignments)} assignments for {wanted - present} new partitions",
        )
    else:
        replica_lists = _checked(term, [a.broker_ids for a in asked.assignments], replication)
    return _new_partitions(term, topic.id, present, replica_lists)


# -- DeleteTopics ---------------------------------------------------------------------------------------------


def delete(term: Term, request: Any) -> Iterator[Step]:
    """DeleteTopics of any version served: by name, from version 6 on also by id; some in each step, the last has the
    answer. It says that the topics are gone for the controller; brokers remove their logs when they replay it."""
    module = response_module(request)
    asked: list[tuple[str | None, uuid.UUID | None]]
    if request.__version__ < 6:
        asked = [(name, None) for name in request.topic_names]
    else:
        asked = [(topic.name, topic.topic_id) for topic in request.topics]
    found = [_look_up(term, *names) for names in asked]
    keys = [names if topic is None else topic.id for names, topic in zip(asked, found, strict=True)]
    twice = repeated(keys)
    records: list[MetadataRecord] = []
    answers = []
    for (name, topic_id), key in zip(asked, keys, strict=True):
        if len(records) >= RECORDS_IN_STEP:
            yield Step(records)
            records = []
        error, message = ErrorCode.none, None
        topic = _look_up(term, name, topic_id)
        try:
            _check_deletion(term, request.__version__, name, topic_id)
            if key in twice:
                raise Refused(ErrorCode.invalid_request, "the topic stands twice in the request")
            if topic is None:
                missing = ErrorCode.unknown_topic_or_partition if topic_id is None else ErrorCode.unknown_topic_id
                raise Refused(missing, "there is no such topic")
            records.append(RemoveTopicRecord(topic_id=topic.id))
            name, topic_id = topic.name, topic.id
        except Refused as refused:
            error, message = refused.error, refused.message
        answers.append(
            make(module.DeletableTopicResult, name=name, topic_id=topic_id, error_code=error, error_message=message)
        )
    yield Step(records, make(module.DeleteTopicsResponse, throttle_time=NO_THROTTLE, responses=tuple(answers)))


def _look_up(term: Term, name: str | None, topic_id: uuid.UUID | None) -> Topic | None:
    if name is not None:
        return term.image.topics.get(name)
    return None if topic_id is None else term.image.topics_by_id.get(topic_id)


def _check_deletion(term: Term, version: int, name: str | None, topic_id: uuid.UUID | None) -> None:
    if not term.config["delete.topic.enable"]:
        # The error came with version 3.
        error = ErrorCode.topic_deletion_disabled if version >= 3 else ErrorCode.invalid_request
        raise Refused(error, "delete.topic.enable is false")
    if (name is None) == (topic_id is None):
        raise Refused(ErrorCode.invalid_request, "a topic is named either by its name or by its id")
