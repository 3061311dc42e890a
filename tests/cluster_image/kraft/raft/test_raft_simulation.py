"""The quorum under faults, by seed; and proof that these tests find a quorum that breaks its rules."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest

from checkers.inside.violation import Violated
from cluster_image.kraft.raft import rules
from cluster_image.kraft.raft.quorum import NotLeader, Role

from .raft_simulation import CONFIG, Simulation, Violation

SEEDS = range(int(os.environ.get("RAFT_SEEDS", "40")))


def tormented(seed: int, duration: float = 2.0) -> Simulation:
    """Every fourth quorum has five voters; three in four write snapshots, of which half very often."""
    simulation = Simulation(seed, voters=5 if seed % 4 == 3 else 3, snapshot_every=(4, None, 4, 30)[seed // 2 % 4])
    simulation.start_all()
    simulation.torment(duration)
    simulation.settle()
    return simulation


@pytest.mark.parametrize("seed", SEEDS)
def test_quorum_keeps_its_promises_under_faults(seed: int) -> None:
    tormented(seed)


def test_faults_do_not_keep_the_quorum_from_working() -> None:
    """Else the tests above would prove nothing."""
    runs = [tormented(seed) for seed in range(10)]
    assert sum(len(run.leaders) for run in runs) > 20
    assert sum(len(run.acknowledged) for run in runs) > 500
    assert sum(run.snapshots_written for run in runs) > 500
    assert sum(run.snapshots_installed for run in runs) > 20


def test_a_seed_repeats_itself() -> None:
    first, second = tormented(7), tormented(7)
    assert (first.now, first.leaders, first.committed) == (second.now, second.leaders, second.committed)


@pytest.mark.parametrize(
    ("rule", "broken"),
    [
        ("make_durable_before_fetch", lambda log, is_voter: None),
        ("is_log_up_to_date", lambda log, last_epoch, end_offset: True),
        ("may_grant_vote", lambda state, candidate, up_to_date: up_to_date and state.leader_id is None),
        ("store_before_acting", lambda store, old, new: None),
        ("majority_offset", max),
        ("is_majority", lambda count, voters: count >= voters // 2),
        (
            "diverging_epoch",  # by length alone
            lambda log, offset, epoch: None if offset <= log.end_offset else (log.last_epoch, log.end_offset),
        ),
        ("snapshot_id", lambda log, end: (end - 1, log.epoch_before(end - 1))),  # M71: inclusive
        ("trimmed_start", lambda earliest_snapshot_end, high_watermark: high_watermark),  # M72: too far
        ("continues_snapshot", lambda log, end, epoch: True),
    ],
)
def test_a_broken_rule_is_found(rule: str, broken: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, rule, broken)
    with pytest.raises((Violation, Violated, rules.InvariantViolation)):
        for seed in range(20):
            tormented(seed, duration=3.0)


def working(seed: int, voters: int = 3) -> Simulation:
    """A quorum with a leader and a few records, everything committed everywhere."""
    simulation = Simulation(seed, voters)
    simulation.start_all()
    simulation.run_until(lambda: simulation.leader is not None, 1.0, "a first leader")
    for _ in range(3):
        simulation.write()
        simulation.run(0.01)
    simulation.run_until(lambda: simulation.leader is not None, 1.0, "everything committed")
    return simulation


def leader_id(simulation: Simulation) -> int:
    assert simulation.leader is not None
    return simulation.leader.id


@pytest.mark.parametrize("seed", range(10))
def test_a_new_quorum_elects_at_once(seed: int) -> None:
    """Long before an election timeout, since nobody can be disturbed."""
    simulation = Simulation(seed)
    simulation.start_all()
    simulation.run_until(lambda: simulation.leader is not None, CONFIG.election_timeout, "a first leader")


@pytest.mark.parametrize("seed", range(10))
def test_a_killed_leader_is_replaced_after_one_fetch_timeout(seed: int) -> None:
    simulation = working(seed)
    simulation.kill(leader_id(simulation))
    simulation.run_until(lambda: simulation.leader is not None, 2.5 * CONFIG.fetch_timeout, "a new leader")


@pytest.mark.parametrize("seed", range(10))
def test_a_leader_that_resigns_is_replaced_at_once(seed: int) -> None:
    simulation = working(seed)
    assert simulation.leader is not None
    old = simulation.leader
    simulation._enter(simulation.nodes[old.id], lambda: old.resign(simulation.now))
    simulation.run_until(lambda: simulation.leader is not None, CONFIG.fetch_timeout / 2, "a new leader")
    assert leader_id(simulation) != old.id


@pytest.mark.parametrize("seed", range(10))
def test_a_leader_that_restarts_does_not_lead_its_old_epoch_again(seed: int) -> None:
    simulation = working(seed)
    assert simulation.leader is not None
    old, epoch = simulation.leader.id, simulation.leader.epoch
    simulation.cut_power(old)
    simulation.start(old)
    restarted = simulation.nodes[old].quorum
    assert restarted is not None and restarted.role is Role.RESIGNED
    simulation.run_until(lambda: max(simulation.leaders) > epoch, CONFIG.fetch_timeout / 2, "a leader, told at once")
    simulation.settle()


@pytest.mark.parametrize("seed", range(10))
def test_a_follower_that_was_cut_off_does_not_unseat_the_leader(seed: int) -> None:
    simulation = working(seed)
    assert simulation.leader is not None
    leader, epoch = simulation.leader.id, simulation.leader.epoch
    follower = next(voter for voter in simulation.voters if voter != leader)
    simulation.isolate(follower)
    simulation.run(10 * CONFIG.fetch_timeout)
    simulation.settle()
    assert (simulation.leader.id, simulation.leader.epoch) == (leader, epoch)


@pytest.mark.parametrize("seed", range(10))
def test_a_follower_that_alone_does_not_hear_the_leader_does_not_unseat_it(seed: int) -> None:
    """It asks the third voter for its pre-vote again and again, which hears the leader and refuses."""
    simulation = working(seed)
    assert simulation.leader is not None
    leader, epoch = simulation.leader.id, simulation.leader.epoch
    follower = next(voter for voter in simulation.voters if voter != leader)
    simulation.cut |= {(leader, follower), (follower, leader)}
    simulation.run(10 * CONFIG.fetch_timeout)
    simulation.settle()
    assert (simulation.leader.id, simulation.leader.epoch) == (leader, epoch)


@pytest.mark.parametrize("seed", range(10))
def test_a_leader_that_is_cut_off_resigns_and_takes_nothing_more(seed: int) -> None:
    simulation = working(seed)
    assert simulation.leader is not None
    old = simulation.leader
    simulation.isolate(old.id)
    simulation.run(1.5 * CONFIG.fetch_timeout)
    assert old.role is not Role.LEADER
    with pytest.raises(NotLeader):
        old.append([b"too late"], simulation.now)


def test_a_leader_that_stood_still_takes_nothing_before_it_has_looked_at_the_time() -> None:
    simulation = working(1)
    assert simulation.leader is not None
    with pytest.raises(NotLeader):
        simulation.leader.append([b"too late"], simulation.now + 2 * CONFIG.fetch_timeout)


@pytest.mark.parametrize("seed", range(5))
def test_power_loss_of_the_whole_quorum_loses_nothing_acknowledged(seed: int) -> None:
    simulation = working(seed)
    for _ in range(5):
        simulation.torment(0.3, power_only=True)
        for node in simulation.nodes:
            simulation.cut_power(node)
        simulation.settle()


def test_one_voter_alone_is_a_quorum() -> None:
    simulation = working(1, voters=1)
    assert len(simulation.acknowledged) == 3
