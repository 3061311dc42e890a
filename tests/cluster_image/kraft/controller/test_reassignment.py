"""Reassignments: grow, catch up, shrink; cancelled and replaced (000, 2.3; description 4 and 6.7)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.schema.alter_partition_reassignments.v1.request import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from kio.schema.errors import ErrorCode
from kio.schema.list_partition_reassignments.v0.request import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)

from cluster_image.kraft.controller import rules
from cluster_image.kraft.metadata.image import PartitionRegistration
from tests.cluster_image.kraft.controller_quorum import SESSION, Quorum, unfenced

ALL = (1, 2, 3, 4, 5)


def quorum_of(*replicas: int, isr: tuple[int, ...] | None = None, **settings: str) -> Quorum:
    """Five brokers and a partition on these, of which the ISR is as given; MinISR is 2."""
    quorum = unfenced(*ALL, **settings)
    assert quorum.create_on(replicas) is ErrorCode.none
    if isr is not None:
        assert quorum.alter(replicas[0], {r: quorum.epochs[r] for r in isr}) is ErrorCode.none
    return quorum


def reassign(
    quorum: Quorum, *targets: tuple[int, ...] | None, topic: str = "t", index: int = 0, factor_may_change: bool = True
) -> Any:
    """The answer for the partition, asked once for each target in one request."""
    return quorum.do(
        quorum.controller.alter_partition_reassignments(
            AlterPartitionReassignmentsRequest(
                allow_replication_factor_change=factor_may_change,
                topics=(
                    ReassignableTopic(
                        name=topic,
                        partitions=tuple(ReassignablePartition(partition_index=index, replicas=t) for t in targets),
                    ),
                ),
            )
        )
    )


def error_of(answer: Any) -> ErrorCode:
    error: ErrorCode = answer.responses[0].partitions[0].error_code
    return error


def ongoing(quorum: Quorum, *indexes: int) -> list[tuple[int, tuple[int, ...], tuple[int, ...], tuple[int, ...]]]:
    """Index, replicas, adding and removing, of the partitions asked for, or of all."""
    topics = (ListPartitionReassignmentsTopics(name="t", partition_indexes=indexes),) if indexes else None
    step = quorum.controller.list_partition_reassignments(ListPartitionReassignmentsRequest(topics=topics))
    assert not step.records
    return [
        (p.partition_index, p.replicas, p.adding_replicas, p.removing_replicas)
        for topic in step.answer.topics  # type: ignore[union-attr]
        for p in topic.partitions
    ]


def epochs(partition: PartitionRegistration) -> tuple[int, int]:
    return partition.leader_epoch, partition.partition_epoch


def test_a_replica_is_moved_as_the_text_tells_it() -> None:
    """Description 4.4, example 1; replica 3, which is being removed, is not in sync."""
    quorum = quorum_of(1, 2, 3, isr=(1, 2))
    before = quorum.partition()
    assert error_of(reassign(quorum, (1, 2, 4))) is ErrorCode.none
    grown = quorum.partition()
    assert (grown.replicas, grown.isr, grown.adding, grown.removing) == ((1, 2, 4, 3), (1, 2), (4,), (3,))
    assert epochs(grown) == (before.leader_epoch, before.partition_epoch + 1), "growing is no new leader epoch"
    assert ongoing(quorum) == [(0, (1, 2, 4, 3), (4,), (3,))] == ongoing(quorum, 0, 7)
    assert quorum.join(4) is ErrorCode.none
    done = quorum.partition()
    assert (done.replicas, done.isr, done.adding, done.removing) == ((1, 2, 4), (1, 2, 4), (), ())
    assert epochs(done) == (grown.leader_epoch + 1, grown.partition_epoch + 1), "with the ISR, in one change"
    assert done.leader == 1
    assert not ongoing(quorum)


def test_two_added_replicas_are_waited_for_one_by_one() -> None:
    quorum = quorum_of(1, 2, 3)
    reassign(quorum, (1, 4, 5))
    quorum.join(4)
    halfway = quorum.partition()
    assert (halfway.replicas, halfway.isr, halfway.leader_epoch) == ((1, 4, 5, 2, 3), (1, 2, 3, 4), 0)
    quorum.join(5)
    assert (quorum.partition().replicas, set(quorum.partition().isr)) == ((1, 4, 5), {1, 4, 5})


def test_the_shrink_takes_leadership_and_tells_the_leader_so() -> None:
    """6.7, rule 3; the leader must not take the answer for its ISR."""
    quorum = quorum_of(1, 2, 3)
    reassign(quorum, (4, 5))
    assert quorum.join(4) is ErrorCode.none
    assert quorum.join(5) is ErrorCode.new_leader_elected
    done = quorum.partition()
    assert (done.leader, done.replicas, done.isr, done.leader_epoch) == (4, (4, 5), (4, 5), 1), "nobody is of both"


def test_only_removing_is_done_at_once_where_it_may_be() -> None:
    quorum = quorum_of(1, 2, 3, 4)
    assert error_of(reassign(quorum, (2, 3))) is ErrorCode.none
    done = quorum.partition()
    assert (done.replicas, done.isr, done.leader, done.adding, done.removing) == ((2, 3), (2, 3), 2, (), ())
    assert epochs(done) == (1, 1)


def test_only_removing_waits_for_the_target_to_be_in_sync() -> None:
    """Description 4.4, example 2, but for the end: here all of the target are waited for, as Apache Kafka does
    (M49)."""
    quorum = quorum_of(5, 4, 3, 2, 1, isr=(5, 4))
    reassign(quorum, (1, 2, 3))
    assert quorum.partition().removing == (5, 4)
    assert (quorum.partition().isr, quorum.partition().leader_epoch) == ((5, 4), 0)
    quorum.join(1)
    quorum.join(2)
    assert quorum.partition().replicas == (1, 2, 3, 5, 4), "the ISR would be MinISR, but 3 is not in it"
    assert quorum.join(3) is ErrorCode.new_leader_elected
    assert (quorum.partition().replicas, set(quorum.partition().isr)) == ((1, 2, 3), {1, 2, 3})


def test_a_minimum_that_has_been_raised_meanwhile_is_waited_for() -> None:
    """6.7, rule 1. All of the target are in sync, and would be fewer than MinISR by themselves."""
    quorum = quorum_of(1, 2, 3)
    reassign(quorum, (4, 5))
    quorum.image.topics["t"].settings["min.insync.replicas"] = "3"
    quorum.join(4)
    assert quorum.join(5) is ErrorCode.none
    assert (quorum.partition().replicas, len(quorum.partition().isr)) == ((4, 5, 1, 2, 3), 5)
    quorum.image.topics["t"].settings["min.insync.replicas"] = "2"
    assert quorum.join() is ErrorCode.new_leader_elected
    assert (quorum.partition().replicas, quorum.partition().isr) == ((4, 5), (4, 5))


def test_only_adding_is_a_new_leader_epoch_when_it_is_done() -> None:
    """000, 2.3.1: one leader epoch is unique to one assignment."""
    quorum = quorum_of(1, 2)
    reassign(quorum, (1, 2, 3))
    assert (quorum.partition().adding, quorum.partition().removing, epochs(quorum.partition())) == ((3,), (), (0, 1))
    quorum.join(3)
    assert (quorum.partition().adding, epochs(quorum.partition())) == ((), (1, 2))


def test_another_order_is_no_reassignment() -> None:
    quorum = quorum_of(1, 2, 3)
    assert error_of(reassign(quorum, (3, 1, 2))) is ErrorCode.none
    partition = quorum.partition()
    assert (partition.replicas, partition.leader, epochs(partition)) == ((3, 1, 2), 1, (0, 1))
    assert not ongoing(quorum)
    assert error_of(reassign(quorum, (3, 1, 2))) is ErrorCode.none
    assert epochs(quorum.partition()) == (0, 1), "nothing to change"


def test_cancelling_goes_back_to_where_it_began() -> None:
    quorum = quorum_of(1, 2, 3)
    assert error_of(reassign(quorum, None)) is ErrorCode.no_reassignment_in_progress
    reassign(quorum, (1, 4, 5))
    quorum.join(4)
    assert error_of(reassign(quorum, None)) is ErrorCode.none
    partition = quorum.partition()
    assert (partition.replicas, partition.isr, partition.adding, partition.removing) == ((1, 2, 3), (1, 2, 3), (), ())
    assert partition.leader_epoch == 1, "what 4 has fetched must count no more"


def test_cancelling_must_not_leave_too_few_in_sync() -> None:
    """Description 4.5."""
    quorum = quorum_of(1, 2, 3)
    reassign(quorum, (4, 5))
    quorum.join(4)
    quorum.alter(1, {1: quorum.epochs[1], 4: quorum.epochs[4]})
    before = quorum.partition()
    assert error_of(reassign(quorum, None)) is ErrorCode.invalid_replica_assignment
    assert quorum.partition() == before
    quorum.join(2)
    assert error_of(reassign(quorum, None)) is ErrorCode.none


def test_an_added_replica_that_alone_is_complete_is_not_dropped() -> None:
    """Not even from the ELR: nobody else may be elected."""
    quorum = quorum_of(1, 2, 3)
    reassign(quorum, (4, 5))
    quorum.join(4)
    quorum.alter(1, {1: quorum.epochs[1], 4: quorum.epochs[4]})
    quorum.fence(1, SESSION)
    quorum.fence(4, 2 * SESSION)
    assert quorum.state()[:3] == (-1, (), (1, 4))
    assert error_of(reassign(quorum, None)) is ErrorCode.invalid_replica_assignment


def test_a_second_reassignment_replaces_the_first() -> None:
    """What the first added and the second does not want goes at once; where both began stays known."""
    quorum = quorum_of(1, 2, 3)
    reassign(quorum, (1, 2, 4))
    quorum.join()
    assert error_of(reassign(quorum, (1, 2, 5))) is ErrorCode.none
    partition = quorum.partition()
    assert (partition.replicas, partition.adding, partition.removing) == ((1, 2, 5, 3), (5,), (3,))
    assert partition.leader_epoch == 1
    reassign(quorum, None)
    assert set(quorum.partition().replicas) == {1, 2, 3}


def test_going_back_by_a_target_is_the_same_as_cancelling() -> None:
    quorum = quorum_of(1, 2, 3)
    reassign(quorum, (1, 4, 5))
    assert error_of(reassign(quorum, (1, 2, 3))) is ErrorCode.none
    partition = quorum.partition()
    assert (partition.replicas, partition.adding, partition.removing) == ((1, 2, 3), (), ())


def test_who_is_no_replica_is_not_eligible_either() -> None:
    quorum = quorum_of(1, 2, 3, isr=(1, 2))
    quorum.fence(2, SESSION)
    quorum.alter(1, {1: quorum.epochs[1]})
    assert quorum.state() == (1, (1,), (2,), ())
    assert error_of(reassign(quorum, (1, 4))) is ErrorCode.none
    assert quorum.partition().elr == (2,), "still a replica"
    quorum.join(4)
    assert (quorum.partition().replicas, *quorum.state()) == ((1, 4), 1, (1, 4), (), ())


@pytest.mark.parametrize(
    ("target", "why"),
    [((), "nobody"), ((1, 1, 2), "twice"), ((1, 2, 9), "unknown"), ((4,), "fewer than MinISR, for ever")],
)
def test_targets_that_make_no_sense(target: tuple[int, ...], why: str) -> None:
    quorum = quorum_of(1, 2, 3)
    assert error_of(reassign(quorum, target)) is ErrorCode.invalid_replica_assignment, why
    assert epochs(quorum.partition()) == (0, 0)


def test_a_partition_that_never_had_min_isr_replicas_can_be_moved() -> None:
    quorum = quorum_of(1)
    assert error_of(reassign(quorum, (2,))) is ErrorCode.none
    assert quorum.join(2) is ErrorCode.new_leader_elected
    assert (quorum.partition().replicas, quorum.partition().leader) == ((2,), 2)


def test_what_is_not_there_and_what_is_named_twice() -> None:
    quorum = quorum_of(1, 2, 3)
    assert error_of(reassign(quorum, (1, 2), topic="u")) is ErrorCode.unknown_topic_or_partition
    assert error_of(reassign(quorum, (1, 2), index=1)) is ErrorCode.unknown_topic_or_partition
    answer = reassign(quorum, (1, 2, 4), (1, 2, 5))
    assert {p.error_code for p in answer.responses[0].partitions} == {ErrorCode.invalid_request}
    assert not ongoing(quorum)


def test_a_request_may_insist_on_the_replication_factor() -> None:
    quorum = quorum_of(1, 2, 3)
    answer = reassign(quorum, (1, 2), factor_may_change=False)
    assert error_of(answer) is ErrorCode.invalid_replication_factor and not answer.allow_replication_factor_change
    assert error_of(reassign(quorum, (1, 2, 4), factor_may_change=False)) is ErrorCode.none


def test_a_fenced_target_is_waited_for() -> None:
    quorum = quorum_of(1, 2, 3)
    quorum.fence(4, SESSION)
    assert error_of(reassign(quorum, (1, 2, 4))) is ErrorCode.none
    assert quorum.join(4) is ErrorCode.ineligible_replica
    quorum.heartbeat(4, SESSION)
    assert quorum.join(4) is ErrorCode.none
    assert quorum.partition().replicas == (1, 2, 4)


def test_a_reassignment_goes_on_with_another_leader() -> None:
    quorum = quorum_of(1, 2, 3)
    reassign(quorum, (2, 3, 4))
    quorum.fence(1, SESSION)
    assert quorum.partition().leader in (2, 3)
    assert quorum.join(4) in (ErrorCode.none, ErrorCode.new_leader_elected)
    assert (quorum.partition().replicas, ongoing(quorum)) == ((2, 3, 4), [])


def test_a_removed_replica_is_not_added_back() -> None:
    """M50: by a leader that does not know of the removal yet, or does not mind."""
    quorum = quorum_of(1, 2, 3)
    before = quorum.partition()
    reassign(quorum, (1, 2))
    everyone = {b: quorum.epochs[b] for b in (1, 2, 3)}
    stale = quorum.alter(1, everyone, leader_epoch=before.leader_epoch, partition_epoch=before.partition_epoch)
    assert stale is ErrorCode.fenced_leader_epoch
    assert quorum.alter(1, everyone) is ErrorCode.invalid_request
    assert (quorum.partition().replicas, quorum.partition().isr) == ((1, 2), (1, 2))


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_no_step_of_any_reassignment_breaks_the_rules(data: st.DataObject) -> None:
    """6.7: whatever is asked for and whoever fails, a reassignment adds nobody to the ISR, takes nobody out of it so
    that fewer than MinISR are left, and each loss of a replica is a new leader epoch."""
    quorum = quorum_of(1, 2, 3, eligible_leader_replicas_version=data.draw(st.sampled_from("01")))
    now = 0.0
    brokers = st.lists(st.sampled_from(ALL), min_size=1, max_size=4, unique=True).map(tuple)
    for _ in range(data.draw(st.integers(1, 12))):
        before = quorum.partition()
        action = data.draw(st.sampled_from(("reassign", "cancel", "join", "leave", "fence", "unfence")))
        if action in ("reassign", "cancel"):
            reassign(quorum, data.draw(brokers) if action == "reassign" else None)
            after = quorum.partition()
            assert set(after.isr) <= set(before.isr)
            assert after.isr == before.isr or len(after.isr) >= 2
        elif action == "join" and before.leader > 0:
            newcomers = [r for r in before.replicas if r not in before.isr and quorum.image.brokers[r].active]
            if newcomers:
                quorum.join(data.draw(st.sampled_from(newcomers)))
        elif action == "leave" and before.leader > 0:
            stay = {r: quorum.epochs[r] for r in before.isr if r == before.leader or data.draw(st.booleans())}
            quorum.alter(before.leader, stay)
        elif action == "fence":
            now += SESSION
            quorum.fence(data.draw(st.sampled_from(ALL)), now)
        elif action == "unfence":
            quorum.heartbeat(data.draw(st.sampled_from(ALL)), now)
        after = quorum.partition()
        replicas = set(after.replicas)
        assert {*after.isr, *after.elr, *after.last_known_elr} <= replicas
        assert set(after.adding) | set(after.removing) <= replicas and not set(after.adding) & set(after.removing)
        assert len(after.replicas) == len(replicas) and len(replicas - set(after.removing)) >= 2
        assert after.leader in (*after.isr, -1)
        if not set(before.replicas) <= replicas or ((before.adding or before.removing) and not ongoing(quorum)):
            assert after.leader_epoch > before.leader_epoch
        if not set(before.replicas) <= replicas and action in ("join", "leave", "reassign"):
            assert len(after.isr) >= 2 or set(after.isr) == set(before.isr)
        assert (after == before) == (after.partition_epoch == before.partition_epoch)
    assert set(quorum.partition().isr) | set(quorum.partition().elr), "somebody complete is known"


def test_m49_a_rule_that_completes_too_early_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    too_early = lambda target, adding, isr, min_isr: bool({*target} & {*isr})  # noqa: E731
    monkeypatch.setattr(rules, "may_complete_reassignment", too_early)
    quorum = quorum_of(1, 2, 3)
    reassign(quorum, (1, 4, 5))
    assert quorum.partition().isr == (1,), "one replica has it all, and two have nothing"
