"""What a leader knows of a follower."""

from __future__ import annotations

from typing import Protocol

from . import rules


class Session(Protocol):
    """A follower's fetch session."""

    @property
    def last_used(self) -> float:
        """When it fetched last, in seconds."""


class FollowerState:
    """What a leader knows of a follower from its fetches in this leader epoch (000, 2.2.2). Before the first of them it
    knows nothing: -1. Times in seconds."""

    __slots__ = (
        "_caught_up", "_idle_in", "broker_epoch", "deleted_below", "end_offset", "last_fetch",
        "leader_end_at_last_fetch", "log_start_offset",
    )  # fmt: skip

    def __init__(self, end_offset: int = -1, last_caught_up: float = 0.0) -> None:
        self.end_offset = end_offset
        self.log_start_offset = -1
        self.deleted_below = -1  # see rules.deleted_below
        self.broker_epoch = -1
        self.last_fetch = float("-inf")
        self.leader_end_at_last_fetch = 0
        self._caught_up = last_caught_up
        self._idle_in: Session | None = None

    @property
    def last_caught_up(self) -> float:
        session = self._idle_in
        return self._caught_up if session is None else max(self._caught_up, session.last_used)

    def set_idle(self, session: Session) -> None:
        """It has everything, and is caught up with each fetch of this session until set_active()."""
        self._idle_in = session

    def set_active(self) -> None:
        """From now on each of its fetches is noted here. To be called when the log grows, before the next fetch."""
        if self._idle_in is not None:
            self.last_fetch = self._caught_up = self.last_caught_up
            self._idle_in = None

    def fetched(
        self,
        broker_epoch: int,
        offset: int,
        leader_end: int,
        now: float,
        log_start_offset: int = -1,
        last_fetched_epoch: int = -1,
    ) -> None:
        self.set_active()
        if offset >= leader_end:
            self._caught_up = max(self._caught_up, now)
        elif offset >= self.leader_end_at_last_fetch:
            # It has everything that there was at its last fetch: it was caught up then.
            self._caught_up = max(self._caught_up, self.last_fetch)
        self.end_offset = offset
        self.log_start_offset = log_start_offset
        self.deleted_below = rules.deleted_below(log_start_offset, last_fetched_epoch)
        self.broker_epoch = broker_epoch
        self.last_fetch = now
        self.leader_end_at_last_fetch = leader_end

    def lags(self, leader_end: int, now: float, max_lag: float) -> bool:
        return rules.is_out_of_sync(self.end_offset, leader_end, self.last_caught_up, now, max_lag)
