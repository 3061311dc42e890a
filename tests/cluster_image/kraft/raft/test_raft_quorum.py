"""The quorum's core, message by message: each safety rule, refusals, and fetches that wait."""

from __future__ import annotations

import io
from random import Random
from typing import Any

import pytest
from kio.schema.describe_quorum.v2 import request as describe_request
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer

from cluster_image.kraft.raft import rpc, rules
from cluster_image.kraft.raft.config import QuorumConfig
from cluster_image.kraft.raft.leader import WaitingFetch
from cluster_image.kraft.raft.quorum import Quorum, Role
from cluster_image.kraft.raft.snapshots import open_log
from cluster_image.kraft.raft.state import ElectionState, QuorumStateError, QuorumStateStore
from cluster_image.network import Address
from cluster_image.storage.log import Log, LogConfig
from cluster_image.storage.records import build_batch, iter_batches, with_offset_and_epoch
from harness.runtimes.simulation.disk.disk import SimulatedDisk
from tests.cluster_image.storage.simulated_disk import simulated_disk

CLUSTER, DIRECTORY = "test", "__cluster_metadata-0"
VOTERS = {node: Address(f"node-{node}", 9093) for node in (1, 2, 3)}
CONFIG = QuorumConfig()
WALL_CLOCK = 1_767_225_600.0


def boot(disk: SimulatedDisk, node_id: int = 1, now: float = 0.0) -> Quorum:
    log, snapshots = open_log(disk, DIRECTORY, LogConfig())
    return Quorum(
        node_id,
        VOTERS,
        CLUSTER,
        log,
        QuorumStateStore(disk, DIRECTORY),
        Random(1),
        CONFIG,
        now,
        wall_clock=lambda: WALL_CLOCK,
        snapshots=snapshots,
    )


def disk_with(*epochs: int, state: ElectionState | None = None) -> SimulatedDisk:
    """A log with one record of each of these leader epochs."""
    disk = simulated_disk()
    disk.make_directory(DIRECTORY)
    log = Log.open(disk, DIRECTORY)
    for epoch in epochs:
        log.append_as_leader(build_batch([b"of %d" % epoch], timestamp_ms=0), epoch)
    log.close()
    QuorumStateStore(disk, DIRECTORY).write(state or ElectionState(max(epochs, default=0)))
    return disk


def vote(candidate: int, epoch: int, last_epoch: int = 0, end_offset: int = 0, pre_vote: bool = False) -> Any:
    return rpc.vote(CLUSTER, 1, candidate, epoch, last_epoch, end_offset, pre_vote)


def fetch(replica: int, epoch: int, offset: int, last_epoch: int, high_watermark: int = 0, wait_ms: int = 500) -> Any:
    return rpc.fetch(CLUSTER, replica, epoch, offset, last_epoch, high_watermark, wait_ms, 1 << 20)


def describe() -> Any:
    partition = describe_request.PartitionData(partition_index=rpc.PARTITION)
    return rpc.DescribeQuorumRequest(
        topics=(describe_request.TopicData(topic_name=rpc.TOPIC, partitions=(partition,)),)
    )


def granted(quorum: Quorum, request: Any, now: float = 0.0) -> bool:
    return bool(answer(quorum, request, now).vote_granted)


def answer(quorum: Quorum, request: Any, now: float = 0.0) -> Any:
    """The metadata partition's part of the immediate answer."""
    response = quorum.receive(request, now)
    assert not isinstance(response, WaitingFetch)
    return rpc.partition(response)


def elect(quorum: Quorum, now: float = 1.0) -> Quorum:
    """Let node 1 win an election with the vote of node 2."""
    output = quorum.poll(now)
    for pre_vote in (True, False):
        request = next(send.request for send in output.requests if send.receiver == 2)
        assert rpc.partition(request).pre_vote is pre_vote  # type: ignore[union-attr]
        quorum.respond(2, request, rpc.vote_answer(ErrorCode.none, None, quorum.epoch, True), now)
        output = quorum.poll(now)
    assert quorum.role is Role.LEADER
    return quorum


# -- votes ----------------------------------------------------------------------------------------------------


def test_a_vote_is_on_disk_before_it_is_answered() -> None:
    disk = simulated_disk()
    assert granted(boot(disk), vote(2, epoch=5))
    disk.lose_power(Random(0))
    restarted = boot(disk)
    assert restarted.state == ElectionState(5, None, voted_for=2)
    assert not granted(restarted, vote(3, epoch=5))
    assert granted(restarted, vote(2, epoch=5)), "the candidate may ask again"


def test_an_epoch_that_was_seen_is_on_disk_before_it_is_answered() -> None:
    disk = simulated_disk()
    answer(boot(disk), rpc.begin_quorum_epoch(CLUSTER, 1, 2, 7, VOTERS[2]))
    disk.lose_power(Random(0))
    assert boot(disk).state == ElectionState(7, leader_id=2)


@pytest.mark.parametrize(
    ("last_epoch", "end_offset", "expected"), [(2, 3, True), (2, 4, True), (3, 1, True), (2, 2, False), (1, 9, False)]
)
@pytest.mark.parametrize("pre_vote", [False, True])
def test_only_a_candidate_with_an_up_to_date_log_gets_votes(
    last_epoch: int, end_offset: int, expected: bool, pre_vote: bool
) -> None:
    quorum = boot(disk_with(1, 2, 2))
    assert granted(quorum, vote(2, 9, last_epoch, end_offset, pre_vote)) is expected


@pytest.mark.parametrize("pre_vote", [False, True])
def test_an_epoch_that_ends_all_elections_is_not_believed(pre_vote: bool) -> None:
    quorum = boot(disk_with(1, 2, 2))
    for epoch in (2**31 - 1, 2 + rules.MAX_EPOCH_JUMP + 1):
        refused = answer(quorum, vote(2, epoch, epoch, 9, pre_vote))
        assert refused.error_code is ErrorCode.invalid_request
        begun = answer(quorum, rpc.begin_quorum_epoch(CLUSTER, 1, 2, epoch, VOTERS[2]))
        assert begun.error_code is ErrorCode.invalid_request
    assert quorum.epoch == 2
    assert granted(quorum, vote(2, 2 + rules.MAX_EPOCH_JUMP, 2, 3))


def test_a_candidate_votes_for_nobody_else_and_asks_for_a_pre_vote_first() -> None:
    quorum = boot(simulated_disk())
    output = quorum.poll(1.0)
    assert quorum.role is Role.PROSPECTIVE and quorum.epoch == 0
    assert granted(quorum, vote(3, epoch=0, pre_vote=True)), "a pre-vote binds nobody"
    first = next(send.request for send in output.requests if send.receiver == 2)
    quorum.respond(2, first, rpc.vote_answer(ErrorCode.none, None, 0, True), 1.0)
    assert quorum.state == ElectionState(1, voted_for=1)
    assert not granted(quorum, vote(3, epoch=1))


def test_no_pre_vote_while_the_leader_is_heard() -> None:
    quorum = boot(simulated_disk())
    answer(quorum, rpc.begin_quorum_epoch(CLUSTER, 1, 2, 1, VOTERS[2]))
    assert granted(quorum, vote(3, epoch=1, pre_vote=True)), "it has announced itself, but not answered yet"
    send = quorum.poll(0.0).requests[0]
    quorum.respond(send.receiver, send.request, rpc.fetch_answer(ErrorCode.none, 2, 1, high_watermark=0), 0.1)
    assert not granted(quorum, vote(3, epoch=1, pre_vote=True))
    end = rpc.end_quorum_epoch(CLUSTER, 2, 1, [3, 1], VOTERS[2])
    assert answer(quorum, end, 0.2).error_code == ErrorCode.none
    assert granted(quorum, vote(3, epoch=1, pre_vote=True)), "the leader has bowed out"


def test_a_late_answer_to_an_earlier_round_does_not_count() -> None:
    quorum = boot(simulated_disk())
    pre_votes = {send.receiver: send.request for send in quorum.poll(1.0).requests}
    quorum.respond(2, pre_votes[2], rpc.vote_answer(ErrorCode.none, None, 0, True), 1.0)
    assert quorum.role is Role.CANDIDATE
    quorum.respond(3, pre_votes[3], rpc.vote_answer(ErrorCode.none, None, 0, True), 1.0)
    assert quorum.role is Role.CANDIDATE


def test_two_leaders_in_one_epoch_stop_the_node() -> None:
    quorum = elect(boot(simulated_disk()))
    with pytest.raises(rules.InvariantViolation):
        quorum.receive(rpc.begin_quorum_epoch(CLUSTER, 1, 2, quorum.epoch, VOTERS[2]), 1.0)


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (vote(9, 5), ErrorCode.inconsistent_voter_set),
        (vote(1, 5), ErrorCode.inconsistent_voter_set),
        (rpc.vote(CLUSTER, 2, 3, 5, 0, 0, False), ErrorCode.invalid_voter_key),
        (vote(2, 3), ErrorCode.fenced_leader_epoch),
        (rpc.begin_quorum_epoch(CLUSTER, 1, 9, 5, VOTERS[2]), ErrorCode.inconsistent_voter_set),
        (rpc.begin_quorum_epoch(CLUSTER, 1, 2, 3, VOTERS[2]), ErrorCode.fenced_leader_epoch),
        (rpc.end_quorum_epoch(CLUSTER, 2, 3, [1], VOTERS[2]), ErrorCode.fenced_leader_epoch),
        (fetch(2, 4, 0, -1), ErrorCode.not_leader_or_follower),
        (describe(), ErrorCode.not_leader_or_follower),
    ],
)
def test_refusals(request_: Any, error: ErrorCode) -> None:
    quorum = boot(disk_with(4, state=ElectionState(4)))
    refused = answer(quorum, request_)
    assert refused.error_code == error
    assert quorum.state == ElectionState(4), "a refused request changes nothing"


def test_another_cluster_or_another_topic_is_refused_as_a_whole() -> None:
    quorum = boot(simulated_disk())
    strange = rpc.vote("other", 1, 2, 5, 0, 0, False)
    assert quorum.receive(strange, 0.0).error_code == ErrorCode.inconsistent_cluster_id  # type: ignore[union-attr]
    empty = rpc.VoteRequest(cluster_id=CLUSTER, topics=())
    assert quorum.receive(empty, 0.0).error_code == ErrorCode.unknown_topic_or_partition  # type: ignore[union-attr]
    assert quorum.epoch == 0


# -- restarts -------------------------------------------------------------------------------------------------


def test_a_voter_without_its_votes_does_not_start() -> None:
    disk = disk_with(1, 2)
    disk.remove(f"{DIRECTORY}/quorum-state")
    with pytest.raises(rules.InvariantViolation, match="votes cast"):
        boot(disk)
    assert boot(disk, node_id=9).epoch == 2, "an observer has none"


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b'{"leaderEpoch": 1}', b"\0" * 40])
def test_a_damaged_quorum_state_is_named(damage: bytes) -> None:
    disk = simulated_disk()
    disk.make_directory(DIRECTORY)
    disk.write_atomically(f"{DIRECTORY}/quorum-state", damage)
    with pytest.raises(QuorumStateError, match="quorum-state is damaged"):
        boot(disk)


# -- the high watermark ---------------------------------------------------------------------------------------


def test_records_of_earlier_epochs_commit_only_with_one_of_the_leaders_own() -> None:
    """Raft, figure 8: that a majority has them is not enough."""
    quorum = elect(boot(disk_with(1, 1, 2)))
    assert quorum.replica.log.end_offset == 4, "three and the LeaderChange"
    quorum.receive(fetch(2, 3, 3, 2), 1.0)
    assert quorum.replica.high_watermark == 0
    quorum.receive(fetch(2, 3, 4, 3), 1.0)
    assert quorum.replica.high_watermark == 4


def test_a_leader_counts_itself_only_as_far_as_its_disk_goes() -> None:
    quorum = elect(boot(simulated_disk()))
    quorum.receive(fetch(2, 1, 1, 1), 1.0)
    quorum.append([b"a"], 1.0)
    quorum.receive(fetch(2, 1, 2, 1), 1.0)
    assert quorum.replica.high_watermark == 1
    quorum.poll(1.0)
    assert quorum.replica.high_watermark == 2


def test_observers_do_not_count() -> None:
    quorum = elect(boot(simulated_disk()))
    for observer in (8, 9):
        quorum.receive(fetch(observer, 1, 1, 1), 1.0)
    assert quorum.replica.high_watermark == 0


class Following:
    """Node 1 and its fetches, which the test answers as node 2, the leader of epoch 5."""

    def __init__(self, *epochs: int) -> None:
        self.quorum = boot(disk_with(*epochs))
        self.log = self.quorum.replica.log
        self.now = 0.0
        answer(self.quorum, rpc.begin_quorum_epoch(CLUSTER, 1, 2, 5, VOTERS[2]))
        self._fetch()

    def _fetch(self) -> None:
        self.now += 0.1
        ((_, self.request),) = self.quorum.poll(self.now).requests
        self.asked: Any = rpc.partition(self.request)

    def answer(self, **fields: Any) -> None:
        self.quorum.respond(2, self.request, rpc.fetch_answer(ErrorCode.none, 2, 5, **fields), self.now)
        self._fetch()


def batch(offset: int, epoch: int) -> bytes:
    return with_offset_and_epoch(build_batch([b"new"], timestamp_ms=0), offset, epoch)


def test_a_follower_has_on_disk_what_its_fetch_says() -> None:
    follower = Following(1)
    follower.answer(records=batch(1, 5), high_watermark=1)
    asked = follower.asked
    assert (asked.fetch_offset, asked.last_fetched_epoch, asked.high_watermark) == (2, 5, 1)
    assert follower.log.flushed_offset == 2


def test_a_followers_high_watermark_stays_within_its_log_and_never_falls() -> None:
    follower = Following(1)
    follower.answer(records=batch(1, 5), high_watermark=9)
    assert follower.quorum.replica.high_watermark == 2
    follower.answer(high_watermark=1)
    assert follower.quorum.replica.high_watermark == 2


@pytest.mark.parametrize("records", [batch(7, 5), batch(1, 0), batch(1, 5)[:-1], batch(1, 5)[:-1] + b"\xff"])
def test_records_that_cannot_be_right_are_refused_and_asked_for_again(records: bytes) -> None:
    follower = Following(1)
    follower.answer(records=records, high_watermark=2)
    assert follower.asked.fetch_offset == 1


@pytest.mark.parametrize(
    ("diverging", "expected"), [((1, 2), (2, 1)), ((2, 3), (3, 2)), ((2, 9), (3, 2)), ((0, 0), (0, -1))]
)
def test_a_diverged_follower_cuts_back_to_what_it_shares(diverging: tuple[int, int], expected: tuple[int, int]) -> None:
    follower = Following(1, 1, 2, 3)
    follower.answer(diverging=diverging)
    assert (follower.asked.fetch_offset, follower.asked.last_fetched_epoch) == expected


def test_what_is_committed_is_never_cut_off() -> None:
    follower = Following(1, 1, 2, 3)
    follower.answer(high_watermark=3)
    with pytest.raises(rules.InvariantViolation, match="committed"):
        follower.answer(diverging=(1, 2))
    assert follower.log.end_offset == 4


def test_an_answer_of_an_earlier_leader_is_not_taken() -> None:
    follower = Following(1)
    answer(follower.quorum, rpc.begin_quorum_epoch(CLUSTER, 1, 3, 6, VOTERS[3]))
    follower.answer(records=batch(1, 5), high_watermark=2)
    assert (follower.log.end_offset, follower.quorum.replica.high_watermark) == (1, 0)


# -- fetches --------------------------------------------------------------------------------------------------


def waiting(quorum: Quorum) -> WaitingFetch:
    """A fetch of node 2, which has all records and knows the high watermark."""
    quorum.receive(fetch(2, 1, 1, 1), 1.0)
    waits = quorum.receive(fetch(2, 1, 1, 1, high_watermark=1), 1.0)
    assert isinstance(waits, WaitingFetch)
    assert quorum.poll(1.1).answers == []
    return waits


def test_a_fetch_waits_until_there_are_records() -> None:
    quorum = elect(boot(simulated_disk()))
    waits = waiting(quorum)
    quorum.append([b"a", b"b"], 1.2)
    ((answered, response),) = quorum.poll(1.2).answers
    assert answered is waits
    ((_, _, header),) = iter_batches(bytes(rpc.partition(response).records))  # type: ignore[union-attr]
    assert (header.base_offset, header.next_offset, header.leader_epoch) == (1, 3, 1)


def test_a_fetch_waits_until_the_high_watermark_has_moved() -> None:
    quorum = elect(boot(simulated_disk()))
    quorum.receive(fetch(2, 1, 1, 1), 1.0)
    quorum.append([b"a"], 1.0)
    assert isinstance(quorum.receive(fetch(2, 1, 2, 1, high_watermark=1), 1.0), WaitingFetch)
    ((_, response),) = quorum.poll(1.0).answers
    assert rpc.partition(response).high_watermark == 2  # type: ignore[union-attr]


def test_a_fetch_waits_no_longer_than_it_asked_for() -> None:
    quorum = elect(boot(simulated_disk()))
    waiting(quorum)
    assert quorum.poll(1.1).wake_at <= 1.5
    ((_, response),) = quorum.poll(1.5).answers
    assert rpc.partition(response).error_code == ErrorCode.none  # type: ignore[union-attr]


def test_a_fetch_that_waits_hears_that_the_leadership_is_over() -> None:
    quorum = elect(boot(simulated_disk()))
    waiting(quorum)
    answer(quorum, rpc.begin_quorum_epoch(CLUSTER, 1, 3, 9, VOTERS[3]), 1.2)
    ((_, response),) = quorum.poll(1.2).answers
    data = rpc.partition(response)
    assert data is not None and data.error_code == ErrorCode.not_leader_or_follower
    assert (data.current_leader.leader_id, data.current_leader.leader_epoch) == (3, 9)


@pytest.mark.parametrize(
    ("epoch", "offset", "last_epoch", "error"),
    [
        (2, 0, -1, ErrorCode.fenced_leader_epoch),
        (-1, 0, -1, ErrorCode.fenced_leader_epoch),
        (4, 0, -1, ErrorCode.unknown_leader_epoch),
        (3, -1, -1, ErrorCode.offset_out_of_range),
    ],
)
def test_a_leader_refuses_fetches_of_other_epochs(epoch: int, offset: int, last_epoch: int, error: ErrorCode) -> None:
    quorum = elect(boot(disk_with(1, 2)))
    assert answer(quorum, fetch(2, epoch, offset, last_epoch), 1.0).error_code == error


@pytest.mark.parametrize(
    ("offset", "last_epoch", "diverging"),
    [(2, 1, None), (3, 1, (1, 2)), (3, 2, (1, 2)), (9, 4, (4, 4)), (3, 3, None), (1, -1, (-1, 0)), (0, -1, None)],
)
def test_a_leader_tells_a_follower_where_its_log_parts(
    offset: int, last_epoch: int, diverging: tuple[int, int] | None
) -> None:
    quorum = elect(boot(disk_with(1, 1, 3)))  # and the LeaderChange of epoch 4
    data = answer(quorum, fetch(2, 4, offset, last_epoch), 1.0)
    reported = (data.diverging_epoch.epoch, data.diverging_epoch.end_offset)
    assert reported == (diverging or (-1, -1))
    assert bool(data.records) is (diverging is None)


def test_describe_quorum() -> None:
    quorum = elect(boot(simulated_disk()))
    quorum.receive(fetch(2, 1, 1, 1), 1.0)
    quorum.receive(fetch(7, 1, 0, -1), 1.0)
    data = answer(quorum, describe(), 2.0)
    assert (data.leader_id, data.leader_epoch, data.high_watermark) == (1, 1, 1)
    assert {v.replica_id: v.log_end_offset for v in data.current_voters} == {1: 1, 2: 1, 3: -1}
    assert {o.replica_id: o.log_end_offset for o in data.observers} == {7: 0}
    now_ms = int(WALL_CLOCK * 1000)
    times = {v.replica_id: (v.last_fetch_timestamp, v.last_caught_up_timestamp) for v in data.current_voters}
    assert times == {1: (now_ms, now_ms), 2: (now_ms, now_ms), 3: (-1, -1)}, "by the wall clock; -1: not known"
    assert [(o.last_fetch_timestamp, o.last_caught_up_timestamp) for o in data.observers] == [(now_ms, -1)]


# -- observers ------------------------------------------------------------------------------------------------


def test_an_observer_asks_all_voters_at_once_so_that_a_dead_one_delays_nothing() -> None:
    quorum = boot(simulated_disk(), node_id=9)
    asked = dict(quorum.poll(0.0).requests)
    assert sorted(asked) == [1, 2, 3]
    quorum.fail(1, asked[1], 0.01)
    assert quorum.poll(0.1).requests == []  # not again at once
    quorum.respond(2, asked[2], rpc.fetch_answer(ErrorCode.not_leader_or_follower, 3, 2), 0.1)
    assert quorum.leader_id == 3 and quorum.epoch == 2


def test_an_observer_that_lost_its_leader_believes_only_the_leader_itself() -> None:
    quorum = boot(disk_with(state=ElectionState(2, leader_id=3)), node_id=9)
    ((receiver, request),) = quorum.poll(0.0).requests
    assert receiver == 3
    quorum.fail(3, request, 0.0)
    asked = dict(quorum.poll(1.0).requests)
    hearsay = rpc.fetch_answer(ErrorCode.not_leader_or_follower, 3, 2)
    for voter in (1, 2):
        quorum.respond(voter, asked[voter], hearsay, 1.0)
        assert quorum.leader_id is None
    quorum.respond(3, asked[3], rpc.fetch_answer(ErrorCode.none, 3, 2, high_watermark=0), 1.1)
    assert quorum.leader_id == 3


def test_a_new_leader_that_refuses_an_old_epoch_has_made_itself_known() -> None:
    """Taken for a failure, its answer would send the observer back to asking, and the broker's heartbeats with it."""
    quorum = boot(disk_with(state=ElectionState(2, leader_id=3)), node_id=9)
    ((_, request),) = quorum.poll(0.0).requests
    quorum.fail(3, request, 0.0)
    asked = dict(quorum.poll(1.0).requests)
    quorum.respond(1, asked[1], rpc.fetch_answer(ErrorCode.fenced_leader_epoch, 1, 3), 1.0)
    assert quorum.leader_id == 1
    ((receiver, request),) = quorum.poll(1.0).requests
    assert receiver == 1 and rpc.partition(request).current_leader_epoch == 3


def test_an_observer_never_votes_or_stands() -> None:
    quorum = boot(simulated_disk(), node_id=9)
    request = rpc.vote(CLUSTER, 9, 2, 5, 0, 0, False)
    assert answer(quorum, request).error_code == ErrorCode.inconsistent_voter_set
    quorum.poll(1000.0)
    assert quorum.role is Role.UNATTACHED and quorum.epoch == 0


# -- the wire -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "entity",
    [
        vote(2, 3, pre_vote=True),
        rpc.begin_quorum_epoch(CLUSTER, 1, 2, 3, VOTERS[2]),
        rpc.end_quorum_epoch(CLUSTER, 2, 3, [3, 1], VOTERS[2]),
        fetch(2, 3, 10, 2, high_watermark=5),
        rpc.vote_answer(ErrorCode.none, None, 3, True),
        rpc.begin_answer(ErrorCode.none, 2, 3),
        rpc.end_answer(ErrorCode.fenced_leader_epoch, 2, 3),
        rpc.fetch_answer(ErrorCode.none, 2, 3, high_watermark=4, diverging=(1, 2), records=b"x"),
        rpc.fetch_answer(ErrorCode.none, 2, 3, high_watermark=4, snapshot=(9, 2)),
        rpc.fetch_snapshot(CLUSTER, 2, 3, (9, 2), 10, 100),
        rpc.fetch_snapshot_answer(ErrorCode.none, 2, 3, (9, 2), size=20, position=10, content=b"x"),
        rpc.fetch_snapshot_answer(ErrorCode.snapshot_not_found, None, 3, (9, 2)),
        rpc.describe_answer(ErrorCode.none, 2, 3, 4, [rpc.replica_state(1, 2, 3, 4)], (), VOTERS),
        rpc.refusal(vote(2, 3), ErrorCode.inconsistent_cluster_id),
    ],
    ids=lambda entity: type(entity).__name__,
)
def test_messages_survive_the_wire(entity: Any) -> None:
    buffer = io.BytesIO()
    entity_writer(type(entity))(buffer, entity)
    decoded, size = entity_reader(type(entity))(buffer.getvalue(), 0)
    assert decoded == entity and size == len(buffer.getvalue())
