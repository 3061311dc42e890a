"""This generation's rules, as 001 has them and as the settings mend them."""

from __future__ import annotations

import pytest

from cluster_image.replication.replica import FollowerStart
from cluster_image.v2 import rules


@pytest.mark.parametrize(
    ("isr", "replicas", "is_deleted", "may"),
    [
        ((1, 2), (1, 2, 3), False, True),
        ((2, 3), (1, 2, 3), False, False),
        ((), (1, 2, 3), False, True),  # a new partition
        ((), (2, 3), False, False),
        ((1,), (1, 2, 3), True, False),
    ],
)
def test_who_may_lead(isr: tuple[int, ...], replicas: tuple[int, ...], is_deleted: bool, may: bool) -> None:
    assert rules.may_lead(1, isr, replicas, is_deleted) is may


def test_a_follower_cuts_its_log_at_its_watermark_or_leaves_it_to_epochs() -> None:
    assert rules.start_following(3, 7, leader_epochs=False) == FollowerStart(3, names_epoch=False)
    assert rules.start_following(9, 7, leader_epochs=False) == FollowerStart(7, names_epoch=False)
    assert rules.start_following(3, 7, leader_epochs=True) == FollowerStart(7, names_epoch=True)


def test_a_new_leaders_watermark_is_its_logs_end_or_what_it_was() -> None:
    assert rules.watermark_on_election(3, 7, from_checkpoint=False) == 7
    assert rules.watermark_on_election(3, 7, from_checkpoint=True) == 3


def test_epochs_of_requests() -> None:
    assert rules.may_start(4, 5, has_leader=False)
    assert rules.may_start(5, 5, has_leader=True) and not rules.may_start(4, 5, has_leader=True)
    assert rules.may_start(rules.NO_EPOCH, 5, has_leader=True), "an administrator's"
    assert rules.may_close(4, 5, True, checks_epoch=False) and not rules.may_close(4, 5, True, checks_epoch=True)
    assert rules.may_close(5, 5, True, checks_epoch=True), "of the leader that moves it"
    assert rules.may_close(4, 5, False, checks_epoch=True), "of what it is not to have"
    assert rules.may_close(rules.NO_EPOCH, 5, False, checks_epoch=True), "an administrator's"
    assert not rules.may_close(rules.NO_EPOCH, 5, True, checks_epoch=True), "of an earlier attempt to make it"
    assert rules.may_close(rules.NO_EPOCH, 5, True, checks_epoch=False)


def test_who_is_asked_to_close_leaves_the_isr_first_where_the_setting_says_so() -> None:
    assert rules.isr_before_closing({1, 2, 3}, going={2, 3}, coming={4, 5}, leaves_isr=False) == {1, 2, 3}
    assert rules.isr_before_closing({1, 2, 3}, going={2, 3}, coming={4, 5}, leaves_isr=True) == {1, 4, 5}


def test_a_move_that_does_not_end_as_it_began_ends_its_leaders_term_where_the_setting_says_so() -> None:
    assert not rules.ends_term({3, 4}, assigned={1, 2}, leaves_isr=False)
    assert rules.ends_term({3, 4}, assigned={1, 2}, leaves_isr=True)
    assert not rules.ends_term({3, 4}, assigned={3, 4}, leaves_isr=True), "it is complete"
    assert not rules.ends_term(None, assigned={1, 2}, leaves_isr=True), "there was none"


def test_over_which_version_a_leader_writes_the_isr() -> None:
    assert rules.expected_isr_version(7, versioned=False) == rules.ANY_VERSION
    assert rules.expected_isr_version(7, versioned=True) == 7


def test_who_has_everything_and_fetches_no_more_leaves_where_the_setting_says_so() -> None:
    assert rules.has_stopped_fetching(1.0, 3.5, 2.0, idle_checks=True)
    assert not rules.has_stopped_fetching(1.0, 3.0, 2.0, idle_checks=True)
    assert not rules.has_stopped_fetching(1.0, 9.0, 2.0, idle_checks=False)


def test_what_the_commit_thread_goes_by() -> None:
    assert rules.is_committed([5, 6], 5) and not rules.is_committed([5, 4], 5)
    assert rules.may_join_isr(5, 5) and not rules.may_join_isr(4, 5)
    assert rules.has_reassignment_caught_up([5, 5], 5) and not rules.has_reassignment_caught_up([5, 4], 5)
    assert rules.may_complete_reassignment({1, 2}, {1, 3}, leader=1), "the leader goes last"
    assert not rules.may_complete_reassignment({1, 2}, {1, 2, 3}, leader=1)
    assert rules.gives_way_to_preferred(2, 1, {1, 2}) and not rules.gives_way_to_preferred(2, 1, {2, 3})
    assert not rules.gives_way_to_preferred(1, 1, {1, 2})


def test_epochs_go_on_from_the_isrs() -> None:
    assert rules.next_epoch(rules.NO_EPOCH) == 0 and rules.next_epoch(4) == 5
