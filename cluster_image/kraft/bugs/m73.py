"""M73: of each producer only the last batch is remembered, and it may have five in flight.

When it sends the others again, the leader takes them for out of order, though they are in its log: the producer gives
them up, and whoever sends their records again as new has them twice.
"""

from __future__ import annotations

from . import Bug


def the_last_one() -> int:
    return 1


BUG = Bug(
    id="M73",
    title="fewer batches are remembered of a producer than it may have in flight",
    source="KAFKA-5494 (5d24222)",
    nemesis="kill,partition",
    properties=("ProducerState",),
    module="storage.rules",
    rule="batches_remembered",
    replacement=the_last_one,
    options="--producers idempotent",
)
