"""One replica of the metadata quorum: KRaft, without I/O of its own but for the log and the quorum-state file.

This is Raft (papers: see rules.py) with Kafka's changes: followers and observers pull. A replica's Fetch says where
its log ends, so it is at once the request for records, the acknowledgement of those before, the follower's sign of
life and the test for divergence; its answer carries the high watermark. A leader announces itself by
BeginQuorumEpoch and bows out by EndQuorumEpoch. Before it starts an epoch, a voter asks whether it would win
(pre-vote). A leader that a majority has stopped fetching from resigns (check quorum). Whatever names a higher epoch
is believed.

`Quorum` is entered by `receive` (a request came), `respond` and `fail` (what became of one that was sent), `append`
and `resign`; after each of these, and when its time has come, call `poll`. State changes at once; `poll` makes the
log durable and returns what follows: requests to send, waiting fetches to answer, the time of the next `poll`.
Times are the event loop's, in seconds.

Roles and the moves between them: roles.py. Snapshots: snapshots.py, and replica.py for how a follower gets one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from random import Random
from typing import Any, Final, NamedTuple

from kio.schema.errors import ErrorCode

from cluster_image.network import Address, Entity
from cluster_image.storage.errors import NonContiguousAppend
from cluster_image.storage.log import Log
from cluster_image.storage.records import RecordError
from cluster_image.telemetry.trace import Trace, no_trace

from . import rpc, rules
from .config import QuorumConfig
from .leader import Leadership, WaitingFetch
from .outbox import Outbox, Send
from .replica import Replica
from .roles import TRANSITIONS, Role
from .snapshots import SnapshotStore
from .state import ElectionState, QuorumStateStore

__all__ = ["NotLeader", "Output", "Quorum", "Role"]

logger = logging.getLogger(__name__)

FOREVER: Final = float("inf")


#: An observer that knows no leader asks every voter, and those that know none either again after so many backoffs.
_ASK_AGAIN_BACKOFFS = 5


class NotLeader(Exception):
    """This node does not lead the quorum, or no longer does: what was appended may or may not get committed."""


class Output(NamedTuple):
    requests: Sequence[Send]
    answers: Sequence[tuple[WaitingFetch, Entity]]
    wake_at: float  # poll again at this time, if nothing happens before


class Quorum:
    def __init__(
        self,
        node_id: int,
        voters: Mapping[int, Address],
        cluster_id: str,
        log: Log,
        store: QuorumStateStore,
        random: Random,
        config: QuorumConfig,
        now: float,
        *,
        wall_clock: Callable[[], float],
        snapshots: SnapshotStore,
        trace: Trace = no_trace,
    ) -> None:
        """`log` and `snapshots`: as of snapshots.open_log. `wall_clock`: seconds since 1970, for the times of batches;
        everything else goes by the loop's time.

        A node that is not among `voters` is an observer. Raises InvariantViolation, QuorumStateError, OSError."""
        self.id = node_id
        self.voters = dict(sorted(voters.items()))
        self.is_voter = node_id in voters
        self.replica = Replica(log, snapshots, trace)
        self.state = rules.state_after_restart(store.read(), log.last_epoch, self.is_voter)
        self.leadership: Leadership | None = None
        self._others = [voter for voter in self.voters if voter != node_id]
        self.cluster_id = cluster_id
        self._store = store
        self._random = random
        self.config = config
        self._wall_clock = wall_clock
        self._trace = trace
        self._outbox = Outbox(config.retry_backoff)
        self._orphans: list[WaitingFetch] = []  # fetches that waited for a leadership that has ended
        self._votes: dict[int, bool] = {}  # of this round, as PROSPECTIVE or CANDIDATE
        self._lost_elections = 0  # since there was a leader
        self._leader_answers = False  # as FOLLOWER
        self._ask_at = now  # as UNATTACHED observer
        self._successors: Sequence[int] = self._others  # as RESIGNED: who should stand, best first
        self._reported: dict[int, bool] = {}  # as RESIGNED: who knows

        if self.state.leader_id == node_id:
            self.role = Role.RESIGNED
            self._deadline = now + self._election_timeout()
        elif self.state.leader_id is not None:
            self.role = Role.FOLLOWER
            self._deadline = now + self._fetch_timeout()
        else:
            # A pre-vote disturbs nobody, so a new quorum need not wait long for its first leader.
            self.role = Role.UNATTACHED
            self._deadline = now + random.uniform(0, config.election_timeout / 10) if self.is_voter else FOREVER
        self._trace_role()

    @property
    def epoch(self) -> int:
        return self.state.epoch

    @property
    def leader_id(self) -> int | None:
        """The leader that this replica believes to be there now."""
        return self.state.leader_id if self.role in (Role.FOLLOWER, Role.LEADER) else None

    @property
    def hears_leader(self) -> bool:
        return self.role is Role.LEADER or (self.role is Role.FOLLOWER and self._leader_answers)

    @property
    def resignation_is_known(self) -> bool:
        return self.role is not Role.RESIGNED or len(self._reported) == len(self._others)

    # -- requests that came -----------------------------------------------------------------------------------

    def receive(self, request: Entity, now: float) -> Entity | WaitingFetch:
        """The answer to one of rpc.REQUESTS, or the promise of one by a later `poll`. Raises OSError,
        InvariantViolation."""
        if getattr(request, "cluster_id", None) not in (None, self.cluster_id):
            return rpc.refusal(request, ErrorCode.inconsistent_cluster_id)
        data = rpc.partition(request)
        if data is None:
            return rpc.refusal(request, ErrorCode.unknown_topic_or_partition)
        if isinstance(request, rpc.FetchRequest):
            if self.leadership is None:
                return self._refuse_fetch()
            return self.leadership.receive_fetch(request, data, now)
        if isinstance(request, rpc.FetchSnapshotRequest):
            if self.leadership is None:
                asked = int(data.snapshot_id.end_offset), int(data.snapshot_id.epoch)
                error = ErrorCode.not_leader_or_follower
                return rpc.fetch_snapshot_answer(error, self.leader_id, self.epoch, asked)
            return self.leadership.receive_fetch_snapshot(request, data, now)
        if isinstance(request, rpc.VoteRequest):
            return self._receive_vote(request, data, now)
        if isinstance(request, rpc.BeginQuorumEpochRequest):
            return rpc.begin_answer(self._receive_begin(request, data, now), self.leader_id, self.epoch)
        if isinstance(request, rpc.EndQuorumEpochRequest):
            return rpc.end_answer(self._receive_end(data, now), self.leader_id, self.epoch)
        if self.leadership is None:
            error = ErrorCode.not_leader_or_follower
            return rpc.describe_answer(error, self.leader_id, self.epoch, -1, (), (), self.voters)
        return self.leadership.describe(self.voters)

    def _receive_vote(self, request: Entity, data: Any, now: float) -> Entity:
        candidate, epoch = int(data.replica_id), int(data.replica_epoch)
        error = self._refuse_voter(int(request.voter_id), candidate, epoch)
        granted = False
        if error is ErrorCode.none:
            state = ElectionState(epoch) if epoch > self.epoch else self.state
            up_to_date = rules.is_log_up_to_date(self.replica.log, int(data.last_offset_epoch), int(data.last_offset))
            if data.pre_vote:
                granted = rules.may_grant_pre_vote(self.hears_leader and epoch == self.epoch, up_to_date)
            elif rules.may_grant_vote(state, candidate, up_to_date):
                granted = True
                state = state._replace(voted_for=candidate)
            if state.epoch > self.epoch or (granted and not data.pre_vote):
                self._become_unattached(now, state)
        return rpc.vote_answer(error, self.leader_id, self.epoch, granted)

    def _receive_begin(self, request: Entity, data: Any, now: float) -> ErrorCode:
        leader, epoch = int(data.leader_id), int(data.leader_epoch)
        error = self._refuse_voter(int(request.voter_id), leader, epoch)
        if error is ErrorCode.none:
            self._learn(epoch, leader, told_by=leader, now=now)
        return error

    def _receive_end(self, data: Any, now: float) -> ErrorCode:
        """The leader bows out: its first choice stands for election at once, the others a little later."""
        leader, epoch = int(data.leader_id), int(data.leader_epoch)
        error = self._refuse_voter(-1, leader, epoch)
        if error is ErrorCode.none:
            self._learn(epoch, leader, told_by=None, now=now)
            if self.role is Role.FOLLOWER and self.state.leader_id == leader:
                preferred = [int(replica.candidate_id) for replica in data.preferred_candidates]
                rank = preferred.index(self.id) if self.id in preferred else len(preferred)
                self._leader_answers = False
                self._deadline = now + rank * self._random.uniform(0.1, 0.2) * self.config.election_backoff_max
        return error

    def _refuse_voter(self, receiver: int, sender: int, epoch: int) -> ErrorCode:
        if receiver not in (-1, self.id):
            return ErrorCode.invalid_voter_key
        if not self.is_voter or sender not in self._others:
            return ErrorCode.inconsistent_voter_set
        if epoch < self.epoch:
            return ErrorCode.fenced_leader_epoch
        if not rules.is_epoch_in_reach(self.epoch, epoch):
            return ErrorCode.invalid_request
        return ErrorCode.none

    # -- requests that were sent ------------------------------------------------------------------------------

    def fail(self, receiver: int, request: Entity, now: float) -> None:
        """A request that `poll` gave out was refused, or will never be answered. Raises OSError."""
        self._outbox.done(receiver, request, failed_at=now)
        if not self.is_voter:
            self._ask_at = now + _ASK_AGAIN_BACKOFFS * self.config.retry_backoff
            if self.role is Role.FOLLOWER and receiver == self.state.leader_id:
                self._become_unattached(now, self.state)

    def respond(self, receiver: int, request: Entity, response: Entity, now: float) -> None:
        """The answer to a request that `poll` gave out. Raises OSError, InvariantViolation."""
        data = None if response.error_code != ErrorCode.none else rpc.partition(response)
        if data is None:
            logger.warning("%s refused by node %d: %r", type(request).__name__, receiver, response.error_code)
            self.fail(receiver, request, now)
            return
        claim = data.current_leader if isinstance(request, rpc.FetchRequest | rpc.FetchSnapshotRequest) else data
        asked_in = self.epoch
        self._learn(int(claim.leader_epoch), int(claim.leader_id), told_by=receiver, now=now)
        if data.error_code != ErrorCode.none and isinstance(request, rpc.FetchSnapshotRequest):
            self.replica.download = None  # the leader no longer has it, or no longer leads
        if data.error_code != ErrorCode.none and not (self.epoch > asked_in and self.leader_id == receiver):
            self.fail(receiver, request, now)
            return
        self._outbox.done(receiver, request)
        if data.error_code != ErrorCode.none:
            return  # asked in an old epoch, the leader of the new one has made itself known
        asked = rpc.partition(request)
        assert asked is not None
        if isinstance(request, rpc.VoteRequest):
            self._receive_ballot(receiver, asked, bool(data.vote_granted), now)
        elif isinstance(request, rpc.BeginQuorumEpochRequest):
            if self.leadership is not None and asked.leader_epoch == self.epoch:
                self.leadership.acknowledged(receiver, now)
        elif isinstance(request, rpc.EndQuorumEpochRequest):
            if asked.leader_epoch == self.epoch:
                self._reported[receiver] = True
        else:
            self._receive_data(receiver, request, asked, data, now)

    def _receive_ballot(self, voter: int, asked: Any, granted: bool, now: float) -> None:
        round_role = Role.PROSPECTIVE if asked.pre_vote else Role.CANDIDATE
        if self.role is round_role and asked.replica_epoch == self.epoch:
            self._votes[voter] = granted
            self._count_votes(now)

    def _receive_data(self, leader: int, request: Entity, asked: Any, data: Any, now: float) -> None:
        """Records, or bytes of a snapshot, for a follower."""
        of_this_leader = self.role is Role.FOLLOWER and leader == self.state.leader_id
        if not of_this_leader or asked.current_leader_epoch != self.epoch:
            return
        of_log = isinstance(request, rpc.FetchRequest)
        if of_log and not self.replica.is_where(asked):
            return
        self._deadline = now + self._fetch_timeout()
        self._leader_answers = True
        self._lost_elections = 0
        try:
            if of_log:
                self.replica.take(data)
            else:
                self.replica.take_chunk(asked, data)
        except (RecordError, NonContiguousAppend) as error:
            logger.error("what leader %d sent is refused: %s", leader, error)
            self._outbox.done(leader, request, failed_at=now)

    # -- transitions ------------------------------------------------------------------------------------------

    def _become(self, role: Role, state: ElectionState, deadline: float) -> None:
        """Every change of role or epoch. The new election state is on disk before anything is said that follows
        from it."""
        if role not in TRANSITIONS[self.role]:
            raise rules.InvariantViolation(f"no way leads from {self.role.value} to {role.value}")
        rules.store_before_acting(self._store, self.state, state)
        logger.info("%s in epoch %d of leader %s, was %s", role.value, state.epoch, state.leader_id, self.role.value)
        if self.leadership is not None:
            self._orphans += self.leadership.waiting
            self.leadership = None
        self.role = role
        self.state = state
        self._deadline = deadline
        self._leader_answers = False
        self._votes = {}
        self.replica.download = None
        self._trace_role()

    def _trace_role(self) -> None:
        leader = self.state.leader_id
        self._trace("quorum", role=self.role.value, epoch=self.epoch, leader=-1 if leader is None else leader)

    def _become_unattached(self, now: float, state: ElectionState) -> None:
        self._become(Role.UNATTACHED, state, now + self._election_timeout() if self.is_voter else FOREVER)

    def _become_follower(self, now: float, epoch: int, leader: int) -> None:
        voted_for = self.state.voted_for if epoch == self.epoch else None
        self._become(Role.FOLLOWER, ElectionState(epoch, leader, voted_for), now + self._fetch_timeout())

    def _become_prospective(self, now: float) -> None:
        self._become(Role.PROSPECTIVE, self.state, now + self._election_timeout())
        self._votes[self.id] = True
        self._count_votes(now)

    def _become_candidate(self, now: float) -> None:
        state = ElectionState(self.epoch + 1, voted_for=self.id)
        self._become(Role.CANDIDATE, state, now + self._election_timeout())
        self._votes[self.id] = True
        self._count_votes(now)

    def _become_leader(self, now: float) -> None:
        granting = [voter for voter, granted in sorted(self._votes.items()) if granted]
        self._become(Role.LEADER, self.state._replace(leader_id=self.id), FOREVER)
        self._lost_elections = 0
        self.leadership = Leadership(
            self.id, self.epoch, list(self.voters), granting, self.replica, now, self._wall_clock
        )

    def resign(self, now: float) -> None:
        """Give up leadership, if held, and tell the voters, so that they need not wait for a timeout."""
        if self.leadership is not None:
            self._successors = self.leadership.successors()
            self._reported = {}
            self._become(Role.RESIGNED, self.state, now + self._election_timeout())

    def _count_votes(self, now: float) -> None:
        granted = sum(self._votes.values())
        undecided = len(self.voters) - len(self._votes)
        if rules.is_majority(granted, len(self.voters)):
            if self.role is Role.PROSPECTIVE:
                self._become_candidate(now)
            else:
                self._become_leader(now)
        elif self.role is Role.CANDIDATE and granted < len(self._votes):
            # Most likely a split vote, with the missing voter down: do not sit out the whole timeout.
            self._lose_election(now)
        elif not rules.is_majority(granted + undecided, len(self.voters)):
            self._lose_election(now)

    def _lose_election(self, now: float) -> None:
        self._lost_elections = min(self._lost_elections + 1, 10)
        longest = min(self.config.election_backoff_max, 0.1 * 2**self._lost_elections)
        retry_at = now + self._random.uniform(0, longest)
        if self.role is Role.CANDIDATE:
            self._deadline = min(self._deadline, retry_at)
        elif self.state.leader_id in self._others:
            self._become_follower(now, self.epoch, self.state.leader_id)
        else:
            self._become(Role.UNATTACHED, self.state, retry_at)

    def _learn(self, epoch: int, leader: int, *, told_by: int | None, now: float) -> None:
        """Somebody says who leads an epoch, or that nobody (-1) does yet. If this replica has lost sight of its
        leader, only that leader's own word brings it back: others may not have noticed yet."""
        known = leader in self._others
        if epoch > self.epoch and known:
            self._become_follower(now, epoch, leader)
        elif epoch > self.epoch:
            self._become_unattached(now, ElectionState(epoch))
        elif (
            epoch == self.epoch
            and known
            and self.role is not Role.FOLLOWER
            and (self.state.leader_id is None or told_by == leader)
        ):
            self._become_follower(now, epoch, leader)

    # -- time -------------------------------------------------------------------------------------------------

    def append(self, values: Sequence[bytes], now: float) -> int:
        """As leader, write one batch of records; returns the offset of the last. Raises NotLeader, OSError."""
        self.expire(now)
        if self.leadership is None:
            raise NotLeader(f"node {self.id} is {self.role.value} in epoch {self.epoch}")
        return self.leadership.append(values)

    def poll(self, now: float) -> Output:
        """Let the timer act, make the log durable, and say what is to be done now. Raises OSError,
        InvariantViolation."""
        self.expire(now)
        rules.make_durable_before_fetch(self.replica.log, self.is_voter)
        answers = [(orphan, self._refuse_fetch()) for orphan in self._orphans]
        self._orphans = []
        wake_at = self.expires_at
        if self.leadership is not None:
            self.leadership.advance_high_watermark()
            answers += self.leadership.answers(now)
            wake_at = min([wake_at, *(waiting.deadline for waiting in self.leadership.waiting)])
        requests = []
        for due_at, receiver, kind, build in self._wanted():
            due_at = max(due_at, self._outbox.ready_at(receiver, kind))
            if due_at <= now:
                requests.append(Send(receiver, build(receiver)))
                self._outbox.sent(receiver, kind)
            else:
                wake_at = min(wake_at, due_at)
        return Output(requests, answers, wake_at)

    def forget(self, waiting: WaitingFetch) -> None:
        """Nobody waits for this answer any more."""
        if self.leadership is not None and waiting in self.leadership.waiting:
            self.leadership.waiting.remove(waiting)

    def _wanted(self) -> Iterator[tuple[float, int, type, Callable[[int], Entity]]]:
        """Every request that the role calls for: not before when, to whom, of which kind, and how to build it."""
        if self.role is Role.FOLLOWER:
            assert self.state.leader_id is not None
            if self.replica.download is None:
                yield 0.0, self.state.leader_id, rpc.FetchRequest, self._fetch
            else:
                yield 0.0, self.state.leader_id, rpc.FetchSnapshotRequest, self._fetch_snapshot
        elif self.role is Role.UNATTACHED and not self.is_voter:
            # All of them side by side: one that is dead answers nothing, and must not keep the others from answering.
            for voter in self._others:
                yield self._ask_at, voter, rpc.FetchRequest, self._fetch
        elif self.role in (Role.PROSPECTIVE, Role.CANDIDATE):
            for voter in self._others:
                if voter not in self._votes:
                    yield 0.0, voter, rpc.VoteRequest, self._vote
        elif self.leadership is not None:
            for voter in self._others:
                due_at = self.leadership.announce_at(voter, self.config.fetch_timeout / 2)
                yield due_at, voter, rpc.BeginQuorumEpochRequest, self._begin
        elif self.role is Role.RESIGNED:
            for voter in self._others:
                if voter not in self._reported:
                    yield 0.0, voter, rpc.EndQuorumEpochRequest, self._end

    def _fetch(self, _: int) -> Entity:
        config = self.config
        return self.replica.fetch(self.cluster_id, self.id, self.epoch, config.fetch_wait_ms, config.fetch_bytes)

    def _fetch_snapshot(self, _: int) -> Entity:
        return self.replica.fetch_snapshot(self.cluster_id, self.id, self.epoch, self.config.fetch_bytes)

    def _vote(self, voter: int) -> Entity:
        log, pre_vote = self.replica.log, self.role is Role.PROSPECTIVE
        return rpc.vote(self.cluster_id, voter, self.id, self.epoch, log.last_epoch, log.end_offset, pre_vote)

    def _begin(self, voter: int) -> Entity:
        return rpc.begin_quorum_epoch(self.cluster_id, voter, self.id, self.epoch, self.voters[self.id])

    def _end(self, _: int) -> Entity:
        return rpc.end_quorum_epoch(self.cluster_id, self.id, self.epoch, self._successors, self.voters[self.id])

    def _refuse_fetch(self) -> Entity:
        return rpc.fetch_answer(ErrorCode.not_leader_or_follower, self.leader_id, self.epoch)

    @property
    def expires_at(self) -> float:
        """When the role's timer runs out."""
        if self.leadership is not None:
            return self.leadership.lapses_at(self.config.fetch_timeout)
        return self._deadline

    def expire(self, now: float) -> None:
        """Let the role's timer act, if it is due. Raises OSError, InvariantViolation."""
        if now < self.expires_at:
            return
        if self.role is Role.LEADER:
            logger.warning("a majority of the voters has stopped fetching: resigning from epoch %d", self.epoch)
            self.resign(now)
        elif self.role is Role.PROSPECTIVE:
            self._lose_election(now)
        elif self.is_voter:
            self._become_prospective(now)
        else:
            self._become_unattached(now, self.state)

    def _election_timeout(self) -> float:
        return self._random.uniform(1, 2) * self.config.election_timeout

    def _fetch_timeout(self) -> float:
        # Followers hear of each advance at the same moment: without this they would all stand for election at once.
        return self._random.uniform(1, 1.1) * self.config.fetch_timeout
