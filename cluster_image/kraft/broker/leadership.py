"""One term of a replica as leader: what it knows of its followers, the ISR it proposes, the producers that wait.

All of it ends with the leader epoch, so that nothing known of a follower in one epoch counts in the next (000, 2.10.1
and 2.10.3). Only the producers stay, with a leader that leads on.
"""

from __future__ import annotations

from asyncio import Future
from collections import deque
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass, field
from itertools import chain

from kio.schema.errors import ErrorCode

from cluster_image.kraft.metadata.records import RECOVERED
from cluster_image.replication.follower_state import FollowerState

from . import rules


@dataclass(frozen=True, slots=True)
class IsrProposal:
    """An ISR sent to the controller and not yet decided; its broker epochs are those of the last fetches."""

    isr: tuple[tuple[int, int], ...]  # (broker id, broker epoch)
    leader_epoch: int
    partition_epoch: int
    #: After an unclean election a leader has nothing to bring into line but its log, which counts as it is: what it
    #: proposes, it proposes as one that has recovered (KIP-704).
    leader_recovery_state: int = RECOVERED


@dataclass(slots=True)
class Leadership:
    epoch_start: int  # LESO
    followers: dict[int, FollowerState]
    proposal: IsrProposal | None = None
    maximal_isr: frozenset[int] = frozenset()
    joining: set[int] = field(default_factory=set)  # outside the ISR, and the high watermark is held back for them
    waiting: deque[tuple[int, Future[ErrorCode]]] = field(default_factory=deque)  # by the offset to be committed
    deleting: list[tuple[int, Future[ErrorCode]]] = field(default_factory=list)  # DeleteRecords, each up to its offset

    @classmethod
    def begin(cls, epoch_start: int, me: int, replicas: Iterable[int], isr: Iterable[int], now: float) -> Leadership:
        # Members of the ISR get a whole replica.lag.time.max.ms to fetch from their new leader.
        in_sync = frozenset(isr)
        return cls(
            epoch_start,
            {r: FollowerState(last_caught_up=now if r in in_sync else float("-inf")) for r in replicas if r != me},
        )

    def replicas_changed(self, me: int, replicas: Sequence[int]) -> None:
        """A reassignment has added or removed some. Nothing is known of who is new, even if it was one before."""
        for replica in [r for r in self.followers if r not in replicas]:
            del self.followers[replica]
            self.joining.discard(replica)
        for replica in replicas:
            if replica != me and replica not in self.followers:
                self.followers[replica] = FollowerState(last_caught_up=float("-inf"))

    def propose(self, isr: Sequence[int], committed: Set[int], leader_epoch: int, partition_epoch: int) -> None:
        epochs = {r: f.broker_epoch for r, f in self.followers.items()}
        self.proposal = IsrProposal(tuple((r, epochs.get(r, -1)) for r in isr), leader_epoch, partition_epoch)
        self.maximal_isr = rules.maximal_isr(committed, isr)

    def settle(self, isr: Iterable[int]) -> None:
        """This ISR is committed, and nothing else is under way."""
        self.proposal = None
        self.maximal_isr = frozenset(isr)
        self.joining -= self.maximal_isr

    def wait_to_join(self, replica: int, waits: bool) -> bool:
        """Hold the high watermark back for this follower from now on, or no longer. True: it may have advanced."""
        released = replica in self.joining and not waits
        (self.joining.add if waits else self.joining.discard)(replica)
        return released

    def awaits(self, replica: int) -> bool:
        """Is the high watermark held back for it?"""
        return replica in self.maximal_isr or replica in self.joining

    def next_high_watermark(self, current: int, me: int, own_end: int) -> int:
        followers = self.followers
        return rules.next_high_watermark(
            current,
            [own_end if r == me else followers[r].end_offset for r in chain(self.maximal_isr, self.joining)],
        )

    # -- producers --------------------------------------------------------------------------------------------

    def wait(self, end_offset: int, done: Future[ErrorCode]) -> None:
        """Until `end_offset` is committed. Only the retry of an earlier batch comes out of turn."""
        waiting = self.waiting
        if not waiting or waiting[-1][0] <= end_offset:
            waiting.append((end_offset, done))
            return
        position = next(i for i, (offset, _) in enumerate(waiting) if offset > end_offset)
        waiting.insert(position, (end_offset, done))

    def answer_up_to(self, committed: int, verdict: ErrorCode) -> None:
        waiting = self.waiting
        while waiting and waiting[0][0] <= committed:
            _answer(waiting.popleft()[1], verdict)

    def answer_all(self, verdict: ErrorCode) -> None:
        while self.waiting:
            _answer(self.waiting.popleft()[1], verdict)

    # -- DeleteRecords ----------------------------------------------------------------------------------------

    def low_watermark(self, own_start: int, lives: Callable[[int], bool]) -> int:
        """See rules.low_watermark. lives: is that broker available, as far as the metadata tells?"""
        return rules.low_watermark(own_start, [f.log_start_offset for r, f in self.followers.items() if lives(r)])

    def answer_deleted(self, low_watermark: int) -> None:
        for _, done in [each for each in self.deleting if each[0] <= low_watermark]:
            _answer(done, ErrorCode.none)
        self.deleting = [each for each in self.deleting if not each[1].done()]

    def refuse_deleting(self, error: ErrorCode) -> None:
        for _, done in self.deleting:
            _answer(done, error)
        self.deleting.clear()


def _answer(done: Future[ErrorCode], verdict: ErrorCode) -> None:
    if not done.done():
        done.set_result(verdict)
