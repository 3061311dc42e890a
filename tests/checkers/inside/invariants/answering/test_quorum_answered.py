"""QuorumAnswered and ElectionTimeouts: members of the quorum that answer what is not so, do not do what they are told,
or wait too long. (What is right is not blamed: every run of test_raft_simulation.py asks that.)"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import pytest
from kio.schema.errors import ErrorCode
from kio.schema.fetch.v18.response import FetchResponse

from checkers.inside.kraft.simulated.answering.voters import VotersOracle
from checkers.inside.violation import Violated
from cluster_image.kraft.raft import rpc
from cluster_image.kraft.raft.leader import WaitingFetch
from cluster_image.kraft.raft.quorum import Quorum, Role
from cluster_image.kraft.raft.snapshots import SnapshotId, encode
from cluster_image.kraft.raft.state import ElectionState
from cluster_image.wire.integers import i32
from tests.cluster_image.kraft.raft.test_raft_quorum import CLUSTER, VOTERS, boot, disk_with, elect, fetch, vote

from ..lies import Lies, check_found

#: What is made of an answer, and of the member that gave it.
Lie = Callable[[Quorum, Any], Any]


def judged(quorum: Quorum, request: Any, lie: Lie, now: float = 0.0) -> None:
    oracle = VotersOracle()
    watch = oracle.watch("controller-1")
    watch.enters(quorum, now)
    answer = lie(quorum, quorum.receive(request, now))
    watch.received(request, answer)
    oracle.raise_found()


def judged_answer(quorum: Quorum, asked: Any, answer: Any, lie: Callable[[Quorum], None], now: float = 1.0) -> None:
    """A member is answered by voter 2."""
    oracle = VotersOracle()
    watch = oracle.watch("controller-1")
    watch.enters(quorum, now)
    quorum.respond(2, asked, answer, now)
    lie(quorum)
    watch.responded(2, asked, answer)
    oracle.raise_found()


def honest(_: Quorum, answer: Any) -> Any:
    return answer


def told(**fields: Any) -> Lie:
    def lie(_: Quorum, answer: Any) -> Any:
        of = "responses" if isinstance(answer, FetchResponse) else "topics"
        (topic,) = getattr(answer, of)
        (partition,) = topic.partitions
        return replace(answer, **{of: (replace(topic, partitions=(replace(partition, **fields),)),)})

    return lie


def is_then(role: Role, epoch: int, leader: int | None = None, voted_for: int | None = None) -> Lie:
    def lie(quorum: Quorum, answer: Any) -> Any:
        quorum.role, quorum.state = role, ElectionState(epoch, leader, voted_for)
        return answer

    return lie


def waits(seconds: float) -> Lie:
    def lie(quorum: Quorum, answer: Any) -> Any:
        quorum._deadline = seconds
        return answer

    return lie


def begins(leader: int, epoch: int, receiver: int = 1) -> Any:
    return rpc.begin_quorum_epoch(CLUSTER, receiver, leader, epoch, VOTERS[2])


def ends(leader: int, epoch: int, *successors: int) -> Any:
    return rpc.end_quorum_epoch(CLUSTER, leader, epoch, successors, VOTERS[2])


def voter() -> Quorum:
    return boot(disk_with(1, 2, 2))


def follower() -> Quorum:
    quorum = voter()
    quorum.receive(begins(2, 5), 0.0)
    return quorum


def leader() -> Quorum:
    return elect(voter())


def waits_for_news(_: Quorum, answer: Any) -> Any:
    return WaitingFetch(None, 0.5)


REQUESTS: Final[dict[str, tuple[Callable[[], Quorum], Any, Lie, str]]] = {
    "a vote is granted, and not kept": (
        voter, vote(2, 9, 2, 3), is_then(Role.UNATTACHED, 9), "its vote is 2, and it is unattached in epoch 9"
    ),
    "a pre-vote is refused where nobody is heard": (
        follower, vote(3, 5, 2, 3, True), told(vote_granted=False),
        "node 3, whose log ends with epoch and offset (2, 3), wants a pre-vote; its own ends with (2, 3); it hears a "
        "leader: False; it grants: False",
    ),
    "a pre-vote is granted by the leader": (
        leader, vote(3, 3, 9, 9, True), told(vote_granted=True), "it hears a leader: True; it grants: True"
    ),
    "a pre-vote binds": (
        follower, vote(3, 5, 2, 3, True), is_then(Role.FOLLOWER, 5, 2, 3), "its vote is None, and it is follower"
    ),
    "an epoch that has passed is taken": (
        follower, vote(3, 4, 2, 3), told(error_code=ErrorCode.none), "is due fenced_leader_epoch, and answered none"
    ),
    "what is for somebody else is taken": (
        voter, begins(2, 9, receiver=3), told(error_code=ErrorCode.none), "is due invalid_voter_key, and answered none"
    ),
    "an observer votes on": (
        voter, vote(7, 9, 2, 3), told(error_code=ErrorCode.none), "is due inconsistent_voter_set, and answered none"
    ),
    "an epoch out of reach is believed": (
        voter, vote(2, 2**31 - 1, 2, 3), told(error_code=ErrorCode.none), "is due invalid_request, and answered none"
    ),
    "a voter is refused": (
        voter, vote(2, 9, 2, 3), told(error_code=ErrorCode.inconsistent_voter_set),
        "is due none, and answered inconsistent_voter_set",
    ),
    "it refuses, and believes": (
        follower, vote(3, 4, 2, 3), is_then(Role.UNATTACHED, 5), "it tells of (epoch, leader) (5, 2), and it is (5, -1)"
    ),
    "another leader is told of": (follower, begins(2, 5), told(leader_id=3), "it tells of (epoch, leader) (5, 3)"),
    "who leads is not followed": (
        voter, begins(2, 9),
        lambda quorum, answer: is_then(Role.UNATTACHED, 9)(quorum, told(leader_id=-1)(quorum, answer)),
        "node 2 leads, and it is unattached in epoch 9",
    ),
    "another cluster is heard": (
        voter, replace(vote(2, 9, 2, 3), cluster_id="another"),
        lambda _, answer: replace(answer, error_code=ErrorCode.none),
        "it is of cluster another, and is answered none",
    ),
    "a follower serves a fetch": (
        follower, fetch(2, 5, 3, 2), told(error_code=ErrorCode.none), "is due not_leader_or_follower, and answered"
    ),
    "a fetch in an epoch that has passed is served": (
        leader, fetch(2, 2, 3, 2), told(error_code=ErrorCode.none), "in epoch 2 is due fenced_leader_epoch, and"
    ),
    "a fetch in an epoch to come is served": (
        leader, fetch(2, 4, 3, 2), told(error_code=ErrorCode.none), "in epoch 4 is due unknown_leader_epoch, and"
    ),
    "a fetch from no offset is served": (
        leader, fetch(2, 3, -1, 2), told(error_code=ErrorCode.none), "in epoch 3 is due offset_out_of_range, and"
    ),
    "who lacks a record waits": (
        leader, fetch(2, 3, 3, 2), waits_for_news, "it lets wait whose log ends with (offset, epoch) (3, 2), and who"
    ),
    "whose log parts from the leader's waits": (leader, fetch(2, 3, 5, 2), waits_for_news, "(offset, epoch) (5, 2)"),
    "who does not know what is committed waits": (
        leader, fetch(2, 3, 4, 3, high_watermark=-1), waits_for_news, "who knows of watermark -1"
    ),
    "who asks for it at once waits": (
        leader, replace(fetch(2, 3, 4, 3, 9), min_bytes=i32(0)), waits_for_news, "and who knows of watermark 9"
    ),
    "another watermark is told": (leader, fetch(2, 3, 3, 2), told(high_watermark=9), "and it tells 9"),
    "records are missing": (leader, fetch(2, 3, 3, 2), told(records=None), "it has nothing for whose ends with"),
    "there are records past the end": (
        leader, fetch(2, 3, 4, 3, -1), told(records=b"records"), "it gives records from 4 on, and ends at 4"
    ),
    "a chunk of no snapshot": (
        leader, rpc.fetch_snapshot(CLUSTER, 2, 3, (2, 1), 0, 99), told(error_code=ErrorCode.none),
        "it has no snapshot (2, 1), and answers none",
    ),
    "the successor waits": (follower, ends(2, 5, 1, 3), waits(0.5), "it has rank 0, and it waits 0.5"),
}  # fmt: skip


def keeps_a_snapshot() -> Quorum:
    quorum = leader()
    quorum.replica.snapshots.write(SnapshotId(3, 2), encode([b"record"], 2, 0))
    return quorum


def chunk(position: int) -> Any:
    return rpc.fetch_snapshot(CLUSTER, 2, 3, (3, 2), position, 50)


SNAPSHOTS: Final[dict[str, tuple[Any, Lie, str]]] = {
    "it is said not to be there": (
        chunk(0), told(error_code=ErrorCode.snapshot_not_found), "it has snapshot (3, 2), and answers snapshot_not"
    ),
    "nothing of it is given": (chunk(0), told(unaligned_records=b""), "it gives 0 from 0 on"),
    "another part of it is given": (chunk(0), told(position=50), "from 0 on, it gives 50 from 50 on"),
    "more of it than there is": (chunk(0), told(size=49), "of 49 bytes, from 0 on, it gives 50"),
}


@pytest.mark.parametrize("lie", SNAPSHOTS)
def test_what_is_given_of_a_snapshot(lie: str) -> None:
    request, planted, message = SNAPSHOTS[lie]
    judged(keeps_a_snapshot(), chunk(10_000), honest)  # past its end
    judged(keeps_a_snapshot(), request, honest)
    with pytest.raises(Violated) as blamed:
        judged(keeps_a_snapshot(), request, planted)
    assert message in blamed.value.message


@pytest.mark.parametrize("lie", REQUESTS)
def test_what_is_made_of_a_request(lie: str) -> None:
    made, request, planted, message = REQUESTS[lie]
    judged(made(), request, honest)
    with pytest.raises(Violated) as blamed:
        judged(made(), request, planted)
    assert (blamed.value.property, blamed.value.nodes) == ("QuorumAnswered", ("controller-1",))
    assert message in blamed.value.message


def nothing(_: Quorum) -> None: ...


def test_a_follower_that_has_heard_of_its_leader_grants_no_pre_vote() -> None:
    oracle, quorum = VotersOracle(), follower()
    watch = oracle.watch("controller-1")
    ((_, asked),) = quorum.poll(0.0).requests
    for grants in (False, True):
        watch.enters(quorum, 0.1)
        if not grants:
            answer = rpc.fetch_answer(ErrorCode.none, 2, 5, high_watermark=0)
            quorum.respond(2, asked, answer, 0.1)
            watch.responded(2, asked, answer)
        watch.enters(quorum, 0.1)
        request = vote(3, 5, 2, 3, True)
        told_of = quorum.receive(request, 0.1)
        watch.received(request, told(vote_granted=grants)(quorum, told_of))
        if not grants:
            oracle.raise_found()
    with pytest.raises(Violated, match="it hears a leader: True; it grants: True"):
        oracle.raise_found()


def asks_for_pre_votes() -> tuple[Quorum, Any]:
    quorum = voter()
    return quorum, next(send.request for send in quorum.poll(1.0).requests if send.receiver == 2)


ANSWERS: Final[dict[str, tuple[Any, Callable[[Quorum], None], str]]] = {
    "it is told who leads": (
        rpc.vote_answer(ErrorCode.none, 3, 2, False), lambda quorum: setattr(quorum, "role", Role.PROSPECTIVE),
        "node 3 leads epoch 2, and it is prospective in epoch 2",
    ),
    "it is told of an epoch": (
        rpc.vote_answer(ErrorCode.none, None, 7, False),
        lambda quorum: setattr(quorum, "state", ElectionState(2)),
        "there is an epoch 7, and it is unattached in epoch 2",
    ),
    "it is of a round that is over": (
        rpc.vote_answer(ErrorCode.none, None, 2, True),
        lambda quorum: setattr(quorum, "role", Role.FOLLOWER), "1 are open, and it is follower",
    ),
    "it is refused": (
        rpc.refusal(vote(1, 2), ErrorCode.inconsistent_cluster_id),
        lambda quorum: setattr(quorum, "state", ElectionState(3)), "it is refused, and is prospective in epoch 3",
    ),
}  # fmt: skip


@pytest.mark.parametrize("lie", ANSWERS)
def test_what_is_made_of_an_answer(lie: str) -> None:
    answer, planted, message = ANSWERS[lie]
    judged_answer(*asks_for_pre_votes(), answer, nothing)
    with pytest.raises(Violated) as blamed:
        judged_answer(*asks_for_pre_votes(), answer, planted)
    assert blamed.value.property == "QuorumAnswered"
    assert message in blamed.value.message


def test_who_is_refused_a_vote_does_not_wait_out_its_election() -> None:
    def refused(lie: Callable[[Quorum], None]) -> None:
        quorum = voter()
        (first, *_) = [send.request for send in quorum.poll(1.0).requests if send.receiver == 2]
        quorum.respond(2, first, rpc.vote_answer(ErrorCode.none, None, 2, True), 1.0)
        asked = next(send.request for send in quorum.poll(1.0).requests if send.receiver == 2)
        judged_answer(quorum, asked, rpc.vote_answer(ErrorCode.none, None, 3, False), lie)

    refused(nothing)
    with pytest.raises(Violated, match=r"a vote is refused, and it waits 1\.900 s before it stands again"):
        refused(lambda quorum: setattr(quorum, "_deadline", 2.9))


def timed(role: Role, *seconds: float) -> None:
    """A voter that gets this role again and again."""
    oracle = VotersOracle()
    watch, quorum = oracle.watch("controller-1"), voter()
    for epoch, wait in enumerate(seconds, 3):
        watch.enters(quorum, 1.0)
        quorum.role, quorum.state, quorum._deadline = role, ElectionState(epoch, 2), 1.0 + wait
        watch.expired()
    oracle.raise_found()


@pytest.mark.parametrize(
    ("role", "seconds", "message"),
    [
        (Role.CANDIDATE, (0.9,), "waits 0.900 s as candidate in epoch 3 of leader 2, vote None, and not 1 to 2 s"),
        (Role.PROSPECTIVE, (2.1,), "and not 1 to 2 s"),
        (Role.RESIGNED, (1.5, 1.5), "exactly as long as the time before"),
        (Role.FOLLOWER, (1.9,), "and not 2 to 2.2 s"),
        (Role.FOLLOWER, (2.3,), "and not 2 to 2.2 s"),
        (Role.UNATTACHED, (2.1,), "and not 0 to 2 s"),
    ],
)
def test_who_waits_too_long_or_not_by_chance(role: Role, seconds: tuple[float, ...], message: str) -> None:
    right = {Role.FOLLOWER: (2.0, 2.2), Role.UNATTACHED: (0.0, 2.0)}.get(role, (1.0, 2.0, 1.3))
    timed(role, *right)
    with pytest.raises(Violated) as blamed:
        timed(role, *seconds)
    assert blamed.value.property == "ElectionTimeouts"
    assert message in blamed.value.message


# -- planted, and explored ------------------------------------------------------------------------------------


def always_as_long(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Quorum, "_election_timeout", lambda quorum: 2 * quorum.config.election_timeout)


def all_hearsay(patch: pytest.MonkeyPatch) -> None:
    """Who has lost sight of its leader follows it again at anybody's word."""
    learn = Quorum._learn
    patch.setattr(
        Quorum, "_learn",
        lambda quorum, epoch, leader, *, told_by, now: learn(quorum, epoch, leader, told_by=leader, now=now),
    )  # fmt: skip


def farewell_refused(patch: pytest.MonkeyPatch) -> None:
    refuse = Quorum._refuse_voter
    patch.setattr(
        Quorum, "_refuse_voter",
        lambda quorum, receiver, sender, epoch: (
            ErrorCode.inconsistent_voter_set if receiver == -1 else refuse(quorum, receiver, sender, epoch)
        ),
    )  # fmt: skip


LIES: Lies = {
    "waits as long each time": (always_as_long, "ElectionTimeouts", 0),
    "follows again at hearsay": (all_hearsay, "QuorumAnswered", 0),
    "refuses a leader's farewell": (farewell_refused, "QuorumAnswered", 0),
}


@pytest.mark.parametrize("lie", LIES)
def test_it_is_found_by_exploring(lie: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check_found(LIES, lie, monkeypatch)


def test_an_error_of_a_check_is_not_the_node_s() -> None:
    oracle = VotersOracle()
    watch = oracle.watch("controller-1")
    watch.enters(voter(), 0.0)
    watch.received(begins(2, 7), None)  # no answer at all
    with pytest.raises(AttributeError):
        oracle.raise_found()
