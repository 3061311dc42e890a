"""R01: a reassignment is cancelled, or replaced, whoever is in sync without the replicas that it has added.

These may be all that is left of the ISR: they are dropped with what only they have.
"""

from __future__ import annotations

from collections.abc import Sequence

from . import Bug


def always(candidates_dropped: Sequence[int], isr_size: int, min_isr: int) -> bool:
    return True


BUG = Bug(
    id="R01",
    title="a cancelled reassignment drops replicas that the ISR is not large enough without",
    source="KAFKA-14424",
    nemesis="membership:reassign:how=move,kill:storm,kill:one,power-outage",
    properties=("AdministratorAnswered", "ValidReplicas", "MinIsrRecoveryQuorum", "NoCommittedRecordLostGlobally"),
    module="kraft.controller.rules",
    rule="may_drop_replicas",
    replacement=always,
    options="--brokers 4 --set replica.lag.time.max.ms=500",
)
