"""M60: a log is opened without its snapshot of producers, and read from the recovery point on.

The snapshot was closed without being forced to disk, so that after a crash there is none, or an empty one; what lies
below the recovery point tells nothing of producers any more. There are no such snapshots here: what is below the
recovery point is left out, unless the shutdown was clean. A producer that sends again what was not acknowledged is
unknown then, and its batch is new.
"""

from __future__ import annotations

from typing import Final

from . import Bug

#: Of a log whose shutdown was clean nothing is validated (cluster_image.storage.log.MAX_OFFSET).
_NOTHING: Final = (1 << 63) - 1


def from_the_recovery_point(first_offset: int, validated_from: int) -> int:
    return first_offset if validated_from == _NOTHING else max(first_offset, validated_from)


BUG = Bug(
    id="M60",
    title="what is known of producers is rebuilt from the recovery point on, and the rest is lost",
    source="KAFKA-9892 (fa93982), KAFKA-5829 (91517e8)",
    nemesis="power-outage,kill",
    properties=("ProducerState", "ProducerSequence", "log linearizability"),
    module="storage.rules",
    rule="rebuilds_producers_from",
    replacement=from_the_recovery_point,
    # So that a recovery point is past some batches: it is not believed within the newest segment.
    options="--producers idempotent --set log.segment.bytes=1024",
)
