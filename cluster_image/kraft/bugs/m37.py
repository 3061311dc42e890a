"""M37: a broker that comes back from an unclean shutdown stays eligible to lead.

Its disk may have lost what made it eligible.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import Bug

if TYPE_CHECKING:
    from ..metadata.image import BrokerRegistration


def never_unclean(registration: BrokerRegistration | None, previous_epoch: int) -> bool:
    return False


BUG = Bug(
    id="M37",
    title="an unclean registration does not take the broker out of ISR and ELR",
    source="KAFKA-15586 (376e9e2), KAFKA-18635",
    nemesis="power-outage,kill",
    properties=("LeaderCandidateCompleteness", "LeaderCompleteness", "log linearizability"),
    module="kraft.controller.rules",
    rule="is_unclean",
    replacement=never_unclean,
)
