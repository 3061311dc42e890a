"""M65: a new leader of the quorum counts old records as committed before its own LeaderChange is.

A later leader may still overwrite them (Raft, figure 8).
"""

from __future__ import annotations

from . import Bug


def count_any_epoch(current: int, replicated: int, epoch_start_offset: int) -> int:
    return max(current, replicated)


BUG = Bug(
    id="M65",
    title="the metadata high watermark does not wait for the leader's own epoch",
    source="KAFKA-12619 (d2c06c9)",
    nemesis="kill:controller,pause",
    properties=("CommittedPrefix", "MetadataLogMatching"),
    module="kraft.raft.rules",
    rule="next_high_watermark",
    replacement=count_any_epoch,
    # Much to write, and time between a record on a majority and the high watermark that says so.
    options="--latency-ms 25 --partitions 12",
)
