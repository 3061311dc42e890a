"""V02: a request is committed once the leader has it, whoever of the ISR has fetched it.

With acks=all it is acknowledged then as with acks=1, and goes with its leader.
"""

from __future__ import annotations

from collections.abc import Collection

from . import Bug


def leader_is_enough(ends: Collection[int], offset: int) -> bool:
    return True


BUG = Bug(
    id="V02",
    title="a request is committed before the ISR has it",
    source="no historical bug: 001, Commit thread on the leader",
    nemesis="kill",
    properties=("log linearizability",),
    module="v2.rules",
    rule="is_committed",
    replacement=leader_is_enough,
)
