"""M40: unclean recovery elects a replica whose broker is not available.

A fenced broker is the leader then, in an ISR of its own, until it is fenced anew by its next registration.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import Bug

if TYPE_CHECKING:
    from ..metadata.image import BrokerRegistration


def whoever_it_is(broker: BrokerRegistration | None) -> bool:
    return broker is not None


BUG = Bug(
    id="M40",
    title="unclean recovery does not ask whether the elected broker is fenced",
    source="KAFKA-19522 (#20200): canElectLastKnownLeader",
    nemesis="choreography:best-log-is-gone",
    properties=("ValidControllerState",),
    module="kraft.controller.rules",
    rule="may_recover",
    replacement=whoever_it_is,
)
