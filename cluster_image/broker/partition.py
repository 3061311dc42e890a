"""One partition's replica on this broker: leader or follower, its ISR, its high watermark.

Synchronous throughout. What must be told to others comes out as state: a pending ISR proposal for the controller,
futures of producers and fetchers that are set once what they wait for has happened.

Transitions (000, 2.10), by the metadata's new state against the present one:

| from     | to       | leader epoch | what happens                                                         |
| -------- | -------- | ------------ | -------------------------------------------------------------------- |
| any      | leader   | new          | follower states start anew; LESO = LEO; HWM may advance              |
| leader   | leader   | same         | ISR taken over if its partition epoch is newer; HWM may advance      |
| any      | follower | new          | waiting producers fail; the fetcher moves to the new leader          |
| follower | follower | same         | nothing                                                              |
"""

from __future__ import annotations

from asyncio import Future
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from kio.schema.errors import ErrorCode

from ..config import Config
from ..metadata import rules as session_rules
from ..metadata.image import PartitionKey, PartitionRegistration
from ..records import InvalidRecord, iter_batches
from ..storage.errors import InvalidProducerEpoch, OutOfOrderSequence
from ..storage.log import Log
from ..storage.producer_state import Duplicate
from ..trace import Trace, no_trace
from . import rules

#: Is this broker, in this uptime session, one that may be in an ISR, as far as this broker's metadata tells?
Eligible = Callable[[int, int], bool]


class Refused(Exception):
    """A request is answered with this error; nothing has changed."""

    def __init__(self, error: ErrorCode) -> None:
        super().__init__(error.name)
        self.error = error


@dataclass(slots=True)
class FollowerState:
    """What a leader knows of a follower from its fetches (000, 2.2.2). Times in seconds."""

    end_offset: int = -1
    broker_epoch: int = -1
    fetched_in_epoch: bool = False
    last_fetch: float = 0.0
    last_caught_up: float = 0.0
    leader_end_at_last_fetch: int = 0


@dataclass(frozen=True, slots=True)
class IsrProposal:
    """An ISR sent to the controller and not yet decided; its broker epochs are those of the last fetches."""

    isr: tuple[tuple[int, int], ...]  # (broker id, broker epoch)
    leader_epoch: int
    partition_epoch: int


class FetchRead(NamedTuple):
    """An answer to a fetch of one partition."""

    records: bytes
    high_watermark: int
    log_start_offset: int
    diverging: tuple[int, int] | None = None  # epoch, end offset


class Appended(NamedTuple):
    base_offset: int
    #: Set to ErrorCode.none once committed; already done for acks other than all.
    done: Future[ErrorCode] | None


@dataclass(slots=True)
class Leadership:
    """State of one term as leader."""

    epoch_start: int  # LESO
    followers: dict[int, FollowerState]
    proposal: IsrProposal | None = None
    maximal_isr: frozenset[int] = frozenset()
    waiting: deque[tuple[int, Future[ErrorCode]]] = field(default_factory=deque)  # by the offset to be committed


class Partition:
    def __init__(
        self,
        registration: PartitionRegistration,
        log: Log,
        config: Config,
        broker_id: int,
        trace: Trace = no_trace,
    ) -> None:
        self.key: Final[PartitionKey] = (registration.topic_id, registration.index)
        self.topic: Final = registration.topic
        self.index: Final = registration.index
        self.log: Final = log
        self.replicas = registration.replicas
        self.leader = -1
        self.leader_epoch = -1
        self.partition_epoch = -1
        self.isr: frozenset[int] = frozenset()
        self.leadership: Leadership | None = None
        self._config = config
        self._me: Final = broker_id
        self._high_watermark = 0
        self._trace = trace
        self._names_epoch = True
        self._name: Final = f"{self.topic}-{self.index}"
        #: Woken when the log grows (followers) and when the high watermark advances (consumers).
        self.log_waiters: dict[Future[None], None] = {}
        self.watermark_waiters: dict[Future[None], None] = {}

    def __str__(self) -> str:
        return self._name

    @property
    def is_leader(self) -> bool:
        return self.leadership is not None

    @property
    def high_watermark(self) -> int:
        return self._high_watermark

    def restore_high_watermark(self, checkpointed: int) -> None:
        """At start-up: as the checkpoint says, within what recovery has left of the log."""
        self._set_high_watermark(min(max(checkpointed, self.log.start_offset), self.log.end_offset))

    # -- transitions (000, 2.10) ------------------------------------------------------------------------------

    def apply(self, new: PartitionRegistration, now: float) -> None:
        """Take over the partition's state as the metadata log gives it."""
        if new.partition_epoch <= self.partition_epoch:
            return  # an answer to AlterPartition told it before the log did (000, 2.9.2)
        new_epoch = new.leader_epoch > self.leader_epoch
        new_role = new_epoch or new.leader != self.leader
        self.replicas = new.replicas
        self.leader = new.leader
        self.leader_epoch = new.leader_epoch
        if new.leader == self._me:
            if new_epoch:
                self._become_leader(new, now)
            self._commit_isr(new.isr, new.partition_epoch, new_role)
        else:
            self._take_isr(new.isr, new.partition_epoch, new_role)
            if self.leadership is not None:
                self._resign(self.leadership)
            if new_epoch and new.leader >= 0:
                self._become_follower()

    def _become_follower(self) -> None:
        start = rules.start_following(self._high_watermark, self.log.end_offset)
        self._names_epoch = start.names_epoch
        if start.end_offset < self.log.end_offset:
            self._truncate_to(start.end_offset)

    def _take_isr(self, isr: Sequence[int], partition_epoch: int, new_role: bool) -> None:
        self.isr = frozenset(isr)
        self.partition_epoch = partition_epoch
        if new_role:
            self._trace(
                "role",
                self._name,
                leader=self.leader,
                leader_epoch=self.leader_epoch,
                partition_epoch=partition_epoch,
                isr=tuple(sorted(isr)),
                end=self.log.end_offset,
                high_watermark=self._high_watermark,
            )
        else:
            self._trace(
                "isr",
                self._name,
                isr=tuple(sorted(isr)),
                leader_epoch=self.leader_epoch,
                partition_epoch=partition_epoch,
            )

    def _become_leader(self, new: PartitionRegistration, now: float) -> None:
        if self.leadership is not None:
            self._resign(self.leadership)
        self.log.assign_epoch_start_offset(self.leader_epoch, self.log.end_offset)
        self.leadership = Leadership(
            epoch_start=self.log.end_offset,
            # Members of the ISR get a whole replica.lag.time.max.ms to fetch from their new leader.
            followers={
                r: FollowerState(last_caught_up=now if r in new.isr else float("-inf"))
                for r in new.replicas
                if r != self._me
            },
        )

    def _resign(self, leadership: Leadership) -> None:
        self.leadership = None
        for _, done in leadership.waiting:
            _answer(done, ErrorCode.not_leader_or_follower)
        self._wake(self.log_waiters)
        self._wake(self.watermark_waiters)

    def _commit_isr(self, isr: Sequence[int], partition_epoch: int, new_role: bool = False) -> None:
        assert self.leadership is not None
        self.leadership.proposal = None
        self.leadership.maximal_isr = frozenset(isr)
        self._take_isr(isr, partition_epoch, new_role)
        self._advance_high_watermark()
        if not self._enough_replicas():
            # Fail fast: what waits cannot be acknowledged before the ISR has grown again (000, 2.6).
            while self.leadership.waiting:
                _answer(self.leadership.waiting.popleft()[1], ErrorCode.not_enough_replicas_after_append)

    # -- leader: appends --------------------------------------------------------------------------------------

    def append(self, records: bytes, acks: int, new_future: Callable[[], Future[ErrorCode]]) -> Appended:
        """A producer's batch. Raises Refused, and the storage's own errors for a batch that is not valid."""
        leadership = self._require_leadership()
        if acks == -1 and not self._enough_replicas():
            raise Refused(ErrorCode.not_enough_replicas)
        duplicate = self._check_producer(records)
        if duplicate is not None:
            base_offset, end_offset = duplicate.base_offset, duplicate.last_offset + 1
        else:
            base_offset = self.log.append_as_leader(records, self.leader_epoch)
            end_offset = self.log.end_offset
            self._trace("append", self._name, end=end_offset)
        self._wake(self.log_waiters)
        if acks != -1:
            self._advance_high_watermark()
            return Appended(base_offset, None)
        done = new_future()
        if end_offset <= self._high_watermark:
            done.set_result(ErrorCode.none)
        else:
            _insert(leadership.waiting, end_offset, done)
            self._advance_high_watermark()
        return Appended(base_offset, done)

    def _check_producer(self, records: bytes) -> Duplicate | None:
        """Is this the retry of an idempotent producer's batch that the log has already?"""
        headers = [header for _, _, header in iter_batches(records)]
        if not headers or headers[0].producer_id < 0:
            return None
        if len(headers) > 1:
            raise InvalidRecord("an idempotent producer sends one batch a partition")
        try:
            return self.log.producers.check(headers[0])
        except OutOfOrderSequence:
            raise Refused(ErrorCode.out_of_order_sequence_number) from None
        except InvalidProducerEpoch:
            raise Refused(ErrorCode.invalid_producer_epoch) from None

    def _require_leadership(self) -> Leadership:
        if self.leadership is None:
            raise Refused(ErrorCode.not_leader_or_follower)
        return self.leadership

    def _enough_replicas(self) -> bool:
        return rules.enough_replicas(self.isr, self._config["min.insync.replicas"], len(self.replicas))

    # -- leader: fetches --------------------------------------------------------------------------------------

    def fetch_as_consumer(self, offset: int, leader_epoch: int, max_bytes: int) -> FetchRead:
        """Committed records only: up to the high watermark (000, 2.7). Raises Refused."""
        self._check_epoch_and_leadership(leader_epoch)
        if not self.log.start_offset <= offset <= self.log.end_offset:
            raise Refused(ErrorCode.offset_out_of_range)
        records = self.log.read(offset, max_bytes, self._high_watermark) if offset < self._high_watermark else b""
        return FetchRead(records, self._high_watermark, self.log.start_offset)

    def fetch_as_follower(
        self,
        replica: int,
        broker_epoch: int,
        leader_epoch: int,
        offset: int,
        last_fetched_epoch: int,
        max_bytes: int,
        now: float,
        eligible: Eligible,
    ) -> FetchRead:
        """A follower's fetch is also its report of how far it has come. Raises Refused."""
        leadership = self._check_epoch_and_leadership(leader_epoch)
        follower = leadership.followers.get(replica)
        if follower is None or session_rules.is_earlier_session(broker_epoch, follower.broker_epoch):
            raise Refused(ErrorCode.unknown_leader_epoch if follower is None else ErrorCode.not_leader_or_follower)
        if last_fetched_epoch >= 0:
            end_of_epoch = self.log.end_offset_for_epoch(last_fetched_epoch)
            if rules.has_diverged(end_of_epoch, last_fetched_epoch, offset):
                return FetchRead(b"", self._high_watermark, self.log.start_offset, end_of_epoch)
        if not self.log.start_offset <= offset <= self.log.end_offset:
            raise Refused(ErrorCode.offset_out_of_range)
        self._record_fetch(follower, broker_epoch, offset, now)
        self._consider_joining(leadership, replica, follower, eligible)
        self._advance_high_watermark()
        records = self.log.read(offset, max_bytes, self.log.end_offset) if offset < self.log.end_offset else b""
        return FetchRead(records, self._high_watermark, self.log.start_offset)

    def _check_epoch_and_leadership(self, leader_epoch: int) -> Leadership:
        # The epoch first: a sender that knows a later epoch must wait for this broker, not look for another (M33).
        refusal = rules.refuse_leader_epoch(self.leader_epoch, leader_epoch)
        if refusal is not None:
            raise Refused(refusal)
        return self._require_leadership()

    def _record_fetch(self, follower: FollowerState, broker_epoch: int, offset: int, now: float) -> None:
        end = self.log.end_offset
        if offset >= end:
            follower.last_caught_up = max(follower.last_caught_up, now)
        elif offset >= follower.leader_end_at_last_fetch:
            # It has everything that there was at its last fetch: it was caught up then.
            follower.last_caught_up = max(follower.last_caught_up, follower.last_fetch)
        follower.end_offset = offset
        follower.broker_epoch = broker_epoch
        follower.fetched_in_epoch = True
        follower.last_fetch = now
        follower.leader_end_at_last_fetch = end

    # -- leader: ISR and high watermark -----------------------------------------------------------------------

    def _consider_joining(
        self, leadership: Leadership, replica: int, follower: FollowerState, eligible: Eligible
    ) -> None:
        if leadership.proposal is not None or replica in self.isr:
            return
        if rules.may_join_isr(
            follower.end_offset,
            follower.fetched_in_epoch,
            self._high_watermark,
            leadership.epoch_start,
            eligible(replica, follower.broker_epoch),
        ):
            self._propose(leadership, (*self._isr_in_order(), replica))

    def consider_shrinking(self, now: float) -> None:
        """Called now and then: followers that lag leave the ISR."""
        leadership = self.leadership
        if leadership is None or leadership.proposal is not None:
            return
        max_lag = self._config.seconds("replica.lag.time.max.ms")
        lagging = {
            r
            for r, f in leadership.followers.items()
            if r in self.isr and rules.is_out_of_sync(f.end_offset, self.log.end_offset, f.last_caught_up, now, max_lag)
        }
        if lagging:
            self._propose(leadership, tuple(r for r in self._isr_in_order() if r not in lagging))

    def _isr_in_order(self) -> tuple[int, ...]:
        return tuple(r for r in self.replicas if r in self.isr)

    def _propose(self, leadership: Leadership, isr: Sequence[int]) -> None:
        epochs = {r: f.broker_epoch for r, f in leadership.followers.items()}
        leadership.proposal = IsrProposal(
            tuple((r, epochs.get(r, -1)) for r in isr), self.leader_epoch, self.partition_epoch
        )
        leadership.maximal_isr = rules.maximal_isr(self.isr, isr)
        self._trace(
            "isr proposed",
            self._name,
            isr=tuple(sorted(isr)),
            leader_epoch=self.leader_epoch,
            partition_epoch=self.partition_epoch,
        )

    def proposal_accepted(
        self, proposal: IsrProposal, isr: Sequence[int], leader_epoch: int, partition_epoch: int
    ) -> None:
        """The controller's answer to `proposal`. The metadata log may have told it already, or something newer."""
        if leader_epoch == self.leader_epoch and partition_epoch > self.partition_epoch and self.is_leader:
            self._commit_isr(isr, partition_epoch)
        elif self.leadership is not None and self.leadership.proposal is proposal:
            # Accepted without a change: what was proposed stood already.
            self._commit_isr(tuple(self.isr), self.partition_epoch)

    def proposal_refused(self, proposal: IsrProposal, error: ErrorCode) -> None:
        """Go back to the committed ISR where that is safe; else the metadata log will bring what has happened."""
        if self.leadership is not None and self.leadership.proposal is proposal and rules.may_roll_back(error):
            self.leadership.proposal = None
            self.leadership.maximal_isr = self.isr
            self._advance_high_watermark()

    def _advance_high_watermark(self) -> None:
        leadership = self.leadership
        assert leadership is not None
        ends = [
            self.log.end_offset if r == self._me else leadership.followers[r].end_offset for r in leadership.maximal_isr
        ]
        if not rules.may_commit(
            self.isr,
            self._config["min.insync.replicas"],
            len(self.replicas),
            self._config["eligible.leader.replicas.version"] > 0,
        ):
            return
        advanced = rules.next_high_watermark(self._high_watermark, ends)
        if advanced == self._high_watermark:
            return
        self._set_high_watermark(advanced)
        verdict = ErrorCode.none if self._enough_replicas() else ErrorCode.not_enough_replicas_after_append
        while leadership.waiting and leadership.waiting[0][0] <= advanced:
            _answer(leadership.waiting.popleft()[1], verdict)

    def _set_high_watermark(self, offset: int) -> None:
        if offset != self._high_watermark:
            self._high_watermark = offset
            self._trace("high watermark", self._name, offset=offset)
        self._wake(self.watermark_waiters)

    def end_of_committed_log(self, leader_epoch: int, lease_held: bool) -> int:
        """ListOffsets latest. Raises Refused."""
        leadership = self._check_epoch_and_leadership(leader_epoch)
        if not rules.may_tell_end_of_log(self._high_watermark, leadership.epoch_start, lease_held):
            raise Refused(ErrorCode.offset_not_available)
        return self._high_watermark

    def start_of_log(self, leader_epoch: int) -> int:
        """ListOffsets earliest. Raises Refused."""
        self._check_epoch_and_leadership(leader_epoch)
        return self.log.start_offset

    def end_offset_for_epoch(self, epoch: int, leader_epoch: int) -> tuple[int, int]:
        """OffsetForLeaderEpoch. Raises Refused."""
        self._check_epoch_and_leadership(leader_epoch)
        return self.log.end_offset_for_epoch(epoch)

    # -- follower ---------------------------------------------------------------------------------------------

    @property
    def last_fetched_epoch(self) -> int:
        """Of the last record, for a fetch to name; -1: none."""
        return self.log.last_epoch if self._names_epoch else -1

    def apply_fetch(
        self,
        requested_epoch: int,
        requested_offset: int,
        records: bytes,
        leaders_watermark: int,
        diverging: tuple[int, int] | None,
    ) -> bool:
        """A leader's answer to this follower's fetch: truncate or append. False: it came too late and was dropped."""
        following = self.leadership is None and self.leader >= 0
        if not rules.may_apply_fetch(
            requested_epoch, self.leader_epoch, requested_offset, self.log.end_offset, following
        ):
            return False
        if diverging is not None:
            offset = rules.truncation_offset(diverging, self.log.end_offset_for_epoch(diverging[0]))
            self._truncate_to(offset)
            if self._high_watermark > self.log.end_offset:
                self._set_high_watermark(self.log.end_offset)
            return True
        if records:
            self.log.append_as_follower(records)
            self._trace("append", self._name, end=self.log.end_offset)
        # The leader's word, even if lower than before: it is the leader's knowledge (description 6.4).
        self._set_high_watermark(max(min(leaders_watermark, self.log.end_offset), self.log.start_offset))
        return True

    def _truncate_to(self, offset: int) -> None:
        self.log.truncate_to(min(offset, self.log.end_offset))
        self._trace("truncate", self._name, end=self.log.end_offset)

    def leader_starts_at(self, requested_epoch: int, log_start_offset: int) -> None:
        """The leader's log no longer reaches down to this follower's end: begin anew at its start."""
        if requested_epoch == self.leader_epoch and not self.is_leader and self.log.end_offset < log_start_offset:
            self.log.truncate_fully_and_start_at(log_start_offset)
            self._trace("truncate", self._name, end=log_start_offset)
            self._set_high_watermark(log_start_offset)  # M22

    # -- waiting ----------------------------------------------------------------------------------------------

    def _wake(self, waiters: dict[Future[None], None]) -> None:
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)
        waiters.clear()

    def close(self) -> None:
        """This broker stops: nothing more is acknowledged."""
        if self.leadership is not None:
            self._resign(self.leadership)


def _answer(done: Future[ErrorCode], error: ErrorCode) -> None:
    if not done.done():
        done.set_result(error)


def _insert(waiting: deque[tuple[int, Future[ErrorCode]]], end_offset: int, done: Future[ErrorCode]) -> None:
    """Keep the order by offset: only the retry of an earlier batch comes out of turn."""
    if not waiting or waiting[-1][0] <= end_offset:
        waiting.append((end_offset, done))
        return
    position = next(i for i, (offset, _) in enumerate(waiting) if offset > end_offset)
    waiting.insert(position, (end_offset, done))
