"""M19: a leader answers ListOffsets with its high watermark although that may lag, just after its election.

Offsets that its predecessor has told seem not to be there, and come back a moment later.
"""

from __future__ import annotations

from . import Bug


def tell_high_watermark(high_watermark: int, epoch_start: int, lease_held: bool) -> bool:
    return lease_held


BUG = Bug(
    id="M19",
    title="the end of the log is told before the new leader knows it",
    source="KAFKA-2334; mended by KIP-207 (1522929)",
    nemesis="kill,power-outage",
    properties=("ConsistentRead", "log linearizability"),
    module="kraft.broker.rules",
    rule="may_tell_end_of_log",
    replacement=tell_high_watermark,
)
