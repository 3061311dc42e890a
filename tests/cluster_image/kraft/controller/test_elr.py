"""ISR, ELR and LastKnownELR as the controller keeps them: the transitions of 002, 5.2.1, and what surrounds them."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from kio.schema.errors import ErrorCode

from checkers.inside.kraft.simulated import metadata
from cluster_image.kraft.controller import rules
from cluster_image.kraft.controller.rules import LogInfo
from cluster_image.kraft.metadata.records import NO_LEADER
from tests.cluster_image.kraft.controller.test_controller import SESSION, Quorum, three_brokers
from tests.cluster_image.kraft.controller.test_unclean_recovery import all_fenced, recover


@pytest.fixture
def quorum() -> Quorum:
    """Leader 1, ISR 1 to 3, MinISR 2."""
    return three_brokers()


def shrink(quorum: Quorum, *isr: int) -> None:
    """The leader proposes this ISR, and it is accepted."""
    assert quorum.alter(quorum.partition().leader, {r: quorum.epochs[r] for r in isr}) is ErrorCode.none


# -- 002, 5.2.1 -------------------------------------------------------------------------------------------------


def test_case_a_a_follower_fenced_below_min_isr_is_eligible(quorum: Quorum) -> None:
    shrink(quorum, 1, 2)
    quorum.fence(2, SESSION)
    assert quorum.state() == (1, (1,), (2,), ())


def test_case_b_an_eligible_replica_that_is_elected_moves_into_the_isr(quorum: Quorum) -> None:
    shrink(quorum, 1, 2)
    shrink(quorum, 1)
    assert quorum.state() == (1, (1,), (2,), ())
    epoch = quorum.partition().leader_epoch
    quorum.fence(1, SESSION)
    assert quorum.state() == (2, (2,), (1,), ())
    assert quorum.partition().leader_epoch == epoch + 1


def test_case_b_an_isr_member_is_elected_before_one_of_the_elr() -> None:
    quorum = three_brokers(min_insync_replicas="3")
    shrink(quorum, 1, 3)
    assert quorum.state() == (1, (1, 3), (2,), ())
    quorum.fence(1, SESSION)
    assert quorum.state() == (3, (3,), (1, 2), ())


def test_case_c_a_leader_fenced_below_min_isr_is_eligible(quorum: Quorum) -> None:
    shrink(quorum, 1, 2)
    quorum.fence(1, SESSION)
    assert quorum.state() == (2, (2,), (1,), ())


def test_case_d_a_leader_that_leaves_min_isr_behind_is_not_eligible(quorum: Quorum) -> None:
    quorum.fence(1, SESSION)
    assert quorum.state() == (2, (2, 3), (), ())


def test_case_e_a_follower_that_has_caught_up_joins_the_isr(quorum: Quorum) -> None:
    quorum.fence(3, SESSION)
    quorum.comes_back(3, 2 * SESSION)
    assert quorum.state() == (1, (1, 2), (), ()), "its return alone proves nothing"
    shrink(quorum, 1, 2, 3)
    assert quorum.state() == (1, (1, 2, 3), (), ())


def test_case_e_an_eligible_replica_that_joins_the_isr_leaves_the_elr() -> None:
    quorum = three_brokers(min_insync_replicas="3")
    shrink(quorum, 1)
    assert quorum.state() == (1, (1,), (2, 3), ())
    shrink(quorum, 1, 2)
    assert quorum.state() == (1, (1, 2), (3,), ())


def test_case_f_a_follower_that_lags_behind_a_large_enough_isr_is_not_eligible(quorum: Quorum) -> None:
    shrink(quorum, 1, 3)
    assert quorum.state() == (1, (1, 3), (), ())


def test_case_g_nobody_is_eligible_beside_an_isr_that_has_grown_to_min_isr(quorum: Quorum) -> None:
    shrink(quorum, 1, 2)
    quorum.fence(2, SESSION)
    assert quorum.state() == (1, (1,), (2,), ())
    shrink(quorum, 1, 3)
    assert quorum.state() == (1, (1, 3), (), ())


# -- nobody leads -----------------------------------------------------------------------------------------------


def test_no_leader_while_all_candidates_are_fenced(quorum: Quorum) -> None:
    """The leader epoch rises all the same: nobody must go on following the one before."""
    quorum.fence(1, SESSION)
    quorum.fence(2, 2 * SESSION)
    epoch = quorum.partition().leader_epoch
    quorum.fence(3, 3 * SESSION)
    assert quorum.state() == (NO_LEADER, (), (2, 3), ())
    assert quorum.partition().leader_epoch == epoch + 1


@pytest.mark.parametrize("broker", [2, 3])
def test_whichever_eligible_replica_is_back_first_is_elected(broker: int) -> None:
    quorum = all_fenced()
    quorum.heartbeat(broker, 4 * SESSION)
    other = 5 - broker
    assert quorum.state() == (broker, (broker,), (other,), ())


def test_a_replica_that_is_not_eligible_is_not_elected() -> None:
    quorum = all_fenced()
    quorum.heartbeat(1, 4 * SESSION)
    assert quorum.state() == (NO_LEADER, (), (2, 3), ())


def test_a_clean_restart_keeps_eligibility() -> None:
    quorum = all_fenced()
    quorum.comes_back(2, 4 * SESSION, clean=True)
    assert quorum.state() == (2, (2,), (3,), ())


# -- unclean shutdowns ------------------------------------------------------------------------------------------


def test_an_eligible_replica_that_returns_unclean_is_only_known_to_have_been_eligible() -> None:
    """002, 5.3.1, figure 3."""
    quorum = all_fenced()
    epoch = quorum.partition().leader_epoch
    quorum.register(2, 4 * SESSION, 99)
    assert quorum.state() == (NO_LEADER, (), (3,), (2,))
    assert quorum.partition().leader_epoch == epoch, "nothing is elected"
    quorum.heartbeat(2, 4 * SESSION)
    assert quorum.state()[0] == NO_LEADER


def test_an_isr_member_that_returns_unclean_before_it_was_fenced_leaves_the_isr(quorum: Quorum) -> None:
    """It is not eligible either: Unclean Exclusion (002, 5.1.2)."""
    shrink(quorum, 1, 2)
    for broker in (2, 3):
        quorum.heartbeat(broker, SESSION)
    assert quorum.register(1, SESSION + 0.1, 99) is ErrorCode.none, "its session has run out, and nobody has looked yet"
    assert quorum.state() == (2, (2,), (), (1,))


def test_a_leader_that_was_alone_and_returns_unclean_is_not_elected(quorum: Quorum) -> None:
    """Last Replica Standing: what the ELR is there for."""
    shrink(quorum, 1)
    for broker in (1, 2, 3):
        quorum.fence(broker, broker * SESSION)
    quorum.comes_back(1, 5 * SESSION)
    assert 1 not in (quorum.partition().leader, *quorum.partition().isr, *quorum.partition().elr)
    assert quorum.partition().last_known_elr == (1,)


def test_an_unclean_return_outside_of_isr_and_elr_changes_nothing() -> None:
    quorum = all_fenced()
    before = quorum.partition()
    quorum.register(1, 4 * SESSION, 99)
    assert quorum.partition() == before


def test_the_last_known_elr_is_cleaned_with_min_isr_and_not_before() -> None:
    quorum = three_brokers(min_insync_replicas="3")
    quorum.fence(2, SESSION)
    quorum.comes_back(2, 2 * SESSION)
    quorum.fence(3, 3 * SESSION)
    quorum.comes_back(3, 4 * SESSION)
    assert quorum.state() == (1, (1,), (), (2, 3))
    shrink(quorum, 1, 2)
    assert quorum.state() == (1, (1, 2), (), (3,))
    shrink(quorum, 1, 2, 3)
    assert quorum.state() == (1, (1, 2, 3), (), ())


def test_who_was_eligible_once_is_forgotten_beside_an_isr_that_has_min_isr_members(quorum: Quorum) -> None:
    """Records are committed without it from then on: its log is no longer one that may be the best."""
    shrink(quorum, 1, 2)
    quorum.fence(2, SESSION)
    quorum.comes_back(2, 2 * SESSION)
    assert quorum.state() == (1, (1,), (), (2,))
    shrink(quorum, 1, 3)
    assert quorum.state() == (1, (1, 3), (), ())


# -- MinISR -----------------------------------------------------------------------------------------------------


def test_a_partition_with_fewer_replicas_than_min_isr_needs_them_all() -> None:
    """KAFKA-21110."""
    quorum = Quorum(min_insync_replicas="3")
    for broker in (1, 2):
        quorum.register(broker)
        quorum.heartbeat(broker, 0.0)
    assert quorum.create(replication=2) is ErrorCode.none
    assert quorum.state() == (1, (1, 2), (), ())
    quorum.fence(2, SESSION)
    assert quorum.state() == (1, (1,), (2,), ())
    quorum.heartbeat(2, SESSION)
    shrink(quorum, 1, 2)
    assert quorum.state() == (1, (1, 2), (), ())


def test_a_topics_own_min_isr_counts(quorum: Quorum) -> None:
    quorum.image.topics["t"].settings["min.insync.replicas"] = "3"
    shrink(quorum, 1, 2)
    assert quorum.state() == (1, (1, 2), (3,), ())


def test_without_elr_nobody_is_eligible_beside_the_isr() -> None:
    quorum = three_brokers(eligible_leader_replicas_version="0")
    shrink(quorum, 1, 2)
    shrink(quorum, 1)
    assert quorum.state() == (1, (1,), (), ())
    quorum.fence(1, SESSION)
    assert quorum.state() == (NO_LEADER, (1,), (), ())


# -- any history ------------------------------------------------------------------------------------------------


class Histories(RuleBasedStateMachine):
    """Brokers come and go, cleanly or not, ISRs shrink and grow, recoveries take place: whatever the order, the state
    is valid, and there is a recovery quorum when nobody is known to be complete."""

    @initialize(min_isr=st.integers(1, 3), strategy=st.sampled_from(["balanced", "proactive"]))
    def begin(self, min_isr: int, strategy: str) -> None:
        self.min_isr = min_isr
        self.now = 0.0
        self.quorum = three_brokers(min_insync_replicas=str(min_isr), unclean_recovery_strategy=strategy)
        self.states = [self.quorum.partition()]

    @rule(broker=st.integers(1, 3))
    def fenced(self, broker: int) -> None:
        self.now += SESSION
        self.quorum.fence(broker, self.now)

    @rule(broker=st.integers(1, 3), clean=st.booleans())
    def restarts(self, broker: int, clean: bool) -> None:
        self.now += SESSION
        self.quorum.fence(broker, self.now)
        self.quorum.comes_back(broker, self.now, clean)

    @rule(broker=st.integers(1, 3))
    def is_heard(self, broker: int) -> None:
        self.quorum.heartbeat(broker, self.now)

    @precondition(lambda self: self.quorum.partition().leader >= 0)
    @rule(isr=st.sets(st.integers(1, 3)))
    def proposes(self, isr: set[int]) -> None:
        partition = self.quorum.partition()
        self.quorum.alter(partition.leader, {r: self.quorum.epochs[r] for r in sorted({*isr, partition.leader})})

    @rule(ends=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9)), min_size=3, max_size=3))
    def recovers(self, ends: list[tuple[int, int]]) -> None:
        recovery, partition = self.quorum.controller.unclean_recovery, self.quorum.partition()
        recovery.look()
        for broker, question in recovery.questions(self.now).items():
            info = LogInfo(self.quorum.epochs[broker], partition.leader_epoch, *ends[broker - 1])
            recovery.hear(broker, question, {(partition.topic_id, 0): info})
        for each in recover(self.quorum, self.now + 60):
            assert each.leader not in (*partition.isr, *partition.elr)
            if each.strategy == rules.BALANCED:
                assert not partition.elr
                assert set(partition.last_known_elr) <= set(each.logs)

    @invariant()
    def the_state_is_valid(self) -> None:
        partition, image = self.quorum.partition(), self.quorum.image
        self.states.append(partition)
        metadata.check_partition(partition, image, self.min_isr, elr_enabled=True)
        metadata.check_recovery_quorum(partition, self.min_isr)
        if partition.leader == NO_LEADER:
            assert not any(image.brokers[r].active for r in (*partition.isr, *partition.elr))

    def teardown(self) -> None:
        for before, after in pairwise(self.states):
            assert after.leader_epoch >= before.leader_epoch and after.partition_epoch >= before.partition_epoch
            if after.leader not in (before.leader, NO_LEADER):
                assert after.leader_epoch > before.leader_epoch


Histories.TestCase.settings = settings(
    max_examples=60, stateful_step_count=30, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
TestHistories = Histories.TestCase
