"""One term of office: how far each replica has got, what is committed, and fetches that wait for news."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kio.schema.errors import ErrorCode

from cluster_image.network import Address, Entity
from cluster_image.storage.records import build_batch
from cluster_image.wire.messages import to_milliseconds

from . import rpc, rules
from .control_records import leader_change
from .replica import Replica
from .snapshots import SnapshotId

NEVER: Final = float("-inf")

#: An observer that has not fetched for this many seconds is forgotten (as in Kafka).
OBSERVER_SESSION: Final = 300.0


@dataclass(slots=True)
class Progress:
    """Of one replica, as its fetches tell. Times in ms are of the wall clock, for people; -1: never."""

    end_offset: int = -1  # everything below is in its log, and on its disk if it is a voter; -1: not known
    fetched_at: float = NEVER  # the loop's time, in seconds
    fetched_ms: int = -1
    caught_up_ms: int = -1

    def describe(self, replica: int) -> Entity:
        return rpc.replica_state(replica, self.end_offset, self.fetched_ms, self.caught_up_ms)


class WaitingFetch:
    """A fetch that waits for news, and until when. Known by identity."""

    def __init__(self, request: Entity, deadline: float) -> None:
        self.request = request
        self.deadline = deadline


class Leadership:
    def __init__(
        self,
        node_id: int,
        epoch: int,
        voters: Sequence[int],
        granting: Sequence[int],
        replica: Replica,
        now: float,
        wall_clock: Callable[[], float],
    ) -> None:
        """Begins the term by appending its LeaderChange record. `granting`: who voted for it. Raises OSError."""
        self.id = node_id
        self.epoch = epoch
        self.epoch_start_offset = replica.log.end_offset
        self.waiting: list[WaitingFetch] = []
        self._answered_for = (0, 0, 0)  # the log's start, its end and the high watermark when all were looked at last
        self._since = now
        self._replica = replica
        self._wall_clock = wall_clock
        self._followers = {voter: Progress() for voter in voters if voter != node_id}
        self._observers: dict[int, Progress] = {}
        self._announced: dict[int, float] = {}  # who has acknowledged BeginQuorumEpoch, and when
        key, value = leader_change(node_id, voters, granting)
        replica.append_as_leader(build_batch([value], keys=[key], timestamp_ms=self._timestamp(), control=True), epoch)

    def append(self, values: Sequence[bytes]) -> int:
        """Write one batch of records; returns the offset of the last. Raises OSError."""
        self._replica.append_as_leader(build_batch(values, timestamp_ms=self._timestamp()), self.epoch)
        return self._replica.log.end_offset - 1

    def _timestamp(self) -> int:
        return int(self._wall_clock() * 1000)

    def advance_high_watermark(self) -> None:
        replica = self._replica
        own = rules.own_acknowledged_offset(replica.log)
        replicated = rules.majority_offset([own, *(p.end_offset for p in self._followers.values())])
        replica.high_watermark = rules.next_high_watermark(replica.high_watermark, replicated, self.epoch_start_offset)

    # -- fetches ----------------------------------------------------------------------------------------------

    def receive_fetch(self, request: Entity, data: Any, now: float) -> Entity | WaitingFetch:
        offset = int(data.fetch_offset)
        error = self._refuse_fetch(int(data.current_leader_epoch))
        if error is ErrorCode.none and offset < 0:
            error = ErrorCode.offset_out_of_range
        if error is not ErrorCode.none:
            return rpc.fetch_answer(error, self.id, self.epoch)
        progress = self._heard_of(int(request.replica_state.replica_id), now)
        snapshot, diverging = self._compare(data)
        if snapshot is None and diverging is None:
            progress.end_offset = offset
            if offset >= self._replica.log.end_offset:
                progress.caught_up_ms = progress.fetched_ms
            self.advance_high_watermark()
        deadline = now + to_milliseconds(request.max_wait) / 1000
        answer = self._answer(request, may_wait=request.min_bytes > 0 and deadline > now)
        if answer is not None:
            return answer
        self.waiting.append(WaitingFetch(request, deadline))
        return self.waiting[-1]

    def answers(self, now: float) -> list[tuple[WaitingFetch, Entity]]:
        """The waiting fetches for which there is news, or no time left."""
        answers: list[tuple[WaitingFetch, Entity]] = []
        still_waiting: list[WaitingFetch] = []
        reached = self._replica.log.start_offset, self._replica.log.end_offset, self._replica.high_watermark
        is_new, self._answered_for = reached != self._answered_for, reached
        for waiting in self.waiting:
            may_wait = now < waiting.deadline
            answer = self._answer(waiting.request, may_wait=may_wait) if is_new or not may_wait else None
            if answer is None:
                still_waiting.append(waiting)
            else:
                answers.append((waiting, answer))
        self.waiting = still_waiting
        return answers

    def receive_fetch_snapshot(self, request: Entity, data: Any, now: float) -> Entity:
        snapshot = SnapshotId(int(data.snapshot_id.end_offset), int(data.snapshot_id.epoch))
        position = int(data.position)
        error = self._refuse_fetch(int(data.current_leader_epoch))
        chunk = None
        if error is ErrorCode.none:
            self._heard_of(int(request.replica_id), now)
            chunk = self._replica.snapshots.read_chunk(snapshot, position, int(request.max_bytes))
            if chunk is None:
                error = ErrorCode.snapshot_not_found
            elif not 0 <= position < chunk[0]:
                error, chunk = ErrorCode.position_out_of_range, None
        if chunk is None:
            return rpc.fetch_snapshot_answer(error, self.id, self.epoch, snapshot)
        size, content = chunk
        return rpc.fetch_snapshot_answer(
            error, self.id, self.epoch, snapshot, size=size, position=position, content=content
        )

    def _refuse_fetch(self, epoch: int) -> ErrorCode:
        if epoch < self.epoch:
            return ErrorCode.fenced_leader_epoch
        if epoch > self.epoch:
            return ErrorCode.unknown_leader_epoch
        return ErrorCode.none

    def _compare(self, data: Any) -> tuple[SnapshotId | None, tuple[int, int] | None]:
        """With the log that a fetch tells of: the snapshot from which it must begin anew, or else where it parts from
        this one; neither if it is a prefix."""
        offset, epoch, snapshots = int(data.fetch_offset), int(data.last_fetched_epoch), self._replica.snapshots
        at_start = snapshots.earliest if self._replica.log.start_offset > 0 else None
        if rules.needs_snapshot(at_start, offset, epoch):
            return snapshots.latest, None
        return None, rules.diverging_epoch(self._replica.log, offset, epoch)

    def _answer(self, request: Entity, *, may_wait: bool) -> Entity | None:
        """None: there is nothing to tell, and the fetch may wait."""
        log, high_watermark = self._replica.log, self._replica.high_watermark
        data = rpc.partition(request)
        assert data is not None
        snapshot, diverging = self._compare(data)
        follows = snapshot is None and diverging is None
        records = log.read(int(data.fetch_offset), int(data.partition_max_bytes)) if follows else b""
        if may_wait and follows and not records and data.high_watermark >= high_watermark:
            return None
        return rpc.fetch_answer(
            ErrorCode.none,
            self.id,
            self.epoch,
            high_watermark=high_watermark,
            log_start_offset=log.start_offset,
            diverging=diverging,
            snapshot=snapshot,
            records=records,
        )

    def _heard_of(self, replica: int, now: float) -> Progress:
        progress = self._progress(replica, now)
        progress.fetched_at, progress.fetched_ms = now, self._timestamp()
        return progress

    def _progress(self, replica: int, now: float) -> Progress:
        if replica in self._followers:
            return self._followers[replica]
        if replica not in self._observers:
            live = {r: p for r, p in self._observers.items() if now - p.fetched_at < OBSERVER_SESSION}
            self._observers = {**live, replica: Progress()}
        return self._observers[replica]

    # -- the term ---------------------------------------------------------------------------------------------

    def lapses_at(self, timeout: float) -> float:
        """A new leader gives every voter the benefit of the doubt for one timeout."""
        return rules.leadership_lapses_at(self.heard(), timeout)

    def heard(self) -> list[float]:
        """When each other voter last fetched; this term's begin at the earliest. On the loop's clock, in seconds."""
        return [max(progress.fetched_at, self._since) for progress in self._followers.values()]

    def heard_of_anybody(self) -> float:
        """When any other node last fetched, likewise."""
        return max([*self.heard(), self._since, *(progress.fetched_at for progress in self._observers.values())])

    @property
    def acknowledged_ends(self) -> Mapping[int, int]:
        """By other voter: up to where it has the log, as far as its fetches have told in this epoch."""
        return {voter: progress.end_offset for voter, progress in self._followers.items()}

    def acknowledged(self, voter: int, now: float) -> None:
        self._announced[voter] = now

    def announce_at(self, voter: int, interval: float) -> float:
        """When to tell this voter who leads: at once, then each `interval` that it neither fetches nor answers."""
        return max(self._followers[voter].fetched_at, self._announced.get(voter, NEVER)) + interval

    def successors(self) -> list[int]:
        """The other voters, the one with the longest log first."""
        return sorted(self._followers, key=lambda voter: (-self._followers[voter].end_offset, voter))

    def describe(self, voters: Mapping[int, Address]) -> Entity:
        now_ms = self._timestamp()
        own = rpc.replica_state(self.id, self._replica.log.end_offset, now_ms, now_ms)
        return rpc.describe_answer(
            ErrorCode.none,
            self.id,
            self.epoch,
            self._replica.high_watermark,
            [own, *(p.describe(voter) for voter, p in self._followers.items())],
            [p.describe(observer) for observer, p in self._observers.items()],
            voters,
        )
