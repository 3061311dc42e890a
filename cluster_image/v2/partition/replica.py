"""One partition's replica on this broker, as 001 has it: its log, its high watermark, and while it leads its sets.

Synchronous throughout. What ZooKeeper has to be told or asked is the business of election.py (who leads) and commit.py
(what is committed), which tell this replica what it is from now on.

| from     | to       | by                | what happens |
| -------- | -------- | ----------------- | ---------------------------------------------------------------------------|
| any      | elected  | begin_leading()   | followers may fetch; the high watermark is rules.watermark_on_election |
| elected  | leader   | serve()           | clients are served |
| none     | follower | follow()          | the log is cut as rules.start_following says |
| leader   | none     | resign()          | producers that wait fail |
| any      | gone     | remove()          | its log may be deleted |
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import Callable, Sequence

from kio.schema.errors import ErrorCode

from cluster_image.config import Config
from cluster_image.replication.follower_state import FollowerState
from cluster_image.replication.replica import Change, PartitionKey, Replica
from cluster_image.replication.served import Appended, Eligible, Refused
from cluster_image.storage.log import Log
from cluster_image.telemetry.trace import Trace, no_trace

from .. import rules
from ..metadata.paths import Isr
from .leadership import Leadership, Produced, answer


class Partition(Replica):
    #: A follower has fetched, or there is more to commit.
    progressed: Callable[[], None] = staticmethod(lambda: None)

    def __init__(
        self, key: PartitionKey, topic: str, log: Log, config: Config, broker_id: int, trace: Trace = no_trace
    ) -> None:
        super().__init__(key, topic, (), log, config, broker_id, trace)
        self.leadership: Leadership | None = None
        #: By 001 a new leader's watermark is in no checkpoint before it serves.
        self.is_checkpointed = True

    @property
    def is_leader(self) -> bool:
        return self.leadership is not None

    @property
    def serves_clients(self) -> bool:
        return self.leadership is not None and self.leadership.serves_clients

    @property
    def max_message_bytes(self) -> int:
        size: int = self._config["message.max.bytes"]
        return size

    # -- roles ------------------------------------------------------------------------------------------------

    def begin_leading(self, epoch: int, isr: Sequence[int], isr_version: int, assigned: Sequence[int]) -> Leadership:
        """001, becomeLeader, up to where it waits for its followers."""
        self.log.lacks_from = None  # its log is the one that counts, from where it begins
        if self._config["v2.leader.epochs"]:
            self.log.assign_epoch_start_offset(epoch, self.log.end_offset)
        self.leader, self.leader_epoch, self.replicas = self._me, epoch, tuple(assigned)
        self.is_checkpointed = False
        self.leadership = Leadership(epoch, self.log.end_offset, tuple(assigned), isr_version=isr_version)
        self._take_isr(isr, isr_version, new_role=True)
        from_checkpoint = self._config["v2.election.watermark"] == "checkpoint"
        self._set_high_watermark(
            rules.watermark_on_election(self._high_watermark, self.log.end_offset, from_checkpoint)
        )
        return self.leadership

    def serve(self, catching_up: Sequence[int]) -> None:
        """001, becomeLeader, after its followers have had their time. RAR is the business of the listener, which asks
        new replicas to start."""
        leadership = self._require_term()
        leadership.catching_up = set(catching_up)
        leadership.serves_clients = True
        self.is_checkpointed = True

    def isr_written(self, term: Leadership, isr: Sequence[int], version: int) -> None:
        """By this replica in that term, which may be over."""
        self._trace(
            "isr written", self._name, isr=tuple(sorted(isr)), leader_epoch=term.epoch, partition_epoch=version
        )  # fmt: skip
        if self.leadership is term:
            term.isr_version = version
            self._set_isr(isr, version)

    def isr_refused(self, term: Leadership, latest: Isr | None) -> None:
        """To this replica, in that term. latest: what there is instead, if anything."""
        if latest is not None:
            self._trace("isr refused", self._name, isr=latest.brokers, leader_epoch=term.epoch, epoch=latest.epoch)

    def assign(self, replicas: Sequence[int]) -> None:
        """A reassignment is complete."""
        leadership = self._require_term()
        leadership.assigned = self.replicas = tuple(replicas)
        leadership.catching_up &= set(replicas)
        leadership.reassigned = leadership.close_sent = None

    def follow(self, leader: int, epoch: int) -> None:
        """001, becomeFollower. Who leads resigns first."""
        assert self.leadership is None
        self.leader, self.leader_epoch = leader, epoch
        self._become_follower(
            rules.start_following(self._high_watermark, self.log.end_offset, self._config["v2.leader.epochs"])
        )
        self._take_isr((), self.partition_epoch, new_role=True)

    def resign(self, error: ErrorCode) -> None:
        """Lead no longer, whoever does."""
        leadership, self.leadership = self.leadership, None
        if leadership is None:
            return
        self.leader = -1
        self.is_checkpointed = True
        leadership.answer_all(error)
        self._take_isr((), self.partition_epoch, new_role=True)
        self._tell(Change.ROLE)

    def remove(self, error: ErrorCode) -> None:
        """001, closeReplica: `error` tells those who wait why."""
        self.removed = True
        self.resign(error)
        self.leader = -1
        self._tell(Change.ROLE)

    def _require_term(self) -> Leadership:
        if self.leadership is None:
            raise Refused(ErrorCode.not_leader_or_follower)
        return self.leadership

    def _require_leadership(self) -> Leadership:
        leadership = self._require_term()
        if not leadership.serves_clients:
            raise Refused(ErrorCode.not_leader_or_follower)
        return leadership

    # -- leader: appends and commits --------------------------------------------------------------------------

    def append(self, records: bytes, acks: int, new_future: Callable[[], Future[ErrorCode]]) -> Appended:
        """001, produceRequestHandler; acks=all is synchronous replication, 0 and 1 asynchronous (003)."""
        leadership = self._require_leadership()
        base_offset = self.log.append_as_leader(records, self.leader_epoch)
        end_offset = self.log.end_offset
        self._trace("append", self._name, end=end_offset)
        self._tell(Change.LOG)
        done = new_future() if acks == -1 else None
        leadership.queue.append(Produced(end_offset, done))
        self.progressed()
        return Appended(base_offset, done)

    def commit(self, produced: Produced) -> None:
        """001, commit thread: the watermark moves up to this request, and then its producer hears of it."""
        self._set_high_watermark(max(self._high_watermark, produced.end))
        answer(produced, ErrorCode.none)

    # -- leader: fetches --------------------------------------------------------------------------------------

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
        """001, replicaFetch: whatever offset a follower asks for, it has everything below. Its epoch is not asked for;
        but where it names its last record's (v2.leader.epochs), it is told where the logs part."""
        leadership = self._require_term()
        log = self.log
        if last_fetched_epoch >= 0:
            end_of_epoch = log.end_offset_for_epoch(last_fetched_epoch)
            if end_of_epoch[0] < last_fetched_epoch or end_of_epoch[1] < offset:
                return end_of_epoch
        follower = leadership.followers.setdefault(replica, FollowerState())
        follower.fetched(broker_epoch, offset, log.end_offset, now, log_start_offset)
        self.progressed()
        if not log.start_offset <= offset <= log.end_offset:
            raise Refused(ErrorCode.offset_out_of_range)
        return None

    def read_as_follower(self, leader_epoch: int, offset: int, max_bytes: int) -> bytes:
        self._require_term()
        end = self.log.end_offset
        return self.log.read(offset, max_bytes, end) if offset < end and max_bytes > 0 else b""

    def read_as_consumer(self, leader_epoch: int, offset: int, max_bytes: int) -> bytes:
        """Committed records only (003)."""
        self._require_leadership()
        if not self.log.start_offset <= offset <= self.log.end_offset:
            raise Refused(ErrorCode.offset_out_of_range)
        if offset >= self._high_watermark or max_bytes <= 0:
            return b""
        return self.log.read(offset, max_bytes, self._high_watermark)

    def follower(self, replica: int) -> FollowerState | None:
        return None if self.leadership is None else self.leadership.followers.get(replica)

    def awaits(self, replica: int) -> bool:
        return self.leadership is not None and replica in self.isr

    # -- offsets ----------------------------------------------------------------------------------------------

    def start_of_log(self, leader_epoch: int) -> int:
        self._require_leadership()
        return self.log.start_offset

    def end_of_committed_log(self, leader_epoch: int, lease_held: bool) -> int:
        """By 001 nobody asks whether another leads by now."""
        self._require_leadership()
        return self._high_watermark

    @property
    def begin_of_log(self) -> tuple[int, int]:
        start = self.log.start_offset
        return self.log.epoch_before(start), start

    def end_offset_for_epoch(self, epoch: int, leader_epoch: int) -> tuple[int, int]:
        self._require_term()
        return self.log.end_offset_for_epoch(epoch)
