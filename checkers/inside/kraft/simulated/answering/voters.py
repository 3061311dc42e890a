"""QuorumAnswered and ElectionTimeouts: whether a member of the metadata quorum makes of what others ask and answer what
Raft makes of it, and stands for election no sooner and no later than it should.

| what comes                         | what must be so
| ---------------------------------- | --------------------------------------------------------------------------------
| a request from another cluster, of | refused by the error that says so; and nothing changes
| who is no voter, for somebody else,|
| of an epoch that has passed, or    |
| that is out of all reach           |
| Vote                               | it is kept. A pre-vote binds nobody, and is granted if nothing is heard of a
|                                    | leader and the candidate's log is up to date; not if one is heard
| BeginQuorumEpoch                   | its sender is followed
| EndQuorumEpoch                     | nothing more is heard of its sender; the successor stands at once, the others
|                                    | by their rank
| an answer                          | a higher epoch is believed; a leader is followed that one does not know of, or
|                                    | that says so itself
| every answer                       | names the epoch and the leader as they are
| a fetch of the log or a snapshot   | see metadata_fetches.py

The timers are Raft's: one to two times the election timeout, by chance, so that not all stand at once; a follower's, up
to a tenth more than the fetch timeout after its leader's last answer (roles.py).

Elsewhere it is asked that votes are given and kept (LeaderElected, QuorumState), that an epoch has one leader
(ElectionSafety), who has all that is committed (CommittedPrefix).

Sources: Raft 5.1, 5.2, 5.4.1, thesis 9.6; KIP-595; KIP-996.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple

from kio.schema.errors import ErrorCode

from checkers.inside.violation import Violated
from cluster_image.kraft.raft import rpc
from cluster_image.kraft.raft.quorum import Quorum, Role

from .judging import NONE, Wrong, hold
from .metadata_fetches import check_metadata_fetch

#: So many epochs ahead, nobody is believed.
_OUT_OF_REACH: Final = 16_777_216
#: Two waits that differ by no more were not drawn by chance; in seconds.
_SAME_S: Final = 1e-9
_ROUNDING_S: Final = 1e-6
_FULL_TERM: Final = (Role.PROSPECTIVE, Role.CANDIDATE, Role.RESIGNED)


class Standing(NamedTuple):
    """Of a member. leader: of its epoch, as far as it knows. end: of its log, last epoch and offset. expires_at: its
    timer's time; not of a leader, whose timer its followers' fetches move (LeaderResigns)."""

    role: Role
    epoch: int
    leader: int | None
    voted_for: int | None
    end: tuple[int, int]
    expires_at: float

    @classmethod
    def of(cls, quorum: Quorum) -> Standing:
        log, leads = quorum.replica.log, quorum.leadership is not None
        return cls(
            quorum.role, *quorum.state, (log.last_epoch, log.end_offset), 0.0 if leads else quorum.expires_at
        )

    @property
    def shown(self) -> tuple[int, int]:
        """The epoch and the leader that it tells others of; -1: none."""
        leads = self.role in (Role.FOLLOWER, Role.LEADER) and self.leader is not None
        return self.epoch, self.leader if leads and self.leader is not None else -1

    def follows(self, leader: int) -> bool:
        return self.role is Role.FOLLOWER and self.leader == leader

    def __str__(self) -> str:
        return f"{self.role.value} in epoch {self.epoch} of leader {self.leader}, vote {self.voted_for}"


class Asked(NamedTuple):
    """What a voter asks another. receiver: -1: whoever it is."""

    sender: int
    epoch: int
    receiver: int

    @classmethod
    def by(cls, request: Any, data: Any) -> Asked:
        if isinstance(request, rpc.VoteRequest):
            return cls(int(data.replica_id), int(data.replica_epoch), int(request.voter_id))
        receiver = int(request.voter_id) if isinstance(request, rpc.BeginQuorumEpochRequest) else -1
        return cls(int(data.leader_id), int(data.leader_epoch), receiver)

    def due(self, quorum: Quorum, before: Standing) -> ErrorCode:
        """The error that it is refused by."""
        if self.receiver not in (-1, quorum.id):
            return ErrorCode.invalid_voter_key
        if quorum.id not in quorum.voters or self.sender not in quorum.voters or self.sender == quorum.id:
            return ErrorCode.inconsistent_voter_set
        if self.epoch < before.epoch:
            return ErrorCode.fenced_leader_epoch
        return ErrorCode.invalid_request if self.epoch - before.epoch > _OUT_OF_REACH else NONE


class VotersOracle:
    def __init__(self) -> None:
        self._found: Exception | None = None

    def watch(self, name: str) -> Watch:
        """One life of this member."""
        return Watch(name, self)

    def found(self, what: Exception) -> None:
        """Violated, or an error of a check."""
        self._found = self._found or what

    def raise_found(self) -> None:
        """Raises Violated, or whatever a check has failed with."""
        if self._found is not None:
            raise self._found


class Watch:
    """cluster_image.kraft.raft.driver.QuorumWatch."""

    def __init__(self, name: str, oracle: VotersOracle) -> None:
        self._name = name
        self._oracle = oracle
        self._left_as: tuple[Role, int] | None = None  # its role and epoch after what was told last
        self._heard: bool | None = False  # has its leader answered since it follows it? None: it cannot be told
        self._stands_as: tuple[Role, int] | None = None  # as, since which epoch, it has got these
        self._ballots: dict[int, bool] = {}
        self._drawn = 0.0  # the last wait, in seconds

    def enters(self, quorum: Quorum, now: float) -> None:
        self._quorum, self._now = quorum, now
        self._before = Standing.of(quorum)
        role = self._before[:2]
        if role != self._left_as:  # by its timer
            self._left_as, self._heard = role, False
        if role != self._stands_as:
            self._stands_as, self._ballots = role, {}

    def received(self, request: Any, answer: Any) -> None:
        self._judge(
            partial(self._check_received, request, answer),
            lambda: f"is {self._before}, and is asked {_kind(request)}",
            farewell=isinstance(request, rpc.EndQuorumEpochRequest),
        )  # fmt: skip

    def responded(self, receiver: int, request: Any, response: Any) -> None:
        self._judge(
            partial(self._check_responded, receiver, request, response),
            lambda: f"was {self._before}, and node {receiver} answers {_kind(request)}",
        )

    def expired(self) -> None:
        if (self._quorum.role, self._quorum.epoch) != self._before[:2]:
            self._judge(lambda after: None, lambda: f"was {self._before}")

    def _judge(self, check: Callable[[Standing], None], what: Callable[[], str], *, farewell: bool = False) -> None:
        """check: by what it is then; raises Wrong. Nothing is raised here: it would be an error of the node."""
        try:
            after = self._look()
            check(after)
            self._check_timer(after, farewell=farewell)
        except Wrong as wrong:
            self._found("QuorumAnswered", f"{what()}: {wrong}")
        except Exception as error:
            self._oracle.found(error)

    def _look(self) -> Standing:
        after = Standing.of(self._quorum)
        self._left_as = after[:2]
        if self._is_new(after):
            self._heard = False
        return after

    def _is_new(self, after: Standing) -> bool:
        """A role that it was not in before, or not in this epoch."""
        return after[:2] != self._before[:2]

    def _found(self, name: str, what: str) -> None:
        self._oracle.found(Violated(name, f"{self._name} {what}", "", (self._name,)))

    # -- requests ---------------------------------------------------------------------------------------------

    def _check_received(self, request: Any, answer: Any, after: Standing) -> None:
        before = self._before
        if getattr(request, "cluster_id", None) not in (None, self._quorum.cluster_id):
            error = getattr(answer, "error_code", ErrorCode.none)
            is_refused = error is ErrorCode.inconsistent_cluster_id and after == before
            hold(is_refused, f"it is of cluster {request.cluster_id}, and is answered {error.name}")
            return
        if isinstance(request, rpc.FetchRequest | rpc.FetchSnapshotRequest):
            check_metadata_fetch(self._quorum, request, answer)
            return
        data = rpc.partition(request)
        kinds = (rpc.VoteRequest, rpc.BeginQuorumEpochRequest, rpc.EndQuorumEpochRequest)
        if data is None or not isinstance(request, kinds):
            return
        asked, told = Asked.by(request, data), rpc.partition(answer)
        due = asked.due(self._quorum, before)
        hold(
            told is not None and told.error_code is due,
            f"{asked} is due {due.name}, and answered {told.error_code.name if told is not None else answer}",
        )
        assert told is not None
        said = int(told.leader_epoch), int(told.leader_id)
        hold(said == after.shown, f"it tells of (epoch, leader) {said}, and it is {after.shown}")
        if due is not NONE:
            hold(after == before, f"it refuses, and is {after}")
            return
        hold(after.epoch == asked.epoch, f"{asked} is taken, and it is {after}")
        if isinstance(request, rpc.VoteRequest):
            self._check_vote(asked.sender, data, bool(told.vote_granted), after)
        elif isinstance(request, rpc.BeginQuorumEpochRequest):
            hold(after.follows(asked.sender), f"node {asked.sender} leads, and it is {after}")
        else:
            self._check_end(asked.sender, data, after)

    def _check_vote(self, candidate: int, data: Any, granted: bool, after: Standing) -> None:
        before = self._before
        is_same = after.epoch == before.epoch
        theirs, ours = (int(data.last_offset_epoch), int(data.last_offset)), before.end
        kept = before.voted_for if is_same else None
        if data.pre_vote:
            heard = is_same and (before.role is Role.LEADER or (before.role is Role.FOLLOWER and self._heard))
            hold(
                not granted if heard else granted or heard is None or theirs < ours,
                f"node {candidate}, whose log ends with epoch and offset {theirs}, wants a pre-vote; its own ends with "
                f"{ours}; it hears a leader: {heard}; it grants: {granted}",
            )
        elif granted:
            kept = candidate
        hold(after.voted_for == kept, f"its vote is {kept}, and it is {after}")
        hold(is_same or after.leader is None, f"nobody leads epoch {after.epoch} yet, and it is {after}")
        if is_same and (data.pre_vote or not granted):
            hold(after == before, f"this changes nothing, and it is {after}")

    def _check_end(self, leader: int, data: Any, after: Standing) -> None:
        before = self._before
        is_news = after.epoch > before.epoch or (before.leader is None and before.role is not Role.FOLLOWER)
        hold(after.follows(leader) or not is_news, f"node {leader} has led, and it is {after}")
        if not after.follows(leader):
            return
        self._heard = False
        preferred = [int(each.candidate_id) for each in data.preferred_candidates]
        rank = preferred.index(self._quorum.id) if self._quorum.id in preferred else len(preferred)
        latest = rank * self._quorum.config.election_backoff_max / 5
        wait = after.expires_at - self._now
        hold(wait <= latest + _ROUNDING_S, f"of its successors it has rank {rank}, and it waits {wait:.3f} s")

    # -- answers ----------------------------------------------------------------------------------------------

    def _check_responded(self, receiver: int, request: Any, response: Any, after: Standing) -> None:
        before, quorum = self._before, self._quorum
        told = None if response.error_code != NONE else rpc.partition(response)
        if told is None:
            hold(after == before or not quorum.is_voter, f"it is refused, and is {after}")
            return
        of_log = isinstance(request, rpc.FetchRequest | rpc.FetchSnapshotRequest)
        claim = told.current_leader if of_log else told
        epoch, leader = int(claim.leader_epoch), int(claim.leader_id)
        is_news = epoch > before.epoch
        if leader in quorum.voters and leader != quorum.id and (quorum.is_voter or told.error_code == NONE):
            # Who has lost sight of its leader believes that one alone: others may not have noticed yet.
            believes = before.leader is None or receiver == leader
            is_news = is_news or (epoch == before.epoch and before.role is not Role.FOLLOWER and believes)
            hold(after.follows(leader) or not is_news, f"node {leader} leads epoch {epoch}, and it is {after}")
        hold(after.epoch >= epoch, f"there is an epoch {epoch}, and it is {after}")
        asked = rpc.partition(request)
        if asked is None or told.error_code != NONE:
            return
        if of_log and after.follows(receiver) and asked.current_leader_epoch == after.epoch:
            is_where = not isinstance(request, rpc.FetchRequest) or before.end == (
                asked.last_fetched_epoch, asked.fetch_offset
            )  # fmt: skip
            self._heard = True if is_where else self._heard or None
        if isinstance(request, rpc.VoteRequest) and not is_news:
            self._check_ballot(receiver, asked, bool(told.vote_granted), after)

    def _check_ballot(self, voter: int, asked: Any, granted: bool, after: Standing) -> None:
        before, quorum = self._before, self._quorum
        stands_as = Role.PROSPECTIVE if asked.pre_vote else Role.CANDIDATE, asked.replica_epoch
        if before[:2] != stands_as:
            hold(after == before, f"it is of a round that is over, and it is {after}")
            return
        self._ballots[voter] = granted
        for_it, needed = 1 + sum(self._ballots.values()), len(quorum.voters) // 2 + 1
        open_ = len(quorum.voters) - 1 - len(self._ballots)
        if for_it >= needed:
            due: tuple[Role, ...] = (Role.CANDIDATE if asked.pre_vote else Role.LEADER,)
        elif asked.pre_vote and for_it + open_ < needed:
            due = Role.FOLLOWER, Role.UNATTACHED
        else:
            due = (before.role,)
        hold(after.role in due, f"{for_it} of {len(quorum.voters)} are for it, {open_} are open, and it is {after}")
        wait = after.expires_at - self._now
        hold(
            granted or after.role is not Role.CANDIDATE or wait <= quorum.config.election_backoff_max + _ROUNDING_S,
            f"a vote is refused, and it waits {wait:.3f} s before it stands again",
        )

    # -- timers -----------------------------------------------------------------------------------------------

    def _check_timer(self, after: Standing, *, farewell: bool = False) -> None:
        if not self._quorum.is_voter or not self._is_new(after):
            return
        config, wait = self._quorum.config, after.expires_at - self._now
        if after.role in _FULL_TERM:
            shortest, longest = config.election_timeout, 2 * config.election_timeout
            if abs(wait - self._drawn) < _SAME_S:
                self._found("ElectionTimeouts", f"waits {wait:.6f} s as {after}, exactly as long as the time before")
            self._drawn = wait
        elif after.role is Role.FOLLOWER and not farewell:
            shortest, longest = config.fetch_timeout, 1.1 * config.fetch_timeout
        elif after.role is Role.UNATTACHED:
            shortest, longest = 0.0, 2 * config.election_timeout
        else:
            return
        if not shortest - _ROUNDING_S <= wait <= longest + _ROUNDING_S:
            self._found("ElectionTimeouts", f"waits {wait:.3f} s as {after}, and not {shortest:g} to {longest:g} s")


def _kind(request: Any) -> str:
    return type(request).__name__.removesuffix("Request")
