"""M20: where consumers may read up to is told by the segment that the high watermark was in.

When a segment is full while everything is committed, the watermark is noted to be at the end of the old one. Whoever
then reads the new segment takes the watermark to lie elsewhere, and gets all that is in it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import Bug

if TYPE_CHECKING:
    from cluster_image.storage.log import Log


def all_of_a_segment_that_the_watermark_is_not_in(log: Log, high_watermark: int) -> int:
    *older, _ = log.stretches
    rolled_at = older[-1].end_offset if older else -1
    return log.end_offset if high_watermark == rolled_at else high_watermark


BUG = Bug(
    id="M20",
    title="consumers read above the high watermark after a segment was rolled",
    source="KAFKA-9196 (7eafea0); alike KAFKA-9807 (d4eb406), KAFKA-9835 (778b1e3)",
    nemesis="power-outage,kill,pause,partition",
    properties=("log linearizability",),
    module="kraft.broker.rules",
    rule="readable_end",
    replacement=all_of_a_segment_that_the_watermark_is_not_in,
    options="--set log.segment.bytes=1024",
)
