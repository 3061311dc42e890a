"""M18: the high watermark is held back for whoever keeps up, also for a replica that may not join the ISR.

A broker that shuts down fetches until its end. When it has gone, producers wait for it until
replica.lag.time.max.ms is over.
"""

from __future__ import annotations

from . import Bug


def whoever_keeps_up(lags: bool, eligible: bool) -> bool:
    return not lags


BUG = Bug(
    id="M18",
    title="the high watermark waits for a replica that is fenced or shuts down",
    source="KAFKA-15021 (8ad0ed3)",
    nemesis="kill:term,membership:controlled-shutdown",
    properties=("WatermarkAdvances",),
    module="kraft.broker.rules",
    rule="waits_to_join_isr",
    replacement=whoever_keeps_up,
)
