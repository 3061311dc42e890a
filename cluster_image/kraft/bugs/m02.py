"""M02: a leader that knows nothing of its follower's last epoch does not say so.

It looks up the highest epoch that it does know, and compares only where that ends. A follower whose last records are
of an epoch that this leader never saw then appends to them when the leader's log is the longer one.
"""

from __future__ import annotations

from . import Bug


def has_diverged(end_of_epoch: tuple[int, int], last_fetched_epoch: int, fetch_offset: int) -> bool:
    return end_of_epoch[1] < fetch_offset


BUG = Bug(
    id="M02",
    title="divergence is looked for by offset alone, the epoch found is not compared",
    source="KAFKA-6361; mended by KIP-279 (9679c44)",
    nemesis="choreography:tails-of-two-leaders",
    properties=("LogMatching", "StrongIsr", "LeaderCandidateCompleteness", "log linearizability"),
    module="kraft.broker.rules",
    rule="has_diverged",
    replacement=has_diverged,
)
