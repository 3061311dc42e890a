"""M76: a follower checks the sequence numbers of what it fetches.

It may know nothing of a producer of whom its leader does: what it had is deleted, or it has begun anew at the start of
its leader's log. Then the producer seems to begin in the middle, the follower refuses the batch, and fetches it again,
for ever.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from . import Bug

if TYPE_CHECKING:
    from cluster_image.storage.records import BatchHeader


def as_a_leader_does(known: Collection[int], headers: Sequence[BatchHeader]) -> None:
    from cluster_image.storage.errors import NonContiguousAppend  # as the fetcher takes it: it tries again

    seen = set(known)
    for header in headers:
        if header.producer_id >= 0 and header.producer_id not in seen and header.base_sequence != 0:
            raise NonContiguousAppend(
                f"producer {header.producer_id} is not known, and its batch at offset {header.base_offset} begins with "
                f"sequence number {header.base_sequence}"
            )
        seen.add(header.producer_id)


BUG = Bug(
    id="M76",
    title="a follower refuses batches of a producer that it does not know",
    source="KAFKA-6003 (6ea4fff)",
    nemesis="kill,partition",
    properties=("Liveness",),
    module="storage.rules",
    rule="check_replicated",
    replacement=as_a_leader_does,
    # So that logs lose their begin, and followers what they knew.
    options="--producers idempotent --delete-records 1s --set log.segment.bytes=1024",
)
