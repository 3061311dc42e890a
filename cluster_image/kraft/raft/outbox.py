"""At most one request of a kind under way to each peer, and a pause after a failure."""

from __future__ import annotations

from typing import NamedTuple

from cluster_image.network import Entity


class Send(NamedTuple):
    """A request to send to another node."""

    receiver: int
    request: Entity


class Outbox:
    """Requests of different kinds travel on connections of their own: a waiting fetch must not hold up a vote."""

    def __init__(self, retry_backoff: float) -> None:
        self._retry_backoff = retry_backoff
        self._under_way: set[tuple[int, type]] = set()  # never iterated
        self._not_before: dict[tuple[int, type], float] = {}

    def ready_at(self, receiver: int, kind: type) -> float:
        """The earliest time for another request of this kind; infinity while one is under way."""
        key = (receiver, kind)
        return float("inf") if key in self._under_way else self._not_before.get(key, float("-inf"))

    def sent(self, receiver: int, kind: type) -> None:
        self._under_way.add((receiver, kind))

    def done(self, receiver: int, request: Entity, *, failed_at: float | None = None) -> None:
        key = (receiver, type(request))
        self._under_way.discard(key)
        self._not_before.pop(key, None)
        if failed_at is not None:
            self._not_before[key] = failed_at + self._retry_backoff
