"""M35: below MinISR, a follower that has reached the high watermark joins the ISR, however far behind it is.

The watermark stands still as long as the ISR is too small, so that to have reached it shows nothing. Who joins so
leaves the ISR again for its lag, joins again, and the watermark waits for it meanwhile.
"""

from __future__ import annotations

from . import Bug


def always(lags: bool, commits: bool) -> bool:
    return True


BUG = Bug(
    id="M35",
    title="below min.insync.replicas, a follower that lags is added to the ISR",
    source="KAFKA-19996",
    nemesis="kill,pause,partition",
    properties=("ProposedIsr",),
    module="kraft.broker.rules",
    rule="may_join_lagging",
    replacement=always,
)
