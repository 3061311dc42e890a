"""What storage refuses, and why. Damaged or forbidden batches are records.CorruptRecord and records.InvalidRecord."""

from __future__ import annotations


class OffsetOutOfRange(Exception):
    """An offset that the log does not hold: Kafka's OFFSET_OUT_OF_RANGE."""


class NonContiguousAppend(Exception):
    """A replicated batch that does not continue the log: its offset leaves a gap or overlaps, or its epoch is lower
    than the last one's."""


class StorageError(OSError):
    """Writing to a log failed, now or earlier; what it holds past its flushed offset is unknown until it is opened
    again. Kafka's KAFKA_STORAGE_ERROR."""


class OutOfOrderSequence(Exception):
    """An idempotent producer's batch does not follow its last one: Kafka's OUT_OF_ORDER_SEQUENCE_NUMBER."""


class InvalidProducerEpoch(Exception):
    """A batch of an older incarnation of its producer: Kafka's INVALID_PRODUCER_EPOCH."""
