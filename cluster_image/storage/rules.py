"""What a log remembers of idempotent producers: one function for each rule, called in one place.

`cluster_image/kraft/bugs/` replaces one of them at a time, so callers go through the module
(`rules.batches_remembered()`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from .records import BatchHeader

#: A producer may have this many batches under way (max.in.flight.requests.per.connection of an idempotent one).
REMEMBERED_BATCHES = 5


def batches_remembered() -> int:
    """How many of a producer's last batches? As many as it may have in flight, for it may send any of these again."""
    return REMEMBERED_BATCHES


def rebuilds_producers_from(first_offset: int, validated_from: int) -> int:
    """From which offset on do a log's batches tell of producers, as it is opened? From the first one, as nothing else
    does; even where they are believed to be whole, which they are below `validated_from`."""
    return first_offset


def check_replicated(known: Collection[int], headers: Sequence[BatchHeader]) -> None:
    """May a follower append what its leader has? Always, as far as producers go: the leader has looked at their
    numbers, and may have known more of them. known: the producers that this follower knows."""
