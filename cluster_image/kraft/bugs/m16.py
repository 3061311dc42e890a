"""M16: the high watermark is computed over the committed ISR, not the maximal one.

Between the controller's agreement to a larger ISR and the leader's hearing of it, the leader commits without the new
member, and the controller may elect it.
"""

from __future__ import annotations

from collections.abc import Iterable, Set

from . import Bug


def committed_isr(isr: Set[int], proposed: Iterable[int]) -> frozenset[int]:
    return frozenset(isr)


BUG = Bug(
    id="M16",
    title="the high watermark does not wait for a proposed member of the ISR",
    source="KIP-497; AsyncIsr.tla",
    nemesis="partition,kill,pause",
    properties=("ReplicationQuorumSuperset", "LeaderCandidateCompleteness", "log linearizability"),
    module="kraft.broker.rules",
    rule="maximal_isr",
    replacement=committed_isr,
)
