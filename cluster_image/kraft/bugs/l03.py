"""L03: followers delete by retention on their own.

Their clocks, and their segments, are not those of their leader: a follower's log starts above its leader's, and when it
is elected, records are gone that could be read a moment before and that nobody had reason to delete.
"""

from __future__ import annotations

from . import Bug


def everybody(end_offset: int, high_watermark: int, is_leader: bool) -> bool:
    return end_offset <= high_watermark


BUG = Bug(
    id="L03",
    title="a follower applies retention on its own",
    source="no historical bug: KIP-107, by which followers take over the log start offset of their leader",
    nemesis="kill,pause",
    properties=("ValidLogStart",),
    module="replication.rules",
    rule="may_delete_segment",
    replacement=everybody,
    options="--set log.segment.bytes=1024 --set log.retention.bytes=1024 --set log.retention.check.interval.ms=500",
)
