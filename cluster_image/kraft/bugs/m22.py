"""M22: a follower that begins its log anew keeps the high watermark that it had.

That lies below the log's start then; a leader with it has nothing that can be read.
"""

from __future__ import annotations

from . import Bug


def keep_the_watermark(high_watermark: int, offset: int) -> int:
    return high_watermark


BUG = Bug(
    id="M22",
    title="the high watermark stays below the start of a log that begins anew",
    source="KAFKA-9491 (b029902), KAFKA-3978 (6b08905)",
    nemesis="kill,partition",
    properties=("ValidLogStart", "HighWatermarkMonotonicity"),
    module="replication.rules",
    rule="watermark_of_begun_anew",
    replacement=keep_the_watermark,
    options="--delete-records 1",
)
