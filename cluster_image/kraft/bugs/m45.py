"""M45: an election from the ELR counts as unclean.

Members of the ELR have all that is committed. Whoever goes by what is told fears a loss where there is none; here the
leader also has to recover alone, and all others who were eligible are not any more.
"""

from __future__ import annotations

from collections.abc import Collection

from . import Bug


def not_from_the_isr(leader: int, isr: Collection[int], elr: Collection[int]) -> bool:
    return leader not in isr


BUG = Bug(
    id="M45",
    title="an election from the ELR is told as unclean",
    source="KAFKA-18940, KAFKA-19212",
    nemesis="last-replica-standing",
    properties=("UncleanRecovery",),
    module="kraft.controller.rules",
    rule="is_unclean_election",
    replacement=not_from_the_isr,
)
