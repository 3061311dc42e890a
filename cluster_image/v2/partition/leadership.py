"""One term of a replica as leader: the sets that 001 gives it, and the requests that wait to be committed.

Known of a follower is where it fetched last: by 001 that is its log's end."""

from __future__ import annotations

from asyncio import Future
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from kio.schema.errors import ErrorCode

from cluster_image.replication.follower_state import FollowerState


class Produced(NamedTuple):
    """A request in the commit queue. end: the offset after its records. done: None if nobody waits for it."""

    end: int
    done: Future[ErrorCode] | None


@dataclass(slots=True)
class Leadership:
    """epoch: of the partition. isr_version: of the ISR's node, as this leader has written it last.

    assigned, catching_up, reassigned: AR, CUR and RAR; the ISR is the replica's own. reassigned is None where there is
    no reassignment: an empty one deletes the partition."""

    epoch: int
    epoch_start: int
    assigned: tuple[int, ...]
    followers: dict[int, FollowerState] = field(default_factory=dict)
    serves_clients: bool = False  # not before its followers have had time to catch up
    isr_version: int = -1
    catching_up: set[int] = field(default_factory=set)
    reassigned: tuple[int, ...] | None = None
    close_sent: float | None = None  # when, on the loop's clock; to the replicas that a reassignment takes away
    queue: deque[Produced] = field(default_factory=deque)

    def end_of(self, replica: int) -> int:
        """-1: it has not fetched in this term."""
        known = self.followers.get(replica)
        return -1 if known is None else known.end_offset

    def last_caught_up(self, replica: int) -> float:
        """When it had everything, in seconds on the loop's clock."""
        known = self.followers.get(replica)
        return float("-inf") if known is None else known.last_caught_up

    def ends_of(self, replicas: Iterable[int], me: int, own_end: int) -> list[int]:
        return [own_end if replica == me else self.end_of(replica) for replica in replicas]

    def answer_all(self, verdict: ErrorCode) -> None:
        while self.queue:
            answer(self.queue.popleft(), verdict)


def answer(produced: Produced, verdict: ErrorCode) -> None:
    if produced.done is not None and not produced.done.done():
        produced.done.set_result(verdict)
