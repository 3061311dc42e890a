"""L01: retention takes segments that are not committed.

The log starts above the high watermark then, and what was acknowledged later may have gone before.
"""

from __future__ import annotations

from . import Bug


def whatever_is_old(end_offset: int, high_watermark: int, is_leader: bool) -> bool:
    return is_leader


BUG = Bug(
    id="L01",
    title="retention deletes segments beyond the high watermark",
    source="KAFKA-5634 (#3575)",
    nemesis="kill,pause,partition",
    properties=("ValidLogStart",),
    module="replication.rules",
    rule="may_delete_segment",
    replacement=whatever_is_old,
    # Followers fetch little at a time, so that whole segments are not committed.
    options="--rate 200 --partitions 2 --concurrency 10 "
    "--set replica.fetch.max.bytes=1000 --set replica.fetch.response.max.bytes=1000 "
    "--set log.segment.bytes=1024 --set log.retention.bytes=1024 --set log.retention.check.interval.ms=500",
)
