"""M47: a registration is carried out again when its retry, or a late copy, comes in.

The broker gets a new epoch and is fenced. If it was in the ISRs by then it leaves them, and it is not told: its next
heartbeat is of an epoch that the controller no longer knows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import Bug

if TYPE_CHECKING:
    from ..metadata.image import BrokerRegistration


def register_again(registration: BrokerRegistration | None, same_incarnation: bool) -> bool:
    return False


BUG = Bug(
    id="M47",
    title="a broker that registers again in the same incarnation gets another epoch and is fenced",
    source="KAFKA-16952 (2fd00ce), KAFKA-16757 (8ace33b)",
    nemesis="kill,partition,pause",
    properties=("ValidControllerState", "Liveness"),
    module="kraft.controller.rules",
    rule="is_registered",
    replacement=register_again,
)
