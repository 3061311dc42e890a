"""One partition's replica on this broker: leader or follower, its ISR, its high watermark.

Synchronous throughout. What must be told to others comes out as state: a pending ISR proposal for the controller,
futures of producers and fetchers that are set once what they wait for has happened.

Transitions (000, 2.10), by the metadata's new state against the present one. It may span several changes of which only
the last is seen: who leads in two epochs may not have led in between.

| from     | to       | leader epoch | what happens                                                                   |
| -------- | -------- | ------------ | ------------------------------------------------------------------------------ |
| follower | leader   | new          | 2.10.1: no follower is known; LESO = LEO; HWM = LEO if the ISR is but itself   |
| leader   | leader   | same         | 2.10.2: ISR and replicas taken over; HWM may advance                           |
| leader   | leader   | new          | 2.10.3: as 2.10.1; producers wait on, as the log goes on                       |
| leader   | follower | new          | 2.10.4: waiting producers fail; fetched from the new leader, if there is one   |
| follower | follower | same         | 2.10.5: nothing                                                                |
| follower | follower | new          | 2.10.6: to the fetcher of the new leader                                       |
| any      | none     |              | no replica of it is here any more: all that wait fail, and the log may go      |

Fetchers are the replica manager's (replica_manager.py), which acts on the role that `apply` leaves.
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import Callable, Sequence

from kio.schema.errors import ErrorCode

from cluster_image.config import Config
from cluster_image.kraft.metadata import rules as session_rules
from cluster_image.kraft.metadata.image import PartitionRegistration
from cluster_image.kraft.metadata.records import RECOVERING
from cluster_image.replication.follower_state import FollowerState
from cluster_image.replication.replica import Change, Replica
from cluster_image.replication.retention import deletes, next_start
from cluster_image.replication.served import Appended, Eligible, Refused
from cluster_image.storage.errors import InvalidProducerEpoch, OutOfOrderSequence
from cluster_image.storage.log import Log
from cluster_image.storage.producer_state import Duplicate
from cluster_image.storage.records import BatchHeader, iter_batches
from cluster_image.telemetry.trace import Trace, no_trace

from . import rules
from .leadership import IsrProposal, Leadership


class Partition(Replica):
    #: Is that broker available, as far as this broker's metadata tells?
    lives: Callable[[int], bool] = staticmethod(lambda broker: True)

    def __init__(
        self, registration: PartitionRegistration, log: Log, config: Config, broker_id: int, trace: Trace = no_trace
    ) -> None:
        key = registration.topic_id, registration.index
        super().__init__(key, registration.topic, registration.replicas, log, config, broker_id, trace)
        self.leadership: Leadership | None = None
        self._recovering = False  # as the controller has it (KIP-704)

    @property
    def is_leader(self) -> bool:
        return self.leadership is not None

    @property
    def max_message_bytes(self) -> int:
        """Of a batch."""
        size: int = self._config["message.max.bytes"]
        return size

    # -- transitions (000, 2.10) ------------------------------------------------------------------------------

    def apply(self, new: PartitionRegistration, now: float) -> None:
        """Take over the partition's state as the metadata log gives it."""
        if new.partition_epoch <= self.partition_epoch:
            # An answer to AlterPartition told it before the log did (000, 2.9.2), all but the replicas.
            if new.partition_epoch == self.partition_epoch:
                self._take_replicas(new.replicas)
            return
        new_epoch = new.leader_epoch > self.leader_epoch
        new_role = new_epoch or new.leader != self.leader
        self._take_replicas(new.replicas)
        self.leader = new.leader
        self.leader_epoch = new.leader_epoch
        self._recovering = new.leader_recovery_state == RECOVERING
        if new.leader == self._me:
            if new_epoch:
                self._become_leader(new, now)
            self._commit_isr(new.isr, new.partition_epoch, new_role)
        else:
            self._take_isr(new.isr, new.partition_epoch, new_role)
            if self.leadership is not None:
                self._resign(self.leadership, ErrorCode.not_leader_or_follower)
            if new_epoch and new.leader >= 0:
                self._become_follower(rules.start_following(self._high_watermark, self.log.end_offset))

    def configure(self, config: Config) -> None:
        """The topic's settings have changed: with min.insync.replicas where records count as committed. The metadata
        log brings both in its order, so that what follows from the new minimum is not seen before it."""
        self._config = config
        if self.leadership is not None:
            self._minimum_or_isr_changed(self.leadership)

    def remove(self, error: ErrorCode) -> None:
        """The topic is gone, or this broker is no replica of the partition any more: `error` tells which to those who
        wait for a commit. Its log may be deleted from now on."""
        self.removed = True
        self.leader = -1
        if self.leadership is not None:
            self._resign(self.leadership, error)
        self._tell(Change.ROLE)

    def close(self) -> None:
        """This broker stops: nothing more is acknowledged."""
        if self.leadership is not None:
            self._resign(self.leadership, ErrorCode.not_leader_or_follower)

    def _take_replicas(self, replicas: tuple[int, ...]) -> None:
        if replicas != self.replicas:
            self.replicas = replicas
            if self.leadership is not None:
                self.leadership.replicas_changed(self._me, replicas)

    def _become_leader(self, new: PartitionRegistration, now: float) -> None:
        before = self.leadership
        self.log.lacks_from = None  # its log is the one that counts, from where it begins
        self.log.assign_epoch_start_offset(self.leader_epoch, self.log.end_offset)
        self.leadership = Leadership.begin(self.log.end_offset, self._me, new.replicas, new.isr, now)
        if before is not None:
            # Its log is still the one that counts, and what waits in it can still be committed. Who fetches must hear
            # of the new epoch.
            self.leadership.waiting = before.waiting
            self.leadership.deleting = before.deleting
            self._tell(Change.ROLE)

    def _resign(self, leadership: Leadership, error: ErrorCode) -> None:
        self.leadership = None
        leadership.answer_all(error)
        leadership.refuse_deleting(error)
        self._tell(Change.ROLE)

    def _commit_isr(self, isr: Sequence[int], partition_epoch: int, new_role: bool = False) -> None:
        leadership = self.leadership
        assert leadership is not None
        leadership.settle(isr)
        self._take_isr(isr, partition_epoch, new_role)
        self._minimum_or_isr_changed(leadership)

    def _minimum_or_isr_changed(self, leadership: Leadership) -> None:
        self._advance_high_watermark()
        if not self._enough_replicas():
            # Fail fast: what waits cannot be acknowledged before the ISR has grown again (000, 2.6).
            leadership.answer_all(ErrorCode.not_enough_replicas_after_append)

    # -- leader: appends --------------------------------------------------------------------------------------

    def append(self, records: bytes, acks: int, new_future: Callable[[], Future[ErrorCode]]) -> Appended:
        """A producer's batch: one. Raises Refused, and the storage's own errors for a batch that is not valid."""
        leadership = self._require_leadership()
        if acks == -1 and not self._enough_replicas():
            raise Refused(ErrorCode.not_enough_replicas)
        _, _, header = next(iter_batches(records))
        duplicate = self._check_producer(header)
        if duplicate is not None:
            base_offset, end_offset = duplicate.base_offset, duplicate.last_offset + 1
            self._trace(
                "duplicate", self._name, producer_id=header.producer_id, producer_epoch=header.producer_epoch,
                sequence=header.base_sequence, offset=base_offset, end=end_offset,
            )  # fmt: skip
        else:
            base_offset = self.log.append_as_leader(records, self.leader_epoch)
            end_offset = self.log.end_offset
            self._trace("append", self._name, end=end_offset)
        self._tell(Change.LOG)
        if acks != -1:
            self._advance_high_watermark()
            return Appended(base_offset, None)
        done = new_future()
        if end_offset <= self._high_watermark:
            done.set_result(ErrorCode.none)
        else:
            leadership.wait(end_offset, done)
            self._advance_high_watermark()
        return Appended(base_offset, done)

    def _check_producer(self, header: BatchHeader) -> Duplicate | None:
        """Is this the retry of an idempotent producer's batch that the log has already?"""
        try:
            return self.log.producers.check(header)
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

    def read_as_consumer(self, leader_epoch: int, offset: int, max_bytes: int) -> bytes:
        """Committed records only: up to the high watermark (000, 2.7). max_bytes: 0 or less: none. Raises Refused."""
        self._check_epoch_and_leadership(leader_epoch)
        if not self.log.start_offset <= offset <= self.log.end_offset:
            raise Refused(ErrorCode.offset_out_of_range)
        readable = rules.readable_end(self.log, self._high_watermark)
        if offset >= readable or max_bytes <= 0:
            return b""
        return self.log.read(offset, max_bytes, readable)

    def record_fetch(
        self,
        replica: int,
        broker_epoch: int,
        leader_epoch: int,
        offset: int,
        last_fetched_epoch: int,
        now: float,
        eligible: Eligible,
        log_start_offset: int = -1,
    ) -> tuple[int, int] | None:
        """A follower's fetch is its report of how far it has come, as of when it arrives. Returns where its log
        diverges, if it does: epoch and end offset; nothing is noted then. log_start_offset: the follower's, -1: not
        told. Raises Refused."""
        leadership, follower = self.leadership, self.follower(replica)
        refusal = rules.refuse_follower(self._refuse_epoch(leader_epoch), leadership is not None, follower is not None)
        if refusal is not None:
            raise Refused(refusal)
        assert leadership is not None and follower is not None
        if session_rules.is_earlier_session(broker_epoch, follower.broker_epoch):
            raise Refused(ErrorCode.not_leader_or_follower)
        log = self.log
        if last_fetched_epoch >= 0:
            end_of_epoch = log.end_offset_for_epoch(last_fetched_epoch)
            if rules.has_diverged(end_of_epoch, last_fetched_epoch, offset):
                return end_of_epoch
        end = log.end_offset
        elsewhere = rules.begins_elsewhere(offset, log_start_offset, last_fetched_epoch, *self.begin_of_log[::-1])
        if not log.start_offset <= offset <= end or elsewhere:
            raise Refused(ErrorCode.offset_out_of_range)
        advanced = offset != follower.end_offset
        deleted = log_start_offset != follower.log_start_offset
        follower.fetched(broker_epoch, offset, end, now, log_start_offset, last_fetched_epoch)
        if replica not in self.isr:
            lags = self._lags(follower, now)
            advanced |= self._consider_waiting(leadership, replica, lags, eligible)
            self._consider_joining(leadership, replica, follower, lags, eligible)
        if advanced:
            self._advance_high_watermark()
        if follower.deleted_below > log.start_offset:
            self._follow_log_start(follower.deleted_below)
        if deleted and leadership.deleting:
            self.consider_deleted()
        return None

    def follower(self, replica: int) -> FollowerState | None:
        """What is known of it, while this replica leads."""
        return None if self.leadership is None else self.leadership.followers.get(replica)

    def awaits(self, replica: int) -> bool:
        """Does this leader hold its high watermark back for it, or until any follower has caught up?"""
        return self.leadership is not None and (self.leadership.awaits(replica) or not self._commits)

    def read_as_follower(self, leader_epoch: int, offset: int, max_bytes: int) -> bytes:
        """Records of a fetch that record_fetch has taken, perhaps a while ago. Raises Refused."""
        self._check_epoch_and_leadership(leader_epoch)
        end = self.log.end_offset
        return self.log.read(offset, max_bytes, end) if offset < end and max_bytes > 0 else b""

    def _check_epoch_and_leadership(self, leader_epoch: int) -> Leadership:
        # The epoch first: a sender that knows a later epoch must wait for this broker, not look for another (M33).
        refusal = self._refuse_epoch(leader_epoch)
        if refusal is not None:
            raise Refused(refusal)
        return self._require_leadership()

    def _refuse_epoch(self, leader_epoch: int) -> ErrorCode | None:
        return rules.refuse_leader_epoch(self.leader_epoch, leader_epoch)

    # -- leader: ISR and high watermark -----------------------------------------------------------------------

    def _consider_waiting(self, leadership: Leadership, replica: int, lags: bool, eligible: Eligible) -> bool:
        """True: the high watermark is no longer held back for this follower."""
        waits = rules.waits_to_join_isr(lags, eligible(replica, leadership.followers[replica].broker_epoch))
        return leadership.wait_to_join(replica, waits)

    def _lags(self, follower: FollowerState, now: float) -> bool:
        return follower.lags(self.log.end_offset, now, self._config.seconds("replica.lag.time.max.ms"))

    def _consider_joining(
        self, leadership: Leadership, replica: int, follower: FollowerState, lags: bool, eligible: Eligible
    ) -> None:
        may_join = leadership.proposal is None and rules.may_join_isr(
            follower.end_offset, self._high_watermark, leadership.epoch_start,
            eligible(replica, follower.broker_epoch),
        )  # fmt: skip
        if may_join and rules.may_join_lagging(lags, self._commits):
            self._propose(leadership, (*self._isr_in_order(), replica))

    def consider_shrinking(self, now: float, eligible: Eligible) -> None:
        """Called now and then: followers that lag leave the ISR, and are waited for no longer if they are outside; the
        controller hears that a leader elected uncleanly has recovered, if no other proposal has told it."""
        leadership = self.leadership
        if leadership is None:
            return
        released = [
            self._consider_waiting(leadership, r, self._lags(leadership.followers[r], now), eligible)
            for r in sorted(leadership.joining)
        ]
        if any(released):
            self._advance_high_watermark()
        if leadership.proposal is not None:
            return
        lagging = [r for r, f in leadership.followers.items() if r in self.isr and self._lags(f, now)]
        if lagging or self._recovering:
            self._propose(leadership, tuple(r for r in self._isr_in_order() if r not in lagging))

    def _isr_in_order(self) -> tuple[int, ...]:
        return tuple(r for r in self.replicas if r in self.isr)

    def _propose(self, leadership: Leadership, isr: Sequence[int]) -> None:
        leadership.propose(isr, self.isr, self.leader_epoch, self.partition_epoch)
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
            self._recovering = False
            self._commit_isr(isr, partition_epoch)
        elif (
            self.leadership is not None
            and self.leadership.proposal is proposal
            and (leader_epoch, partition_epoch) == (self.leader_epoch, self.partition_epoch)
        ):
            # Accepted without a change: what was proposed stood already.
            self._commit_isr(tuple(self.isr), self.partition_epoch)
        # Else it has completed a reassignment: a leader epoch begins of which the metadata log will tell all. Until
        # then the maximal ISR stands, as the controller may elect whom it has just accepted.

    def proposal_refused(self, proposal: IsrProposal, error: ErrorCode) -> None:
        """Go back to the committed ISR where that is safe; else the metadata log will bring what has happened."""
        if self.leadership is not None and self.leadership.proposal is proposal and rules.may_roll_back(error):
            self.leadership.settle(self.isr)
            self.leadership.joining.clear()  # until the next fetch of each: the controller may refuse for long
            self._advance_high_watermark()

    @property
    def _commits(self) -> bool:
        return rules.may_commit(
            self.isr,
            self._config["min.insync.replicas"],
            len(self.replicas),
            self._config["eligible.leader.replicas.version"] > 0,
        )

    def _advance_high_watermark(self) -> None:
        leadership = self.leadership
        assert leadership is not None
        if not self._commits:
            return
        advanced = leadership.next_high_watermark(self._high_watermark, self._me, self.log.end_offset)
        if advanced == self._high_watermark:
            return
        self._set_high_watermark(advanced)
        verdict = ErrorCode.none if self._enough_replicas() else ErrorCode.not_enough_replicas_after_append
        leadership.answer_up_to(advanced, verdict)
        deleted_below = max((f.deleted_below for f in leadership.followers.values()), default=-1)
        if deleted_below > self.log.start_offset:
            # Not followed at its fetch, as that was not known to be committed; and an idle follower says nothing more.
            self._follow_log_start(deleted_below)

    # -- leader: log start ------------------------------------------------------------------------------------

    def apply_retention(self, now: int) -> None:
        """retention.ms and retention.bytes. now: ms since 1970. Raises StorageError."""
        log = self.log
        start = next_start(log, self._config, self._high_watermark, now, self.is_leader)
        if start > log.start_offset:
            self._set_log_start(start)
            if start == log.end_offset:
                log.roll()
            if self.leadership is not None:
                self.consider_deleted()

    def delete_records(self, offset: int, new_future: Callable[[], Future[ErrorCode]]) -> Future[ErrorCode]:
        """DeleteRecords: everything below `offset`, -1: below the high watermark. Done once no live replica has it any
        more. Raises Refused."""
        leadership = self._require_leadership()
        if not deletes(self._config):
            raise Refused(ErrorCode.policy_violation)
        offset = self._high_watermark if offset == -1 else offset
        if not rules.may_delete_up_to(offset, self._high_watermark):
            raise Refused(ErrorCode.offset_out_of_range)
        self._set_log_start(max(offset, self.log.start_offset))
        done = new_future()
        leadership.deleting.append((offset, done))
        self.consider_deleted()
        return done

    def consider_deleted(self) -> None:
        """Followers have fetched, or some live no longer: DeleteRecords may be answered."""
        if self.leadership is not None and self.leadership.deleting:
            self.leadership.answer_deleted(self.low_watermark)

    @property
    def low_watermark(self) -> int:
        """Of a leader: see rules.low_watermark."""
        leadership = self._require_leadership()
        return leadership.low_watermark(self.log.start_offset, self.lives)

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

    @property
    def begin_of_log(self) -> tuple[int, int]:
        """The leader epoch of the record just before the log's start (-1: not known), and the start."""
        start = self.log.start_offset
        return self.log.epoch_before(start), start

    def end_offset_for_epoch(self, epoch: int, leader_epoch: int) -> tuple[int, int]:
        """OffsetForLeaderEpoch. Raises Refused."""
        self._check_epoch_and_leadership(leader_epoch)
        return self.log.end_offset_for_epoch(epoch)
