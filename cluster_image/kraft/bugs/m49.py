"""M49: a reassignment ends once the replicas that it adds are in the ISR, whoever else of its target is.

The ISR loses the replicas that are taken out, and may be left with fewer than MinISR members.
"""

from __future__ import annotations

from collections.abc import Sequence

from . import Bug


def added_replicas_are_enough(target: Sequence[int], adding: Sequence[int], isr: Sequence[int], min_isr: int) -> bool:
    return set(adding) <= set(isr) and bool(set(target) & set(isr))


BUG = Bug(
    id="M49",
    title="a reassignment ends before its whole target is in the ISR, and below MinISR",
    source="KAFKA-15665 (756f44a)",
    nemesis="membership:reassign,kill,pause",
    properties=("ValidReplicas", "MinIsrRecoveryQuorum", "NoCommittedRecordLostGlobally"),
    module="kraft.controller.rules",
    rule="may_complete_reassignment",
    replacement=added_replicas_are_enough,
)
