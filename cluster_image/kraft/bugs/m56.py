"""M56: the directory is not synced when a segment is created in it.

Its records are synced later, and a power cut takes the file's name all the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import Bug

if TYPE_CHECKING:
    from cluster_image.storage.disk import Disk


def leave_it_to_the_file_system(disk: Disk, directory: str) -> None:
    """Which may write the entry back any time later."""


BUG = Bug(
    id="M56",
    title="no sync of the directory when a segment is created",
    source="KAFKA-3968 (db3e5e2)",
    nemesis="power-outage,kill",
    properties=("VoterEndOffset", "FlushedOffset", "LeaderCandidateCompleteness"),
    module="storage.segments",
    rule="make_entry_durable",
    replacement=leave_it_to_the_file_system,
)
