"""M31: a leader that is refused to write the ISR leads no longer, though what stands in its way is its own.

The answer to a write that was made can be lost. The repetition names a version that has passed by its own doing; who
gives up for that makes its partition do without a leader, each time that an answer is lost.
"""

from __future__ import annotations

from ..metadata.paths import Isr
from . import Bug


def never(found: Isr | None, isr: Isr) -> bool:
    return False


BUG = Bug(
    id="M31",
    title="the repetition of an ISR's write that was made is taken for the refusal of another leader's",
    source="KAFKA-14144 (62c2880)",
    nemesis="choreography:lost-answers",
    properties=("IsrOfLatestLeader",),
    module="v2.rules",
    rule="is_own_isr",
    replacement=never,
    # The leader writes the ISR while no answer comes, and keeps its session.
    options="--rate 10 --partitions 2 --set zookeeper.session.timeout.ms=6000 --set replica.lag.time.max.ms=1000",
)
