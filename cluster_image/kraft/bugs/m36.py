"""M36: eligible leader replicas stay on record beside an ISR of MinISR members.

The high watermark advances without them, and they are elected all the same.
"""

from __future__ import annotations

from . import Bug


def always_keep_elr(isr_size: int, min_isr: int, elr_enabled: bool) -> bool:
    return elr_enabled


BUG = Bug(
    id="M36",
    title="the ELR is not cleared when the ISR has MinISR members again",
    source="KIP-966; KAFKA-15581 (af747fb)",
    nemesis="kill,power-outage",
    properties=("ValidControllerIsrAndElr", "LeaderCandidateCompleteness"),
    module="kraft.controller.rules",
    rule="needs_elr",
    replacement=always_keep_elr,
)
