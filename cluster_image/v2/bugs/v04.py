"""V04: a new leader goes on with the epoch of the one before.

Records of two leaders at one offset have the same epoch then, and leader epochs cannot tell where logs part.
"""

from __future__ import annotations

from . import Bug


def the_one_before(isr_epoch: int) -> int:
    return max(isr_epoch, 0)


BUG = Bug(
    id="V04",
    title="leaders that follow each other share a leader epoch",
    source="no historical bug: 001, getNewEpoch",
    nemesis="kill",
    properties=("IsrOfLatestLeader", "log matching", "log linearizability"),
    module="v2.rules",
    rule="next_epoch",
    replacement=the_one_before,
)
