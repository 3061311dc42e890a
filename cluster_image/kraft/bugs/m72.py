"""M72: the metadata log is trimmed to the high watermark, past the snapshots that are there.

A follower that needs what lies between cannot be given it.
"""

from __future__ import annotations

from . import Bug


def up_to_the_high_watermark(earliest_snapshot_end: int, high_watermark: int) -> int:
    return high_watermark


BUG = Bug(
    id="M72",
    title="the metadata log is deleted past its snapshots",
    source="KAFKA-14238 (b166ac4)",
    nemesis="kill,partition",
    properties=("CommittedPrefix",),
    module="kraft.raft.rules",
    rule="trimmed_start",
    replacement=up_to_the_high_watermark,
    options="--set metadata.log.max.record.bytes.between.snapshots=600",
)
