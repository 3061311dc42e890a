"""What a partition remembers of idempotent producers, so that a retried batch is stored once (KIP-98, KIP-360)."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from typing import NamedTuple

from . import rules
from .errors import InvalidProducerEpoch, OutOfOrderSequence
from .records import BatchHeader


class Duplicate(NamedTuple):
    """The batch is in the log already, at these offsets."""

    base_offset: int
    last_offset: int


class Produced(NamedTuple):
    """A batch of an idempotent producer, and where it is."""

    producer_id: int
    epoch: int
    first_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int

    @staticmethod
    def of(header: BatchHeader) -> Produced | None:
        """None: its producer is not idempotent, or it is no producer's."""
        if header.producer_id < 0 or header.is_control:
            return None
        return Produced(
            header.producer_id, header.producer_epoch, header.base_sequence, header.last_sequence, header.base_offset,
            header.last_offset,
        )  # fmt: skip


class _Producer:
    def __init__(self) -> None:
        self.batches: deque[Produced] = deque(maxlen=rules.batches_remembered())
        self.forgot_some = False


class ProducerState:
    """The last five batches of each producer id. Follows the log: `update` with each batch appended, by a leader or
    a follower, and `truncate` with the log."""

    def __init__(self) -> None:
        self._producers: dict[int, _Producer] = {}

    def check(self, header: BatchHeader) -> Duplicate | None:
        """May a leader append this batch? None: yes. Duplicate: it has; answer with those offsets.

        Raises OutOfOrderSequence or InvalidProducerEpoch. A producer of whom nothing is known may start at any
        sequence number: its earlier batches may have been deleted with age (KIP-360).
        """
        producer = self._producers.get(header.producer_id) if header.producer_id >= 0 else None
        if producer is None:
            return None
        last = producer.batches[-1]
        if header.producer_epoch < last.epoch:
            raise InvalidProducerEpoch(
                f"producer {header.producer_id} has epoch {last.epoch}, the batch {header.producer_epoch}"
            )
        first, final = header.base_sequence, header.last_sequence
        if header.producer_epoch > last.epoch:
            expected = 0
        else:
            for batch in producer.batches:
                if (batch.epoch, batch.first_sequence, batch.last_sequence) == (last.epoch, first, final):
                    return Duplicate(batch.base_offset, batch.last_offset)
            expected = (last.last_sequence + 1) & 0x7FFFFFFF
        if first != expected:
            raise OutOfOrderSequence(f"producer {header.producer_id}: sequence {first} where {expected} is next")
        return None

    def update(self, header: BatchHeader) -> None:
        """Take note of a batch that is now in the log."""
        produced = Produced.of(header)
        if produced is None:
            return
        producer = self._producers.get(header.producer_id)
        if producer is None:
            producer = self._producers[header.producer_id] = _Producer()
        producer.forgot_some |= len(producer.batches) == producer.batches.maxlen
        producer.batches.append(produced)

    def truncate(self, end_offset: int) -> bool:
        """Forget batches at or past `end_offset`. False: a producer is left with fewer batches than the log still
        has of it, so the state must be rebuilt from the log."""
        complete = True
        for producer_id, producer in list(self._producers.items()):
            while producer.batches and producer.batches[-1].last_offset >= end_offset:
                producer.batches.pop()
                complete = complete and not producer.forgot_some
            if not producer.batches:
                del self._producers[producer_id]
        return complete

    def clear(self) -> None:
        self._producers.clear()

    @property
    def known(self) -> Collection[int]:
        """Ids of producers."""
        return self._producers.keys()

    def remembered(self) -> dict[int, list[Produced]]:
        """By producer id, the oldest first."""
        return {producer_id: list(producer.batches) for producer_id, producer in self._producers.items()}
