"""AdministratorAnswered: what the controller decides as it is asked is not blamed, and what it does not is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Final
from uuid import UUID

import pytest
from kio.schema.alter_partition_reassignments.v1 import request as reassign
from kio.schema.elect_leaders.v2 import request as elect
from kio.schema.errors import ErrorCode
from kio.schema.list_partition_reassignments.v0 import request as listing
from kio.schema.list_partition_reassignments.v0 import response as listing_response
from kio.schema.unregister_broker.v0.request import UnregisterBrokerRequest

from checkers.inside.kraft.simulated.answering.deciding import DecidingOracle
from checkers.inside.violation import Violated
from cluster_image.kraft.controller.term import Step
from tests.cluster_image.kraft.controller.test_controller import SESSION, Quorum, three_brokers
from workloads.clients.kio.administration import requests

TOPIC: Final = (requests.TOPIC, "t")
ALL_BROKERS: Final = (requests.BROKER, "")


def moved(*replicas: int | None, topic: str = "t", index: int = 0) -> Any:
    """None: the move is cancelled."""
    ids = None if None in replicas else replicas
    return reassign.AlterPartitionReassignmentsRequest(topics=(
        reassign.ReassignableTopic(
            name=topic, partitions=(reassign.ReassignablePartition(partition_index=index, replicas=ids),)  # type: ignore[arg-type]
        ),
    ))  # fmt: skip


def elected(*partitions: tuple[str, int]) -> Any:
    """Of none: of all."""
    asked = tuple(elect.TopicPartitions(topic=topic, partitions=(index,)) for topic, index in partitions)  # type: ignore[arg-type]
    return elect.ElectLeadersRequest(election_type=0, topic_partitions=asked or None)  # type: ignore[arg-type]


def created(name: str = "u", partitions: int = 3, factor: int = 2, **how: Any) -> Any:
    return requests.create_topic_request(name, partitions, factor, {"segment.bytes": "4096"}, 1.0, **how)


def another_leads(quorum: Quorum) -> None:
    """Broker 1 was away, and is back in the ISR."""
    quorum.fence(1, SESSION)
    quorum.heartbeat(1, SESSION)
    assert quorum.alter(2, {each: quorum.epochs[each] for each in (1, 2, 3)}) is ErrorCode.none


def on_its_way(quorum: Quorum) -> None:
    quorum.do(quorum.controller.alter_partition_reassignments(moved(1, 2)))
    quorum.do(quorum.controller.alter_partition_reassignments(moved(1, 2, 3)))


def one_is_away(quorum: Quorum) -> None:
    quorum.fence(3, SESSION)


def one_has_left(quorum: Quorum) -> None:
    quorum.do(quorum.controller.alter_partition_reassignments(moved(1, 2)))
    quorum.fence(3, SESSION)


def is_set(quorum: Quorum) -> None:
    quorum.do(quorum.controller.alter_configs(requests.alter_settings_request({TOPIC: {"flush.messages": "7"}})))


#: By name: what is asked for, the error that fits, and what came before.
ASKED: Final[dict[str, tuple[Any, ErrorCode, Callable[[Quorum], None] | None]]] = {
    "a topic": (created(), ErrorCode.none, None),
    "a topic by hand": (created(assignment=[(1, 2), (3, 1)]), ErrorCode.none, None),
    "a topic beside who is away": (created(factor=3), ErrorCode.none, one_is_away),
    "a topic to be looked at": (created(only_validate=True), ErrorCode.none, None),
    "a topic that there is": (created("t"), ErrorCode.topic_already_exists, None),
    "too many replicas": (created(factor=4), ErrorCode.invalid_replication_factor, None),
    "no such broker": (created(assignment=[(1, 9)]), ErrorCode.invalid_replica_assignment, None),
    "partitions": (requests.create_partitions_request("t", 4, 1.0), ErrorCode.none, None),
    "partitions by hand": (
        requests.create_partitions_request("t", 2, 1.0, assignment=[(3, 2, 1)]), ErrorCode.none, None
    ),
    "partitions that there are": (requests.create_partitions_request("t", 1, 1.0), ErrorCode.invalid_partitions, None),
    "partitions of nothing": (
        requests.create_partitions_request("v", 4, 1.0), ErrorCode.unknown_topic_or_partition, None
    ),
    "a deletion": (requests.delete_topic_request("t", 1.0), ErrorCode.none, None),
    "a deletion of nothing": (requests.delete_topic_request("v", 1.0), ErrorCode.unknown_topic_or_partition, None),
    "a deletion by an id": (requests.delete_topic_request(UUID(int=5), 1.0), ErrorCode.unknown_topic_id, None),
    "another order": (moved(3, 1, 2), ErrorCode.none, None),
    "fewer replicas": (moved(1, 2), ErrorCode.none, None),
    "a cancelled move": (moved(None), ErrorCode.none, on_its_way),
    "no move": (moved(None), ErrorCode.no_reassignment_in_progress, None),
    "a move of nothing": (moved(1, 2, topic="v"), ErrorCode.unknown_topic_or_partition, None),
    "a move to nobody": (moved(1, 9), ErrorCode.invalid_replica_assignment, None),
    "a move to one": (moved(1), ErrorCode.invalid_replica_assignment, None),
    "an election": (elected(("t", 0)), ErrorCode.none, another_leads),
    "elections": (elected(), ErrorCode.none, another_leads),
    "no election": (elected(("t", 0)), ErrorCode.election_not_needed, None),
    "an election of who is away": (
        elected(("t", 0)), ErrorCode.preferred_leader_not_available, lambda quorum: quorum.fence(1, SESSION)
    ),
    "an election of nothing": (elected(("v", 0)), ErrorCode.unknown_topic_or_partition, None),
    "settings": (
        requests.alter_settings_request({TOPIC: {"segment.bytes": "2048"}, ALL_BROKERS: {
            "leader.replication.throttled.rate": "9999"}}), ErrorCode.none, None,
    ),
    "a setting as it was": (requests.alter_settings_request({TOPIC: {"flush.messages": None}}), ErrorCode.none, is_set),
    "settings of nothing": (
        requests.alter_settings_request({(requests.TOPIC, "v"): {"segment.bytes": "2048"}}),
        ErrorCode.unknown_topic_or_partition, None,
    ),
    "who has left": (UnregisterBrokerRequest(broker_id=3), ErrorCode.none, one_has_left),  # type: ignore[arg-type]
    "who has replicas": (UnregisterBrokerRequest(broker_id=3), ErrorCode.invalid_request, one_is_away),  # type: ignore[arg-type]
    "who never came": (UnregisterBrokerRequest(broker_id=9), ErrorCode.broker_id_not_registered, None),  # type: ignore[arg-type]
}  # fmt: skip


def decided(quorum: Quorum, request: Any) -> Step:
    name = type(request).__name__
    controller = quorum.controller
    found: Any = {
        "CreateTopicsRequest": controller.create_topics, "DeleteTopicsRequest": controller.delete_topics,
        "CreatePartitionsRequest": controller.create_partitions, "ElectLeadersRequest": controller.elect_leaders,
        "AlterPartitionReassignmentsRequest": controller.alter_partition_reassignments,
        "IncrementalAlterConfigsRequest": controller.alter_configs,
        "UnregisterBrokerRequest": lambda asked: controller.unregister_broker(asked, 3 * SESSION),
    }[name](request)  # fmt: skip
    return next(found) if isinstance(found, Iterator) else found


def answered(answer: Any, error: ErrorCode) -> Any:
    """The same, with this error wherever it has one of a part."""
    for field in ("topics", "responses", "results", "replica_election_results", "partitions", "partition_result"):
        if parts := getattr(answer, field, ()):
            return replace(answer, **{field: tuple(answered(part, error) for part in parts)})
    return replace(answer, error_code=error)


def errors(answer: Any) -> set[ErrorCode]:
    for field in ("topics", "responses", "results", "replica_election_results", "partitions", "partition_result"):
        if parts := getattr(answer, field, ()):
            return set().union(*(errors(part) for part in parts))
    return {answer.error_code}


def prepared(case: str) -> tuple[Quorum, Any, ErrorCode, Step]:
    request, error, before = ASKED[case]
    quorum = three_brokers()
    if before is not None:
        before(quorum)
    return quorum, request, error, decided(quorum, request)


def judge(quorum: Quorum, request: Any, step: Step) -> None:
    oracle = DecidingOracle(2, deletes_topics=True, session_s=SESSION)
    oracle.decided("controller-1", request, quorum.image, step, 0.0)
    oracle.raise_found()


@pytest.mark.parametrize("case", ASKED)
def test_what_is_decided_as_it_is_asked_is_not_blamed(case: str) -> None:
    quorum, request, error, step = prepared(case)
    assert errors(step.answer) == {error}
    judge(quorum, request, step)


@pytest.mark.parametrize("case", ASKED)
def test_another_error_is_blamed(case: str) -> None:
    quorum, request, error, step = prepared(case)
    other = ErrorCode.unknown_server_error if error is ErrorCode.none else ErrorCode.none
    with pytest.raises(Violated, match=r"controller-1 decides .*") as told:
        judge(quorum, request, step._replace(answer=answered(step.answer, other)))
    assert (told.value.property, told.value.nodes) == ("AdministratorAnswered", ("controller-1",))


@pytest.mark.parametrize("case", [case for case, (_, error, _) in ASKED.items() if error is ErrorCode.none])
def test_what_is_not_written_is_blamed(case: str) -> None:
    quorum, request, _, step = prepared(case)
    if not step.records:
        assert case == "a topic to be looked at"
        step = decided(quorum, replace(request, validate_only=False))
        with pytest.raises(Violated, match="it was to look only, and writes something"):
            judge(quorum, request, step)
        return
    with pytest.raises(Violated):
        judge(quorum, request, step._replace(records=()))


def test_a_topic_whose_partitions_are_all_led_by_one_broker_is_blamed() -> None:
    quorum, request, _, _ = prepared("a topic")
    uneven = decided(quorum, created(assignment=[(1, 2), (1, 3), (1, 2)]))
    with pytest.raises(Violated, match=r"its leaders are not dealt out evenly: \{1: 3, 2: 0, 3: 0\}"):
        judge(quorum, request, uneven)


def test_replicas_on_who_is_away_are_blamed_where_others_are_there() -> None:
    quorum, request, _, _ = prepared("a topic")
    one_is_away(quorum)
    with pytest.raises(Violated, match=r"of the replicas \[1, 3\] of u-0 \[3\] are not available, and 2 brokers are"):
        judge(quorum, request, decided(quorum, created(assignment=[(1, 3), (2, 1), (2, 1)])))


@pytest.mark.parametrize("asked", [None, [("t", 0)], [("t", 1), ("v", 0)]], ids=["all", "one", "others"])
def test_moves_are_told_as_they_are(asked: Any) -> None:
    quorum, request, _, _ = prepared("a cancelled move")
    quorum.do(quorum.controller.alter_partition_reassignments(moved(2, 3)))
    topics = None if asked is None else tuple(
        listing.ListPartitionReassignmentsTopics(name=name, partition_indexes=(index,)) for name, index in asked
    )  # fmt: skip
    request = listing.ListPartitionReassignmentsRequest(topics=topics)
    step = quorum.controller.list_partition_reassignments(request)
    judge(quorum, request, step)
    assert step.answer is not None
    other = () if step.answer.topics else quorum.controller.list_partition_reassignments(  # type: ignore[attr-defined]
        listing.ListPartitionReassignmentsRequest(topics=None)
    ).answer.topics
    nothing: Any = listing_response.OngoingTopicReassignment(name="u", partitions=())
    with pytest.raises(Violated, match="it tells of topics of which nothing moves"):
        judge(quorum, request, step._replace(answer=replace(step.answer, topics=(*step.answer.topics, nothing))))  # type: ignore[attr-defined]
    with pytest.raises(Violated, match="move, and it tells of"):
        judge(quorum, request, step._replace(answer=replace(step.answer, topics=other)))


@pytest.mark.parametrize(
    ("by_hand", "chosen"),
    [
        (created(assignment=[(1, 2)]), created(partitions=1)),
        (
            requests.create_partitions_request("t", 2, 1.0, assignment=[(1, 2, 4)]),
            requests.create_partitions_request("t", 2, 1.0),
        ),
    ],
)
def test_replicas_may_be_uneven_over_racks_only_by_hand(by_hand: Any, chosen: Any) -> None:
    quorum = three_brokers()
    quorum.register(4)
    quorum.heartbeat(4, 0.0)
    for broker in (2, 4):
        quorum.image.brokers[broker] = replace(quorum.image.brokers[broker], rack="rack-1")
    step = decided(quorum, by_hand)
    assert errors(step.answer) == {ErrorCode.none}
    judge(quorum, by_hand, step)
    with pytest.raises(Violated, match=r"of the replicas .* are in rack 'rack-1', and 0 in rack 'rack-3'") as told:
        judge(quorum, chosen, step)
    assert told.value.property == "ValidReplicas"
    several = replace(chosen, topics=(*chosen.topics, replace(chosen.topics[0], name="another")))
    with pytest.raises(Violated, match="are in rack 'rack-1'"):
        judge(quorum, several, step)


def test_where_no_topic_may_be_deleted() -> None:
    quorum, request, _, step = prepared("a deletion")
    oracle = DecidingOracle(2, deletes_topics=False, session_s=SESSION)
    oracle.decided("controller-1", request, quorum.image, step, 0.0)
    with pytest.raises(Violated, match="no topic may be deleted, and it answers none"):
        oracle.raise_found()


def test_an_error_of_a_check_is_none_of_the_node() -> None:
    quorum, request, _, step = prepared("a deletion")
    oracle = DecidingOracle(2, deletes_topics=True, session_s=SESSION)
    nothing: Any = None
    oracle.decided("controller-1", nothing, quorum.image, step, 0.0)
    oracle.decided("controller-1", request, nothing, step._replace(records=()), 0.0)
    with pytest.raises(AttributeError):
        oracle.raise_found()
