"""L02: a log's start follows that of another replica beyond what this one knows to be committed.

There is nothing that it could read below its high watermark; and beyond its end it cannot start at all.
"""

from __future__ import annotations

from . import Bug


def wherever_the_other_starts(current: int, told: int, high_watermark: int) -> int:
    return max(current, told)


BUG = Bug(
    id="L02",
    title="a log start offset follows another replica's beyond the high watermark",
    source="KAFKA-7104 (#5302)",
    nemesis="kill,pause,partition",
    properties=("ValidLogStart",),
    module="replication.rules",
    rule="next_log_start_offset",
    replacement=wherever_the_other_starts,
    options="--delete-records 1s",
)
