"""R03: a replica that a reassignment has removed stays in the ISR, the ELR and the LastKnownELR.

It deletes its log, and may be counted on, and elected, all the same.
"""

from __future__ import annotations

from collections.abc import Sequence

from . import Bug


def all_of_them(members: Sequence[int], replicas: Sequence[int]) -> tuple[int, ...]:
    return tuple(members)


BUG = Bug(
    id="R03",
    title="a replica that was removed stays in the ISR",
    source="KAFKA-6638",
    nemesis="membership:reassign:how=move,kill",
    properties=("ValidControllerIsrAndElr",),
    module="kraft.controller.rules",
    rule="members_kept",
    replacement=all_of_them,
    options="--brokers 4",
)
