"""Logs on disk: segments, leader epochs, checkpoints, and recovery after a crash."""

from .checkpoints import CleanShutdownFile, OffsetCheckpoint
from .errors import (
    InvalidProducerEpoch,
    NonContiguousAppend,
    OffsetOutOfRange,
    OutOfOrderSequence,
    StorageError,
)
from .log import Log, LogConfig
from .producer_state import Duplicate, ProducerState

__all__ = [
    "CleanShutdownFile",
    "Duplicate",
    "InvalidProducerEpoch",
    "Log",
    "LogConfig",
    "NonContiguousAppend",
    "OffsetCheckpoint",
    "OffsetOutOfRange",
    "OutOfOrderSequence",
    "ProducerState",
    "StorageError",
]
