"""M29: a replica whose broker is fenced or shutting down may join the ISR.

It still fetches, as leader and follower need no controller for that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import Bug

if TYPE_CHECKING:
    from ..metadata.image import BrokerRegistration


def any_state(replica_epoch: int, broker: BrokerRegistration | None) -> bool:
    return broker is not None and replica_epoch in (broker.epoch, -1)


BUG = Bug(
    id="M29",
    title="a fenced broker's replica may join the ISR",
    source="KAFKA-13916; mended by KIP-841 (151ca12, f83d95d)",
    nemesis="pause,partition",
    properties=("ValidControllerState",),
    module="kraft.metadata.rules",
    rule="may_be_in_isr",
    replacement=any_state,
)
