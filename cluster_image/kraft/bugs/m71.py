"""M71: a snapshot of the metadata is called by the offset of its last record instead of the one after it.

Whoever loads it goes on at the record that it ends with, and applies that twice.
"""

from __future__ import annotations

from ...storage.log import Log
from . import Bug


def inclusive(log: Log, end: int) -> tuple[int, int]:
    return end - 1, log.epoch_before(end - 1)


BUG = Bug(
    id="M71",
    title="a metadata snapshot's end offset is inclusive",
    source="KAFKA-14618 (058d8d5)",
    nemesis="kill,partition",
    properties=("CommittedPrefix",),
    module="kraft.raft.rules",
    rule="snapshot_id",
    replacement=inclusive,
    options="--set metadata.log.max.record.bytes.between.snapshots=600",
)
