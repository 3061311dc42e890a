"""The simulation's invariants where records are deleted from the begin of a log."""

from __future__ import annotations

import pytest

from checkers.inside.kraft.simulated.logs import Batch, Chain, Registry, Replica
from cluster_image.storage.log import Log
from cluster_image.storage.records import build_batch
from tests.checkers.inside.invariants_world import LOOP, World
from tests.cluster_image.storage.simulated_disk import simulated_disk


@pytest.fixture
def world() -> World:
    """All three hold four records, all committed."""
    world = World()
    for value in (b"a", b"b", b"c", b"d"):
        world.produce(1, value)
    world.fetch(1, 2, 3, times=3)
    return world


def delete(world: World, offset: int) -> None:
    world.partition(1).delete_records(offset, LOOP.create_future)
    world.check()


def test_records_that_were_deleted_are_not_lost(world: World) -> None:
    delete(world, 3)
    world.fetch(1, 2, 3)
    assert world.partition(3).log.start_offset == 3
    world.invariants.check_all()
    world.produce(1, b"e")
    world.fetch(1, 2, 3)
    world.invariants.check_all()


def test_a_replica_that_returns_holds_what_was_deleted(world: World) -> None:
    delete(world, 3)
    world.fetch(1, 2, 3)
    world.commit(world.change(isr=(1, 2)))
    world.learn(1)
    world.kill(3)
    log = world.partition(3).log
    log.truncate_fully_and_start_at(3, log.epoch_before(3))  # what else it had is lost
    world.return_(3)
    assert world.partition(3).log.start_offset == 3
    world.produce(1, b"e")
    world.fetch(1, 2)
    world.fetch(1, 3)
    world.invariants.check_all()


def test_a_log_that_starts_above_what_its_replica_knows_to_be_committed(world: World) -> None:
    world.produce(1, b"e")
    with world.violates("ValidLogStart", "broker-1 starts at 5", "below 4"):
        world.partition(1)._set_log_start(5)
        world.check()


def test_a_follower_that_deletes_by_itself(world: World) -> None:
    with world.violates("ValidLogStart", "broker-2", "starts at 3", "above 0"):
        world.partition(2)._set_log_start(3)
        world.check()


def test_a_leader_whose_log_start_falls(world: World) -> None:
    delete(world, 3)
    world.partition(1).log._start_offset = 2
    with world.violates("ValidLogStart", "broker-1", "from 3 to 2"):
        world.invariants.check_all()


def test_a_leader_that_does_not_follow_what_a_follower_has_deleted(world: World) -> None:
    leadership = world.partition(1).leadership
    assert leadership is not None
    leadership.followers[2].deleted_below = 3
    with world.violates("ValidLogStart", "broker-1", "starts at 0; a follower", "deleted all below 3"):
        world.invariants.check_all()


def test_a_candidate_that_lacks_what_was_not_deleted(world: World) -> None:
    world.partition(3).log.truncate_to(2)
    world.brokers[3].trace("truncate", "t-0", end=2)
    with world.violates("LeaderCandidateCompleteness", "broker-3"):
        world.partition(3)._set_high_watermark(2)
        world.check()


@pytest.mark.parametrize(("start", "known"), [(0, True), (2, True), (3, True), (4, True), (5, True), (7, False)])
def test_what_stands_for_deleted_records(start: int, known: bool) -> None:
    """Batches at 0 to 1, 2 to 3 and 4 to 5, of which the committed log has all; one with offset 6 it has not."""
    log = Log.open(simulated_disk(), "t-0")
    for values in (2, 2, 2, 1):
        log.append_as_leader(build_batch([b"v"] * values, timestamp_ms=0), 1)
    whole = Replica("broker-1")
    Registry("LogMatching", "t-0").absorb(whole, log)
    committed = Chain()
    for batch in whole.batches[:3]:
        committed.append(batch)
    log.raise_start_to(start)
    replica = Replica("broker-2")
    registry = Registry("LogMatching", "t-0")
    registry.absorb(replica, log, committed)
    assert replica.known is known
    if known:
        assert [(b.base, b.end) for b in replica.batches] == [(0, 2), (2, 4), (4, 6), (6, 7)]
        assert all(isinstance(b, Batch) for b in replica.batches)
        assert replica.batches[: committed.count_below(start)] == committed.batches[: committed.count_below(start)]
