"""Topics at the controller: created, given more partitions, deleted; and refused, each for its reason."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from kio.schema.create_partitions.v3.request import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from kio.schema.create_topics.v7.request import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from kio.schema.delete_topics.v1 import request as by_name
from kio.schema.delete_topics.v3 import request as by_name_v3
from kio.schema.delete_topics.v6.request import DeleteTopicsRequest, DeleteTopicState
from kio.schema.errors import ErrorCode

from cluster_image.kraft.controller import topics as controller_topics
from cluster_image.kraft.controller.term import Step
from cluster_image.kraft.controller.topics import RECORDS_IN_STEP
from cluster_image.kraft.metadata.records import TopicRecord
from cluster_image.wire.messages import milliseconds
from tests.cluster_image.kraft.controller_quorum import SESSION, Quorum, unfenced

TIMEOUT = milliseconds(1000)


@pytest.fixture
def quorum() -> Quorum:
    return unfenced(1, 2, 3)


def topic(name: str = "t", *assignments: tuple[int, ...], **fields: Any) -> CreatableTopic:
    counts = -1 if assignments else 1
    given = {"num_partitions": counts, "replication_factor": counts, "configs": (), **fields}
    given.setdefault(
        "assignments",
        tuple(CreatableReplicaAssignment(partition_index=i, broker_ids=a) for i, a in enumerate(assignments)),
    )
    return CreatableTopic(name=name, **given)


def create(quorum: Quorum, *wanted: CreatableTopic, validate_only: bool = False) -> list[ErrorCode]:
    request = CreateTopicsRequest(topics=wanted, timeout=TIMEOUT, validate_only=validate_only)
    return [t.error_code for t in quorum.do(quorum.controller.create_topics(request)).topics]


# -- CreateTopics ---------------------------------------------------------------------------------------------


def test_partitions_begin_with_all_available_replicas_in_sync(quorum: Quorum) -> None:
    quorum.fence(3, SESSION)
    assert create(quorum, topic("t", (3, 1), (2, 3))) == [ErrorCode.none]
    first, second = quorum.image.topics["t"].partitions.values()
    assert (first.replicas, first.isr, first.leader) == ((3, 1), (1,), 1)
    assert (second.replicas, second.isr, second.leader) == ((2, 3), (2,), 2)


@pytest.mark.parametrize(
    ("wanted", "error"),
    [
        (topic(""), ErrorCode.invalid_topic_exception),
        (topic("a/b"), ErrorCode.invalid_topic_exception),
        (topic(".."), ErrorCode.invalid_topic_exception),
        (topic("x" * 250), ErrorCode.invalid_topic_exception),
        (topic(num_partitions=0), ErrorCode.invalid_partitions),
        (topic(num_partitions=10_001), ErrorCode.invalid_partitions),
        (topic(replication_factor=0), ErrorCode.invalid_replication_factor),
        (topic(replication_factor=4), ErrorCode.invalid_replication_factor),
        (topic(configs=(CreatableTopicConfig(name="no.such", value="1"),)), ErrorCode.invalid_config),
        (topic("t", (1, 2), num_partitions=1), ErrorCode.invalid_request),
        (topic("t", (1, 2), replication_factor=2), ErrorCode.invalid_request),
        (topic("t", ()), ErrorCode.invalid_replica_assignment),
        (topic("t", (1, 1)), ErrorCode.invalid_replica_assignment),
        (topic("t", (1, 9)), ErrorCode.invalid_replica_assignment),
        (topic("t", (1, 2), (1, 2, 3)), ErrorCode.invalid_replica_assignment),
        (topic("t", *[(1,)] * 10_001), ErrorCode.invalid_partitions),
    ],
)
def test_topics_that_make_no_sense(quorum: Quorum, wanted: CreatableTopic, error: ErrorCode) -> None:
    assert create(quorum, wanted) == [error]
    assert not quorum.image.topics


@pytest.mark.parametrize("indexes", [(0, 0), (0, 2), (1, 2)])
def test_assigned_partitions_are_numbered_from_zero(quorum: Quorum, indexes: tuple[int, ...]) -> None:
    assignments = tuple(CreatableReplicaAssignment(partition_index=i, broker_ids=(1, 2)) for i in indexes)
    wanted = topic(num_partitions=-1, replication_factor=-1, assignments=assignments)
    assert create(quorum, wanted) == [ErrorCode.invalid_replica_assignment]


def test_a_partition_needs_a_replica_that_is_there(quorum: Quorum) -> None:
    quorum.fence(3, SESSION)
    assert create(quorum, topic("t", (1,), (3,))) == [ErrorCode.invalid_replica_assignment]
    assert not quorum.image.topics


def test_a_topic_named_twice_is_created_neither_time(quorum: Quorum) -> None:
    errors = create(quorum, topic("t"), topic("u"), topic("t"))
    assert errors == [ErrorCode.invalid_request, ErrorCode.none, ErrorCode.invalid_request]
    assert list(quorum.image.topics) == ["u"]


def test_validating_writes_nothing(quorum: Quorum) -> None:
    assert create(quorum, topic(), validate_only=True) == [ErrorCode.none]
    assert create(quorum, topic()) == [ErrorCode.none]
    assert create(quorum, topic(), validate_only=True) == [ErrorCode.topic_already_exists]


def test_fenced_brokers_are_placed_last_and_count(quorum: Quorum) -> None:
    """As with Apache Kafka: a broker that is down for a while keeps nobody from creating topics."""
    quorum.fence(3, SESSION)
    assert create(quorum, topic(num_partitions=4, replication_factor=3)) == [ErrorCode.none]
    for partition in quorum.image.topics["t"].partitions.values():
        assert partition.replicas[2] == 3 and sorted(partition.isr) == [1, 2] and partition.leader in (1, 2)
    assert create(quorum, topic("u", num_partitions=4, replication_factor=2)) == [ErrorCode.none]
    assert all(3 not in p.replicas for p in quorum.image.topics["u"].partitions.values())
    assert create(quorum, topic("v", replication_factor=4)) == [ErrorCode.invalid_replication_factor]
    quorum.fence(1, 2 * SESSION)
    quorum.fence(2, 3 * SESSION)
    assert create(quorum, topic("w", replication_factor=1)) == [ErrorCode.invalid_replication_factor]


def test_names_whose_metrics_would_be_the_same_collide(quorum: Quorum) -> None:
    errors = create(quorum, topic("a.b"), topic("a_b"), topic("a-b"))
    assert errors == [ErrorCode.none, ErrorCode.invalid_topic_exception, ErrorCode.none]
    assert create(quorum, topic("a_b"), topic("a.c"), topic("a_c")) == [
        ErrorCode.invalid_topic_exception, ErrorCode.none, ErrorCode.invalid_topic_exception,
    ]  # fmt: skip


def test_a_topic_that_is_refused_takes_no_name(quorum: Quorum) -> None:
    wrong = topic("a.b", configs=(CreatableTopicConfig(name="min.insync.replicas", value="none"),))
    assert create(quorum, wrong, topic("a_b")) == [ErrorCode.invalid_config, ErrorCode.none]


def test_names_collide_in_whichever_step_they_are_validated(quorum: Quorum) -> None:
    many = [topic(f"t{number}") for number in range(2 * RECORDS_IN_STEP)]
    errors = create(quorum, topic("a.b"), *many, topic("a_b"), validate_only=True)
    assert errors == [*[ErrorCode.none] * (1 + len(many)), ErrorCode.invalid_topic_exception]


def test_a_long_name_is_not_told_whole(quorum: Quorum) -> None:
    """In early versions an answer has no place for it."""
    request = CreateTopicsRequest(topics=(topic("\x01" * 10_000),), timeout=TIMEOUT, validate_only=False)
    (refused,) = quorum.do(quorum.controller.create_topics(request)).topics
    assert refused.error_code is ErrorCode.invalid_topic_exception and len(refused.error_message) < 1100


def test_one_request_writes_no_more_than_one_batch_should_hold(quorum: Quorum, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controller_topics, "MAX_NEW_PARTITIONS", 5)
    errors = create(quorum, topic("a", num_partitions=3), topic("b", num_partitions=3), topic("c", num_partitions=2))
    assert errors == [ErrorCode.none, ErrorCode.policy_violation, ErrorCode.none]


def test_many_topics_are_created_and_deleted_in_several_steps_with_each_topic_in_one(quorum: Quorum) -> None:
    """Every node applies a step in one turn of its event loop."""
    many = [topic(f"t{number}", (1, 2), (2, 3), (3, 1)) for number in range(100)]
    creation = quorum.controller.create_topics(
        CreateTopicsRequest(topics=(*many, topic("t99")), timeout=TIMEOUT, validate_only=False)
    )
    steps, answer = all_steps(quorum, creation)
    assert len(steps) > 10 and all(len(step.records) < RECORDS_IN_STEP + 4 for step in steps)
    assert all(isinstance(step.records[0], TopicRecord) for step in steps)
    assert len(answer.topics) == 101 and len(quorum.image.topics) == 99
    request = by_name.DeleteTopicsRequest(topic_names=tuple(quorum.image.topics), timeout=TIMEOUT)
    steps, answer = all_steps(quorum, quorum.controller.delete_topics(request))
    assert len(steps) == 13 and len(answer.responses) == 99 and not quorum.image.topics
    large = quorum.controller.create_topics(
        CreateTopicsRequest(topics=(topic("one", *[(1, 2)] * 200),), timeout=TIMEOUT, validate_only=False)
    )
    assert len(all_steps(quorum, large)[0]) == 1


def all_steps(quorum: Quorum, steps: Iterator[Step]) -> tuple[list[Step], Any]:
    """And the answer."""
    done = []
    for step in steps:
        answer = quorum.do(step)
        done.append(step)
    assert all(step.answer is None for step in done[:-1])
    return done, answer


def test_what_others_do_between_steps_counts(quorum: Quorum, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controller_topics, "RECORDS_IN_STEP", 1)
    names = ("a", "b", "c.c", "d")
    creation = quorum.controller.create_topics(
        CreateTopicsRequest(topics=tuple(topic(name, (1,)) for name in names), timeout=TIMEOUT, validate_only=False)
    )
    quorum.do(next(creation))
    assert create(quorum, topic("b", (1,)), topic("c_c", (1,))) == [ErrorCode.none] * 2
    errors = [t.error_code for t in quorum.do(creation).topics]
    assert errors == [
        ErrorCode.none, ErrorCode.topic_already_exists, ErrorCode.invalid_topic_exception, ErrorCode.none,
    ]  # fmt: skip
    request = by_name.DeleteTopicsRequest(topic_names=("a", "b", "d"), timeout=TIMEOUT)
    deletion = quorum.controller.delete_topics(request)
    quorum.do(next(deletion))
    quorum.do(quorum.controller.delete_topics(by_name.DeleteTopicsRequest(topic_names=("b",), timeout=TIMEOUT)))
    errors = [t.error_code for t in quorum.do(deletion).responses]
    assert errors == [ErrorCode.none, ErrorCode.unknown_topic_or_partition, ErrorCode.none]


def test_what_one_request_may_not_have_is_not_even_placed(quorum: Quorum, monkeypatch: pytest.MonkeyPatch) -> None:
    """A short request could keep the controller busy for many minutes."""
    placed = []
    monkeypatch.setattr(controller_topics, "MAX_NEW_PARTITIONS", 5)

    def place(image: Any, topic: str, partitions: int, *others: Any) -> list[tuple[int, ...]]:
        placed.append(partitions)
        return [(1,)] * partitions

    monkeypatch.setattr(controller_topics.placement, "place", place)
    create(quorum, *(topic(f"t{n}", num_partitions=3) for n in range(3)))
    assert placed == [3]


# -- CreatePartitions -----------------------------------------------------------------------------------------


def extend(
    quorum: Quorum, count: int, *assignments: tuple[int, ...], name: str = "t", times: int = 1, validate: bool = False
) -> ErrorCode:
    given = tuple(CreatePartitionsAssignment(broker_ids=a) for a in assignments) or None
    wanted = CreatePartitionsTopic(name=name, count=count, assignments=given)
    answer = quorum.do(
        quorum.controller.create_partitions(
            CreatePartitionsRequest(topics=(wanted,) * times, timeout=TIMEOUT, validate_only=validate)
        )
    )
    error: ErrorCode = answer.results[0].error_code
    return error


def test_a_topic_gets_more_partitions_and_keeps_those_it_has(quorum: Quorum) -> None:
    create(quorum, topic("t", (1, 2), (2, 3)))
    before = dict(quorum.image.topics["t"].partitions)
    assert extend(quorum, 3, (3, 1)) is ErrorCode.none
    assert quorum.image.topics["t"].partitions[2].replicas == (3, 1)
    assert extend(quorum, 5) is ErrorCode.none
    after = quorum.image.topics["t"].partitions
    assert list(after) == [0, 1, 2, 3, 4] and before.items() <= after.items()
    assert {len(p.replicas) for p in after.values()} == {2}
    assert after[3].leader != after[4].leader, "placed as if all had been at once"


def test_partitions_that_cannot_be_added(quorum: Quorum) -> None:
    create(quorum, topic("t", (1, 2), (2, 3)))
    before = dict(quorum.image.topics["t"].partitions)
    assert extend(quorum, 2) is ErrorCode.invalid_partitions
    assert extend(quorum, 1) is ErrorCode.invalid_partitions
    assert extend(quorum, 10_001) is ErrorCode.invalid_partitions
    assert extend(quorum, 4, (1, 2)) is ErrorCode.invalid_replica_assignment, "one for two"
    assert extend(quorum, 3, (1, 2, 3)) is ErrorCode.invalid_replica_assignment, "the others have two replicas"
    assert extend(quorum, 3, name="u") is ErrorCode.unknown_topic_or_partition
    assert extend(quorum, 3, times=2) is ErrorCode.invalid_request
    assert extend(quorum, 3, validate=True) is ErrorCode.none
    assert quorum.image.topics["t"].partitions == before


# -- DeleteTopics ---------------------------------------------------------------------------------------------


def delete(quorum: Quorum, *topics: tuple[str | None, uuid.UUID | None]) -> list[ErrorCode]:
    request = DeleteTopicsRequest(
        topics=tuple(DeleteTopicState(name=name, topic_id=topic_id) for name, topic_id in topics), timeout=TIMEOUT
    )
    return [t.error_code for t in quorum.do(quorum.controller.delete_topics(request)).responses]


def test_topics_are_deleted_by_name_and_by_id(quorum: Quorum) -> None:
    create(quorum, topic("a"), topic("b"), topic("c"))
    ids = {name: t.id for name, t in quorum.image.topics.items()}
    assert delete(quorum, ("a", None), (None, ids["b"])) == [ErrorCode.none] * 2
    assert list(quorum.image.topics) == ["c"] and list(quorum.image.topics_by_id) == [ids["c"]]
    quorum.do(quorum.controller.delete_topics(by_name.DeleteTopicsRequest(topic_names=("c",), timeout=TIMEOUT)))
    assert not quorum.image.topics and not quorum.image.topics_by_id


def test_an_answer_names_the_topic_both_ways(quorum: Quorum) -> None:
    create(quorum, topic("a"))
    topic_id = quorum.image.topics["a"].id
    request = DeleteTopicsRequest(topics=(DeleteTopicState(name=None, topic_id=topic_id),), timeout=TIMEOUT)
    (answer,) = quorum.do(quorum.controller.delete_topics(request)).responses
    assert (answer.name, answer.topic_id, answer.error_code) == ("a", topic_id, ErrorCode.none)


def test_a_name_can_be_used_again_and_the_old_id_cannot(quorum: Quorum) -> None:
    """A proposal of a leader of the old topic must not reach the new one."""
    quorum.create_on((1, 2, 3), min_insync_replicas="3")
    old = quorum.partition()
    delete(quorum, ("t", None))
    quorum.create_on((1, 2, 3))
    assert quorum.image.topics["t"].id != old.topic_id
    assert not quorum.image.topics["t"].settings, "settings are gone with the topic"
    assert quorum.image.partition(old.topic_id, 0) is None
    assert delete(quorum, (None, old.topic_id)) == [ErrorCode.unknown_topic_id]


def test_deletions_that_are_refused(quorum: Quorum) -> None:
    create(quorum, topic("a"), topic("b"))
    a = quorum.image.topics["a"].id
    assert delete(quorum, ("x", None), (None, uuid.UUID(int=5))) == [
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.unknown_topic_id,
    ]
    assert delete(quorum, ("a", a), (None, None)) == [ErrorCode.invalid_request] * 2
    assert delete(quorum, ("a", None), ("b", None), (None, a)) == [
        ErrorCode.invalid_request,
        ErrorCode.none,
        ErrorCode.invalid_request,
    ], "the same topic by its name and by its id"
    assert delete(quorum, ("x", None), ("x", None)) == [ErrorCode.invalid_request] * 2
    assert list(quorum.image.topics) == ["a"]


def test_deletion_can_be_switched_off() -> None:
    quorum = unfenced(1, 2, 3, delete_topic_enable="false")
    create(quorum, topic("a"))
    assert delete(quorum, ("a", None)) == [ErrorCode.topic_deletion_disabled]
    for module, error in ((by_name, ErrorCode.invalid_request), (by_name_v3, ErrorCode.topic_deletion_disabled)):
        answer = quorum.do(
            quorum.controller.delete_topics(module.DeleteTopicsRequest(topic_names=("a",), timeout=TIMEOUT))
        )
        assert answer.responses[0].error_code is error
    assert "a" in quorum.image.topics


def test_a_broker_fenced_after_a_deletion_is_asked_about_no_partition_of_it(quorum: Quorum) -> None:
    quorum.create_on((1, 2, 3))
    delete(quorum, ("t", None))
    quorum.fence(1, SESSION)
    assert quorum.image.brokers[1].fenced
