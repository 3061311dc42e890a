"""M69: an active controller that a majority has stopped fetching from does not resign.

It goes on answering heartbeats of the brokers on its side of a partition, so that a leader there believes in its lease
while others lead in its place.
"""

from __future__ import annotations

from collections.abc import Iterable

from . import Bug


def never_lapses(last_heard: Iterable[float], timeout: float) -> float:
    return float("inf")


BUG = Bug(
    id="M69",
    title="the quorum's leader does not check that it still has a majority",
    source="KAFKA-15489 (37416e1)",
    nemesis="partition",
    properties=("LeaderResigns", "log linearizability", "ConsistentRead"),
    module="kraft.raft.rules",
    rule="leadership_lapses_at",
    replacement=never_lapses,
)
