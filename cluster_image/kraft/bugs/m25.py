"""M25: a follower joins the ISR without having reached the high watermark.

It has all that there was when this leader was elected, and lacks what has been committed since.
"""

from __future__ import annotations

from . import Bug


def may_join_isr(follower_end: int, high_watermark: int, epoch_start: int, eligible: bool) -> bool:
    return follower_end >= epoch_start and eligible


BUG = Bug(
    id="M25",
    title="a follower joins the ISR below the high watermark",
    source="kip_966.tla, the check on joining the ISR",
    nemesis="pause,partition",
    properties=("LeaderCandidateCompleteness", "ReplicationQuorumSuperset", "log linearizability"),
    module="kraft.broker.rules",
    rule="may_join_isr",
    replacement=may_join_isr,
)
