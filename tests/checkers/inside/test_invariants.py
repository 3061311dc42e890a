"""The simulation's invariants: a healthy history of a partition breaks none, and each has one that breaks it."""

from __future__ import annotations

import asyncio
import uuid

import pytest
from kio.schema.types import BrokerId, TopicName
from kio.static.primitive import i32

from cluster_image.kraft.broker import rules
from cluster_image.kraft.metadata.image import NO_LEADER
from cluster_image.kraft.metadata.records import (
    RECOVERED,
    RECOVERING,
    ConfigRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from cluster_image.replication import rules as shared_rules
from cluster_image.storage.records import build_batch
from tests.cluster_image.replication.fetches import fetch_as_follower

from .invariants_world import BROKERS, LOOP, TOPIC, World


@pytest.fixture
def world() -> World:
    return World()


# -- healthy ----------------------------------------------------------------------------------------------------


def test_a_healthy_history_breaks_nothing(world: World) -> None:
    """Commits, an ISR that shrinks into the ELR, fail-over with divergence, a lossy power cut and the way back."""
    world.produce(1, b"a")
    world.fetch(1, 2, 3)
    assert world.partition(1).high_watermark == 1
    # 3 is fenced, then 2: it stays eligible. 1 writes on alone, uncommitted, and is fenced too; 2 takes over.
    world.commit(world.fencing(3), world.change(isr=(1, 2)))
    world.learn(1)
    world.produce(1, b"b")
    world.fetch(1, 2)
    world.commit(world.fencing(2), world.change(isr=(1,), eligible_leader_replicas=(2,)))
    world.learn(1)
    world.produce(1, b"c", acks=1)
    assert world.partition(1).high_watermark == 2
    world.commit(world.fencing(1), world.change(NO_LEADER, isr=(), eligible_leader_replicas=(1, 2)))
    world.commit(world.fencing(2, -1), world.change(2, isr=(2,), eligible_leader_replicas=(1,)))
    world.learn(2)
    world.produce(2, b"d", acks=1)
    world.invariants.check_all()
    # 1 comes back, with a tail that was never committed; 3 has lost its power, and all its log, meanwhile.
    world.commit(world.fencing(1, -1))
    world.learn(1)
    world.fetch(2, 1, times=3)
    world.lose(3)
    world.commit(world.change(isr=(2, 1), eligible_leader_replicas=()))
    world.learn(2, 1)
    world.fetch(2, 1)
    assert world.partition(2).high_watermark == 3
    world.return_(3)
    world.fetch(2, 3)
    world.commit(world.change(isr=(1, 2, 3)))
    world.learn(2, 1, 3)
    world.kill(2)
    world.invariants.check_all()
    assert not world.invariants.losses


def test_a_new_leaders_high_watermark_may_lag(world: World) -> None:
    world.produce(1, b"a")
    world.fetch(1, 2, 3, times=1)
    for follower in (2, 3):
        world.ask(follower, 1)  # commits at 1; the answers never come
    assert world.partition(1).high_watermark == 1
    world.commit(world.fencing(1), world.change(2, isr=(2, 3)))
    world.learn(2, 3)
    assert world.partition(2).high_watermark == 0
    world.fetch(2, 3)
    assert world.partition(2).high_watermark == 1


# -- controller -------------------------------------------------------------------------------------------------


def test_valid_controller_isr_and_elr(world: World) -> None:
    with world.violates("ValidControllerIsrAndElr", "[2] are in the ISR and in the ELR"):
        world.commit(world.change(isr=(1, 2), eligible_leader_replicas=(2,)))


def test_an_elr_beside_a_full_isr_is_not_valid(world: World) -> None:
    with world.violates("ValidControllerIsrAndElr", "the minimum is 2"):
        world.commit(world.change(isr=(1, 2), eligible_leader_replicas=(3,)))


def test_valid_controller_state(world: World) -> None:
    with world.violates("ValidControllerState", "[3] are in the ISR though fenced"):
        world.commit(world.fencing(3))


def test_min_isr_recovery_quorum(world: World) -> None:
    world.commit(world.fencing(3), world.change(isr=(1, 2)))
    world.commit(world.fencing(2), world.change(isr=(1,), eligible_leader_replicas=(2,)))
    world.commit(world.fencing(1), world.change(NO_LEADER, isr=(), eligible_leader_replicas=(1, 2)))
    world.commit(world.change(eligible_leader_replicas=(1,), last_known_elr=(2,)))
    with world.violates("MinIsrRecoveryQuorum", "only 1 replicas"):
        world.commit(world.change(eligible_leader_replicas=()))


def test_members_of_isr_and_elr_are_replicas(world: World) -> None:
    with world.violates("ValidControllerIsrAndElr", "is no replica"):
        world.commit(world.change(replicas=(1, 2)))


def test_an_election_from_the_elr_is_not_told_as_unclean(world: World) -> None:
    world.commit(world.fencing(3), world.change(isr=(1, 2)))
    world.commit(world.fencing(2), world.change(isr=(1,), eligible_leader_replicas=(2,)))
    world.commit(world.fencing(1), world.change(NO_LEADER, isr=(), eligible_leader_replicas=(1, 2)))
    with world.violates("UncleanRecovery", "broker 2 is elected from the ELR, and its election is told as unclean"):
        world.commit(
            world.fencing(2, fenced=-1),
            world.change(2, isr=(2,), eligible_leader_replicas=(), last_known_elr=(1,), recovery_state=RECOVERING),
        )


def test_an_election_from_neither_isr_nor_elr_is_told_as_unclean(world: World) -> None:
    world.commit(world.fencing(3), world.change(isr=(1, 2)))
    with world.violates("UncleanRecovery", "broker 3 is elected from neither ISR nor ELR"):
        world.commit(world.fencing(3, fenced=-1), world.change(3, isr=(3,), last_known_elr=(1, 2)))


def test_a_recovering_leader_is_alone_in_its_isr(world: World) -> None:
    with world.violates("ValidControllerState", "recovering"):
        world.commit(world.change(recovery_state=RECOVERING))


def test_what_is_known_of_a_partition_outlives_a_change_of_its_topics_settings(world: World) -> None:
    world.produce(1, b"a")
    world.fetch(1, 2, 3)
    world.commit(ConfigRecord(resource_name="t", name="segment.bytes", value="2000"))
    world.commit(world.change(isr=(1, 2)))
    with world.violates("LeaderCandidateCompleteness", "3"):
        world.lose(3)
        world.return_(3)
        world.commit(world.change(isr=(1, 2, 3)))


# -- reassignment and removal ------------------------------------------------------------------------------------


def test_a_replica_that_was_removed_and_is_one_again_starts_with_nothing(world: World) -> None:
    world.produce(1, b"a")
    world.fetch(1, 2, 3)
    world.commit(world.change(1, replicas=(1, 2), isr=(1, 2)))
    world.learn(1, 2)
    world.produce(1, b"b")
    world.fetch(1, 2)  # 3 knows nothing of it, and need not
    assert world.partition(1).high_watermark == 2
    world.drop(3)
    world.commit(world.change(1, replicas=(1, 2, 3), adding_replicas=(3,)))
    world.learn(1, 2)
    world.brokers[3].run()
    world.fetch(1, 2)
    world.invariants.check_all()
    with world.violates("LeaderCandidateCompleteness", "broker-3", "below 0"):
        world.commit(world.change(isr=(1, 2, 3)))


def test_a_reassignment_moves_the_partition_and_breaks_nothing(world: World) -> None:
    world.commit(world.change(1, replicas=(1, 2), isr=(1, 2)))
    world.learn(1, 2)
    world.drop(3)
    world.produce(1, b"a")
    world.fetch(1, 2)
    world.commit(world.change(1, replicas=(3, 1, 2), adding_replicas=(3,), removing_replicas=(2,)))
    world.learn(1, 2)
    world.brokers[3].run()
    world.fetch(1, 2, 3)
    world.fetch(1, 2, 3)
    # By one record 3 joins the ISR and leads, and 2 goes.
    world.commit(world.change(3, replicas=(3, 1), isr=(3, 1), adding_replicas=(), removing_replicas=()))
    world.learn(3, 1)
    world.drop(2)
    world.produce(3, b"b")
    world.fetch(3, 1)
    world.invariants.check_all()
    assert world.partition(3).high_watermark == 2
    assert not world.invariants.losses


def test_what_a_removed_replica_has_kept_does_not_count(world: World) -> None:
    world.produce(1, b"a")
    world.fetch(1, 2, 3)
    _everybody_out(world)
    world.commit(
        world.change(replicas=(1, 2), eligible_leader_replicas=(), last_known_elr=(1, 2)), world.fencing(1, -1)
    )
    world.learn(1, 2)
    with world.violates("NoCommittedRecordLostGlobally", "offsets 0 to 0"):
        for broker in (1, 2):
            world.partition(broker)._set_high_watermark(0)
            world.partition(broker)._truncate_to(0)
        world.check()


def test_a_topic_of_the_same_name_starts_anew(world: World) -> None:
    world.produce(1, b"a")
    world.fetch(1, 2, 3)
    other, ids = uuid.UUID(int=8), tuple(map(BrokerId, BROKERS))
    world.commit(
        RemoveTopicRecord(topic_id=TOPIC),
        TopicRecord(name=TopicName("t"), topic_id=other),
        PartitionRecord(partition_id=i32(0), topic_id=other, replicas=ids, isr=ids, leader=ids[0]),
    )
    world.partition(1)._truncate_to(0)  # it has not learned of it yet: nobody cares
    world.check()
    world.invariants.check_all()


# -- replication ------------------------------------------------------------------------------------------------


def test_replication_quorum_superset(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """M16: a proposed member does not count before the controller has agreed."""
    monkeypatch.setattr(rules, "maximal_isr", lambda isr, proposed: frozenset(isr))
    world.commit(world.fencing(3), world.change(isr=(1, 2)))
    world.learn(1)
    world.commit(world.fencing(3, -1))
    world.ask(3, 1)
    assert world.partition(1).leadership.proposal is not None  # type: ignore[union-attr]
    with world.violates("ReplicationQuorumSuperset", "maximal ISR [1, 2]", "elect [3]"):
        world.commit(world.change(isr=(1, 2, 3)))


def test_a_proposed_member_counts(world: World) -> None:
    world.commit(world.fencing(3), world.change(isr=(1, 2)))
    world.learn(1)
    world.commit(world.fencing(3, -1))
    world.ask(3, 1)
    world.commit(world.change(isr=(1, 2, 3)))
    world.learn(1)


def test_candidate_completeness_when_a_follower_truncates_to_its_high_watermark(world: World) -> None:
    """M01."""
    world.produce(1, b"a")
    world.fetch(1, 2, 3, times=1)
    world.ask(2, 1), world.ask(3, 1)
    world.commit(world.fencing(1), world.change(3, isr=(2, 3)))
    world.learn(3)
    follower = world.partition(2)
    follower._truncate_to(follower.high_watermark)
    with world.violates("LeaderCandidateCompleteness", "broker-2", "in the ISR", "up to offset 1", "below 0"):
        world.check()


@pytest.mark.parametrize("dropped", ["high watermark", "epoch start"])
def test_candidate_completeness_of_whom_a_leader_proposes(
    world: World, monkeypatch: pytest.MonkeyPatch, dropped: str
) -> None:
    """M25: the follower has not reached the high watermark. M24: nor the start of an epoch whose leader's lags."""
    world.commit(world.fencing(3), world.change(isr=(1, 2)))
    world.learn(1)
    world.commit(world.fencing(3, -1))
    world.produce(1, b"a")
    world.fetch(1, 2, times=1)
    world.ask(2, 1)
    leader = 1
    if dropped == "epoch start":
        world.commit(world.change(2, isr=(1, 2)))
        world.learn(2, 3)
        assert world.partition(2).high_watermark == 0
        leader = 2
    world.ask(3, leader)
    assert world.partition(leader).leadership.proposal is None  # type: ignore[union-attr]
    monkeypatch.setattr(
        rules,
        "may_join_isr",
        lambda end, watermark, start, eligible: (
            (dropped == "high watermark" or end >= watermark) and (dropped == "epoch start" or end >= start)
        ),
    )
    with world.violates("LeaderCandidateCompleteness", "broker-3 is proposed for the ISR", "up to offset 1"):
        world.ask(3, leader)


def test_candidate_completeness_of_the_elr(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """M15: Last Replica Standing."""
    monkeypatch.setattr(rules, "may_commit", lambda *args: True)
    world.commit(world.fencing(3), world.change(isr=(1, 2)))
    world.kill(2)
    world.commit(world.fencing(2), world.change(isr=(1,), eligible_leader_replicas=(2,)))
    world.learn(1)
    with world.violates("LeaderCandidateCompleteness", "broker-2", "in the ELR"):
        world.produce(1, b"a", acks=1)


def test_candidate_completeness_of_a_replica_that_lost_its_log(world: World) -> None:
    """M28, M37. Until it has registered, the controller cannot know."""
    world.produce(1, b"a")
    world.fetch(1, 2, 3)
    world.lose(3)
    world.brokers[3].boot()
    world.invariants.check_all()
    world.commit(world.fencing(3), world.change(isr=(1, 2)))
    world.commit(world.register(3))
    world.commit(world.fencing(3, -1), world.change(isr=(1, 2, 3)))
    world.brokers[3].run()
    with world.violates("LeaderCandidateCompleteness", "broker-3", "in the ISR"):
        world.check()


def test_leader_completeness(world: World) -> None:
    world.commit(world.fencing(3), world.change(isr=(1, 2)))
    world.learn(1)
    world.produce(1, b"a")
    world.fetch(1, 2)
    with world.violates("LeaderCompleteness", "broker-3", "elected leader of epoch 1", "up to offset 1"):
        world.commit(world.fencing(3, -1), world.fencing(1), world.change(3, isr=(2, 3)))


def test_unclean_recovery_within_the_contract_must_find_the_complete_replica(world: World) -> None:
    world.produce(1, b"a")
    world.fetch(1, 2, 3)
    _everybody_out(world)
    world.lose(3)
    world.return_(3, eligible_leader_replicas=(2,), last_known_elr=(3,))
    world.commit(world.change(eligible_leader_replicas=(), last_known_elr=(2, 3)))
    with world.violates("LeaderCompleteness", "broker-3"):
        world.commit(world.change(3, RECOVERING, isr=(3,), last_known_elr=(2,)))


def test_unclean_recovery_beyond_the_contract_is_noted(world: World) -> None:
    world.produce(1, b"a")
    world.fetch(1, 2, 3)
    _everybody_out(world)
    world.kill(1)
    world.lose(2)
    world.lose(3)
    world.return_(2, eligible_leader_replicas=(3,), last_known_elr=(2,))
    world.return_(3, eligible_leader_replicas=(), last_known_elr=(2, 3))
    world.commit(world.change(2, RECOVERING, isr=(2,), last_known_elr=(3,)))
    assert "offsets 0 to 0 are lost: broker-2" in "".join(world.invariants.losses)
    world.learn(2, 3)
    world.produce(2, b"b", acks=1)
    world.fetch(2, 3)
    world.commit(world.change(recovery_state=RECOVERED, isr=(2, 3), last_known_elr=()))
    world.learn(2)
    world.fetch(2, 3)
    assert world.partition(2).high_watermark == 1
    world.invariants.check_all()


@pytest.mark.parametrize("strategy", ["proactive", "manual"])
def test_what_a_strategy_without_promises_loses_is_noted(strategy: str) -> None:
    world = World(unclean_strategy=strategy)
    world.commit(world.fencing(3), world.change(isr=(1, 2)))
    world.learn(1)
    world.produce(1, b"a")
    world.fetch(1, 2)
    world.kill(1)
    world.kill(2)
    world.commit(world.fencing(1), world.change(2, isr=(2,), eligible_leader_replicas=(1,)))
    world.commit(world.fencing(2), world.change(NO_LEADER, isr=(), eligible_leader_replicas=(1, 2)))
    world.commit(
        world.fencing(3, -1),
        world.change(3, RECOVERING, isr=(3,), eligible_leader_replicas=(), last_known_elr=(1, 2)),
    )
    losses = "".join(world.invariants.losses)
    assert "broker-3 was elected without them for leader epoch 3 (unclean, by a strategy" in losses
    world.learn(3)
    world.invariants.check_all()


def test_within_the_contract_a_balanced_recovery_may_not_do_that(world: World) -> None:
    world.commit(world.fencing(3), world.change(isr=(1, 2)))
    world.learn(1)
    world.produce(1, b"a")
    world.fetch(1, 2)
    world.commit(world.fencing(1), world.change(2, isr=(2,), eligible_leader_replicas=(1,)))
    world.commit(world.fencing(2), world.change(NO_LEADER, isr=(), eligible_leader_replicas=(1, 2)))
    world.commit(world.fencing(3, -1))
    with world.violates("LeaderCompleteness", "broker-3 is elected"):
        world.commit(world.change(3, RECOVERING, isr=(3,), eligible_leader_replicas=(), last_known_elr=(1, 2)))


def _everybody_out(world: World) -> None:
    world.commit(world.fencing(1), world.change(2, isr=(2, 3)))
    world.commit(world.fencing(2), world.change(3, isr=(3,), eligible_leader_replicas=(2,)))
    world.commit(world.fencing(3), world.change(NO_LEADER, isr=(), eligible_leader_replicas=(2, 3)))


def test_no_committed_record_lost_globally(world: World) -> None:
    """Neither is in the ISR or the ELR, so only this property sees what has happened."""
    world.produce(1, b"a")
    world.fetch(1, 2, 3)
    _everybody_out(world)
    world.commit(world.change(eligible_leader_replicas=(), last_known_elr=(2, 3)))
    world.learn(1, 2)
    for broker in (1, 2):
        world.partition(broker)._set_high_watermark(0)
        world.partition(broker)._truncate_to(0)
    world.lose(3)
    with world.violates("NoCommittedRecordLostGlobally", "offsets 0 to 0"):
        world.return_(3)


def test_a_loss_beyond_the_contract_is_noted_once(world: World) -> None:
    world.produce(1, b"a")
    world.fetch(1, 2, 3)
    _everybody_out(world)
    world.commit(world.change(eligible_leader_replicas=(), last_known_elr=(2, 3)))
    for broker in BROKERS:
        world.lose(broker)
    for broker in BROKERS:
        world.return_(broker)
    world.invariants.check_all()
    assert len(world.invariants.losses) == 1 and "no replica has them" in world.invariants.losses[0]


def _last_replica_standing(world: World) -> None:
    world.produce(1, b"a")
    world.fetch(1, 2, 3)
    world.commit(world.fencing(1), world.change(2, isr=(2, 3)))
    world.commit(world.fencing(2), world.change(3, isr=(3,)))
    world.lose(3)
    world.commit(world.fencing(3), world.change(NO_LEADER))


def test_last_replica_standing_without_an_elr_violates_leader_completeness() -> None:
    world = World(elr_enabled=False)
    _last_replica_standing(world)
    world.return_(3)
    world.invariants.check_all()  # it is in the ISR only because the ISR cannot be empty
    with world.violates("LeaderCompleteness", "broker-3 is elected", "up to offset 1", "below 0"):
        world.commit(world.change(3))


def test_last_replica_standing_after_too_many_losses_is_noted() -> None:
    world = World(elr_enabled=False)
    _last_replica_standing(world)
    world.lose(2)
    world.return_(3)
    world.commit(world.change(3))
    assert "broker-3 was elected without them" in "".join(world.invariants.losses)


def test_log_matching_of_any_two_replicas(world: World) -> None:
    world.produce(1, b"a")
    other = world.partition(2)
    other.log.append_as_leader(build_batch([b"x"], timestamp_ms=0), 0)
    other._trace("append", "t-0", end=1)
    with world.violates("LogMatching", "broker-2", "broker-1", "offsets 0 to 0 of leader epoch 0"):
        world.check()


def test_log_matching_of_the_batches_before(world: World) -> None:
    """004's divergence: the same epoch begins at other offsets."""
    world.produce(1, b"a")
    world.commit(world.fencing(1), world.change(2, isr=(2, 3)))
    world.learn(2)
    world.produce(2, b"b")
    old = world.partition(1)
    old.log.append_as_leader(build_batch([b"c"], timestamp_ms=0), 1)
    old._trace("append", "t-0", end=2)
    with world.violates("LogMatching", "leader epoch 1 begins on broker-2", "on broker-1"):
        world.check()


def test_a_deposed_leaders_answer_breaks_log_matching(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """M13."""
    world.produce(1, b"a")
    late = world.ask(3, 1)
    world.commit(world.fencing(1), world.change(2, isr=(2, 3)))
    world.learn(2, 3)
    assert not world.take(3, late)
    monkeypatch.setattr(shared_rules, "may_apply_fetch", lambda *args: True)
    with world.violates("LogMatching", "broker-3 follows broker-2 in leader epoch 1"):
        world.take(3, late)


def test_leader_append_only(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """M13, of a replica that leads by now."""
    world.produce(1, b"a")
    late = world.ask(2, 1)
    world.commit(world.fencing(1), world.change(2, isr=(2, 3)))
    world.learn(2)
    monkeypatch.setattr(shared_rules, "may_apply_fetch", lambda *args: True)
    with world.violates("LeaderAppendOnly", "broker-2 leads epoch 1 from offset 0", "of leader epoch 0"):
        world.take(2, late)


def test_a_leader_that_cuts_its_log(world: World) -> None:
    world.produce(1, b"a")
    world.partition(1)._truncate_to(0)
    world.partition(1).append(build_batch([b"b"], timestamp_ms=0), 1, lambda: asyncio.Future(loop=LOOP))
    with world.violates("LogMatching"):  # it has written two records at one offset of its epoch
        world.check()


def test_leader_append_only_when_nothing_is_written_after(world: World) -> None:
    world.produce(1, b"a")
    world.partition(1)._truncate_to(0)
    with world.violates("LeaderAppendOnly", "has cut its log from 1 to 0"):
        world.check()


def test_strong_isr(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """M04: a fetch of an epoch long over is taken for news. 3 has truncated since."""
    world.produce(1, b"a")
    world.fetch(1, 2, 3, times=1)
    late = world.partition(3).log.end_offset
    world.commit(world.fencing(3), world.change(isr=(1, 2)))
    world.commit(world.fencing(3, -1))
    world.commit(world.change(2))
    world.partition(2)._truncate_to(0)
    world.learn(2, 3)
    world.fetch(2, 3)
    assert world.partition(3).log.end_offset == 0
    world.commit(world.change(1))
    world.learn(1)
    monkeypatch.setattr(rules, "refuse_leader_epoch", lambda ours, theirs: None)
    with world.violates("StrongIsr", "broker-1", "broker-3", "up to offset 1"):
        epoch = world.brokers[3].broker.broker_epoch
        fetch_as_follower(world.partition(1), 3, epoch, 0, late, 0, 1 << 20, 0.0, lambda replica, epoch: True)
        world.brokers[1].trace("isr proposed", "t-0")
        world.check()


def test_high_watermark_monotonicity(world: World) -> None:
    world.produce(1, b"a")
    world.fetch(1, 2, 3)
    leader = world.partition(1)
    leader._set_high_watermark(0)
    with world.violates("HighWatermarkMonotonicity", "fell from 1 to 0"):
        world.check()


def test_applied_high_watermark_monotonicity(world: World) -> None:
    """A new leader that takes its lagging watermark for the true one."""
    world.produce(1, b"a")
    world.fetch(1, 2, 3, times=1)
    world.ask(2, 1), world.ask(3, 1)
    world.commit(world.fencing(1), world.change(2, isr=(2, 3)))
    leader = world.partition(2)
    leader.apply(world.registration, 0.0)
    leader.leadership.epoch_start = 0  # type: ignore[union-attr]
    with world.violates("HighWatermarkMonotonicity", "epoch's start 0", "1 was reached before"):
        world.check()


def test_consistent_read(world: World) -> None:
    """A deposed leader goes on to commit by itself what others have committed otherwise."""
    world.commit(world.fencing(1), world.change(2, isr=(2, 3)))
    world.learn(2, 3)
    world.produce(2, b"a")
    world.produce(1, b"b")
    world.fetch(2, 3)
    assert world.partition(2).high_watermark == 1
    world.partition(1)._set_high_watermark(1)
    with world.violates("ConsistentRead", "broker-1, leader of epoch 0", "epoch 1"):
        world.check()


def test_check_all_sees_what_no_trace_told(world: World) -> None:
    world.produce(1, b"a")
    world.fetch(1, 2, 3)
    world.invariants.check_all()
    world.partition(2).log.truncate_to(0)
    world.check()
    with world.violates("LeaderCandidateCompleteness", "broker-2"):
        world.invariants.check_all()


def test_check_all_compares_what_it_has_seen_before(world: World) -> None:
    world.produce(1, b"a")
    world.fetch(1, 2, 3)
    world.invariants.check_all()
    log = world.partition(2).log
    log.truncate_to(0)
    log.append_as_leader(build_batch([b"x"], timestamp_ms=0), 0)
    with world.violates("LogMatching", "broker-2"):
        world.invariants.check_all()


def test_a_torn_log_of_a_power_cut_is_read_anew(world: World) -> None:
    """On a disk that really loses what was not synced."""
    world.produce(1, b"a")
    world.fetch(1, 2, 3)
    world.invariants.node_gone("broker-3", lossy=True)
    world.brokers[3].disk.lose_power()
    world.commit(world.fencing(3), world.change(isr=(1, 2)))
    world.learn(1)
    world.return_(3)
    world.learn(3)
    world.fetch(1, 3)
    world.commit(world.change(isr=(1, 2, 3)))
    world.invariants.check_all()
