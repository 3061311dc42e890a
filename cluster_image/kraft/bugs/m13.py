"""M13: an answer to a fetch is applied whatever has happened since the fetch was sent.

The leader that answers may have been deposed meanwhile, this replica may follow another, or lead. It takes the deposed
leader's high watermark, its records if they fit the end of the log, and truncates where that leader's log has parted
from what this one's was.
"""

from __future__ import annotations

from . import Bug


def apply_any_answer(
    requested_epoch: int, current_epoch: int, requested_offset: int, end_offset: int, still_following: bool
) -> bool:
    return True


BUG = Bug(
    id="M13",
    title="a fetch response of an older leader epoch is applied",
    source="kip_966.tla, the check of a fetch response's epoch",
    nemesis="choreography:late-answers",
    properties=("LeaderAppendOnly", "HighWatermarkMonotonicity", "LogMatching", "log linearizability"),
    module="replication.rules",
    rule="may_apply_fetch",
    replacement=apply_any_answer,
)
