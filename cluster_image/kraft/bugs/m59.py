"""M59: a log takes appends after a write or a sync of it has failed.

The producer hears of an error, and the broker goes on. What the failed write has left of its batch lies between the
records then, and a start cuts there what came after; what a failed sync has dropped counts as durable once the next one
succeeds.
"""

from __future__ import annotations

from . import Bug


def never(error: OSError) -> bool:
    return False


BUG = Bug(
    id="M59",
    title="appends are accepted after a write error",
    source="KAFKA-10778 (bf55afe)",
    nemesis="disk:error-once,power-outage",
    properties=("FlushedOffset", "LogMatching", "LeaderAppendOnly", "LeaderCandidateCompleteness"),
    module="storage.write_guard",
    rule="is_final",
    replacement=never,
)
