"""M38: the clean-shutdown file stays when the broker starts, so that it outlives the shutdown that it tells of.

After a power cut the logs are taken for complete as they are: torn records are not looked for, and what a killed
process had left in the page cache is not made durable. What it says to the controller is an earlier session's epoch,
which since KAFKA-15582 is no proof there; before, the file had no epoch, and every start after the first was clean.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import Bug

if TYPE_CHECKING:
    from cluster_image.storage.disk import Disk


def leave_it(disk: Disk, directory: str, path: str) -> None:
    """For the next start to find."""


BUG = Bug(
    id="M38",
    title="the clean-shutdown file outlives the start after the shutdown",
    source="KAFKA-15582 (14029e2)",
    nemesis="kill:term,kill,power-outage",
    properties=("CleanShutdown", "FlushedOffset", "LeaderCandidateCompleteness"),
    module="storage.checkpoints",
    rule="use_up",
    replacement=leave_it,
)
